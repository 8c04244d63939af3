"""Protobuf messages that are whole, and still cannot be read: each is a letter of its own, and harms no other."""

from __future__ import annotations

import random
from typing import Any

import pytest

from streameval.sources.formats import protobuf
from streameval.sources.formats.framed import Framed, Schema
from tests.sources.formats.test_avro import Known, decoded

PROTO2 = """syntax = "proto2";
import "google/protobuf/timestamp.proto";
message Event {
  required string impression_id = 1;
  optional google.protobuf.Timestamp ts = 2;
  optional double pclick = 3;
  optional string model = 4;
  map<string, string> slices = 5;
  required string user_id = 6;
}
"""


def varint(n: int) -> bytes:
    n &= (1 << 64) - 1
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes([*out, n])


def event(number: int, seconds: int = 1_700_000_000, model: bytes = b"m", slices: bytes = b"de") -> bytes:
    time = b"\x08" + varint(seconds)
    entry = b"\x0a\x07country" + b"\x12" + varint(len(slices)) + slices
    parts = (
        b"\x0a" + varint(len(b"i%d" % number)) + b"i%d" % number,
        b"\x12" + varint(len(time)) + time,
        b"\x19" + bytes(6) + b"\xe0\x3f",  # 0.5
        b"\x22" + varint(len(model)) + model,
        b"\x2a" + varint(len(entry)) + entry,
        b"\x32\x01u",
    )
    return b"\0\0\0\0\7\0" + b"".join(parts)


def own() -> Any:
    return Framed(Known({7: Schema(7, PROTO2, {}, "PROTOBUF")}), protobuf.reader, {}).to_raw


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (event(9, seconds=(1 << 63) - 1), "out_of_range"),
        (event(9, seconds=-(1 << 63)), "out_of_range"),
        (event(9, seconds=1 << 53), "out_of_range"),
        (event(9, model=b"\xff\xfe"), "malformed"),
        (event(9, slices=b"\xff\xfe"), "malformed"),
    ],
)
def test_one_that_cannot_be_read_harms_no_other(bad: bytes, reason: str) -> None:
    """A time that no clock has, and a text that is none, ended the monitor."""
    values = [event(n) for n in range(20)]
    alone, none = decoded([*values], own())
    assert (len(alone.impressions), none) == (20, [])
    batch, letters = decoded([*values[:7], bad, *values[7:]], own())
    assert [(letter.offset, letter.reason) for letter in letters] == [(7, reason)], letters
    assert batch.impressions.id.tolist() == alone.impressions.id.tolist()


@pytest.mark.parametrize("first", [0, 1, 10, 19])
def test_a_message_of_another_type_of_its_schema_is_one_dead_letter(first: int) -> None:
    """What came first was the type of them all: one wrong byte, and a whole batch was refused."""
    two = PROTO2 + "message Other { optional int32 n = 1; }"
    own = Framed(Known({7: Schema(7, two, {}, "PROTOBUF")}), protobuf.reader, {}).to_raw
    values = [event(n) for n in range(20)]
    values[first] = b"\0\0\0\0\7\2\2" + b"\x08\x05"  # one index, 1
    batch, letters = decoded([*values], own)
    assert [(letter.offset, letter.reason) for letter in letters] == [(first, "wrong_schema")], letters
    assert len(batch.impressions) == 19


@pytest.mark.slow
def test_whatever_bytes_come_each_message_is_an_event_or_a_letter() -> None:
    luck = random.Random(5)
    for _ in range(150):
        values: list[bytes | None] = []
        for n in range(40):
            value = bytearray(event(n))
            for _ in range(luck.randrange(4)):
                value[luck.randrange(5, len(value))] = luck.randrange(256)
            values.append(bytes(value))
        batch, letters = decoded(values, own())
        assert len(batch.impressions) + len(letters) == len(values)
