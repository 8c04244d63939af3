"""JSON by the kernel and by msgspec: they may differ in speed only."""

from __future__ import annotations

import json
import random
from datetime import datetime
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streameval.events.words64 import PADDING
from streameval.sources.formats import json as slow
from streameval.sources.formats.decimals import READ, number
from streameval.sources.formats.iso_times import iso_ms
from streameval.sources.formats.json_text import value_end
from streameval.sources.formats.read_json import WantedOfJson, read
from streameval.sources.formats.scan_features import is_utf8
from streameval.sources.formats.times import parse_time
from tests.fuzz.laws import Form, check_json_kernel
from tests.fuzz.strategies import T0, bent, good_event, odd_events

GOOD = good_event(1)
WANTED = WantedOfJson(("country",), True, False, False, 1_000_000, True)


def hard(text: str) -> int:
    """How many rows of one message the kernel left to msgspec (those come with a message of their own)."""
    calls: list[int] = []
    original = slow.decode
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slow, "decode", lambda values, *more: (calls.append(len(values)), original(values, *more))[1])
        read([text.encode()], [0], WANTED)
    return sum(calls)


def both(*texts: str | bytes) -> None:
    values = [text.encode() if isinstance(text, str) else text for text in texts]
    for form in (Form(), Form(hashed=False), Form(names=True)):
        check_json_kernel(form, values, [0] * len(values))


def with_(**changes: Any) -> str:
    return json.dumps({**GOOD, **changes})


@pytest.mark.parametrize(
    "text",
    [
        with_(),
        with_(type=None, unknown={"a": [1, {"b": [None, True]}, "x"], "c": {}}, other=[[], {}], more=-1.5e-3),
        with_(ts="2026-03-01T07:05:00.25Z"),
        with_(clicked=1, shown=True, item_id="i", query_id="q", bid=0.5, propensity=1, policies={"v2": 0.25, "": 1}),
        with_(slices={"country": 3, "x": {"y": 1.5}}),
        with_(slices={"country": True}),
        with_(slices={}, predictions={}, features={}),
        json.dumps({"impression_id": "i", "ts": T0, "value": 12.5}, indent=2),
    ],
)
def test_plain_json_is_read_by_the_kernel_with_the_same_result(text: str) -> None:
    assert hard(text) == 0
    both(text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"pclick"', '"pcl\\u0069ck"'),  # a key that an escape spells
        ('"pclick": 0.25', '"pclick": 0.25, "pclick": 0.5'),
        ('"country": "de"', '"country": "de", "country": "fr"'),
        ('"country": "de"', '"country": 1.5'),
        ('"v2": 0.5', '"v2": 0.5, "v2": 0.25'),
        ("0.25", "0.1000000000000000055511"),
        ("0.25", "-0"),
        ("0.25", "1e-320"),
        ("0.25", "01"),
        ("0.25", "+1"),
        ("0.25", ".5"),
        ("0.25", "1."),
        ("0.25", "2"),
        ("0.25", "NaN"),
        ('"user_id": "u1"', '"user_id": 1'),
        ('"user_id": "u1"', '"user_id": "\\ud800"'),
        ('"position": 1', '"position": 1.0'),
        (str(T0 + 1), "1.7e12"),
        (str(T0 + 1), str(T0 + 1) + "000000000"),
        (str(T0 + 1), '"2026-03-01T24:00:00Z"'),
        ('"age": 3', '"age": {"a": 1}'),
        ("}}", "}}}"),
        ("}}", "}},"),
        ("}}", "}"),
        ('{"type"', '[{"type"'),
    ],
)
def test_unusual_json_is_left_to_msgspec(old: str, new: str) -> None:
    text = with_()
    assert old in text
    bad = text.replace(old, new, 1)
    assert hard(bad) == 1
    both(bad)
    both(text, bad, text.replace("good-1", "good-2"))


ONE, TWO = with_(), with_(impression_id="good-2")


