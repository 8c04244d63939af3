"""What the decoders are fed: good events, adversarial values of every field, and bytes bent out of shape."""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import strategies as st

from streameval.events.fields import FIELDS, Field

NOW = 1_800_000_000_000
T0 = 1_700_000_000_000

names = st.sampled_from(["a", "b", "ä", "日本", "x" * 40, "a=b", "\u2028", "0"])
_texts = st.one_of(names, st.text(max_size=12), st.sampled_from(["", " ", "\x00", "null", "NaN", "1", "a" * 3000]))
_numbers = st.one_of(
    st.sampled_from(
        [0, 1, -1, 2, 0.5, -0.0, 1e-320, 1e308, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64, 10**40, T0]
    ),
    st.floats(),
    st.integers(),
)
_anything = st.recursive(
    st.one_of(st.none(), st.booleans(), _numbers, _texts),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_texts, inner, max_size=4)),
    max_leaves=8,
)
_times = st.one_of(
    st.integers(0, NOW),
    st.sampled_from(
        ["2024-05-01T12:00:00Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59.999999", "2024-W01-1", "", "now"]
    ),
    st.sampled_from([-1, NOW + 1, NOW + 3_600_000, NOW + 3_600_001, 2**62, 2**63 - 1, 2**63, -(2**63), T0 + 0.5]),
)
_MEANT: dict[str, st.SearchStrategy[Any]] = {  # by the type of the field
    "text": _texts,
    "time": _times,
    "label": st.one_of(st.booleans(), st.integers(-1, 2)),
    "integer": st.integers(0, 100),
    "values": st.dictionaries(st.sampled_from(["country", "x"]), _anything, max_size=2),
    "numbers": st.dictionaries(_texts, st.floats(0, 1), max_size=3),
    "features": st.dictionaries(_texts, _anything, max_size=5),
}


def _meant(field: Field) -> st.SearchStrategy[Any]:
    if field.type == "number":
        return st.floats(*(bound if math.isfinite(bound) else None for bound in (field.low, field.high)))
    return st.sampled_from(["impression", "click", "view"]) if field.name == "type" else _MEANT[field.type]


def _any_value(name: str) -> st.SearchStrategy[Any]:
    """What a field may hold when somebody means harm."""
    return st.one_of(_meant(FIELDS[name]), _anything) if name in FIELDS else _anything


def good_event(number: int, click: bool = False) -> dict[str, Any]:
    """An event that every decoder must take, whatever stands around it."""
    if click:
        return {"type": "click", "impression_id": f"good-{number}", "ts": T0 + number, "user_id": "u"}
    return {
        "type": "impression", "impression_id": f"good-{number}", "ts": T0 + number, "user_id": f"u{number % 3}",
        "pclick": 0.25, "model_version": "v1", "request_id": "r", "position": number % 5, "slices": {"country": "de"},
        "features": {"age": 3, "city": "rom", "new": True, "tags": ["a", "b"]}, "predictions": {"v2": 0.5},
    }  # fmt: skip


good_events = st.builds(good_event, st.integers(0, 1000), st.booleans())


@st.composite
def odd_events(draw: st.DrawFn) -> dict[str, Any]:
    """A good event with some fields changed for anything, or taken away."""
    event = dict(draw(good_events))
    for name in draw(st.lists(st.sampled_from([*FIELDS, "unknown"]), max_size=4, unique=True)):
        if draw(st.integers(0, 9)) == 0:
            event.pop(name, None)
        else:
            event[name] = draw(_any_value(name))
    return event


def as_json(value: Any) -> bytes:
    """JSON as Python writes it: NaN, Infinity and lone surrogates are written, as careless producers do."""
    return json.dumps(value).encode()


_TOKENS = [
    b"{", b"}", b"[", b"]", b'"', b"\\", b",", b":", b"null", b"true", b"NaN", b"-", b"1e999", b"9" * 400, b"\\ud800",
    b"\\u0000", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\n", b"\r\n", b"\x00", b'"ts":1,', b'"pclick":"x",',
    b'"features":{"a":{"b":1}},', b"[" * 1500, b'{"a":' * 1500, b"\x00" * 64, b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff",
    b"ARROW1", b"PAR1",
]  # fmt: skip


@st.composite
def bent(draw: st.DrawFn, base: bytes, other: bytes = b"") -> bytes:
    """`base` with one to four accidents: bits flipped, cut short, spliced, doubled, tokens thrown in."""
    data = bytearray(base)
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["flip", "byte", "cut", "behead", "splice", "double", "token", "drop", "word"]))
        at = draw(st.integers(0, len(data)))
        until = min(len(data), at + draw(st.integers(0, 40)))
        if kind == "flip" and at < len(data):
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "byte" and at < len(data):
            data[at] = draw(st.integers(0, 255))
        elif kind == "word" and at + 8 <= len(data):  # a length or an offset becomes huge, or negative
            value = draw(st.sampled_from([0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**64 - 1]))
            data[at : at + 8] = value.to_bytes(8, "little")
        elif kind == "cut":
            del data[at:]
        elif kind == "behead":
            del data[:at]
        elif kind == "splice":
            data[at:] = other[draw(st.integers(0, len(other))) :]
        elif kind == "double":
            data[at:at] = data[at:until]
        elif kind == "token":
            data[at:at] = draw(st.sampled_from(_TOKENS))
        elif kind == "drop":
            del data[at:until]
    return bytes(data)


@st.composite
def json_messages(draw: st.DrawFn) -> list[bytes | None]:
    """Messages of one poll: objects, arrays of objects, and what is neither."""
    out: list[bytes | None] = []
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.integers(0, 9))
        if kind == 0:
            out.append(draw(st.sampled_from([None, b"", b" ", b"[]", b"{}", b"[[]]", b"null", b"\xef\xbb\xbf{}"])))
        elif kind == 1:
            out.append(draw(st.binary(max_size=60)))
        elif kind <= 3:
            out.append(as_json(draw(good_events)))
        elif kind <= 5:
            out.append(as_json(draw(odd_events())))
        elif kind <= 7:
            out.append(draw(bent(as_json(draw(good_events)), as_json(draw(odd_events())))))
        else:
            elements = draw(st.lists(st.one_of(good_events, odd_events(), _anything), max_size=4))
            whole = as_json(elements)
            out.append(whole if draw(st.booleans()) else draw(bent(whole, whole)))
    return out
