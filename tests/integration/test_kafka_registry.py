"""Avro and Protobuf on a real Kafka with a real schema registry: the report of the JSON topic, to the bit."""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from streameval.sources.kafka.writer import KafkaWriter
from tests.integration.conftest import need_kafka
from tests.integration.readings import read, replay
from tests.integration.registry import Registry
from tests.integration.simulated_world import SIMULATED, partition_of, stream
from tests.laws.test_restart_laws import differences

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
PATIENCE = 300.0  # seconds, on a slow machine

TEXT, NUMBER = ["null", "string"], ["null", "double"]
SLICES = {"type": "record", "name": "Slices", "namespace": "ads", "fields": [
    {"name": "country", "type": TEXT}, {"name": "device", "type": TEXT}]}  # fmt: skip
FIELDS: list[dict[str, Any]] = [
    {"name": "impression_id", "type": "string"},
    {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "user_id", "type": "string"},
    {"name": "pclick", "type": NUMBER},
    {"name": "model", "type": TEXT},
    {"name": "model_version", "type": TEXT},
    {"name": "request_id", "type": TEXT},
    {"name": "item_id", "type": TEXT},
    {"name": "position", "type": ["null", "int"]},
    {"name": "slices", "type": ["null", "ads.Slices"]},
    {"name": "features", "type": ["null", {"type": "map", "values": ["string", "double"]}]},
    {"name": "predictions", "type": ["null", {"type": "map", "values": "double"}]},
]
AVRO = {"type": "record", "name": "Impression", "namespace": "ads", "fields": FIELDS}
# what it has become midway: fields in another order, a wider type, and one that nobody here knows
LATER = [{"name": "campaign", "type": ["null", {"type": "array", "items": "long"}], "default": None}, *reversed(FIELDS)]
AVRO_LATER = AVRO | {"fields": [f | {"type": ["null", "long"]} if f["name"] == "position" else f for f in LATER]}
AVRO_CLICK = {
    "type": "record",
    "name": "Click",
    "namespace": "ads",
    "fields": [*FIELDS[:2], {"name": "user_id", "type": TEXT}],
}

_COMMON = """
  string impression_id = 1; google.protobuf.Timestamp ts = 2; string user_id = 3; optional double pclick = 4;
  optional string model = 5; optional string model_version = 6; string request_id = 7; google.protobuf.StringValue item_id = 8;
  optional int32 position = 9; Slices slices = 10; map<string, double> predictions = 12;"""
_HEAD = """syntax = "proto3"; package ads;
import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto"; import "google/protobuf/struct.proto";
import "ads/slices.proto";"""
PROTO_SLICES = 'syntax = "proto3"; package ads; message Slices { string country = 1; string device = 2; }'
PROTO = (
    f"{_HEAD} message Other {{ int32 n = 1; }} message Impression {{ {_COMMON} google.protobuf.Struct features = 11; }}"
)
PROTO_LATER = f"{_HEAD} message Other {{ int32 n = 1; }} message Impression {{ repeated int64 campaign = 20; {_COMMON} google.protobuf.Struct features = 11; }}"
PROTO_CLICK = 'syntax = "proto3"; package ads; message Click { string impression_id = 1; int64 ts = 2; optional string user_id = 3; }'


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """A registry that runs: STREAMEVAL_TEST_REGISTRY, or one started for these tests."""
    one = Registry(tmp_path_factory.mktemp("registry"))
    if given := os.environ.get("STREAMEVAL_TEST_REGISTRY"):
        one.url = given
        yield one
        return
    need_kafka()  # Java
    try:
        one.start()
        yield one
    finally:
        one.stop()


Encode = Callable[[bool, dict[str, Any], bool], bytes]  # a click, the event, whether after the change


