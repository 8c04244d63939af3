"""Simulated traffic as a file: .jsonl (.gz, .zst), .csv or .parquet, by the name."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import zstandard

from streameval.simulate.encode import Message, events
from streameval.simulate.traffic import Traffic

_CHUNK = 20_000
_TELL = 1_000  # events between two looks at the clock
_PACKED = (".gz", ".zst")
_LINES = (".jsonl", ".ndjson")
_COLUMNS = (".csv", ".parquet")  # never compressed as a whole
_MAPS = ("slices", "features", "predictions")
_SCHEMA = pa.schema(
    [
        ("type", pa.string()),
        ("impression_id", pa.string()),
        ("ts", pa.int64()),
        ("user_id", pa.string()),
        ("model", pa.string()),
        ("model_version", pa.string()),
        ("pclick", pa.float64()),
        ("request_id", pa.string()),
        ("item_id", pa.string()),
        ("position", pa.int32()),
        *((name, pa.string()) for name in _MAPS),
    ]
)


def format_of(path: Path) -> str:
    """The suffix that says how a file is written, without that of the compression. Raises ValueError for any other name."""
    kinds = [suffix for suffix in path.suffixes if suffix not in _PACKED]
    kind = kinds[-1] if kinds else ""
    if kind not in _LINES and (kind not in _COLUMNS or path.suffix != kind):
        raise ValueError(f"{path}: the format cannot be told; name it .jsonl, .jsonl.gz, .jsonl.zst, .csv or .parquet")
    return kind


def write_file(
    traffic: Traffic,
    path: Path,
    stop: threading.Event | None = None,
    on_progress: Callable[[float, int], None] | None = None,
) -> tuple[int, int]:
    """Writes all events, or those until `stop` is set; returns (impressions, clicks). Columnar files leave malformed events out.

    `on_progress` gets the share of the time that is written, and the events so far. Raises ValueError for a name of unknown format.
    """
    counts = {"impression": 0, "click": 0}

    start, length = traffic.scenario.start_ms, traffic.scenario.duration_s * 1000.0

    def counted() -> Iterator[Message]:
        for number, event in enumerate(events(traffic)):
            if number % _TELL == 0:
                if stop is not None and stop.is_set():
                    return
                if on_progress is not None:
                    on_progress((event.arrives - start) / length, number)
            counts[event.kind] += event.raw is None
            yield event

    kind = format_of(path)
    try:
        if kind in _LINES:
            with _opened(path) as file:
                for event in counted():
                    file.write(event.json(with_type=True) + b"\n")
        elif kind == ".parquet":
            with open(path, "wb") as file, pq.ParquetWriter(file, _SCHEMA) as parquet:
                for table in _tables(counted()):
                    parquet.write_table(table)
        else:
            with open(path, "wb") as file, pyarrow.csv.CSVWriter(file, _SCHEMA) as csv:
                for table in _tables(counted()):
                    csv.write_table(table)
    except OSError as error:  # a full disk's does not say of which file
        error.filename = error.filename or str(path)
        raise
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


def _tables(all_events: Iterator[Message]) -> Iterator[pa.Table]:
    while part := list(islice(all_events, _CHUNK)):
        rows = [_row(event) for event in part if event.raw is None]
        yield pa.Table.from_pylist(rows, schema=_SCHEMA)


def _row(event: Message) -> dict[str, Any]:
    row = {"type": event.kind, **event.fields}
    for name in _MAPS:
        if name in row:
            row[name] = msgspec.json.encode(row[name]).decode()
    return row
