"""Integer vectors that are mostly zero: sorted cells and their non-zero int64 values, 16 bytes per cell in use.

The form is canonical (cells strictly increasing, no zeros), so two sparse vectors are equal exactly if their arrays are,
however they were merged and retracted.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

_RUN = 8  # cells; longer runs are copied as a whole


@numba.njit(inline="always")
def _end_of_run(cells: NDArray[np.int64], first: int, below: int) -> int:
    """The end of the run of cells from `first` on that are less than `below`; the first of them is."""
    step, end = _RUN, first + 1
    while end + step < cells.size and cells[end + step] < below:
        end += step
        step *= 2
    most = min(end + step, cells.size)
    while end < most:  # binary search
        middle = (end + most) // 2
        if cells[middle] < below:
            end = middle + 1
        else:
            most = middle
    return end


@numba.njit(inline="always")
def _copy_run(
    of_cells: NDArray[np.int64],
    of_values: NDArray[np.int64],
    first: int,
    end: int,
    cells: NDArray[np.int64],
    values: NDArray[np.int64],
    k: int,
) -> int:
    """Copies a run to place k; returns where it ends."""
    for at in range(end - first):
        cells[k + at], values[k + at] = of_cells[first + at], of_values[first + at]
    return k + end - first


@numba.njit(cache=True, nogil=True)
def _merge(
    a_cells: NDArray[np.int64],
    a_values: NDArray[np.int64],
    b_cells: NDArray[np.int64],
    b_values: NDArray[np.int64],
    cells: NDArray[np.int64],
    values: NDArray[np.int64],
) -> int:
    """Writes the sum of two vectors to `cells` and `values`; returns the number of non-zero cells."""
    i = j = k = 0
    while i < a_cells.size and j < b_cells.size:
        a, b = a_cells[i], b_cells[j]
        if a == b:
            cells[k], values[k] = a, a_values[i] + b_values[j]
            k += values[k] != 0
            i += 1
            j += 1
        elif a < b:
            if i + _RUN < a_cells.size and a_cells[i + _RUN] < b:
                end = _end_of_run(a_cells, i + _RUN, b)
                k = _copy_run(a_cells, a_values, i, end, cells, values, k)
                i = end
            else:
                cells[k], values[k] = a, a_values[i]
                k += 1
                i += 1
        elif j + _RUN < b_cells.size and b_cells[j + _RUN] < a:
            end = _end_of_run(b_cells, j + _RUN, a)
            k = _copy_run(b_cells, b_values, j, end, cells, values, k)
            j = end
        else:
            cells[k], values[k] = b, b_values[j]
            k += 1
            j += 1
    k = _copy_run(a_cells, a_values, i, a_cells.size, cells, values, k)
    return _copy_run(b_cells, b_values, j, b_cells.size, cells, values, k)


@dataclass(frozen=True, slots=True, eq=False)
class SparseVector:
    """`values[i]` is the value of cell `cells[i]`; all other cells are 0."""

    cells: NDArray[np.int64]
    values: NDArray[np.int64]

    @classmethod
    def empty(cls) -> SparseVector:
        """The zero vector."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int64))

    @classmethod
    def of(cls, cells: NDArray[np.int64], values: NDArray[np.int64]) -> SparseVector:
        """From cells in any order; values of repeated cells are added."""
        if not bool((cells[1:] > cells[:-1]).all()):
            # fast, because cells nearly always consist of a few ascending runs
            order = np.argsort(cells, kind="stable")
            cells, values = cells[order], values[order]
            first = np.flatnonzero(np.diff(cells, prepend=cells[0] - 1))
            cells, values = cells[first], np.add.reduceat(values, first)
        some = values != 0
        return cls(cells[some], values[some])

    @classmethod
    def of_dense(cls, dense: NDArray[np.int64]) -> SparseVector:
        """The non-zero cells of a dense vector."""
        return cls(*_used(dense))

    @classmethod
    def of_rows(cls, first: NDArray[np.int64], rows: NDArray[np.int64]) -> SparseVector:
        """From rows int64[n, cells], row i of which begins at cell first[i]; rows at the same cell are added."""
        cells, values = np.empty(rows.size, np.int64), np.empty(rows.size, np.int64)
        return trimmed(cells, values, _flatten(first, rows, np.argsort(first, kind="stable"), cells, values))

    @classmethod
    def of_pieces(cls, first: NDArray[np.int64], size: NDArray[np.int64], values: NDArray[np.int64]) -> SparseVector:
        """From pieces concatenated in `values`, in ascending order; piece i has size[i] cells from first[i] on."""
        cells, kept = np.empty(values.size, np.int64), np.empty(values.size, np.int64)
        return trimmed(cells, kept, _pieces(first, size, values, cells, kept))

    @classmethod
    def sum(cls, vectors: Sequence[SparseVector]) -> SparseVector:
        """The sum of any number of vectors."""
        parts = sorted((v for v in vectors if v.cells.size), key=_length)
        while len(parts) > 1:  # the shortest first, so that a long one is not moved with every short one
            insort(parts, _merged(parts.pop(0), parts.pop(0)), key=_length)
        return parts[0] if parts else cls.empty()

    def __add__(self, other: SparseVector) -> SparseVector:
        return SparseVector.sum([self, other])

    def __neg__(self) -> SparseVector:
        return SparseVector(self.cells, -self.values)

    def __sub__(self, other: SparseVector) -> SparseVector:
        return self + -other

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, SparseVector)
            and np.array_equal(self.cells, other.cells)
            and np.array_equal(self.values, other.values)
        )

    def add_to(self, dense: NDArray[np.int64], sign: int = 1) -> None:
        """Adds this vector (times sign) to a dense one, which must be long enough."""
        if self.cells.size and self.cells[-1] >= dense.size:
            raise IndexError(f"cell {self.cells[-1]} of a vector of {dense.size}")
        _add_to(dense, self.cells, self.values, sign)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.cells.nbytes + self.values.nbytes


