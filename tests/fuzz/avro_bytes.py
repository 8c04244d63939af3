"""Avro messages of many schemas, whole and harmed, and the law that their two decoders agree."""

from __future__ import annotations

import io
import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import fastavro
import numpy as np
from hypothesis import strategies as st

from streameval.events.batch import Batch, Catalog
from streameval.sources.formats import avro
from streameval.sources.formats.decode import Decoder
from streameval.sources.formats.framed import Framed, Schema
from streameval.sources.protocol import DeadLetter
from streameval.testing import carrying_all

NOW = 1_700_000_000_000
HARMED = 150  # messages of an example that has many
HEAD = b"\0\0\0\0\7"
TEXTS = st.sampled_from(["", "a", "de", "länd", "x" * 40, " ", "17", "v1", "click", "impression", "0"])
WHOLE = st.sampled_from([0, 1, 2, 17, -1, 2**31 - 1, -(2**31)])
LONG = st.one_of(WHOLE, st.sampled_from([2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), NOW]))
REAL = st.sampled_from([0.0, 0.25, 1.0, 1.5, -0.5, math.nan, math.inf, -math.inf, 1e300])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": TEXTS, "int": WHOLE, "long": LONG, "double": REAL, "float": st.sampled_from([0.0, 0.25, 1.0, 2.0, math.nan, math.inf]),
    "boolean": st.booleans(), "null": st.none(),
}  # fmt: skip
# what fields may be, the likely ones first
TYPES: dict[str, list[Any]] = {
    "impression_id": ["string", "long", ["null", "string"]],
    "ts": ["long", {"type": "long", "logicalType": "timestamp-millis"}, {"type": "long", "logicalType": "timestamp-micros"}, "string", ["null", "long"]],
    "user_id": ["string", "long", ["null", "string", "long"], "int"],
    "type": [["null", "string"], {"type": "enum", "name": "Type", "symbols": ["impression", "click", "other"]}],
    "model": [["null", "string"], "string"],
    "model_version": [["null", "string"], "int", {"type": "enum", "name": "Version", "symbols": ["v1", "v2"]}],
    "pclick": [["null", "double"], "float", "double", ["double", "boolean"]],
    "clicked": [["null", "boolean"], ["null", "int"], ["null", "boolean", "int"]],
    "shown": [["null", "boolean"]],
    "position": [["null", "int"], "long", ["null", "double"]],
    "propensity": [["null", "double"]],
    "request_id": [["null", "string"], ["null", "long"]],
    "value": [["null", "double"], ["null", "string"]],
    "slices": [["null", {"type": "map", "values": "string"}], {"type": "map", "values": ["null", "string", "long"]}, ["null", {"type": "record", "name": "Slices", "fields": [{"name": "country", "type": ["null", "string"]}]}]],
    "predictions": [["null", {"type": "map", "values": "double"}], {"type": "map", "values": ["null", "float", "long"]}],
    "policies": [["null", {"type": "map", "values": "double"}]],
    "features": [["null", {"type": "map", "values": ["null", "string", "double", "long", "boolean"]}], {"type": "map", "values": "string"}, {"type": "map", "values": ["int", {"type": "array", "items": "string"}]}],
    "foreign": ["bytes", {"type": "array", "items": {"type": "record", "name": "Pair", "fields": [{"name": "a", "type": "string"}, {"name": "b", "type": ["null", "Pair"]}]}}, ["null", "string"], {"type": "fixed", "name": "Four", "size": 4}, {"type": "map", "values": {"type": "array", "items": "int"}}],
}  # fmt: skip


def some(kind: Any, name: str = "") -> st.SearchStrategy[Any]:
    """Values of a type; those of times are mostly usable."""
    if isinstance(kind, list):
        return st.one_of([some(one, name) for one in kind])
    if kind in ("string", "long") and name == "ts":
        return (
            st.sampled_from(["2023-11-14T22:13:20Z", "2023-11-14T22:13:20.250+01:00", "1700000000000", "", "noon"])
            if kind == "string"
            else st.sampled_from([NOW, NOW + 1, NOW, 17, -5])
        )
    if isinstance(kind, str):
        return st.just({"a": "x", "b": None}) if kind == "Pair" else VALUES.get(kind, st.just(b"bytes"))
    if kind["type"] == "map":
        keys = st.sampled_from(["country", "device", "v1", "v2", "f1", "f2", "", "lönger than eight bytes"])
        return st.dictionaries(keys, some(kind["values"]), max_size=4)
    if kind["type"] == "array":
        return st.lists(some(kind["items"]), max_size=3)
    if kind["type"] == "enum":
        return st.sampled_from(kind["symbols"])
    if kind["type"] == "fixed":
        return st.just(b"four")
    if kind["type"] == "record":
        return st.fixed_dictionaries({one["name"]: some(one["type"]) for one in kind["fields"]})
    if kind.get("logicalType", "").endswith("micros"):
        return st.sampled_from([NOW * 1000, NOW * 1000 + 999, 17_000, -1])
    return some(kind["type"], name)


