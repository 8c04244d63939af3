"""Avro's kernel against the way by Arrow: what the two make of a batch is the same to the bit, letters word for word."""

from __future__ import annotations

import io
import json
import random
from typing import Any

import fastavro
import msgspec
import numpy as np
import pytest

from streameval.events.batch import Catalog
from streameval.sources.formats import avro
from streameval.sources.formats.decode import Decoder
from streameval.sources.formats.framed import Framed, Schema
from streameval.testing import carrying_all
from tests.fuzz.avro_bytes import HEAD, NOW, Known, assert_equal, decoded, reads


def left_alone(schema: Any, messages: list[bytes], hashed: bool = True) -> list[bool] | None:
    """Which messages the kernel leaves to the other way; None: all of this schema."""
    data = b"".join(messages) + bytes(8)
    ends = np.cumsum([len(one) for one in messages])
    starts = ends - [len(one) - len(HEAD) for one in messages]
    reader = avro.reader(Schema(7, json.dumps(schema)))
    found = reader.plain(data, np.column_stack((starts, ends)), 1, ("country",), hashed)
    return None if found is None else found[1].tolist()


def record(**types: Any) -> dict[str, Any]:
    usual = {"impression_id": "string", "ts": "long", "user_id": "string", "pclick": ["null", "double"]}
    return {
        "type": "record",
        "name": "E",
        "fields": [{"name": name, "type": kind} for name, kind in (usual | types).items()],
    }


def written(schema: Any, **values: Any) -> bytes:
    out = io.BytesIO()
    out.write(HEAD)
    event = {"impression_id": "i", "ts": NOW, "user_id": "u", "pclick": 0.5} | values
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), event)
    return out.getvalue()


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (["null", {"type": "map", "values": ["null", "string", "double", "boolean", "long"]}], "features", {"a": "b", "c": 1.5, "d": True, "e": 7, "f": None}),
        ({"type": "map", "values": "string"}, "slices", {"country": "de", "other": "x"}),
        ({"type": "map", "values": "float"}, "predictions", {"v2": 0.25}),
        ({"type": "enum", "name": "V", "symbols": ["v1", "v2"]}, "model_version", "v2"),
        ({"type": "long", "logicalType": "timestamp-micros"}, "ts", NOW * 1000),
        (["null", "string", "long"], "user_id", 2**40),
        ({"type": "array", "items": {"type": "map", "values": ["null", "string"]}}, "foreign", [{"a": "b"}, {}]),
    ],
)  # fmt: skip
def test_the_usual_is_the_kernels(kind: Any, name: str, value: Any) -> None:
    schema = record(**{name: kind})
    assert left_alone(schema, [written(schema, **{name: value})] * 3) == [False] * 3


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ({"type": "record", "name": "S", "fields": []}, "slices"),
        ({"type": "array", "items": "string"}, "features"),
        ("string", "pclick"),
        ("double", "ts"),
        ({"type": "map", "values": "long"}, "slices"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "pclick"),
        ({"type": "long", "logicalType": 5}, "ts"),
    ],
)
def test_a_schema_that_holds_something_else_has_no_plan(kind: Any, name: str) -> None:
    assert left_alone(record(**{name: kind}), [written(record())]) is None


def test_a_name_that_is_there_twice_is_left_alone() -> None:
    """A list of pairs is written as a map is."""
    pair = {"type": "record", "name": "P", "fields": [{"name": "k", "type": "string"}, {"name": "v", "type": "double"}]}
    for name in ("features", "predictions"):
        pairs = [{"k": "a", "v": 0.5}, {"k": "b", "v": 0.5}, {"k": "a", "v": 0.25}]
        twice = written(record(**{name: {"type": "array", "items": pair}}), **{name: pairs})
        once = written(record(**{name: {"type": "array", "items": pair}}), **{name: pairs[:2]})
        schema = record(**{name: {"type": "map", "values": "double"}})
        assert left_alone(schema, [once, twice, once]) == [False, True, False]
        mine, letters, _ = decoded(reads(json.dumps(schema)), [once, twice, once], False)
        judge, due, _ = decoded(reads(json.dumps(schema)), [once, twice, once], True)
        assert letters == due
        assert_equal(mine, judge)


