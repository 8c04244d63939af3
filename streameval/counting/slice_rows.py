"""Row numbers of slices: a series in one value of one dimension has the same row in every partition of the process."""

from __future__ import annotations

from collections.abc import Sequence

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.events.batch import RETIRED, Catalog
from streameval.events.codes import Codes
from streameval.events.columns import Scored

_ONE = np.zeros(1, np.int32)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _slice_rows(
    table: NDArray[np.int32],
    next_row: int,
    series: NDArray[np.int32],
    row: NDArray[np.int32],
    slices: NDArray[np.int64],
    divisor: int,
    out: NDArray[np.int32],
) -> int:
    """Numbers (series, value) pairs of one dimension; new ones get the next numbers."""
    by, radix = np.uint64(divisor), np.uint64(table.shape[1])
    for i in range(series.size):
        value = np.int64((np.uint64(slices[row[i]]) // by) % radix)  # unsigned: takes half the time
        known = table[series[i], value]
        if known < 0:
            known = np.int32(next_row)
            table[series[i], value] = known
            next_row += 1
        out[i] = known
    return next_row


class SliceRows:
    """Row numbers of (series, dimension, value), the same in every partition of the process."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._table = np.full((len(catalog.dimensions), 0, catalog.radix), -1, np.int32)
        self.count = 0

    def rows(self, dimension: int, scored: Scored, slices: NDArray[np.int64]) -> NDArray[np.int32]:
        """Returns the row of every score in one dimension."""
        have = self._table.shape[1]
        if len(self._catalog.series) > have:
            more = np.full((self._table.shape[0], len(self._catalog.series) - have, self._catalog.radix), -1, np.int32)
            self._table = np.concatenate((self._table, more), axis=1)
        out = np.empty(scored.series.size, np.int32)
        divisor = self._catalog.radix**dimension
        self.count = _slice_rows(self._table[dimension], self.count, scored.series, scored.row, slices, divisor, out)
        return out

    def adopt(self, rows: Sequence[tuple[int, int, int, int]], codes: Codes) -> NDArray[np.int64]:
        """Returns this process's row numbers of the rows that `known` returned in another process, by their numbers
        there.
        """
        mapping = np.zeros(max((row for row, *_ in rows), default=-1) + 1, np.int64)
        for row, series, dimension, value in sorted(rows):
            here = Scored((0, 1), _ONE, codes.series[[series]], np.zeros(1), np.zeros(1, np.bool_))
            combined = codes.values[dimension][[value]] * self._catalog.radix**dimension
            mapping[row] = self.rows(dimension, here, combined)[0]
        return mapping

    def of(self, series: int) -> list[int]:
        """Returns the rows of one series; they stay with its code."""
        if series >= self._table.shape[1]:
            return []
        mine = self._table[:, series]
        return [int(row) for row in mine[mine >= 0]]

    def known(self) -> list[tuple[int, int, int, int]]:
        """Returns (row, series, dimension, value code) of every row in use, by series, dimension and value."""
        dimension, series, value = np.nonzero(self._table >= 0)
        row = self._table[dimension, series, value]
        found = zip(row.tolist(), series.tolist(), dimension.tolist(), value.tolist(), strict=True)
        return sorted((f for f in found if self._catalog.series[f[1]] != RETIRED), key=lambda f: f[1:])