@numba.njit(cache=True, nogil=True)
def _add_to(dense: NDArray[np.int64], cells: NDArray[np.int64], values: NDArray[np.int64], sign: int) -> None:
    for i in range(cells.size):
        dense[np.uint64(cells[i])] += sign * values[i]


@numba.njit(cache=True, nogil=True)
def _used(dense: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    n = np.count_nonzero(dense)
    cells, values, k = np.empty(n, np.int64), np.empty(n, np.int64), 0
    for cell in range(dense.size):
        if dense[cell] != 0:
            cells[k], values[k] = cell, dense[cell]
            k += 1
    return cells, values


@numba.njit(cache=True, nogil=True)
def _flatten(
    first: NDArray[np.int64],
    rows: NDArray[np.int64],
    order: NDArray[np.int64],
    cells: NDArray[np.int64],
    values: NDArray[np.int64],
) -> int:
    """Writes the non-zero cells of rows, in order of their first cells, adding rows at the same cell; returns how many there are."""
    n = i = 0
    while i < order.size:
        end = i + 1
        while end < order.size and first[order[end]] == first[order[i]]:
            end += 1
        for cell in range(rows.shape[1]):
            value = 0
            for row in order[i:end]:
                value += rows[row, cell]
            if value != 0:
                cells[n], values[n] = first[order[i]] + cell, value
                n += 1
        i = end
    return n


@numba.njit(cache=True, nogil=True)
def _pieces(
    first: NDArray[np.int64],
    size: NDArray[np.int64],
    every: NDArray[np.int64],
    cells: NDArray[np.int64],
    values: NDArray[np.int64],
) -> int:
    n = at = np.uint64(0)
    for i in range(first.size):
        for cell in range(np.uint64(size[i])):  # unsigned indices: not checked for counting from the end
            value = every[at + cell]
            cells[n], values[n] = first[i] + np.int64(cell), value
            n += np.uint64(value != 0)
        at += np.uint64(size[i])
    return int(n)


def _length(vector: SparseVector) -> int:
    return vector.cells.size


def _merged(a: SparseVector, b: SparseVector) -> SparseVector:
    room = a.cells.size + b.cells.size
    cells, values = np.empty(room, np.int64), np.empty(room, np.int64)
    k = _merge(a.cells, a.values, b.cells, b.values, cells, values)
    return trimmed(cells, values, k)


def trimmed(cells: NDArray[np.int64], values: NDArray[np.int64], n: int) -> SparseVector:
    """The first n cells as a vector; frees the rest of the arrays, to which there must be no other reference."""
    cells.resize(n, refcheck=False)
    values.resize(n, refcheck=False)
    return SparseVector(cells, values)
