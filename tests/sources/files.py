"""The same events in files of every format."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq
import zstandard


def as_lines(events: Sequence[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def as_table(events: Sequence[dict[str, Any]]) -> pa.Table:
    names = ("type", "impression_id", "ts", "user_id", "pclick")
    return pa.table({name: [event.get(name) for event in events] for name in names})


def write_arrow(table: pa.Table, path: Path) -> None:
    with pyarrow.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=70)


FILES: dict[str, Callable[[Sequence[dict[str, Any]], Path], Any]] = {
    "t.jsonl": lambda events, path: path.write_bytes(as_lines(events)),
    "t.jsonl.gz": lambda events, path: path.write_bytes(gzip.compress(as_lines(events))),
    "t.jsonl.zst": lambda events, path: path.write_bytes(zstandard.ZstdCompressor().compress(as_lines(events))),
    "t.csv": lambda events, path: pyarrow.csv.write_csv(as_table(events), path),
    "t.parquet": lambda events, path: pq.write_table(as_table(events), path, row_group_size=60),
    "t.arrow": lambda events, path: write_arrow(as_table(events), path),
}
