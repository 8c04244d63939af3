"""Simulated traffic as a file: .jsonl (.gz, .zst), .csv or .parquet, by the name."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import zstandard

from streameval.simulate.encode import Event, events
from streameval.simulate.traffic import Traffic

_CHUNK = 20_000
_MAPS = ("slices", "features", "predictions")
_SCHEMA = pa.schema(
    [
        ("type", pa.string()), ("impression_id", pa.string()), ("ts", pa.int64()), ("user_id", pa.string()),
        ("model", pa.string()), ("model_version", pa.string()), ("pclick", pa.float64()), ("request_id", pa.string()),
        ("item_id", pa.string()), ("position", pa.int32()), *((name, pa.string()) for name in _MAPS),
    ]
)  # fmt: skip


def write_file(traffic: Traffic, path: Path) -> tuple[int, int]:
    """Writes all events; returns (impressions, clicks). Columnar files leave malformed events out.

    Raises ValueError for a name whose format cannot be told.
    """
    counts = {"impression": 0, "click": 0}

    def counted() -> Iterator[Event]:
        for event in events(traffic):
            counts[event.kind] += event.raw is None
            yield event

    kinds = [suffix for suffix in path.suffixes if suffix not in (".gz", ".zst")]
    kind = kinds[-1] if kinds else ""
    if kind in (".jsonl", ".ndjson"):
        with _opened(path) as file:
            for event in counted():
                file.write(event.json(with_type=True) + b"\n")
    elif kind == ".parquet":
        with pq.ParquetWriter(path, _SCHEMA) as parquet:
            for table in _tables(counted()):
                parquet.write_table(table)
    elif kind == ".csv":
        with pyarrow.csv.CSVWriter(path, _SCHEMA) as csv:
            for table in _tables(counted()):
                csv.write_table(table)
    else:
        raise ValueError(f"{path}: the format cannot be told; name it .jsonl, .jsonl.gz, .jsonl.zst, .csv or .parquet")
    return counts["impression"], counts["click"]


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    with open(path, "wb") as file:
        if path.suffix == ".gz":  # neither name nor time inside: the same seed, the same bytes
            with gzip.GzipFile("", "wb", mtime=0, fileobj=file) as packed:
                yield cast(BinaryIO, packed)
        elif path.suffix == ".zst":
            with zstandard.ZstdCompressor().stream_writer(file, closefd=False) as writer:
                yield cast(BinaryIO, writer)
        else:
            yield file


def _tables(all_events: Iterator[Event]) -> Iterator[pa.Table]:
    while part := list(islice(all_events, _CHUNK)):
        rows = [_row(event) for event in part if event.raw is None]
        yield pa.Table.from_pylist(rows, schema=_SCHEMA)


def _row(event: Event) -> dict[str, Any]:
    row = {"type": event.kind, **event.fields}
    for name in _MAPS:
        if name in row:
            row[name] = msgspec.json.encode(row[name]).decode()
    return row
