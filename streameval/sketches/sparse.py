"""Integer vectors that are mostly zero: sorted cells and their non-zero int64 values, 16 bytes a cell in use.

The form is canonical (cells strictly increasing, no zero kept), so two sparse vectors are equal exactly when their
arrays are, whatever was merged and retracted to get there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray


@numba.njit(cache=True, nogil=True)
def _merge(
    a_cells: NDArray[np.int64],
    a_values: NDArray[np.int64],
    b_cells: NDArray[np.int64],
    b_values: NDArray[np.int64],
    cells: NDArray[np.int64],
    values: NDArray[np.int64],
) -> int:
    """Adds two vectors into `cells` and `values`; returns how many cells are not 0."""
    i = 0
    j = 0
    k = 0
    while i < a_cells.size or j < b_cells.size:
        if j >= b_cells.size or (i < a_cells.size and a_cells[i] < b_cells[j]):
            cell, value = a_cells[i], a_values[i]
            i += 1
        elif i >= a_cells.size or b_cells[j] < a_cells[i]:
            cell, value = b_cells[j], b_values[j]
            j += 1
        else:
            cell, value = a_cells[i], a_values[i] + b_values[j]
            i += 1
            j += 1
        if value != 0:
            cells[k] = cell
            values[k] = value
            k += 1
    return k


@dataclass(frozen=True, slots=True, eq=False)
class SparseVector:
    """`values[i]` stands at `cells[i]`; everything else is 0."""

    cells: NDArray[np.int64]
    values: NDArray[np.int64]

    @classmethod
    def empty(cls) -> SparseVector:
        """The zero vector."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int64))

    @classmethod
    def of(cls, cells: NDArray[np.int64], values: NDArray[np.int64]) -> SparseVector:
        """From cells in any order, maybe twice."""
        known, place = np.unique(cells, return_inverse=True)
        total = np.zeros(known.size, np.int64)
        np.add.at(total, place, values)
        some = total != 0
        return cls(known[some], total[some])

    @classmethod
    def sum(cls, vectors: Sequence[SparseVector]) -> SparseVector:
        """The sum of any number of vectors."""
        parts = [v for v in vectors if v.cells.size]
        while len(parts) > 1:  # neighbours in pairs, so that no value is moved more than log2(n) times
            pairs = [_merged(a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
            parts = pairs + parts[2 * len(pairs) :]
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

    __hash__ = None  # type: ignore[assignment]  # equality is by value and the arrays are big

    def add_to(self, dense: NDArray[np.int64], sign: int = 1) -> None:
        """Adds this vector (times sign) into a dense one, which must be long enough."""
        if sign == 1:
            dense[self.cells] += self.values
        else:
            dense[self.cells] -= self.values

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.cells.nbytes + self.values.nbytes


def _merged(a: SparseVector, b: SparseVector) -> SparseVector:
    room = a.cells.size + b.cells.size
    cells, values = np.empty(room, np.int64), np.empty(room, np.int64)
    k = _merge(a.cells, a.values, b.cells, b.values, cells, values)
    return trimmed(cells, values, k)


def trimmed(cells: NDArray[np.int64], values: NDArray[np.int64], n: int) -> SparseVector:
    """The first n cells as a vector; gives back the rest of the arrays' memory, which nobody else may look at."""
    cells.resize(n, refcheck=False)
    values.resize(n, refcheck=False)
    return SparseVector(cells, values)
