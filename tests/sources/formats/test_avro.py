"""Avro by the compiled program: what fastavro writes gives the batch of the same events as JSON, to the bit."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Mapping
from typing import Any

import fastavro
import msgspec
import numpy as np
import pytest

from streameval.events.batch import Batch, Catalog
from streameval.sources.formats import avro, protobuf
from streameval.sources.formats.avro_program import UnusableSchemaError
from streameval.sources.formats.decode import Decoder
from streameval.sources.formats.framed import Framed, Schema
from streameval.sources.formats.live_columns import LiveColumns, MappedJson
from streameval.sources.protocol import DeadLetter
from streameval.testing import carrying_all
from tests.fuzz.laws import Form
from tests.fuzz.strategies import NOW
from tests.sources.formats.same_events import assert_same_events, read_as

TEXT = ["null", "string"]
EVENT = {"type": "record", "name": "Event", "fields": [
    {"name": "impression_id", "type": "string"}, {"name": "ts", "type": "long"}, {"name": "user_id", "type": ["long", "string"]},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
    {"name": "tree", "type": ["null", {"type": "record", "name": "Tree", "fields": [
        {"name": "n", "type": "int"}, {"name": "inner", "type": {"type": "array", "items": "Tree"}}]}]},
    {"name": "model", "type": TEXT}, {"name": "pclick", "type": ["null", "double", "float"]},
    {"name": "clicked", "type": ["null", "boolean", "int"]}, {"name": "position", "type": ["int", "null"]},
    {"name": "slices", "type": ["null", {"type": "map", "values": "string"}]},
    {"name": "features", "type": ["null", {"type": "map", "values": ["null", "string", "double", "boolean", {"type": "array", "items": "string"}]}]},
    {"name": "predictions", "type": ["null", {"type": "map", "values": "double"}]},
]}  # fmt: skip
PARSED = fastavro.parse_schema(json.loads(json.dumps(EVENT)))


class Known:
    """Schemas by their ids."""

    def __init__(self, schemas: Mapping[int, Schema]) -> None:
        self._schemas = schemas

    def known(self, id: int) -> Schema | None:
        return self._schemas.get(id)


def events(n: int, plain: bool) -> list[dict[str, Any]]:
    luck = random.Random(n)
    out = []
    for i in range(n):
        features: dict[str, Any] = {f"f{k}": f"ä{luck.randrange(50)}" for k in range(luck.randrange(6))}
        if not plain:
            features |= {"number": luck.random(), "switch": True, "none": None, "list": ["a", "b"]}
        out.append({
            "impression_id": f"i{i}", "ts": 1_700_000_000_000 + i, "user_id": luck.choice([str(i % 7), "u"]), "kind": "A",
            "tree": luck.choice([None, {"n": 1, "inner": [{"n": 2, "inner": []}] * 3}]),
            "model": luck.choice([None, "m"]), "pclick": luck.random(), "clicked": luck.choice([None, True, False]),
            "position": luck.choice([None, 3, 2**31 - 1]), "slices": luck.choice([None, {}, {"country": "de", "x": ""}]),
            "features": luck.choice([None, features]), "predictions": luck.choice([None, {"v2": 0.5, "v3": luck.random()}]),
        })  # fmt: skip
    return out


def framed(event: dict[str, Any], id: int = 7) -> bytes:
    out = io.BytesIO()
    out.write(b"\0" + id.to_bytes(4, "big"))
    fastavro.schemaless_writer(out, PARSED, event)
    return out.getvalue()


def decoded(
    values: list[bytes | None], own: Any, hashed: bool = True, dicts: bool = False
) -> tuple[Batch, list[DeadLetter]]:
    decoder = Decoder(
        Catalog(("country",)), clock=lambda: 1_800_000_000_000, max_future=0, hashed=hashed, dicts=dicts, names=True
    )
    decoder.own = own
    with carrying_all():
        return decoder.messages(
            values, [1] * len(values), topic=("i", "c"), partition=0, offsets=range(len(values)),
            format="json" if own is None else "own", shared=False,
        )  # fmt: skip


def own(text: str = json.dumps(EVENT), references: Mapping[str, str] | None = None) -> Any:
    return Framed(Known({7: Schema(7, text, references or {})}), avro.reader, {}).to_raw


def assert_same(a: Batch, b: Batch) -> None:
    for name in ("order", "id", "ts", "user", "request", "item", "series", "slices", "label"):
        assert np.array_equal(getattr(a.impressions, name), getattr(b.impressions, name)), name
    assert np.array_equal(a.impressions.pclick, b.impressions.pclick, equal_nan=True)
    for name, column in a.impressions.fields.items():
        assert np.array_equal(column, b.impressions.fields[name], equal_nan=True), name
    x, y = a.impressions.features, b.impressions.features
    assert (x is None) == (y is None)
    if x is not None and y is not None:
        assert all(
            np.array_equal(getattr(x, name), getattr(y, name)) for name in ("indptr", "index", "value", "offset")
        )
        assert x.dicts == y.dicts
    s, t = a.impressions.shadow, b.impressions.shadow
    assert (s is None) == (t is None)
    if s is not None and t is not None:
        assert all(np.array_equal(p, q) for p, q in zip(s, t, strict=True))


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize(("hashed", "dicts"), [(True, False), (False, False), (False, True)])
def test_a_batch_of_avro_is_that_of_the_same_json(plain: bool, hashed: bool, dicts: bool) -> None:
    some = events(500, plain)
    values: list[bytes | None] = [framed(event) for event in some]
    given, letters = decoded(values, own(), hashed, dicts)
    truth, _ = decoded([msgspec.json.encode(event) for event in some], None, hashed, dicts)
    assert not letters
    assert_same(given, truth)


@pytest.mark.slow
def test_a_mangled_message_is_a_dead_letter_and_its_neighbours_are_read() -> None:
    luck, some = random.Random(1), events(3, True)
    for _ in range(400):
        value = framed(luck.choice(some))
        at = luck.randrange(5, len(value))
        bad = luck.choice(
            [value[:at], value[:at] + luck.randbytes(2) + value[at + 2 :], value[:5] + luck.randbytes(60)]
        )
        batch, letters = decoded([framed(some[0]), bad, framed(some[1])], own())
        assert len(batch.impressions) + len(letters) == 3
        assert {int(batch.impressions.ts[0]), int(batch.impressions.ts[-1])} == {some[0]["ts"], some[1]["ts"]}
        assert all(letter.offset == 1 and letter.value == bad and letter.message for letter in letters)


@pytest.mark.parametrize(
    ("value", "reason", "words"),
    [
        (None, "empty", "no bytes"),
        (b"{}", "malformed", "first byte is 0x7b"),
        (b"\0\0\0", "malformed", "shorter than its head"),
        (b"\0\0\0\0\x09abc", "unknown_schema", "schema 9:"),
        (framed(events(1, True)[0])[:-1], "malformed", "ends too early"),
        (framed(events(1, True)[0]) + b"x", "malformed", "bytes after the end of the event"),
        (b"\0\0\0\0\7" + b"\x08\xff\xff\xff\xff", "malformed", "not UTF-8"),
        (b"\0\0\0\0\7\1", "malformed", "negative"),
    ],
)
def test_problems_are_reported(value: bytes | None, reason: str, words: str) -> None:
    batch, letters = decoded([value], own())
    assert not len(batch)
    assert [letter.reason for letter in letters] == [reason]
    assert words in letters[0].message


def test_a_list_of_more_items_than_bytes_takes_no_memory() -> None:
    schema = {
        "type": "record",
        "name": "E",
        "fields": [{"name": "impression_id", "type": {"type": "array", "items": "null"}}],
    }
    _, letters = decoded([b"\0\0\0\0\7" + b"\xfe\xff\xff\xff\xff\xff\x1f\0"], own(json.dumps(schema)))
    assert "more items than the message has bytes" in letters[0].message


@pytest.mark.parametrize(
    "schema", ["no json", '"string"', '{"type": "record", "name": "E", "fields": [{"name": "a", "type": "b.C"}]}']
)
def test_a_schema_that_cannot_be_used_makes_letters(schema: str) -> None:
    batch, letters = decoded([framed(events(1, True)[0])], own(schema))
    assert not len(batch)
    assert letters[0].reason == "wrong_schema"
    with pytest.raises(UnusableSchemaError):
        protobuf.reader(Schema(1, schema, {}, "PROTOBUF"))


MAPPING = {
    "impression_id": "event.id", "ts": {"column": "event.at", "unit": "s"}, "user_id": "uid", "pclick": "score",
    "slices": {"country": "tags.geo"}, "features": ["attributes.*"],
}  # fmt: skip
FOREIGN = {"type": "record", "name": "F", "fields": [
    {"name": "event", "type": {"type": "record", "name": "E", "fields": [{"name": "id", "type": "string"}, {"name": "at", "type": "double"}]}},
    {"name": "uid", "type": "long"}, {"name": "score", "type": ["null", "float"]},
    {"name": "tags", "type": {"type": "map", "values": "string"}},
    {"name": "attributes", "type": {"type": "record", "name": "A", "fields": [{"name": "age", "type": "int"}, {"name": "city", "type": TEXT}]}},
]}  # fmt: skip


def test_foreign_names_are_mapped_alike_in_json_and_avro() -> None:
    ours, avros, jsons = [], [], []
    parsed = fastavro.parse_schema(json.loads(json.dumps(FOREIGN)))
    for i in range(50):
        city = None if i % 3 else "Köln"
        row = {"event": {"id": f"i{i}", "at": 1_700_000_000.25 + i}, "uid": i % 5, "score": 0.25, "tags": {"geo": "de"}, "attributes": {"age": i, "city": city}}  # fmt: skip
        features = {"attributes.age": i} | ({"attributes.city": city} if city else {})
        ours.append(msgspec.json.encode({"impression_id": f"i{i}", "ts": 1_700_000_000_250 + 1000 * i, "user_id": str(i % 5), "pclick": 0.25, "slices": {"country": "de"}, "features": features}))  # fmt: skip
        out = io.BytesIO()
        out.write(b"\0\0\0\0\7")
        fastavro.schemaless_writer(out, parsed, row)
        avros.append(out.getvalue())
        jsons.append(msgspec.json.encode(row))
    truth, _ = decoded(ours, None)
    mapped = {1: LiveColumns(MAPPING, "kafka.columns")}
    for values, read in (
        (avros, Framed(Known({7: Schema(7, json.dumps(FOREIGN))}), avro.reader, mapped).to_raw),
        (jsons, MappedJson(mapped, lambda: False).to_raw),
    ):
        batch, letters = decoded([*values], read)
        assert not letters, letters[:2]
        assert_same(batch, truth)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"{}", "missing_field"), (b"[]", "wrong_type"), (b"", "empty"), (b"{", "malformed"),
        (b'{"event": 5, "uid": {"a": 1}}', "wrong_type"), (b'{"event": {"id": "i", "at": "noon"}, "uid": 1, "score": 0.1}', "wrong_type"),
        (b'{"event": {"id": "i", "at": 1700000000}, "uid": 1, "score": "high"}', "wrong_type"),
    ],
)  # fmt: skip
def test_a_message_that_cannot_be_mapped_is_a_letter_and_its_neighbour_is_not(value: bytes, reason: str) -> None:
    good = b'{"event": {"id": "good", "at": 1700000000}, "uid": 1, "score": 0.5}'
    for values in ([value], [good, value, good.replace(b"good", b"fine")]):
        batch, letters = decoded([*values], MappedJson({1: LiveColumns(MAPPING, "kafka.columns")}, lambda: True).to_raw)
        assert [letter.reason for letter in letters] == [reason], letters
        assert len(batch.impressions) == len(values) - 1


def avro_of(schema: Any, events: list[Any]) -> tuple[Any, list[bytes]]:
    """Returns (what reads messages of the schema, the events as messages)."""
    parsed, values = fastavro.parse_schema(json.loads(json.dumps(schema))), []
    for event in events:
        out = io.BytesIO()
        out.write(b"\0\0\0\0\7")
        fastavro.schemaless_writer(out, parsed, event)
        values.append(out.getvalue())
    return own(json.dumps(schema)), values


def record(name: str, of: Mapping[str, Any], **aliases: list[str]) -> dict[str, Any]:
    fields = [{"name": one, "type": kind, "aliases": aliases.get(one, [])} for one, kind in of.items()]
    return {"type": "record", "name": name, "fields": fields}


CLICK = {"impression_id": "string", "ts": "long", "user_id": "string"}
CORE = {**CLICK, "pclick": "double"}
SHOWN = [
    {"impression_id": f"i{k}", "ts": NOW + k, "user_id": f"u{k}", "pclick": k / 8, "features": {}} for k in range(5)
]
CLICKED = [{"impression_id": f"i{k}", "ts": NOW + 10 + k, "user_id": f"u{k}"} for k in range(3)]
FEATURES = {"features": {"type": "map", "values": "double"}}


@pytest.mark.parametrize("slices", [{"type": "map", "values": "string"}, record("S", {"country": "string"})])
def test_a_field_that_was_renamed_is_read_by_its_alias(slices: Any) -> None:
    """Every version became "unknown" once a schema renamed the field, as Avro allows."""
    types = {**CORE, **FEATURES, "version": "string", "by": slices, "place": ["null", "int"], "uid": ["string", "long"]}
    del types["user_id"]
    schema = record("E", types, version=["v", "model_version"], by=["slices"], place=["position"], uid=["user_id"])
    events = [
        {**{name: one[name] for name in CORE if name != "user_id"}, "features": {}, "version": "v1", "by": {"country": "de"},
         "place": k, "uid": k} for k, one in enumerate(SHOWN)
    ]  # fmt: skip
    read, values = avro_of(schema, events)
    more = {"model_version": "v1", "slices": {"country": "de"}}
    assert_same_events(read, values, [{**e, **more, "position": k, "user_id": str(k)} for k, e in enumerate(SHOWN)])


def test_an_alias_takes_no_name_from_another_field() -> None:
    types = {**CORE, **FEATURES, "model": "string", "version": "string", "old": "string", "model_version": "string"}
    schema = record("E", types, version=["model_version", "item_id"], old=["item_id"], model=["request_id"])
    events = [{**one, "model": "m", "version": "x", "old": "y", "model_version": "v1"} for one in SHOWN]
    read, values = avro_of(schema, events)
    assert_same_events(read, values, [{**e, "model": "m", "model_version": "v1", "item_id": "x"} for e in SHOWN])


def test_a_mapping_names_fields_as_the_schema_does() -> None:
    schema = record("E", {**CORE, **FEATURES, "version": "string"}, version=["model_version"])
    _, values = avro_of(schema, [{**one, "version": "v1"} for one in SHOWN])
    columns = {name: name for name in CORE} | {"model_version": "version"}
    maps = {1: LiveColumns(columns, "kafka.columns")}
    mapped = Framed(Known({7: Schema(7, json.dumps(schema))}), avro.reader, maps).to_raw
    got, letters = read_as(Form(hashed=False), mapped, values, 1)
    wanted = [json.dumps({**one, "model_version": "v1"}).encode() for one in SHOWN]
    assert (got, letters) == read_as(Form(hashed=False), None, wanted, 1, "json")


@pytest.mark.parametrize("by_reference", [False, True])
def test_a_topic_of_several_types_of_events_may_have_a_union_of_them(by_reference: bool) -> None:
    types = [record("Shown", {**CORE, **FEATURES, "old": "string"}, old=["model_version"]), record("Clicked", CLICK)]
    events = [("Shown", {**SHOWN[0], "old": "v1"}), ("Clicked", CLICKED[0]), ("Shown", {**SHOWN[1], "old": "v2"})]
    read, values = avro_of(types, events)
    if by_reference:  # as Confluent's serializers have it
        read = own('["Shown", "Clicked"]', {one["name"]: json.dumps(one) for one in types})
    wanted = [{**SHOWN[0], "model_version": "v1"}, CLICKED[0], {**SHOWN[1], "model_version": "v2"}]
    assert_same_events(read, values, wanted, kind=0)


def test_what_a_union_has_besides_events_is_one_dead_letter_each() -> None:
    schema = ["null", record("Shown", {**CORE, **FEATURES}), "string", record("Other", {"a": "int"})]
    read, values = avro_of(schema, [SHOWN[0], None, "text", ("Other", {"a": 1}), SHOWN[1]])
    head = values[0][:5]
    values += [head, head + b"\x08", head + b"\x01", head + b"\xff\xff\x01", values[0][:-1]]
    got, letters = read_as(Form(), read, values, 1)
    assert len(got) == 2
    assert [reason for reason, _, _ in letters] == ["wrong_schema"] * 3 + ["malformed"] * 5
    assert letters[0][2] == "schema 7: type 0 of its union: its schema is not a record: an event must be one"
    assert letters[3][2] == "schema 7: message: not of its Avro schema: a branch that is not in its union"


@pytest.mark.parametrize(
    ("schema", "words"),
    [(["null", "string"], "without a record"), ([{"type": "fixed", "name": f"f{k}", "size": 1} for k in range(65)], "of 65 types")],
)  # fmt: skip
def test_a_union_that_cannot_be_read_says_why(schema: Any, words: str) -> None:
    read, _ = avro_of(schema, [])
    _, letters = read_as(Form(), read, [b"\0\0\0\0\7\0"], 1)
    assert [(reason, words in what) for reason, _, what in letters] == [("wrong_schema", True)], letters
