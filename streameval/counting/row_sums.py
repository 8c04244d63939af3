"""Sums of sparse vectors by row, in blocks of cells: a row costs what is in it, in memory as in reading it.

Most cells of a row are the bins of a histogram over all scores there can be, of which a version's scores, and a slice's
even more so, use a few. Every row knows when it last changed, so that a look at many rows costs what has changed since
the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.sketches.sparse import SparseVector, trimmed

_BLOCK = 32  # cells: 256 bytes
_ABSENT = np.int32(-1)
_FEWEST = 64  # blocks that there is room for at first
_times = count(1)


def now() -> int:
    """Returns a number greater than those of all changes so far, and smaller than those of all later ones."""
    return next(_times)


class _Blocks(NamedTuple):
    """Where every row's blocks are among the values, flat (-1: nowhere), the values, and how many blocks are in use."""

    place: NDArray[np.int32]
    values: NDArray[np.int64]
    used: NDArray[np.int64]  # [1]


class RowSums:
    """int64 cells by row, all of them 0 at first; there is a row as soon as anything is added to it."""

    __slots__ = ("_blocks", "_per_row", "last", "row_cells")

    def __init__(self, row_cells: int) -> None:
        self.row_cells = row_cells
        self.last = np.zeros(0, np.int64)  # when each row last changed, as numbers of `now`: unique among all sums
        self._per_row = -(-row_cells // _BLOCK)
        self._blocks = _Blocks(np.empty(0, np.int32), np.empty(0, np.int64), np.zeros(1, np.int64))

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.last.size

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self._blocks.values.nbytes + self._blocks.place.nbytes + self.last.nbytes

    def add(self, vector: SparseVector, sign: int = 1) -> None:
        """Adds a vector (times sign) whose cell is row * row_cells + the cell of the row."""
        cells = vector.cells
        if not cells.size:
            return
        self._fit(int(cells[-1]) // self.row_cells + 1)
        done, at = 0, now()
        while True:
            done = _add(cells, vector.values, sign, done, self.row_cells, self._blocks, self.last, at)
            if done == cells.size:
                return
            values = self._blocks.values
            room = values.size // _BLOCK
            more = np.empty(max(_FEWEST, room + room // 4) * _BLOCK, np.int64)
            more[: values.size] = values
            self._blocks = self._blocks._replace(values=more)

    def clear(self) -> None:
        """Sets every cell to 0; every row counts as changed."""
        self._blocks.place[:] = _ABSENT
        self._blocks.used[0] = 0
        self.last[:] = now()

    def clear_row(self, row: int) -> None:
        """Sets the cells of a row to 0, if there is one."""
        if row < self.rows:
            _clear(self._blocks.place[row * self._per_row : (row + 1) * self._per_row], self._blocks.values)
            self.last[row] = now()

    def column(self, cell: int) -> NDArray[np.int64]:
        """One cell of every row, int64[rows]; a copy."""
        place = self._blocks.place[cell // _BLOCK :: self._per_row].astype(np.int64)
        out = np.zeros(self.rows, np.int64)
        kept = place >= 0
        out[kept] = self._blocks.values[place[kept] * _BLOCK + cell % _BLOCK]
        return out

    def row(self, row: int) -> NDArray[np.int64]:
        """All cells of a row, int64[row_cells]; a copy."""
        return summed([self], row)

    def vector(self) -> SparseVector:
        """The cells of all rows that are not 0."""
        every = np.arange(self.rows + 1)
        return self.gathered(every[:-1], every[:-1], every[1:])

    def gathered(self, rows: NDArray[np.int64], begin: NDArray[np.int64], end: NDArray[np.int64]) -> SparseVector:
        """The cells that are not 0 of new rows, row i of which is the sum of rows[begin[i]:end[i]]; those that there are not are 0."""
        place = self._blocks.place
        room = _BLOCK * int(_in_use(place, rows, begin, end, self._per_row))  # only what is written is ever touched
        cells, values = np.empty(room, np.int64), np.empty(room, np.int64)
        return trimmed(cells, values, _gather(self._blocks, rows, begin, end, self.row_cells, cells, values))

    def _fit(self, rows: int) -> None:
        if rows > self.rows:
            rows = max(rows, self.rows * 5 // 4)
            absent = np.full((rows - self.rows) * self._per_row, _ABSENT, np.int32)
            self._blocks = self._blocks._replace(place=np.append(self._blocks.place, absent))
            self.last = np.append(self.last, np.zeros(rows - self.rows, np.int64))


def summed(sums: Sequence[RowSums], row: int) -> NDArray[np.int64]:
    """One row of all of them together, int64[row_cells]; `sums` is not empty."""
    out = np.zeros(sums[0].row_cells, np.int64)
    for one in sums:
        one.gathered(np.array([row]), np.array([0]), np.array([1])).add_to(out)
    return out


@numba.njit(cache=True, nogil=True)
def _add(
    cells: NDArray[np.int64],
    deltas: NDArray[np.int64],
    sign: int,
    first: int,
    row_cells: int,
    blocks: _Blocks,
    last: NDArray[np.int64],
    at: int,
) -> int:
    """Adds from the `first` cell on; returns where there was no room for another block, or how many cells there are."""
    place, values, used = blocks
    per_row = (row_cells + _BLOCK - 1) // _BLOCK
    i = first
    while i < cells.size:
        row = cells[i] // row_cells
        begin = row * row_cells
        last[row] = at
        while i < cells.size and cells[i] < begin + row_cells:
            block = (cells[i] - begin) // _BLOCK
            found = np.int64(place[row * per_row + block])
            if found < 0:
                found = used[0]
                if (found + 1) * _BLOCK > values.size:
                    return i
                values[found * _BLOCK : (found + 1) * _BLOCK] = 0
                place[row * per_row + block] = found
                used[0] = found + 1
            origin = begin + block * _BLOCK
            end = min(origin + _BLOCK, begin + row_cells)
            shift = found * _BLOCK - origin
            while i < cells.size and cells[i] < end:
                values[np.uint64(shift + cells[i])] += sign * deltas[i]
                i += 1
    return i


@numba.njit(cache=True, nogil=True)
def _clear(place: NDArray[np.int32], values: NDArray[np.int64]) -> None:
    for found in place:
        if found >= 0:
            values[found * _BLOCK : (found + 1) * _BLOCK] = 0


@numba.njit(cache=True, nogil=True)
def _in_use(
    place: NDArray[np.int32],
    rows: NDArray[np.int64],
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
    per_row: int,
) -> int:
    """How many blocks these rows have."""
    n = 0
    for i in range(begin.size):
        for row in rows[begin[i] : end[i]]:
            if row * per_row < place.size:
                for at in range(row * per_row, (row + 1) * per_row):
                    n += place[at] >= 0
    return n


@numba.njit(cache=True, nogil=True)
def _gather(
    blocks: _Blocks,
    rows: NDArray[np.int64],
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
    row_cells: int,
    cells: NDArray[np.int64],
    values: NDArray[np.int64],
) -> int:
    """Writes the cells of the sums of rows[begin[i]:end[i]] that are not 0; returns how many there are."""
    place, every, _ = blocks
    per_row, n = (row_cells + _BLOCK - 1) // _BLOCK, np.uint64(0)
    total = np.empty(
        per_row * _BLOCK, np.int64
    )  # of one new row, block behind block: read first, so that waiting overlaps
    known, where = (
        np.full(per_row, -1, np.int64),
        np.empty(per_row, np.int64),
    )  # where a block is in it, and the reverse
    for i in range(begin.size):
        k = 0
        for row in rows[begin[i] : end[i]]:
            for block in range(per_row if row * per_row < place.size else 0):
                found = place[row * per_row + block]
                if found >= 0:
                    of, new = np.uint64(found) * np.uint64(_BLOCK), known[block] < 0
                    if new:
                        known[block], where[k] = k * _BLOCK, block
                        k += 1
                    to = np.uint64(known[block])
                    for cell in range(np.uint64(_BLOCK)):
                        total[to + cell] = every[of + cell] + (0 if new else total[to + cell])
        where[:k].sort()
        for block in where[:k]:
            of, origin = np.uint64(known[block]), i * row_cells + block * _BLOCK
            known[block] = -1
            for cell in range(np.uint64(_BLOCK)):  # those behind the row's last one are 0
                cells[n], values[n] = origin + np.int64(cell), total[of + cell]
                n += np.uint64(total[of + cell] != 0)
    return int(n)
