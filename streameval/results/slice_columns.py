"""What was counted of many slices, by number, in columns. They never change: a look makes new ones, which share what has stayed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.sketches.layout import BUCKETS, IMPRESSIONS
from streameval.sketches.sparse import SparseVector

_T = TypeVar("_T")


class SliceCells(NamedTuple):
    """All cells of k slices that are not 0."""

    vector: SparseVector  # cell i * row_cells + c is cell c of the i-th
    ends: NDArray[np.int64]  # [k + 1]: where each begins and ends in it
    row_cells: int

    @classmethod
    def of(cls, vector: SparseVector, k: int, row_cells: int) -> SliceCells:
        """Those of k rows."""
        return cls(vector, np.searchsorted(vector.cells, np.arange(k + 1) * row_cells), row_cells)

    def heads(self) -> NDArray[np.int64]:
        """The first cells of each, int64[k, BUCKETS]."""
        out = np.zeros((self.ends.size - 1, BUCKETS), np.int64)
        _heads(self.vector.cells, self.vector.values, self.ends, self.row_cells, out)
        return out

    def one(self, i: int) -> SparseVector:
        """A copy of the cells of the i-th, so that whoever keeps it does not keep the others."""
        mine = slice(self.ends[i], self.ends[i + 1])
        return SparseVector(self.vector.cells[mine] - i * self.row_cells, self.vector.values[mine].copy())

    def only(self, some: NDArray[np.int64]) -> SliceCells:
        """Of these alone, in increasing order, numbered anew."""
        sizes = np.diff(self.ends)[some]
        ends = np.append(0, np.cumsum(sizes))
        at = np.arange(ends[-1]) + np.repeat(self.ends[some] - ends[:-1], sizes)
        cells = self.vector.cells[at] - np.repeat((some - np.arange(some.size)) * self.row_cells, sizes)
        return SliceCells(SparseVector(cells, self.vector.values[at]), ends, self.row_cells)


@numba.njit(cache=True, nogil=True)
def _heads(
    cells: NDArray[np.int64],
    values: NDArray[np.int64],
    ends: NDArray[np.int64],
    row_cells: int,
    out: NDArray[np.int64],
) -> None:
    for i in range(out.shape[0]):
        at, first = ends[i], i * row_cells
        while at < ends[i + 1] and cells[at] < first + out.shape[1]:
            out[i, cells[at] - first] = values[at]
            at += 1


class CountedSlices(NamedTuple):
    """What a look has counted of k slices, each with some impression."""

    numbers: NDArray[np.int64]
    heads: NDArray[np.int64]  # [k, BUCKETS]: the first cells of each
    cells: SliceCells
    reasons: Sequence[Mapping[str, str]]  # why metrics have no value
    reason: NDArray[np.int64]  # [k]: which of them


class _Columns(NamedTuple):
    """By slice."""

    heads: NDArray[np.int64]  # [n, BUCKETS], all 0 where nothing was counted; elsewhere the others tell nothing
    cells: NDArray[np.int64]  # among which `SliceCells` its own are,
    at: NDArray[np.int64]  # where there,
    size: NDArray[np.int64]  # and how many
    reasons: NDArray[np.int64]  # which are its own

    def there(self) -> NDArray[np.int64]:
        """The numbers of those of which anything was counted."""
        return np.flatnonzero(self.heads[:, IMPRESSIONS])


class SliceColumns:
    """What was counted of n slices."""

    __slots__ = ("_cells", "_columns", "_reasons")

    def __init__(self, columns: _Columns, cells: Sequence[SliceCells], reasons: Sequence[Mapping[str, str]]) -> None:
        self._columns, self._cells, self._reasons = columns, cells, reasons

    @classmethod
    def nothing(cls, n: int) -> SliceColumns:
        """As long as nothing was counted of any."""
        none = np.zeros(n, np.int64)
        return cls(_Columns(np.zeros((n, BUCKETS), np.int64), none, none, none, none), (), ())

    @property
    def heads(self) -> NDArray[np.int64]:
        """int64[n, BUCKETS]: the first cells of each, all 0 where nothing was counted."""
        return self._columns.heads

    def there(self) -> NDArray[np.int64]:
        """The numbers of those that have any impression."""
        return self._columns.there()

    def cells(self, number: int) -> SparseVector:
        """A copy of all cells that are not 0."""
        return self._cells[self._columns.cells[number]].one(int(self._columns.at[number]))

    def reasons(self, number: int) -> Mapping[str, str]:
        """Why metrics have no value."""
        return self._reasons[self._columns.reasons[number]]

    def undefined(self) -> list[tuple[Mapping[str, str], int]]:
        """Why metrics have no value, and in how many slices each."""
        counts = np.bincount(self._columns.reasons[self.there()], minlength=len(self._reasons))
        return list(zip(self._reasons, counts.tolist(), strict=True))

    def numbered(self, before: NDArray[np.int64]) -> SliceColumns:
        """Where slice i is that of number before[i]; -1: one of which nothing was counted."""
        if not self.heads.size:
            return SliceColumns.nothing(before.size)
        columns = _Columns(*(column[before] for column in self._columns))
        columns.heads[before < 0] = 0
        return SliceColumns(columns, self._cells, self._reasons)

    def updated(self, changed: NDArray[np.int64], counted: Sequence[CountedSlices]) -> SliceColumns:
        """Where of those that have changed there is only what was counted of them now."""
        columns = _Columns(*(column.copy() for column in self._columns))
        columns.heads[changed] = 0
        cells, reasons = [*self._cells], [*self._reasons]
        places = {id(some): place for place, some in enumerate(reasons)}
        for some in counted:
            columns.heads[some.numbers] = some.heads
            columns.cells[some.numbers] = len(cells)
            columns.at[some.numbers] = np.arange(some.numbers.size)
            columns.size[some.numbers] = np.diff(some.cells.ends)
            cells.append(some.cells)
            for one in some.reasons:
                if id(one) not in places:
                    places[id(one)] = len(reasons)
                    reasons.append(one)
            columns.reasons[some.numbers] = np.array([places[id(one)] for one in some.reasons])[some.reason]
        there = columns.there()
        return SliceColumns(columns, _repacked(cells, columns, there), _used(reasons, columns.reasons, there))


def _used(every: Sequence[_T], which: NDArray[np.int64], there: NDArray[np.int64]) -> list[_T]:
    """Of those, what is in use; `which` is numbered anew."""
    used, which[there] = np.unique(which[there], return_inverse=True)
    return [every[number] for number in used.tolist()]


def _repacked(cells: Sequence[SliceCells], columns: _Columns, there: NDArray[np.int64]) -> list[SliceCells]:
    """Those in use; of one of which less than half is in use, that half. So at most twice as much is kept as there is."""
    kept = _used(cells, columns.cells, there)
    of = columns.cells[there]
    in_use = np.bincount(of, columns.size[there], len(kept))
    for number in np.flatnonzero(2 * in_use < [some.vector.cells.size for some in kept]).tolist():
        mine = there[of == number]
        mine = mine[np.argsort(columns.at[mine])]
        kept[number] = kept[number].only(columns.at[mine])
        columns.at[mine] = np.arange(mine.size)
    return kept
