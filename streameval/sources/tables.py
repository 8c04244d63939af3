"""Tables from files: rows that are not valid text, and batches with a fixed number of rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}


def not_text(table: pa.Table) -> list[int]:
    """Returns rows with a string that is not UTF-8, which a Parquet or Arrow file may contain unchecked.

    Raises ArrowInvalid for a column that leads out of its data: reading its values would end the process.
    """
    try:
        table.validate(full=True)
    except pa.ArrowInvalid:
        bad: set[int] = set()
        for column in table.columns:
            kind = _BYTES.get(column.type)
            if kind is None:
                column.validate(full=True)
                continue
            read = pa.chunked_array([chunk.view(kind) for chunk in column.chunks], kind)
            read.validate(full=True)  # all but UTF-8
            for row, value in enumerate(read.cast(pa.large_binary()).to_pylist()):
                if value is not None and value != value.decode("utf-8", "replace").encode():
                    bad.add(row)
        if not bad:
            raise
        return sorted(bad)
    return []


def rebatched(
    pairs: Iterator[tuple[pa.Table, NDArray[np.int64]]], rows: int
) -> Iterator[tuple[pa.Table, NDArray[np.int64]]]:
    """Yields tables of exactly `rows` rows (the last one fewer), however the file is divided, and the numbers of their
    rows.
    """
    held: list[tuple[pa.Table, NDArray[np.int64]]] = []
    have = 0

    def whole() -> tuple[pa.Table, NDArray[np.int64]]:
        return pa.concat_tables([table for table, _ in held]), np.concatenate([numbers for _, numbers in held])

    for pair in pairs:
        held.append(pair)
        have += pair[0].num_rows
        if have >= rows:
            table, numbers = whole()
            at = 0
            while have - at >= rows:
                yield table.slice(at, rows), numbers[at : at + rows]
                at += rows
            held, have = [(table.slice(at), numbers[at:])], have - at
    if have:
        yield whole()
