"""The byte scanner of features against the plain reading of the same JSON."""

from __future__ import annotations

import contextlib
import json

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streameval.sources.formats.features import from_objects
from streameval.sources.formats.scan_features import from_bytes

text = st.text(max_size=12) | st.sampled_from(["", "a", "é", "日本", "=", "a=b", "\\", '"', "\n", "\x7f", "x" * 600])
number = st.integers(-(2**62), 2**62) | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [0, -0.0, 0.1, 1e-320, 1e22, 1e23, 123456789012345678, 9007199254740993, 5e-324, 1.7976931348623157e308]
)  # fmt: skip
plain = text | number | st.booleans() | st.none() | st.lists(text, max_size=4)
odd = st.lists(number, min_size=1, max_size=2) | st.dictionaries(text, number, max_size=2)
features = st.dictionaries(text, plain | odd, max_size=6)


def encodings(value: object) -> list[bytes]:
    return [
        msgspec.json.encode(value),
        json.dumps(value).encode(),
        json.dumps(value, ensure_ascii=False, indent=1).encode("utf-8", "surrogatepass"),
    ]


def slow(row: bytes) -> tuple[list[tuple[int, float]] | None, bool]:
    """(the entries in order, or None when the row is refused; whether there are features)."""
    if row.strip() in (b"", b"null"):
        return [], False
    try:
        found = msgspec.json.decode(row)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None, True
    if not isinstance(found, dict):
        return None, True
    made, wrong = from_objects([found], False)
    return (None if wrong else list(zip(made.index.tolist(), made.value.tolist(), strict=True))), True


def agree(rows: list[bytes]) -> None:
    made, has, wrong = from_bytes(rows)
    assert made.indptr.tolist()[0] == 0
    assert made.indptr[-1] == made.index.size == made.value.size
    for i, row in enumerate(rows):
        entries, present = slow(row)
        assert has[i] == present
        assert (i in wrong) == (entries is None), row
        if entries is not None:
            span = slice(int(made.indptr[i]), int(made.indptr[i + 1]))
            assert list(zip(made.index[span].tolist(), made.value[span].tolist(), strict=True)) == entries
    again, *rest = from_bytes(rows, kernel=False)
    assert (rest[0].tolist(), rest[1]) == (has.tolist(), wrong)
    for before, without in ((made.indptr, again.indptr), (made.index, again.index), (made.value, again.value)):
        assert (before.dtype, before.tobytes()) == (without.dtype, without.tobytes())


@settings(max_examples=300, deadline=None)
@given(st.lists(features, max_size=5), st.integers(0, 2))
@example([{"a": "x" * 600}], 0)
@example([{f"n{k}": k for k in range(300)}], 0)
@pytest.mark.slow
def test_the_scanner_reads_what_the_slow_way_reads(rows: list[dict[str, object]], form: int) -> None:
    with contextlib.suppress(UnicodeEncodeError):  # a lone surrogate: not every encoding can write it
        agree([encodings(row)[form] for row in rows])


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(features, st.data())
def test_rows_cut_or_changed_anywhere_are_judged_as_the_slow_way_judges_them(row: dict, data: st.DataObject) -> None:
    whole = encodings(row)[1]
    at = data.draw(st.integers(0, len(whole)))
    byte = data.draw(st.sampled_from(list(b'{}[],:"\\0129.eE+-tfn \t\x00\x80\xc3\xff')))
    changed = data.draw(
        st.sampled_from(
            [whole[:at], whole[:at] + bytes([byte]) + whole[at:], whole[:at] + bytes([byte]) + whole[at + 1 :]]
        )
    )
    agree([whole, changed, whole])


@pytest.mark.parametrize(
    "row",
    [
        b"", b"null", b" null ", b"{}", b" { } ", b'{"a":1}', b'{"a":01}', b'{"a":1.}', b'{"a":.5}', b'{"a":-}', b'{"a":+1}',
        b'{"a":1e400}', b'{"a":-1e400}', b'{"a":NaN}', b'{"a":Infinity}', b'{"a":1,"a":2}', b'{"a":1,}', b'{"a" 1}',
        b'{"a":1}x', b'{"a":"\\u0041"}', b'{"a":"\xff"}', b'{"a":["x",]}', b'{"a":[]}', b'{"a":["x",1]}', b'{"a":[["x"]]}',
        b'{"a":{"b":1}}', b"[1]", b'"x"', b"3", b"true", b"nul", b'{"a":tru}', b'{"a":true}', b'{"a":null}', b'{"a":"b',
        b'{"":""}', b'{"a":1e5}', b'{"a":1E-5}', b'{"a":-0}', b'{"a":-0.0}', b'{"a":123456789012345678901234567890}',
    ],
)  # fmt: skip
def test_each_odd_row_alone_and_between_good_ones(row: bytes) -> None:
    agree([row])
    agree([b'{"x":"1"}', row, b'{"y":2.5,"z":["p","q"]}'])
