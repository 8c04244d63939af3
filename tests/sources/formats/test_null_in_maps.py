"""A null among the numbers of versions is one that is absent, however the event is written."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from streameval.sources.formats import avro
from streameval.sources.formats.framed import Framed, Schema
from tests.fuzz.laws import FORMS, Form
from tests.fuzz.strategies import NOW
from tests.sources.formats.same_events import assert_same_events, read_as
from tests.sources.formats.test_avro import Known

FIELDS = ("predictions", "policies")
EVENTS: list[dict[str, Any]] = [
    {"impression_id": f"i{k}", "ts": NOW + k, "user_id": "u", "pclick": 0.25, "features": {}, "predictions": one, "policies": one}
    for k, one in enumerate([{"v2": 0.5, "v3": None}, {"v2": None, "v3": 0.5}, {"v3": None}, {}, {"v2": 0.0}])
]  # fmt: skip
TRUTH = [
    event | {name: {version: x for version, x in event[name].items() if x is not None} for name in FIELDS}
    for event in EVENTS
]


def encoded(events: list[dict[str, Any]]) -> list[bytes]:
    return [json.dumps(event).encode() for event in events]


@pytest.mark.parametrize("form", [*FORMS, Form(json_kernel=False)])
def test_in_json(form: Form) -> None:
    wanted = read_as(form, None, encoded(TRUTH), 1, "json")
    assert (len(wanted[0]), wanted[1]) == (len(EVENTS), [])
    assert read_as(form, None, encoded(EVENTS), 1, "json") == wanted


def test_a_number_that_is_none_is_named_beside_a_null() -> None:
    bad = EVENTS[0] | {"predictions": {"v2": None, "v3": "x", "v4": 2}}
    _, letters = read_as(Form(), None, encoded([bad]), 1, "json")
    assert letters == [("wrong_type", "predictions", 'predictions["v3"] = "x": must be a number')]


@pytest.mark.parametrize("kind", ["map", "text", "struct"])
def test_in_a_column(kind: str) -> None:
    types = {"map": pa.map_(pa.string(), pa.float64()), "text": pa.string(),
             "struct": pa.struct([("v2", pa.float64()), ("v3", pa.float64())])}  # fmt: skip
    write: dict[str, Any] = {"map": lambda of: list(of.items()), "text": json.dumps, "struct": dict}
    columns: dict[str, Any] = {name: [event[name] for event in EVENTS] for name in EVENTS[0] if name != "features"}
    columns |= {name: pa.array([write[kind](of) for of in columns[name]], types[kind]) for name in FIELDS}
    table = pa.table(columns)
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table)
    form = Form(hashed=False)
    assert read_as(form, None, [out.getvalue()], 1, "arrow") == read_as(form, None, encoded(TRUTH), 1, "json")


def test_in_avro() -> None:
    types: dict[str, Any] = {"impression_id": "string", "ts": "long", "user_id": "string", "pclick": "double"}
    types |= {name: {"type": "map", "values": ["null", "double"]} for name in FIELDS}
    types["features"] = {"type": "map", "values": "double"}
    schema = {"type": "record", "name": "E", "fields": [{"name": name, "type": kind} for name, kind in types.items()]}
    values = []
    for event in EVENTS:
        out = io.BytesIO(b"\0\0\0\0\7")
        out.seek(5)
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), event)
        values.append(out.getvalue())
    own = Framed(Known({7: Schema(7, json.dumps(schema))}), avro.reader, {}).to_raw
    assert_same_events(own, values, TRUTH)
