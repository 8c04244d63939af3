"""Integer vectors that are mostly zero: sorted cells and their non-zero int64 values, 16 bytes a cell in use.

The form is canonical (cells strictly increasing, no zero kept), so two sparse vectors are equal exactly when their
arrays are, whatever was merged and retracted to get there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


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
    def sum(cls, vectors: Sequence[SparseVector]) -> SparseVector:
        """The sum of any number of vectors."""
        if not vectors:
            return cls.empty()
        if len(vectors) == 1:
            return vectors[0]
        cells = np.concatenate([v.cells for v in vectors])
        values = np.concatenate([v.values for v in vectors])
        order = np.argsort(cells, kind="stable")
        cells, values = cells[order], values[order]
        first = np.flatnonzero(np.concatenate(([True], cells[1:] != cells[:-1]))) if cells.size else order
        if not first.size:
            return cls.empty()
        sums = np.add.reduceat(values, first)
        keep = sums != 0
        return cls(cells[first][keep], sums[keep])

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
