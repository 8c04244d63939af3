"""When each row of a flat vector last changed, so that a look at many rows costs what has changed since the last one."""

from __future__ import annotations

from itertools import count

import numba
import numpy as np
from numpy.typing import NDArray

_times = count(1)


def now() -> int:
    """Returns a number greater than those of all changes so far, and smaller than those of all later ones."""
    return next(_times)


class RowChanges:
    """The rows of one vector, and when they last changed, as numbers of `now`."""

    __slots__ = ("_row_cells", "last")

    def __init__(self, row_cells: int) -> None:
        self._row_cells = row_cells
        self.last = np.zeros(0, np.int64)  # by row

    def fit(self, cells: int) -> None:
        """The vector has so many cells now."""
        rows = cells // self._row_cells
        if rows > self.last.size:
            self.last = np.append(self.last, np.zeros(rows - self.last.size, np.int64))

    def mark(self, cells: NDArray[np.int64]) -> None:
        """These cells have changed: int64[n], ascending, all of them in the vector."""
        _mark(self.last, cells, self._row_cells, now())

    def mark_row(self, row: int) -> None:
        """A row has changed, if there is one."""
        self.last[row : row + 1] = now()

    def mark_all(self) -> None:
        """Any row may have changed."""
        self.last[:] = now()


@numba.njit(cache=True, nogil=True)
def _mark(last: NDArray[np.int64], cells: NDArray[np.int64], row_cells: int, at: int) -> None:
    i = 0
    while i < cells.size:
        row = cells[i] // row_cells
        last[row] = at
        i += np.searchsorted(cells[i:], (row + 1) * row_cells)
