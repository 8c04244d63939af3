"""Protobuf's kernel against Google's library and Arrow: what the two make of a batch is the same to the bit, letters word for word."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from streameval.events.words64 import PADDING
from streameval.sources.formats import protobuf
from streameval.sources.formats.framed import Framed, Schema
from tests.fuzz.avro_bytes import HEAD, NOW, Known, assert_equal, decoded, harmed

IMPORTS = 'import "google/protobuf/timestamp.proto";\nimport "google/protobuf/wrappers.proto";\n'
INNER = """
message Inner { string text = 1; repeated Inner inner = 2; repeated int64 packed = 3; map<string, double> more = 4; bytes raw = 5;
  repeated fixed32 four = 6; oneof either { string left = 7; sint32 right = 8; } }
enum Version { v0 = 0; v1 = 1; v7 = 7; }
"""
WRAPPED = "google.protobuf.%sValue"
# what fields may be, the likely ones first
TYPES: dict[str, list[str]] = {
    "impression_id": ["string", "optional string", "int64", "uint64", WRAPPED % "String"],
    "ts": ["int64", "google.protobuf.Timestamp", "optional int64", "string", "uint64", "fixed64", "sint64"],
    "user_id": ["string", "optional string", "sfixed32", "uint32", "sfixed64", WRAPPED % "Int64", "int32"],
    "type": ["optional string", "string", "Version"],
    "model": ["optional string", "string", WRAPPED % "String"],
    "model_version": ["optional string", "Version", "optional Version", "int32"],
    "pclick": ["optional double", "double", "float", WRAPPED % "Double", WRAPPED % "Float", "optional float"],
    "clicked": ["optional bool", "bool", WRAPPED % "Bool", "optional int32"],
    "shown": ["optional bool", "optional uint32"],
    "position": ["optional int32", "sint32", "fixed32", "optional float"],
    "propensity": ["optional double", WRAPPED % "Float"],
    "value": ["optional double", "optional int64", "sfixed64"],
    "slices": ["map<string, string>", "Inner", "map<string, int64>"],
    "predictions": ["map<string, double>", "map<string, float>", "map<string, google.protobuf.DoubleValue>"],
    "policies": ["map<string, double>"],
    "features": ["map<string, string>", "map<string, double>", "map<string, sint32>", "map<string, bool>", "map<string, Version>", "map<int32, string>"],
    "foreign": ["Inner", "repeated Inner", "repeated string", "repeated double", "bytes", "map<string, Inner>", "google.protobuf.Timestamp", "Version"],
}  # fmt: skip
TEXTS = ["", "a", "de", "länd", "x" * 40, " ", "17", "v1", "click", "impression", "0", "2023-11-14T22:13:20Z"]
WHOLE = [0, 1, 2, 7, 17, -1, 2**31 - 1, -(2**31)]
REAL = [0.0, 0.25, 1.0, 0.5, 1.5, -0.5, math.nan, math.inf, 1e30]
KEYS = ["country", "device", "v1", "v2", "f1", "f2", "", "lönger than eight bytes"]


@pytest.fixture(autouse=True, scope="module")
def ready() -> None:
    """Kernels, which are otherwise compiled while the library reads."""
    left_alone(
        "syntax = 'proto3'; message E { string impression_id = 1; int64 ts = 2; string user_id = 3; }", [HEAD + b"\0"]
    )
    protobuf._preparing[0].join()


def schema_of(luck: random.Random) -> str:
    chosen = {name: luck.choice([kinds[0], kinds[0], luck.choice(kinds)]) for name, kinds in TYPES.items()}
    order = luck.sample(sorted(chosen), len(chosen))
    numbers = luck.sample(range(1, 200), len(chosen))
    fields = "".join(f"  {chosen[name]} {name} = {number};\n" for name, number in zip(order, numbers, strict=True))
    return f'syntax = "proto3";\n{IMPORTS}message Event {{\n{fields}}}\n{INNER}'


def set_some(luck: random.Random, message: Any, name: str, depth: int = 3) -> None:
    """Gives a field a value that is usual, or one at the edge."""
    field = message.DESCRIPTOR.fields_by_name[name]
    usual = luck.random() < 0.9
    if field.type == field.TYPE_MESSAGE:
        given = getattr(message, name)
        if field.message_type.full_name == "google.protobuf.Timestamp":
            given.seconds, given.nanos = (
                NOW // 1000 if usual else luck.choice([0, -1, 2**40, 5]),
                luck.choice([0, 250_000_000, -7]),
            )
        elif field.is_repeated:
            if depth:
                for _ in range(luck.randrange(4)):
                    one = given.add()
                    for inner in field.message_type.fields:
                        if luck.random() < 0.9:
                            set_some(luck, one, inner.name, depth - 1)
        elif depth:
            given.SetInParent()
            for inner in field.message_type.fields:
                if luck.random() < 0.7:
                    set_some(luck, given, inner.name, depth - 1)
        return
    values = [value_for(luck, field, name, usual) for _ in range(luck.randrange(4) if field.is_repeated else 1)]
    if field.is_repeated:
        getattr(message, name).extend(values)
    else:
        setattr(message, name, values[0])


def value_for(luck: random.Random, field: Any, name: str, usual: bool) -> Any:
    if field.type == field.TYPE_STRING:
        return luck.choice(KEYS) if name == "key" else f"{name[0]}{luck.randrange(9)}" if usual else luck.choice(TEXTS)
    if field.type == field.TYPE_BYTES:
        return luck.randbytes(luck.randrange(9))
    if field.type in (field.TYPE_DOUBLE, field.TYPE_FLOAT):
        return luck.random() if usual else luck.choice(REAL)
    if field.type == field.TYPE_BOOL:
        return luck.random() < 0.5
    if field.type == field.TYPE_ENUM:
        return luck.choice([0, 1, 7] if usual else [0, 5, -1])
    wide = field.type in (
        field.TYPE_INT64,
        field.TYPE_UINT64,
        field.TYPE_FIXED64,
        field.TYPE_SFIXED64,
        field.TYPE_SINT64,
    )
    if name == "ts" and usual:
        return NOW
    value = luck.randrange(100) if usual else luck.choice([*WHOLE, 2**53 + 1, 2**63 - 1, -(2**63)] if wide else WHOLE)
    unsigned = field.type in (field.TYPE_UINT32, field.TYPE_UINT64, field.TYPE_FIXED32, field.TYPE_FIXED64)
    return value + (2**64 if wide else 2**32) if unsigned and value < 0 else value


def messages_of(luck: random.Random, kind: Any, n: int) -> list[bytes]:
    out = []
    for _ in range(n):
        message = kind()
        for field in kind.DESCRIPTOR.fields:
            if luck.random() < (0.97 if field.name in ("impression_id", "ts", "user_id", "pclick") else 0.7):
                set_some(luck, message, field.name)
        out.append(HEAD + b"\0" + message.SerializeToString())
    return out


def reads(schema: str) -> Any:
    return Framed(Known({7: Schema(7, schema, {}, "PROTOBUF")}), protobuf.reader, {}).to_raw


def left_alone(schema: str, messages: list[bytes], hashed: bool = True) -> np.ndarray | None:
    """Which messages the kernel leaves to the other way; None: all of this schema."""
    ends = np.cumsum([len(one) for one in messages])
    starts = ends - [len(one) - len(HEAD) for one in messages]
    reader = protobuf.reader(Schema(7, schema, {}, "PROTOBUF"))
    found = reader.plain(b"".join(messages) + PADDING, np.column_stack((starts, ends)), 1, ("country",), hashed)
    return None if found is None else found[1]


def assert_same(schema: str, messages: list[bytes], kind: int, hashed: bool) -> None:
    mine, letters, catalog = decoded(reads(schema), messages, False, kind, hashed)
    judge, due, of_judge = decoded(reads(schema), messages, True, kind, hashed)
    assert letters == due
    assert_equal(mine, judge)
    assert catalog.series == of_judge.series
    assert len(mine.impressions) + len(mine.candidates) + len(mine.clicks) + len(letters) == len(messages)


def swapped(luck: random.Random, messages: list[bytes]) -> list[bytes]:
    """Fields of two messages in one: a field twice, maps in two places, another order."""
    return [one + luck.choice(messages)[len(HEAD) + 1 :] for one in luck.sample(messages, 20)]


@pytest.mark.parametrize("seed", range(24))
def test_it_is_what_the_library_says(seed: int) -> None:
    luck = random.Random(seed)
    schema = schema_of(luck)
    kind = protobuf.reader(Schema(7, schema, {}, "PROTOBUF")).message_type((0,))
    messages = messages_of(luck, kind, 60)
    messages += [*swapped(luck, messages), *harmed(messages, 400, luck)]
    luck.shuffle(messages)
    assert_same(schema, messages, luck.choice([0, 1, 2]), luck.random() < 0.7)


def test_the_usual_is_the_kernels() -> None:
    luck = random.Random(5)
    usual: Mapping[str, str] = {name: kinds[0] for name, kinds in TYPES.items()}
    fields = "".join(f"  {kind} {name} = {k + 1};\n" for k, (name, kind) in enumerate(usual.items()))
    schema = f'syntax = "proto3";\n{IMPORTS}message Event {{\n{fields}}}\n{INNER}'
    kind = protobuf.reader(Schema(7, schema, {}, "PROTOBUF")).message_type((0,))
    messages = messages_of(luck, kind, 400)
    for hashed in (True, False):
        left = left_alone(schema, messages, hashed)
        assert left is not None
        assert left.mean() < 0.5, "those with an edge in them, which are many here"
        assert_same(schema, messages, 1, hashed)


@pytest.mark.parametrize(
    "fields",
    [
        "string impression_id = 1; int64 ts = 2; string user_id = 3; optional double pclick = 4; Inner slices = 5;",
        "string impression_id = 1; double ts = 2; string user_id = 3; optional double pclick = 4;",
        "string impression_id = 1; int64 ts = 2; string user_id = 3; oneof score { double pclick = 4; string why = 5; }",
        "string impression_id = 1; int64 ts = 2; string user_id = 3; repeated double pclick = 4;",
        "string impression_id = 1; int64 ts = 2; string user_id = 3; string pclick = 4;",
        "string impression_id = 1; int64 ts = 2; string user_id = 3; bytes model = 4;",
        "string impression_id = 1; int64 ts = 2; string user_id = 3; double pclick = 5000;",
    ],
)
def test_a_schema_that_holds_something_else_has_no_plan(fields: str) -> None:
    schema = f'syntax = "proto3";\n{IMPORTS}message Event {{ {fields} }}\n{INNER}'
    assert left_alone(schema, [HEAD + b"\0\x0a\x01i"]) is None


def test_until_the_kernels_are_ready_the_library_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = "syntax = 'proto3'; message E { string impression_id = 1; int64 ts = 2; string user_id = 3; }"
    begun, go_on = threading.Event(), threading.Event()

    def compiling(*given: Any) -> None:
        begun.set()
        assert go_on.wait(60)

    monkeypatch.setattr(protobuf, "_preparing", [])
    monkeypatch.setattr(protobuf, "_prepare", compiling)
    assert left_alone(schema, [HEAD + b"\0"]) is None
    assert begun.wait(60)
    assert left_alone(schema, [HEAD + b"\0"]) is None
    go_on.set()
    protobuf._preparing[0].join()
    assert left_alone(schema, [HEAD + b"\0"]) is not None


def test_a_type_that_is_not_the_first_is_read_as_quickly() -> None:
    schema = 'syntax = "proto3"; message Other { string a = 1; } message Event { string impression_id = 1; int64 ts = 2; string user_id = 3; optional double pclick = 4; }'
    kind = protobuf.reader(Schema(7, schema, {}, "PROTOBUF")).message_type((1,))
    some = [HEAD + b"\x02\x02" + kind(impression_id=f"i{k}", ts=NOW, user_id="u", pclick=0.5).SerializeToString() for k in range(5)]  # fmt: skip
    other = HEAD + b"\x00" + b"\x0a\x01x"
    left = left_alone(schema, [*some, other])
    assert left is not None
    assert left.tolist() == [False] * 5 + [True]
    assert_same(schema, [*some, other], 1, True)
