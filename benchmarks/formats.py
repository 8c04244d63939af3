"""Processor time of decoding: live messages of one event with 8 text features, as JSON, Avro and Protobuf in turn; and files.

Files are read from disk into batches, as `replay` does: JSONL and CSV beside the same lines as JSON messages, with and without features.
"""

from __future__ import annotations

import csv
import io
import json
import random
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import fastavro
import msgspec

from streameval.events.batch import Catalog
from streameval.settings.tree import Files
from streameval.sources.dead_letters import JsonlDeadLetters
from streameval.sources.files import FileSource
from streameval.sources.formats import avro, protobuf
from streameval.sources.formats.decode import Decoder
from streameval.sources.formats.framed import Framed, Schema

EVENTS = 20_000
ROUNDS = 7
HEAD = b"\0\0\0\0\7"
TEXT = ["null", "string"]
AVRO = {"type": "record", "name": "Impression", "fields": [
    {"name": "impression_id", "type": "string"}, {"name": "ts", "type": "long"}, {"name": "user_id", "type": "string"},
    {"name": "model", "type": TEXT}, {"name": "model_version", "type": TEXT}, {"name": "pclick", "type": ["null", "double"]},
    {"name": "slices", "type": ["null", {"type": "map", "values": "string"}]},
    {"name": "features", "type": ["null", {"type": "map", "values": ["string", "double", "boolean"]}]},
]}  # fmt: skip
PROTO = """syntax = "proto3"; message Impression { string impression_id = 1; int64 ts = 2; string user_id = 3;
optional string model = 4; optional string model_version = 5; optional double pclick = 6; map<string, string> slices = 7;
map<string, string> features = 8; }"""


def events() -> list[dict[str, Any]]:
    """The events of all formats."""
    luck = random.Random(1)
    return [
        {
            "impression_id": f"imp-{i}", "ts": 1_700_000_000_000 + i, "user_id": f"user-{i % 2000}", "model": "ctr",
            "model_version": "v1", "pclick": luck.random(), "slices": {"country": str(i % 20), "device": str(i % 4)},
            "features": {f"f{k}": str(luck.randrange(1000)) for k in range(8)},
        }
        for i in range(EVENTS)
    ]  # fmt: skip


def messages(rows: list[dict[str, Any]]) -> dict[str, list[bytes]]:
    """The same events in every format."""
    parsed = fastavro.parse_schema(json.loads(json.dumps(AVRO)))
    kind: Any = protobuf.reader(Schema(7, PROTO, {}, "PROTOBUF")).message_type((0,))
    out: dict[str, list[bytes]] = {"JSON": [msgspec.json.encode(row) for row in rows], "Avro": [], "Protobuf": []}
    for row in rows:
        packed = io.BytesIO()
        fastavro.schemaless_writer(packed, parsed, row)
        out["Avro"].append(HEAD + packed.getvalue())
        message = kind(**{name: value for name, value in row.items() if not isinstance(value, dict)})
        for name in ("slices", "features"):
            for key, value in row[name].items():
                getattr(message, name).add(key=key, value=value)
        out["Protobuf"].append(HEAD + b"\0" + message.SerializeToString())
    return out