@pytest.mark.parametrize(
    "text", ["[]", " [ ] ", f"[{ONE}]", f" [ {ONE} ,\n{TWO}\t] ", f"[{','.join([ONE, TWO] * 40)}]"]
)
def test_arrays_of_plain_events_are_read_by_the_kernel(text: str) -> None:
    assert hard(text) == 0
    both(text)
    both(ONE, text, "", text, TWO)


@pytest.mark.parametrize(
    "text",
    [
        "[", "[]]", "[,]", f"[{ONE}", f"[{ONE},]", f"[{ONE}]x", f"[{ONE} {TWO}]", f"[,{ONE}]", "[1]", '["a", null]', f"[[{ONE}]]",
        f"[{ONE}, {with_(pclick=2)}]", f"[{with_(impression_id=chr(34))}, {TWO}]", f"[{ONE}, {{}}]", f"[{ONE}, {{]",
        "[" * 80 + "]" * 80, f"[{ONE}, {TWO.replace('u1', chr(0xd800))}]".encode("utf-8", "surrogatepass").decode("latin-1"),
    ],
)  # fmt: skip
def test_arrays_with_anything_else_are_left_to_msgspec(text: str) -> None:
    both(text)
    both(ONE, text, f"[{TWO}]")
    both(f"[{TWO}, {ONE}]", text, text, ONE)


def test_an_array_of_too_many_is_refused_by_either() -> None:
    short = WANTED._replace(max_message=64)
    for count in (4, 5):
        text = f"[{','.join(['{}'] * count)}]".encode()
        for wanted in (short, short._replace(kernel=False)):
            found = read([text], [0], wanted)
            assert (len(found.message), "elements" in str(found.raw.problems)) == (
                (4, False) if count == 4 else (1, True)
            )


@pytest.mark.parametrize("kernel", [True, False])
def test_an_element_can_be_had_by_itself(kernel: bool) -> None:
    bad = with_(impression_id='"')
    texts = [ONE, f"[{ONE}, {TWO}]", f"[{bad},{ONE}]", "[]", f"[ {TWO} ]"]
    found = read([text.encode() for text in texts], [0] * len(texts), WANTED._replace(kernel=kernel))
    assert found.message.tolist() == [0, 1, 1, 2, 2, 4]
    own = [found.element(row) for row in range(6)]
    assert own == [None, *(text.encode() for text in (ONE, TWO, bad, ONE, TWO))]


def test_a_message_that_is_no_utf8_takes_only_those_with_it_that_have_other_letters_out_of_the_kernel() -> None:
    text, other = with_().encode(), with_(user_id="żółw").encode()
    both(text, b"\xff" + text, json.dumps({**GOOD, "user_id": "żółw"}, ensure_ascii=False).encode(), other)
    both(text.replace(b"u1", b"\xed\xa0\x80"), text)
    both(text[:-20] + b"\xc3", b"\xa9" + text)  # halves of a letter in two messages


def test_words_of_all_columns_keep_their_own_codes_and_their_order_of_appearance() -> None:
    rng = random.Random(5)
    names = [f"n{k}" for k in range(40)]
    both(
        *(
            with_(
                impression_id=f"i{k}",
                model=rng.choice(names),
                model_version=rng.choice(names),
                slices={"country": rng.choice(names)},
                predictions={rng.choice(names): 0.5},
            )
            for k in range(300)
        )
    )


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(odd_events(), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_odd_events_written_in_any_way_come_to_the_same(events: list[dict[str, Any]], rng: random.Random) -> None:
    ways = (
        lambda event: json.dumps(event, indent=rng.choice([None, 0, 3])).encode(),
        lambda event: json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"),
        lambda event: json.dumps(dict(rng.sample(list(event.items()), len(event)))).encode(),
    )
    both(*(rng.choice(ways)(event) for event in events))


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        bent(json.dumps(GOOD).encode(), json.dumps({**GOOD, "ts": "2026-01-01T00:00:00Z"}).encode()),
        min_size=1,
        max_size=3,
    )
)
def test_bent_messages_come_to_the_same(values: list[bytes]) -> None:
    both(*values, json.dumps(GOOD))


# -- numbers and times ------------------------------------------------------------------------------------------------