def avro(registry: Registry, subject: str) -> Encode:
    registry.register(f"{subject}-slices", SLICES)
    refer = [{"name": "ads.Slices", "subject": f"{subject}-slices", "version": 1}]
    ids = [registry.register(f"{subject}-v", schema, references=refer) for schema in (AVRO, AVRO_LATER)]
    ids.append(registry.register(f"{subject}-c", AVRO_CLICK))
    named: dict[str, Any] = {}
    fastavro.parse_schema(SLICES, named_schemas=named)
    parsed = [fastavro.parse_schema(schema, named_schemas=dict(named)) for schema in (AVRO, AVRO_LATER, AVRO_CLICK)]

    def encode(click: bool, event: dict[str, Any], later: bool) -> bytes:
        k = 2 if click else int(later)
        out = io.BytesIO(b"\0" + ids[k].to_bytes(4, "big"))
        out.seek(5)
        features = {n: float(v) if isinstance(v, int) else v for n, v in (event.get("features") or {}).items()}
        given = event | ({"features": features} if "features" in event else {})
        fastavro.schemaless_writer(out, parsed[k], given)
        return out.getvalue()

    return encode


def protobuf(registry: Registry, subject: str) -> Encode:
    registry.register(f"{subject}-slices", PROTO_SLICES, "PROTOBUF")
    refer = [{"name": "ads/slices.proto", "subject": f"{subject}-slices", "version": 1}]
    ids = [registry.register(f"{subject}-v", text, "PROTOBUF", refer) for text in (PROTO, PROTO_LATER)]
    ids.append(registry.register(f"{subject}-c", PROTO_CLICK, "PROTOBUF"))
    names = ("ads.Impression", "ads.Impression", "ads.Click")
    classes = [compiled(text, name) for text, name in zip((PROTO, PROTO_LATER, PROTO_CLICK), names, strict=True)]

    def encode(click: bool, event: dict[str, Any], later: bool) -> bytes:
        k = 2 if click else int(later)
        message = classes[k]()
        for name, value in event.items():
            if name == "type":
                continue
            if name == "ts" and not click:
                message.ts.seconds, message.ts.nanos = value // 1000, value % 1000 * 1_000_000
            elif name == "item_id":
                message.item_id.value = value
            elif name == "slices":
                message.slices.country, message.slices.device = value.get("country", ""), value.get("device", "")
            elif name == "features":
                message.features.update(value)
            elif name == "predictions":
                message.predictions.update(value)
            else:
                setattr(message, name, value)
        indexes = b"\0" if click else b"\2\2"  # Impression is the second message of its file: one index, 1
        return b"\0" + ids[k].to_bytes(4, "big") + indexes + message.SerializeToString()

    return encode