def harmed(messages: Sequence[bytes], n: int, luck: random.Random) -> list[bytes]:
    """So many messages with a byte or two that are others, missing or too many, or with the end of another one."""
    out = []
    for _ in range(n):
        value = luck.choice(messages)
        at = luck.randrange(len(HEAD), len(value) + 1)
        more = luck.choice([b"", luck.randbytes(1), luck.randbytes(2), b"\xff" * 3, luck.choice(messages)[at:]])
        out.append(value[:at] + more + value[at + luck.choice([0, 1, 1, 2, len(value)]) :])
    return out


@st.composite
def _messages(draw: st.DrawFn) -> tuple[str, list[bytes], int, bool]:
    """(a schema, messages that are written with it and maybe harmed, the kind of their topic, whether features are wanted)."""
    names = ["impression_id", "ts", "user_id", *draw(st.permutations(sorted(set(TYPES) - {"impression_id", "ts", "user_id"})))[:9]]  # fmt: skip
    chosen = {name: TYPES[name][draw(st.sampled_from([0, 0, 0, 1, 2])) % len(TYPES[name])] for name in names}
    schema = {
        "type": "record",
        "name": "E",
        "fields": [{"name": name, "type": kind} for name, kind in chosen.items()],
    }
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    messages = []
    for _ in range(draw(st.integers(1, 6))):
        out = io.BytesIO()
        out.write(HEAD)
        fastavro.schemaless_writer(out, parsed, {name: draw(some(kind, name)) for name, kind in chosen.items()})
        value = out.getvalue()
        messages.append(value)
    messages += harmed(messages, draw(st.sampled_from([0, 1, HARMED])), random.Random(draw(st.integers(0, 1 << 32))))
    return json.dumps(schema), messages, draw(st.sampled_from([0, 1, 2])), draw(st.booleans())


class Known:
    """Schemas by their ids."""

    def __init__(self, schemas: Mapping[int, Schema]) -> None:
        self._schemas = schemas

    def known(self, id: int) -> Schema | None:
        return self._schemas.get(id)


def reads(schema: str) -> Any:
    """What reads messages of one schema."""
    return Framed(Known({7: Schema(7, schema)}), avro.reader, {}).to_raw


def decoded(
    read: Any, messages: list[bytes], names: bool, kind: int = 1, hashed: bool = True
) -> tuple[Batch, list[DeadLetter], Catalog]:
    catalog = Catalog(("country", "device", "position"))
    decoder = Decoder(catalog, clock=lambda: NOW + 10**9, max_future=0, hashed=hashed, names=names)
    decoder.own = read
    with carrying_all():
        batch, letters = decoder.messages(
            [*messages], [kind] * len(messages), topic=("i", "c"), partition=0, offsets=range(len(messages)), format="own",
            shared=kind == 0,
        )  # fmt: skip
    return batch, letters, catalog


def assert_equal(a: Any, b: Any, where: str = "") -> None:
    """All the way down; ids as they were written are of one side only."""
    if where.endswith((".names", ".whole")):
        return
    assert type(a) is type(b), where
    if is_dataclass(a):
        for one in fields(a):
            assert_equal(getattr(a, one.name), getattr(b, one.name), f"{where}.{one.name}")
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype, where
        assert np.array_equal(a, b, equal_nan=a.dtype.kind == "f"), where
    elif isinstance(a, dict):
        assert a.keys() == b.keys(), where
        for name in a:
            assert_equal(a[name], b[name], f"{where}.{name}")
    elif isinstance(a, tuple):
        assert len(a) == len(b), where
        for k, pair in enumerate(zip(a, b, strict=True)):
            assert_equal(*pair, f"{where}[{k}]")
    else:
        assert a == b, where


def avro_check(given: tuple[str, Sequence[bytes], int, bool]) -> None:
    """The kernel and the way by Arrow make the same batch, and the same letters: every message is in one of them."""
    schema, messages, kind, hashed = given
    mine, letters, catalog = decoded(reads(schema), [*messages], False, kind, hashed)
    judge, due, of_judge = decoded(reads(schema), [*messages], True, kind, hashed)
    assert letters == due
    assert_equal(mine, judge)
    assert catalog.series == of_judge.series
    assert len(mine.impressions) + len(mine.candidates) + len(mine.clicks) + len(letters) == len(messages)


AVRO: tuple[st.SearchStrategy[Any], Callable[[Any], None]] = (_messages(), avro_check)
