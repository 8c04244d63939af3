"""Mapped JSON lines by the kernels and by Arrow: they may differ in speed only."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streameval.sources.formats import lines as json_lines
from streameval.sources.formats import mapped_lines
from tests.fuzz.laws import Form, check_file_kernel, given_by
from tests.fuzz.strategies import T0, bent

FORMS = (Form(), Form(hashed=False), Form(names=True))
GOOD: dict[str, Any] = {
    "kind": "impression", "id": "i1", "at": T0, "uid": "u1", "query": "r", "item": 17, "v": "v1", "p": 0.25, "y": None, "rank": 3,
    "w": 0.5, "geo": "de", "score": 0.5, "other": None, "age": 41, "city": "rom", "mobile": True, "else": {"a": [1, {"b": "x"}]},
}  # fmt: skip
NAMES = list(GOOD)
WHOLE: dict[str, Any] = {
    "type": "kind", "impression_id": "id", "ts": "at", "user_id": "uid", "request_id": "query", "item_id": "item",
    "model_version": "v", "pclick": "p", "clicked": "y", "position": "rank", "propensity": "w", "slices": {"country": "geo"},
    "predictions": {"v2": "score", "v3": "other"}, "features": ["age", "city", "mobile"],
}  # fmt: skip
MADE: dict[str, Any] = {
    "impression_id": {"join": ["id", "item"], "separator": ":"}, "ts": {"column": "at", "unit": "ms"}, "user_id": {"column": "uid"},
    "model": {"constant": "m"}, "pclick": "p", "type": "kind", "slices": {"country": "mobile"}, "clicked": "mobile",
    "predictions": {"v2": {"constant": 0.5}, "v3": "other"},
    "features": {"columns": ["*"], "exclude": ["else", "id"], "numeric": ["c*"], "text": ["a*", "mob*"]},
}  # fmt: skip
NUMBERED: dict[str, Any] = {
    "impression_id": {"row": True}, "ts": {"row": True}, "user_id": "uid", "pclick": "p", "features": ["el*", "w"],
}  # fmt: skip
MAPPINGS = (WHOLE, MADE, NUMBERED)


def lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def both(data: bytes, max_events: int = 3) -> None:
    for form in FORMS:
        for mapping in MAPPINGS:
            check_file_kernel(form, data, ".jsonl", mapping, max_events)


def few_and_many(data: bytes, turn: int) -> None:
    """Small batches, whose neighbours are few, in one form a mapping, which differs with `turn`; a single batch in the others."""
    for (k, form), (j, mapping) in product(enumerate(FORMS), enumerate(MAPPINGS)):
        check_file_kernel(form, data, ".jsonl", mapping, 1_000 if (k + j + turn) % 3 else 3)


TEXTS = [
    "-0.0", "-0", "1e-320", "0.10000000000000001", "1E5", "01", "+1", ".5", "1.", "0x1F", "1e400", "nan", "inf", "1_0", " 1", "true",
    "True", "false", "2", "12345678901234567890", "9223372036854775808", "2024-05-01", "2024-05-01T12:00:00.25+02:00", str(T0), f" {T0}",
    "", " ", "\t", "\xa0", "\u3000", "\x00", "\u180e", "日本", "\ufeff", '"', "a\\b", "a\nb", "click", "x" * 3000, "null",
]  # fmt: skip
VALUES = [
    None, True, False, 0, 1, -1, 2, 0.0, -0.0, 1.0, 0.5, -0.5, 1e-320, 5e-324, 1e300, T0, T0 + 0.5, 10**15, 10**15 - 1, 2**53 + 1, 10**18 - 1,
    10**18, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**30, [], ["a"], ["a", "b"], [1], {}, {"a": 1}, *TEXTS,
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_whatever_a_value_is_it_comes_to_the_same(name: str) -> None:
    for k, value in enumerate(VALUES):
        rows = lines([GOOD, {**GOOD, name: value}, {**GOOD, "id": "i2"}])
        check_file_kernel(FORMS[k % 3], rows, ".jsonl", MAPPINGS[k % 2])
    few_and_many(lines([{**GOOD, "id": f"i{k}", name: value} for k, value in enumerate(TEXTS)]), NAMES.index(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_column_of_one_value_comes_to_the_same(name: str) -> None:
    for k, value in enumerate(VALUES):
        form, mapping = ((FORMS[0], WHOLE), (FORMS[2], MADE))[k % 2]
        check_file_kernel(form, lines([{**GOOD, name: value}] * 3), ".jsonl", mapping)


PLAIN = lines([GOOD, {**GOOD, "id": "i2"}, {**GOOD, "id": "i3"}])


@pytest.mark.parametrize(
    "data",
    [
        PLAIN,
        b"\xef\xbb\xbf" + PLAIN,
        PLAIN.replace(b"\n", b"\r\n"),
        PLAIN.replace(b": ", b" :\t").replace(b", ", b" , "),
        PLAIN.replace(b", ", b",").replace(b": ", b":"),
        PLAIN.replace(b"i2", b"\xff"),
        PLAIN.replace(b"i2", "日本".encode()) + b'{"id": "\xff"}\n',
        PLAIN.replace(b'"i2"', b'"\\ud800"'),
        PLAIN.replace(b'"i2"', b'"\\u0069\\n2"'),
        PLAIN.replace(b'"uid"', b'"u\\u0069d"', 1),
        PLAIN.replace(b'"uid"', b'"uid": "twice", "uid"', 1),
        PLAIN.replace(b'"uid"', b'"uid": 1, "uid"', 1),
        PLAIN.replace(b'"uid"', b'"kind"', 1),
        PLAIN.replace(b'"uid"', b'""'),
        PLAIN.replace(b'"uid"', b'"UID"'),
        PLAIN.replace(b'"uid"', b'"uid2"', 1),
        PLAIN.replace(b'"age": 41', b'"age": -0', 1),
        PLAIN.replace(b'"age": 41', b'"age": 041', 1),
        PLAIN.replace(b'"age": 41', b'"age": 1e400', 1),
        PLAIN.replace(b'"age": 41', b'"age": nul', 1),
        PLAIN.replace(b'"age": 41', b'"age": truey', 1),
        PLAIN.replace(b'"age": 41', b'"age": 4 1', 1),
        PLAIN.replace(b'"age": 41', b'"age"', 1),
        PLAIN.replace(b'"age": 41', b'"new": 1, "age": 41', 1),
        PLAIN.replace(b'"age": 41', b'"new\\n": 1, "age": 41', 1),
        PLAIN.replace(b'"age": 41', b'"elves": "\\n", "elk": 5, "age": 41', 1) + PLAIN.replace(b"else", b"elder"),
        PLAIN.replace(b"}}\n", b"},}\n", 1),
        PLAIN.replace(b"}}\n", b"}} x\n", 1),
        PLAIN.replace(b"}}\n", b"}\n", 1),
        PLAIN.replace(b"}}\n", b"}}  \n", 1),
        PLAIN + b'[]\n{}\n"x"\nnull\n{"a"\n \n' + PLAIN,
        PLAIN[: -len(PLAIN) // 3] + b"\n" + lines([{"id": "few", "at": T0}]),
        PLAIN + lines([{f"el{k}": k for k in range(300)}]) + PLAIN,
        PLAIN + lines([{**GOOD, "deep": json.loads("[" * 70 + "]" * 70)}]),
        b"{}\n",
        b"[]\n",
        b'{"a": {}}\n' * 4 + PLAIN,
        b"{}\n" * 4 + PLAIN,
    ],
)
@pytest.mark.parametrize("max_events", [3, 100])
def test_however_lines_are_written_they_come_to_the_same(data: bytes, max_events: int) -> None:
    both(data, max_events)


def test_a_column_that_no_line_has_is_an_error_even_if_nobody_reads_its_slices() -> None:
    mapping = {**WHOLE, "slices": {"country": "geo", "device": "not there"}}
    check_file_kernel(FORMS[0], PLAIN, ".jsonl", mapping)
    check_file_kernel(FORMS[0], b"id,at,uid\ni,1,u\n", ".csv", {**NUMBERED, "slices": mapping["slices"]})


@pytest.mark.parametrize("kernel", [True, False])
def test_an_object_without_any_field_is_a_dead_letter_even_alone_in_its_batch(tmp_path: Any, kernel: bool) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(PLAIN + b"[]\n{}\n[]\n")
    _, _, letters, _ = given_by(Form(json_kernel=kernel), str(path), WHOLE, 3)
    assert [(letter.reason, letter.value) for letter in letters] == [
        ("wrong_type", b"[]"), ("wrong_type", b"[]"), ("missing_field", b"{}"),
    ]  # fmt: skip


def test_lines_that_nothing_is_wrong_with_become_no_objects(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(json_lines, "objects", None)
    monkeypatch.setattr(mapped_lines, "object_of", None)
    path = tmp_path / "t.jsonl"
    path.write_bytes(PLAIN)
    for mapping in (WHOLE, {**MADE, "predictions": {}, "features": {"columns": ["*"], "exclude": ["el*"]}}):
        _, batches, letters, error = given_by(Form(), str(path), mapping, 10)
        assert (sum(map(len, batches)), letters, error) == (3, [], "")


def test_a_line_with_an_escape_is_the_only_one_that_becomes_an_object(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(json_lines, "objects", None)
    path, read = tmp_path / "t.jsonl", []
    object_of = mapped_lines.object_of
    monkeypatch.setattr(mapped_lines, "object_of", lambda text: read.append(text) or object_of(text))
    path.write_bytes(PLAIN.replace(b'"i2"', b'"\\u0069"'))
    _, batches, letters, error = given_by(Form(), str(path), WHOLE, 10)
    assert (sum(map(len, batches)), letters, error, len(read)) == (3, [], "", 1)


_values = st.one_of(
    st.sampled_from(VALUES), st.text(max_size=5), st.floats(allow_nan=False, allow_infinity=False), st.integers()
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.dictionaries(st.sampled_from([*NAMES, "elm"]), _values, max_size=5), min_size=1, max_size=6),
    st.booleans(),
    st.booleans(),
    st.sampled_from(MAPPINGS),
    st.sampled_from(FORMS),
)
def test_lines_of_anything_come_to_the_same(
    changes: list[dict[str, Any]], alike: bool, escaped: bool, mapping: dict[str, Any], form: Form
) -> None:
    rows = [{**GOOD, **(changes[0] if alike else change)} for change in changes]
    data = "".join(json.dumps(row, ensure_ascii=escaped) + "\n" for row in rows).encode("utf-8", "surrogatepass")
    check_file_kernel(form, data, ".jsonl", mapping)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(bent(PLAIN, lines([GOOD, {**GOOD, "p": 1}])), st.sampled_from(MAPPINGS), st.sampled_from(FORMS))
@example(b'{"id": "i", "at": 1, "uid": "u", "p": 0.5, "p": "x"}\n', NUMBERED, FORMS[2])
def test_bent_lines_come_to_the_same(data: bytes, mapping: dict[str, Any], form: Form) -> None:
    if data:
        check_file_kernel(form, data, ".jsonl", mapping)
