"""Protobuf messages that are whole, and still cannot be read: each is a letter of its own, and harms no other."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from streameval.sources.formats import protobuf
from streameval.sources.formats.framed import Framed, Schema
from tests.fuzz.strategies import NOW
from tests.sources.formats.same_events import assert_same_events
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


MAPS = """syntax = "proto3";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
message Event {
  string impression_id = 1;
  int64 ts = 2;
  string user_id = 3;
  map<string, google.protobuf.DoubleValue> predictions = 4;
  map<string, Value> features = 5;
  map<string, TYPE> slices = 6;
  map<string, Score> policies = 7;
}
enum Device { UNSET = 0; MOBILE = 1; DESKTOP = 2; }
message Texts { repeated string all = 1; }
message Score { double value = 1; }
message Value {
  oneof kind { string text = 1; double number = 2; bool truth = 3; Device device = 4; Texts texts = 5; google.protobuf.DoubleValue wrapped = 6; }
}
"""


def in_maps(of_slices: str, change: Callable[[Any], None]) -> tuple[bytes, Any]:
    """Returns (a message with maps, what reads it)."""
    schema = Schema(7, MAPS.replace("TYPE", of_slices), {}, "PROTOBUF")
    one = protobuf.reader(schema).message_type((0,))(impression_id="i", ts=NOW, user_id="u")
    one.predictions.add(key="half").value.value = 0.5
    change(one)
    own = Framed(Known({7: schema}), protobuf.reader, {}).to_raw
    return b"\0\0\0\0\7\0" + one.SerializeToString(), own


def assert_is_json(message: tuple[bytes, Any], **more: Any) -> None:
    value, own = message
    event = {"impression_id": "i", "ts": NOW, "user_id": "u", "predictions": {"half": 0.5}, "features": {}}
    assert_same_events(own, [value], [event | more])


def test_a_default_value_in_a_map_is_there() -> None:
    """A shadow version's 0.0 in a wrapper made the impression a dead letter, and false was no feature."""

    def zeros(one: Any) -> None:
        one.predictions.add(key="zero").value.SetInParent()
        one.policies.add(key="never").value.SetInParent()
        for name, kind, value in (("n", "number", 0.0), ("b", "truth", False), ("t", "text", "")):
            setattr(one.features.add(key=name).value, kind, value)
        one.features.add(key="w").value.wrapped.SetInParent()

    features = {"n": 0.0, "b": False, "t": "", "w": 0.0}
    message = in_maps("string", zeros)
    assert_is_json(message, predictions={"half": 0.5, "zero": 0.0}, policies={"never": 0.0}, features=features)


@pytest.mark.parametrize(
    ("kind", "value"), [("Bool", True), ("Bool", False), ("Int64", 7), ("Int64", 0), ("Double", 0.0), ("String", "de")]
)
def test_a_wrapper_in_a_map_is_the_value_in_it(kind: str, value: Any) -> None:
    message = in_maps(
        f"google.protobuf.{kind}Value", lambda one: setattr(one.slices.add(key="country").value, "value", value)
    )
    assert_is_json(message, slices={"country": value})


@pytest.mark.parametrize(("value", "name"), [(1, "MOBILE"), (0, "UNSET"), (9, "9")])
def test_an_enum_in_a_map_is_its_name(value: int, name: str) -> None:
    """As it is everywhere else: a slice had its number, and as a feature it was nothing. A newer schema's has only that."""

    def devices(one: Any) -> None:
        one.slices.add(key="country", value=value)
        one.features.add(key="device").value.device = value

    assert_is_json(in_maps("Device", devices), slices={"country": name}, features={"device": name})


@pytest.mark.parametrize(("kind", "member"), [("Value", "truth"), ("google.protobuf.Value", "bool_value")])
def test_a_boolean_among_other_types_is_a_slice_by_its_word(kind: str, member: str) -> None:
    message = in_maps(kind, lambda one: setattr(one.slices.add(key="country").value, member, False))
    assert_is_json(message, slices={"country": False})


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