def compiled(text: str, name: str) -> Any:
    """The class of a message, by Google's own compiler and library."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "ads").mkdir()
        (Path(folder) / "ads" / "slices.proto").write_text(PROTO_SLICES)
        (Path(folder) / "main.proto").write_text(text)
        arguments = [f"-I{folder}", "--include_imports", f"--descriptor_set_out={folder}/out", "main.proto"]
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *arguments], check=True)
        files = descriptor_pb2.FileDescriptorSet.FromString((Path(folder) / "out").read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


FORMATS = {"avro": avro, "protobuf": protobuf}


@pytest.mark.parametrize("format", FORMATS)
def test_a_topic_whose_schema_changes_gives_the_report_of_the_json_files(
    real_lab: Any, registry: Registry, format: str, tmp_path: Path
) -> None:
    lab = real_lab
    lab.create(lab.impressions, lab.clicks, partitions=2)
    encode = FORMATS[format](registry, lab.impressions)
    writer = KafkaWriter(lab.address)
    for number, message in enumerate(stream()):
        try:
            value = encode(message.click, json.loads(message.value), number > len(stream()) // 2)
        except ValueError:
            value = message.value  # malformed, in any format
        writer.write((lab.impressions, lab.clicks)[message.click], [message.key], [value], partition_of(message, 2))
    writer.close()
    settings = lab.settings(format=format, schema_registry={"url": registry.url})
    found = read(SIMULATED, settings, tmp_path / "kafka", 700)
    truth = replay(SIMULATED, False, 2, tmp_path / "files")
    assert found.report["events"]["invalid"]
    assert not differences(found.published, truth.published)
    assert not differences(found.report, truth.report)
    assert found.history == truth.history


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("client", ["confluent"], indirect=True)
def test_mangled_messages_are_dead_letters_with_reasons(real_lab: Any, registry: Registry, format: str) -> None:
    """The long form: STREAMEVAL_MANGLED=200000."""
    lab, count = real_lab, int(os.environ.get("STREAMEVAL_MANGLED", "4000"))
    lab.create(lab.impressions, lab.clicks, partitions=1)
    luck = random.Random(3)
    encode = FORMATS[format](registry, lab.impressions)
    some = [json.loads(m.value) for m in stream()[:400] if not m.click and m.value.startswith(b'{"type"')]
    values = [mangled(encode(False, luck.choice(some), luck.random() < 0.5), luck) for _ in range(count)]
    good = encode(False, some[0], False)
    lab.write(lab.impressions, [*values, good])
    sink = Letters()
    source = lab.source(lab.settings(format=format, schema_registry={"url": registry.url}), sink)
    events, invalid, end = 0, Counter[str](), time.monotonic() + PATIENCE + count / 500
    at = 0
    while at <= count:
        assert time.monotonic() < end
        for batch in source.poll(0.5):
            events += len(batch)
            invalid.update(batch.invalid)
            at = batch.offsets.get((lab.impressions, 0), at)
    assert events + len(sink.letters) == count + 1
    assert invalid == Counter(letter.reason for letter in sink.letters)
    assert {"malformed", "unknown_schema", "empty"} <= set(invalid), invalid
    for letter in sink.letters:
        assert letter.offset < count, letter  # the good one is behind them
        assert letter.value == values[letter.offset]
        if letter.reason == "unknown_schema":
            assert f"schema {int.from_bytes(letter.value[1:5], 'big')}:" in letter.message


def mangled(value: bytes, luck: random.Random) -> bytes:
    """Cut, prolonged, with other bytes, another schema's, or no message at all."""
    kind = luck.randrange(6)
    if kind == 0:
        return value[: luck.randrange(len(value))]
    if kind == 1:
        return value + luck.randbytes(luck.randrange(1, 9))
    if kind == 2:
        at = luck.randrange(5, len(value))
        return value[:at] + luck.randbytes(3) + value[at + 3 :]
    if kind == 3:
        return b"\0" + luck.choice([10_000, 999_999, (1 << 32) - 1]).to_bytes(4, "big") + value[5:]
    if kind == 4:
        return luck.choice([b"", b"{}", luck.randbytes(40)])
    return value[:5] + luck.randbytes(luck.randrange(200))


class Letters:
    """A sink that keeps letters."""

    def __init__(self) -> None:
        self.letters: list[Any] = []

    def write(self, letters: Any) -> None:
        self.letters += letters

    def flush(self, timeout: float) -> None: ...

    def close(self) -> None: ...


def test_while_the_registry_is_away_messages_wait_and_none_is_lost(real_lab: Any, tmp_path: Path) -> None:
    lab, registry = real_lab, Registry(tmp_path)
    lab.create(lab.impressions, lab.clicks, partitions=1)
    try:
        registry.start()
        encode = avro(registry, "away")
        registry.stop()
        some = [json.loads(m.value) for m in stream()[:500] if not m.click and m.value.startswith(b'{"type"')]
        lab.write(lab.impressions, [encode(False, event, False) for event in some])
        source = lab.source(lab.settings(format="avro", schema_registry={"url": registry.url}))

        def nothing() -> None:
            assert not sum(len(batch) + sum(batch.invalid.values()) for batch in source.poll(0.5))

        end = time.monotonic() + PATIENCE
        while source.partitions() != {0}:
            assert time.monotonic() < end
            nothing()
        end = time.monotonic() + 8
        while time.monotonic() < end:
            nothing()
        assert source.partitions() == {0}
        assert source.schemas().startswith(f"schema registry: {registry.url}: "), source.schemas()
        assert source.lag().get((lab.impressions, 0), len(some)) == len(some)
        registry.start()
        avro(registry, "away")  # a new one, which gives the same ids
        seen: list[int] = []
        end = time.monotonic() + PATIENCE
        while len(seen) < len(some) and time.monotonic() < end:
            for batch in source.poll(0.5):
                assert not batch.invalid
                seen += batch.impressions.ts.tolist()
        assert seen == [event["ts"] for event in some]
        assert source.schemas() == ""
    finally:
        registry.stop()