def numbers(rng: random.Random, n: int) -> list[str]:
    """As they are written, and such that stand half-way between two doubles."""
    out = []
    for k in range(n):
        kind = k % 6
        if kind == 0:
            out.append(repr(rng.random() * 0.1))
        elif kind == 1:
            out.append(repr(abs(float(np.frombuffer(rng.randbytes(8), np.float64)[0]))))
        elif kind == 2:
            out.append(f"{rng.getrandbits(rng.randint(1, 63))}e{rng.randint(-330, 330)}")
        elif kind == 3:
            out.append(f"-{rng.getrandbits(rng.randint(1, 53))}.{rng.getrandbits(10)}")
        elif kind == 4:
            half = 2 * (rng.getrandbits(53) | 1 << 52) + 1
            out.append(f"{half}{rng.choice(['', '.0', f'e{rng.randint(-4, 23)}'])}")
        else:
            out.append(f"0.{'0' * rng.randint(0, 20)}{rng.getrandbits(60)}")
    return [text for text in out if text not in ("inf", "nan")]


def test_a_number_is_the_double_that_python_reads() -> None:
    texts = [
        *numbers(random.Random(1), 60_000),
        "0.1",
        "-0.0",
        "0e5",
        "1E5",
        "1e23",
        "9007199254740993",
        "1.7976931348623157e308",
    ]
    read_here = 0
    for text in texts:
        data = np.frombuffer(text.encode(), np.uint8)
        begin = data.ctypes.data
        outcome, end, value = number(begin, begin + data.size)
        if outcome == READ:
            read_here += 1
            assert end == begin + data.size
            assert (repr(value), text) == (repr(float(text)), text)
    assert read_here > 0.9 * len(texts)


@pytest.mark.parametrize(
    "text", ["", "-", "01", "+1", ".5", "1.", "1e", "1e+", "-01", "0x1", "1e400", "12345678901234567890", "-0"]
)
def test_text_that_is_not_certainly_a_number_is_not_read(text: str) -> None:
    data = np.frombuffer((text + " ").encode(), np.uint8)
    begin = data.ctypes.data
    outcome, end, _ = number(begin, begin + data.size - 1)
    assert outcome != READ or end < begin + len(text)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(
    st.datetimes(),
    st.sampled_from(["", "Z", "+00:00", "-23:59", "+05:30", "+0530", "z", " Z", "+24:00"]),
    st.sampled_from(["seconds", "milliseconds", "microseconds", "minutes"]),
    st.sampled_from(["T", " "]),
)
@example(datetime(2024, 2, 29, 23, 59, 59, 999999), "Z", "microseconds", "T")
def test_a_time_is_that_of_the_slow_reader(when: datetime, zone: str, spec: str, separator: str) -> None:
    for text in (
        when.isoformat(separator, spec) + zone,
        (when.isoformat(separator, spec) + zone).replace("000", "0", 1),
    ):
        data = np.frombuffer(text.encode(), np.uint8)
        good, ms = iso_ms(data.ctypes.data, data.ctypes.data + data.size)
        if good:
            assert ms == parse_time(text)
        elif zone in ("", "Z") and spec != "minutes" and separator == "T" and when.year >= 1970:
            assert parse_time(text) is None or "." in text


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-5, 10**6) | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    ),
    st.integers(0, 40),
    st.sampled_from(["", ",", "]", "}", ":", "1", '"']),
)
def test_a_value_that_is_passed_over_is_one(value: Any, cut: int, more: str) -> None:
    text = msgspec.json.encode(value)
    mangled = text[:cut] + more.encode() + text[cut:]
    data = np.frombuffer(mangled + PADDING, np.uint8)
    begin = data.ctypes.data
    end = value_end(begin, begin + len(mangled), not is_utf8(mangled))
    if end == begin + len(mangled):
        msgspec.json.decode(mangled)  # raises when it is no JSON
    elif is_utf8(mangled) and b"\\" not in mangled and not any(c < 32 for c in mangled):
        with pytest.raises(msgspec.DecodeError):
            msgspec.json.decode(mangled)
