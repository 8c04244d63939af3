"""`replay --predictions`: one Parquet row per scored impression, so that every number can be recomputed.

Rows are written as labels mature, so memory does not grow with the stream; if labels changed later, the file is
rewritten once at the end with the labels as they finally stand.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from streameval.events.batch import Catalog
from streameval.events.columns import Settled
from streameval.events.hashing import hash_strings

_SCHEMA = pa.schema(
    [
        ("impression_id", pa.string()),
        ("user_id", pa.string()),
        ("request_id", pa.string()),  # null: the event had none
        ("model", pa.dictionary(pa.int32(), pa.string())),
        ("version", pa.dictionary(pa.int32(), pa.string())),
        ("source", pa.dictionary(pa.int32(), pa.string())),
        ("pclick", pa.float64()),
        ("clicked", pa.int8()),
        ("ts", pa.int64()),  # ms since the epoch
    ]
)


class PredictionsWriter:
    """Writes to a temporary file beside `path`, or beside the file that a link leads to, which `close` puts in place."""

    def __init__(self, path: str | Path, catalog: Catalog) -> None:
        """Raises OSError when the folder cannot be written."""
        self._path = Path(path)
        self._target = Path(os.path.realpath(path))  # a link stays a link
        self._partial = self._target.with_name(self._target.name + ".partial")
        self._fixed = self._partial.with_suffix(".fixed")
        self._catalog = catalog
        with self._named():
            self._file = open(self._partial, "wb")  # noqa: SIM115  (PyArrow knows no file names in other encodings than UTF-8)
            self._writer = pq.ParquetWriter(self._file, _SCHEMA, compression="zstd")
        self._changed: list[tuple[NDArray[np.uint64], NDArray[np.int8]]] = []

    def settled(self, rows: Settled) -> None:
        """Labels that have matured."""
        if rows.names is None or not rows.scored.row.size:
            return
        at, series = rows.scored.row, rows.scored.series
        names = self._catalog.series
        request = rows.names.request_id[at]
        columns = [
            pa.array(rows.names.impression_id[at], pa.string()),
            pa.array(rows.names.user_id[at], pa.string()),
            pa.array(request, pa.string(), mask=np.equal(request, "").astype(bool)),
            _coded(series, [s.model for s in names]),
            _coded(series, [s.version for s in names]),
            _coded(series, [s.source for s in names]),
            pa.array(rows.scored.p),
            pa.array(rows.label[at]),
            pa.array(rows.ts[at]),
        ]
        with self._named():
            self._writer.write_table(pa.Table.from_arrays(columns, schema=_SCHEMA))

    def corrected(self, ids: NDArray[np.uint64], label: NDArray[np.int8]) -> None:
        """Labels that changed after they had matured; the last change counts."""
        self._changed.append((ids, label))

    def close(self) -> None:
        """Puts the finished file in place."""
        with self._named():
            self._writer.close()
            self._file.close()
            if self._changed:
                self._rewrite()
            os.replace(self._partial, self._target)

    def abort(self) -> None:
        """Removes the temporary file."""
        with suppress(OSError):  # on a full disk the end of the file cannot be written either
            self._writer.close()
        with suppress(OSError):
            self._file.close()
        self._partial.unlink(missing_ok=True)
        self._fixed.unlink(missing_ok=True)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Adds the name of the file to the error of a full disk."""
        try:
            yield
        except OSError as error:
            error.filename = error.filename or str(self._path)
            raise

    def _rewrite(self) -> None:
        ids = np.concatenate([i for i, _ in self._changed])[::-1]
        label = np.concatenate([y for _, y in self._changed])[::-1]
        ids, last = np.unique(ids, return_index=True)
        label = label[last]
        with (
            open(self._partial, "rb") as partial,
            open(self._fixed, "wb") as fixed,
            pq.ParquetFile(partial) as old,
            pq.ParquetWriter(fixed, _SCHEMA, compression="zstd") as new,
        ):
            for group in range(old.num_row_groups):
                table = old.read_row_group(group).cast(_SCHEMA)
                row_id = hash_strings(table["impression_id"].combine_chunks())
                at = np.minimum(np.searchsorted(ids, row_id), ids.size - 1)
                clicked = np.where(ids[at] == row_id, label[at], table["clicked"].to_numpy())
                column = table.schema.get_field_index("clicked")
                new.write_table(table.set_column(column, "clicked", pa.array(clicked, pa.int8())))
        os.replace(self._fixed, self._partial)


def _coded(codes: NDArray[np.int32], names: list[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(names, pa.string()))
