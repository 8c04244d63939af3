"""What no field is called is told, once."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from streameval.events.batch import Catalog
from streameval.sources.formats import avro, protobuf, unread
from streameval.sources.formats.decode import Decoder
from streameval.sources.formats.framed import Framed, Schema
from streameval.sources.formats.live_columns import LiveColumns
from streameval.sources.formats.unread import Unread
from tests.fuzz.laws import Form
from tests.sources.formats.same_events import read_as
from tests.sources.formats.test_avro import CORE, SHOWN, Known, avro_of, record

EVENT = {"impression_id": "i", "ts": 1_700_000_000_000, "user_id": "u", "pclick": 0.1}


def told(caplog: pytest.LogCaptureFixture, *events: object) -> list[tuple[int, str]]:
    looking = Unread()
    with caplog.at_level(logging.INFO, unread.__name__):
        for event in events:
            looking.look([event if isinstance(event, bytes) else json.dumps(event).encode()])
    return [(record.levelno, record.getMessage()) for record in caplog.records]


def test_a_misspelt_field_is_asked_about_once(caplog: pytest.LogCaptureFixture) -> None:
    one = EVENT | {"version": "v1"}
    assert told(caplog, one, one) == [
        (logging.WARNING, 'events have a field "version", which is ignored: did you mean model_version?')
    ]


def test_other_words_for_a_field_are_asked_about_too(caplog: pytest.LogCaptureFixture) -> None:
    assert told(caplog, EVENT | {"label": 1}) == [
        (logging.WARNING, 'events have a field "label", which is ignored: did you mean clicked?')
    ]
    assert unread._OTHER_WORDS.keys().isdisjoint(unread.FIELDS)
    assert set(unread._OTHER_WORDS.values()) <= unread.FIELDS.keys()


def test_a_field_of_ones_own_is_mere_information(caplog: pytest.LogCaptureFixture) -> None:
    assert told(caplog, EVENT | {"trace": "x"}) == [(logging.INFO, 'events have a field "trace", which is ignored')]
    caplog.clear()
    beside = EVENT | {"model_version": "v1", "version": 7}  # what it looks like is there
    assert [level for level, _ in told(caplog, beside)] == [logging.INFO]


def test_every_field_is_known_and_non_objects_are_skipped(caplog: pytest.LogCaptureFixture) -> None:
    every = dict.fromkeys(unread.FIELDS)
    assert told(caplog, every, b"", b"[1]", b"no json", b'{"a":', b"\xff", b"[" * 10_000) == []


def test_names_are_logged_up_to_a_limit_and_on_one_line(caplog: pytest.LogCaptureFixture) -> None:
    events = [{f"zz{i}\n" + "x" * 500: 1} for i in range(unread.MOST_NAMES * 2)]
    lines = told(caplog, *events)
    assert len(lines) == unread.MOST_NAMES
    assert all("\n" not in line and len(line) < 200 for _, line in lines)


@pytest.mark.parametrize("kernel", [True, False])
def test_the_decoder_looks(kernel: bool, caplog: pytest.LogCaptureFixture) -> None:
    decoder = Decoder(Catalog(), clock=lambda: 1 << 62, max_future=0, json_kernel=kernel)
    value = json.dumps(EVENT | {"user": "u"}).encode()
    with caplog.at_level(logging.INFO, unread.__name__):
        decoder.messages([value], [1], topic=("i", "c"), partition=0, offsets=[0], format="json", shared=False)
    assert 'events have a field "user", which is ignored' in caplog.text


def of_schema(caplog: pytest.LogCaptureFixture, read: Any, values: list[bytes], kind: int = 1) -> list[tuple[int, str]]:
    with caplog.at_level(logging.INFO, unread.__name__):
        for _ in range(2):
            read_as(Form(), read, values, kind)
    return [(record.levelno, record.getMessage()) for record in caplog.records]


def test_the_fields_of_an_avro_schema_are_looked_at_once(caplog: pytest.LogCaptureFixture) -> None:
    schema = record("Shown", {**CORE, "version": "string", "trace": "string", "old": "string"}, old=["item_id"])
    own, values = avro_of(schema, [{**SHOWN[0], "version": "v1", "trace": "t", "old": "x"}])
    assert of_schema(caplog, own, values) == [
        (
            logging.WARNING,
            'schema 7, Shown: events have a field "version", which is ignored: did you mean model_version?',
        ),
        (logging.INFO, 'schema 7, Shown: events have a field "trace", which is ignored'),
    ]


def test_the_fields_of_each_type_of_a_protobuf_schema_are_looked_at(caplog: pytest.LogCaptureFixture) -> None:
    text = """syntax = "proto3"; package ads;
      message Shown { string impression_id = 1; double prediction = 2; }
      message Never { string impression = 1; }
      message Clicked { string impression_id = 1; string usr_id = 2; }"""
    own = Framed(Known({7: Schema(7, text, {}, "PROTOBUF")}), protobuf.reader, {}).to_raw
    assert of_schema(caplog, own, [b"\0\0\0\0\7\0\x0a\1i", b"\0\0\0\0\7\2\4\x0a\1i"]) == [
        (
            logging.WARNING,
            'schema 7, ads.Shown: events have a field "prediction", which is ignored: did you mean pclick?',
        ),
        (
            logging.WARNING,
            'schema 7, ads.Clicked: events have a field "usr_id", which is ignored: did you mean user_id?',
        ),
    ]


def test_what_a_mapping_leaves_is_not_looked_at(caplog: pytest.LogCaptureFixture) -> None:
    schema = record("Shown", {**CORE, "version": "string"})
    _, values = avro_of(schema, [{**SHOWN[0], "version": "v1"}])
    maps = {1: LiveColumns({name: name for name in CORE} | {"model_version": "version"}, "kafka.columns")}
    own = Framed(Known({7: Schema(7, json.dumps(schema))}), avro.reader, maps).to_raw
    assert of_schema(caplog, own, values) == []