class Known:
    """A registry with one schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def known(self, id: int) -> Schema | None:
        """The schema, for any id."""
        return self._schema


def decoder(name: str, hashed: bool, kind: int = 1) -> Callable[[list[bytes]], float]:
    """Processor time for all messages of a kind."""
    one = Decoder(Catalog(("country", "device")), clock=lambda: 1_800_000_000_000, max_future=0, hashed=hashed)
    if name == "Avro":
        one.own = Framed(Known(Schema(7, json.dumps(AVRO))), avro.reader, {}).to_raw
    elif name == "Protobuf":
        one.own = Framed(Known(Schema(7, PROTO, {}, "PROTOBUF")), protobuf.reader, {}).to_raw

    def run(values: list[bytes]) -> float:
        begin = time.process_time()
        for start in range(0, EVENTS, 10_000):
            some = values[start : start + 10_000]
            batch, letters = one.messages(
                some, [kind] * len(some), topic=("i", "c"), partition=0, offsets=range(len(some)),
                format="json" if name == "JSON" else "own", shared=False,
            )  # fmt: skip
            assert len(batch.impressions) == len(some)
            assert not letters
        return time.process_time() - begin

    return run


def in_files(rows: list[dict[str, Any]], folder: Path, features: bool) -> dict[str, Path]:
    """The same events in files."""
    kept = [row if features else {name: value for name, value in row.items() if name != "features"} for row in rows]
    lines, table = folder / f"{features}.jsonl", folder / f"{features}.csv"
    lines.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in kept))
    cells = [
        {name: value for name, value in row.items() if not isinstance(value, dict)}
        | {f"{name}.{k}": one for name, value in row.items() if isinstance(value, dict) for k, one in value.items()}
        for row in kept
    ]
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(cells[0]))
        writer.writeheader()
        writer.writerows(cells)
    return {"JSONL file": lines, "CSV file": table}


def file_reader(path: Path, hashed: bool) -> Callable[[], float]:
    """Processor time for a file."""

    def run() -> float:
        one = Decoder(Catalog(("country", "device")), clock=lambda: 1_800_000_000_000, max_future=0, hashed=hashed)
        source = FileSource([path], one, Files(), 10_000, JsonlDeadLetters(""))
        begin, count = time.process_time(), 0
        while not source.finished:
            count += sum(map(len, source.poll(0.0)))
        spent = time.process_time() - begin
        source.close()
        assert count == EVENTS
        return spent

    return run


def files(rows: list[dict[str, Any]]) -> None:
    """Prints the second table: rows of a file against the same rows as messages, also without the kind of event."""
    print(
        "\n| events | features | read from | events per second of one processor | against messages: median (least, most) |"
    )
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for features, hashed in ((False, False), (True, False), (True, True)):
            paths = in_files(rows, Path(folder), features)
            values, decode = paths["JSONL file"].read_bytes().splitlines(), decoder("JSON", hashed, kind=0)
            runs: dict[str, Callable[[], float]] = {"JSON messages": partial(decode, values)}
            runs |= {name: file_reader(path, hashed) for name, path in paths.items()}
            for run in runs.values():
                run()  # compile
            rounds = [{name: run() for name, run in runs.items()} for _ in range(ROUNDS)]
            for name in runs:
                seconds = sorted(one[name] for one in rounds)[ROUNDS // 2]
                ratios = sorted(one["JSON messages"] / one[name] for one in rounds)
                what = ("with 8 features" if features else "plain", "hashed" if hashed else "not read")
                middle = f"{ratios[ROUNDS // 2]:.2f} ({ratios[0]:.2f}, {ratios[-1]:.2f})"
                print(f"| {what[0]} | {what[1]} | {name} | {EVENTS / seconds:,.0f} | {middle} |")


def main() -> None:
    """Prints the table; every round has all formats, so that all run under the same conditions."""
    rows = events()
    given = messages(rows)
    print(
        "| features | format | events per second of one processor | against JSON in the same round: median (least, most) |"
    )
    print("|---|---|---|---|")
    for hashed in (False, True):
        runs = {name: decoder(name, hashed) for name in given}
        for name, run in runs.items():
            run(given[name])  # compile
        protobuf._preparing[0].join()  # its kernels, beside the reading
        rounds = [{name: run(given[name]) for name, run in runs.items()} for _ in range(ROUNDS)]
        for name in given:
            seconds = sorted(one[name] for one in rounds)[ROUNDS // 2]
            ratios = sorted(one["JSON"] / one[name] for one in rounds)
            learned = "hashed" if hashed else "not read"
            middle = f"{ratios[ROUNDS // 2]:.2f} ({ratios[0]:.2f}, {ratios[-1]:.2f})"
            print(f"| {learned} | {name} | {EVENTS / seconds:,.0f} | {middle} |")
    files(rows)


if __name__ == "__main__":
    main()