def test_blocks_with_their_size_and_many_of_them_are_one_map() -> None:
    schema = record(features={"type": "map", "values": "string"})
    whole = written(schema, features={"a": "x", "b": "y", "c": "z"})
    entries = [b"\x02a\x02x", b"\x02b\x02y", b"\x02c\x02z"]
    assert whole.endswith(b"\x06" + b"".join(entries) + b"\0")
    head = whole[: -len(b"".join(entries)) - 2]
    cut = head + b"\x02" + entries[0] + b"\x03\x10" + entries[1] + entries[2] + b"\0"  # -2 entries, of 8 bytes
    assert left_alone(schema, [cut]) == [False]
    assert_equal(
        decoded(reads(json.dumps(schema)), [cut], False)[0], decoded(reads(json.dumps(schema)), [whole], False)[0]
    )


@pytest.mark.parametrize("names", [False, True])
def test_an_integer_beyond_float_precision_is_rounded_and_affects_no_other_row(names: bool) -> None:
    schema = record(features={"type": "map", "values": ["string", "long"]}, bid=["null", "long"])
    messages = [
        written(schema, impression_id="a", features={"n": 2**53 + 1}, bid=2**53 + 1),
        written(schema, impression_id="b", features={"n": 1}, bid=None),
    ]
    batch, letters, _ = decoded(reads(json.dumps(schema)), messages, names)
    assert not letters
    assert batch.impressions.features is not None
    assert batch.impressions.features.value.tolist() == [2.0**53, 1.0]
    assert batch.impressions.fields["bid"][0] == 2.0**53


def test_events_are_those_of_json() -> None:
    """The kernel's ids, words and features are those that JSON gives."""
    luck = random.Random(3)
    schema = record(
        model=["null", "string"], slices={"type": "map", "values": "string"},
        features={"type": "map", "values": ["string", "double", "boolean"]}, predictions=["null", {"type": "map", "values": "double"}],
    )  # fmt: skip
    events = [
        {
            "impression_id": f"i{k}", "ts": NOW + k, "user_id": f"ü{k % 9}", "pclick": luck.random(), "model": luck.choice([None, "m"]),
            "slices": {"country": luck.choice(["de", "fr", ""])}, "predictions": luck.choice([None, {"v2": luck.random()}]),
            "features": {f"f{j}": luck.choice(["ä", "b" * 40, luck.random(), True]) for j in range(luck.randrange(9))},
        }
        for k in range(400)
    ]  # fmt: skip
    messages = [written(schema, **event) for event in events]
    assert left_alone(schema, messages) == [False] * len(messages)
    mine, letters, _ = decoded(reads(json.dumps(schema)), messages, False)
    decoder = Decoder(Catalog(("country", "device", "position")), clock=lambda: NOW + 10**9, max_future=0, hashed=True)
    with carrying_all():
        truth, _ = decoder.messages(
            [msgspec.json.encode(event) for event in events], [1] * len(events), topic=("i", "c"), partition=0,
            offsets=range(len(events)), format="json", shared=False,
        )  # fmt: skip
    assert not letters
    assert_equal(mine, truth)


def test_messages_of_two_schemas_and_both_ways_keep_their_order() -> None:
    one = record(slices={"type": "map", "values": "string"})
    other = record(slices=["null", {"type": "record", "name": "S", "fields": [{"name": "country", "type": "string"}]}])
    values = []
    for k in range(30):
        values.append(written(one, impression_id=f"a{k}", ts=NOW + k, slices={"country": "de"}))
        values.append(
            HEAD[:-1] + b"\x09" + written(other, impression_id=f"b{k}", ts=NOW + k, slices={"country": "fr"})[5:]
        )
        values.append(HEAD + b"\xff" * 9)
    known = Known({7: Schema(7, json.dumps(one)), 9: Schema(9, json.dumps(other))})
    mine, letters, _ = decoded(Framed(known, avro.reader, {}).to_raw, values, False)
    judge, due, _ = decoded(Framed(known, avro.reader, {}).to_raw, values, True)
    assert letters == due
    assert len(letters) == 30
    assert_equal(mine, judge)
