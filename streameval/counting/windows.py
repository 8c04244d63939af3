"""Panes, and the windows that slide over them, in event time.

A pane holds the sparse integer vector of all impressions in it; a window is the sum of its panes, kept by row: the
pane that enters is added, the one that leaves is subtracted, exactly. A correction is a delta to its pane,
and to every window that contains the pane. A window is moved only when it is read, so a fast replay pays nothing for
windows that are never read, and a batch may span many panes.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.counting.row_sums import RowSums
from streameval.sketches.narrow import narrow, widen
from streameval.sketches.sparse import SparseVector

_MERGE_AT = 8  # deltas that a pane collects before all but the longest are merged
_LONG = 3  # deltas that are not merged: the scores of two batches, and what auctions add, which is as long
_NO_BYTES = np.empty(0, np.uint8)


class Panes:
    """Sparse vectors by pane number (event time // pane length), and their sum over the whole run."""

    def __init__(self, row_cells: int) -> None:
        self.row_cells = row_cells
        self.total = RowSums(row_cells)  # the window `all`
        self._panes: dict[int, list[SparseVector]] = {}
        self._changed: set[int] = set()  # panes added to since `take_changed`
        self._unwritten: set[int] = set()  # panes added to since they were passed to the history
        self._in_flight: set[int] = set()  # panes that the history is writing
        self.never_written = 0  # panes whose last state was dropped, and never reached the history
        self._windows: list[Window] = []
        self._begun: list[tuple[int, range]] = []  # first panes of cells of a row that began to count later

    def begin(self, pane: int, cells: range) -> None:
        """From now on, what is added to these cells of rows in panes before `pane` is ignored.

        Impressions were counted without them there, and a late click would subtract what was never added.
        """
        self._begun.append((pane, cells))

    def window(self, length: int) -> Window:
        """Returns a new window of `length` panes."""
        window = Window(self, length)
        self._windows.append(window)
        return window

    def add(self, pane: int, delta: SparseVector) -> None:
        """Adds to a pane, and to the windows that contain it."""
        for first, cells in self._begun:
            if pane < first:
                cell = delta.cells % self.row_cells
                counted = (cell < cells.start) | (cell >= cells.stop)
                delta = SparseVector(delta.cells[counted], delta.values[counted])
        if not delta.cells.size:
            return
        self.total.add(delta)
        parts = self._panes.setdefault(pane, [])
        parts.append(delta)
        self._changed.add(pane)
        self._unwritten.add(pane)
        if len(parts) >= _MERGE_AT:
            self._panes[pane] = _few(parts)
        for window in self._windows:
            window.follow(pane, delta)

    def rows(self) -> set[int]:
        """Returns the rows that occur in the panes in memory."""
        parts = [part.cells // self.row_cells for parts in self._panes.values() for part in parts]
        return {row for part in parts for row in np.unique(part).tolist()}

    def clear(self, row: int) -> None:
        """Removes a row that occurs in no pane from the run."""
        self.total.clear_row(row)

    def get(self, pane: int) -> SparseVector:
        """Returns the vector of a pane (zero if there is nothing in it)."""
        parts = self._panes.get(pane)
        if not parts:
            return SparseVector.empty()
        if len(parts) > 1:
            self._panes[pane] = parts = [SparseVector.sum(parts)]
        return parts[0]

    def parts(self, pane: int) -> list[SparseVector]:
        """Returns a few vectors whose sum is that of a pane: for callers that only add them up, the longest ones are
        not copied.
        """
        parts = self._panes.get(pane, [])
        if len(parts) > _LONG + 1:
            self._panes[pane] = parts = _few(parts)
        return parts

    def take_changed(self, before: int) -> set[int]:
        """Returns the panes before `before` that were added to since the last call."""
        out = {n for n in self._changed if n < before}
        self._changed -= out
        return out

    def all_changed(self) -> None:
        """Marks all panes as changed, for readers that track which ones they have."""
        self._changed.update(self._panes)

    @property
    def unwritten(self) -> int:
        """Number of panes whose current state the history does not have."""
        return len(self._unwritten | self._in_flight)

    def take_unwritten(self, before: int) -> list[int]:
        """Returns the panes before `before` to write, oldest first; `written` must follow."""
        self._in_flight = {n for n in self._unwritten if n < before}
        self._unwritten -= self._in_flight
        return sorted(self._in_flight)

    def due(self, before: int) -> int:
        """Number of panes before `before` that are to be written, or are being written."""
        return sum(n < before for n in self._unwritten | self._in_flight)  # a copy: the other thread may add to them

    def needed_from(self, keep: int, most: int | None) -> int:
        """Returns the first pane to keep when those before `keep` may be dropped: up to `most` older ones may wait to
        be written; None: all of them.
        """
        waiting = sorted(n for n in self._unwritten | self._in_flight if n < keep)
        surplus = 0 if most is None else max(len(waiting) - most, 0)
        return min(waiting[surplus:], default=keep)

    def written(self, done: bool) -> None:
        """Reports the result for the panes of `take_unwritten`: they are on disk, or writing failed and must be tried
        again. Those that were dropped in the meantime cannot be.
        """
        if not done:
            here = {n for n in self._in_flight if n in self._panes}
            self.never_written += len(self._in_flight) - len(here)
            self._unwritten |= here
        self._in_flight = set()

    def __len__(self) -> int:
        return len(self._panes)

    def numbers(self) -> list[int]:
        """Returns the panes that contain anything, oldest first."""
        return sorted(self._panes)

    def between(self, start: int, end: int) -> Iterable[int]:
        """Returns the panes in [start, end) that contain anything."""
        if end - start < len(self._panes):
            return (n for n in range(start, end) if n in self._panes)
        return sorted(n for n in self._panes if start <= n < end)

    def forget_before(self, pane: int) -> None:
        """Drops old panes; the total still includes them. A window that lags behind starts over when it is read.

        What the history still had to take of them is counted in `never_written`; what is being written may yet succeed.
        """
        for number in [n for n in self._panes if n < pane]:
            del self._panes[number]
        self._changed = {n for n in self._changed if n >= pane}
        lost = {n for n in self._unwritten if n < pane}
        self.never_written += len(lost)
        self._unwritten -= lost
        self._in_flight -= lost  # an older state of them: they are counted
        for window in self._windows:
            if window.start < pane:
                window.start = window.end = 0

    def state(self) -> dict[str, Any]:
        """Returns everything but the windows, which follow from it; parts are packed when the writer asks for them."""
        total = self.total.vector()
        return {
            "total": {"cells": total.cells, "values": total.values},
            "unwritten": np.array(sorted(self._unwritten | self._in_flight), np.int64),
            "panes": partial(_pack, {number: tuple(parts) for number, parts in self._panes.items()}),
        }

    def restore(
        self, state: Mapping[str, Any], rows: NDArray[np.int64] | None, cells: NDArray[np.int64] | None = None
    ) -> None:
        """Restores what `state` returned. `rows[r]` is this process's number of row r; None: the same. Likewise
        `cells[c]` is the current place of cell c of a row, -1: none.
        """
        places = None if cells is None or np.array_equal(cells, np.arange(self.row_cells)) else cells
        if rows is not None and np.array_equal(rows, np.arange(rows.size)):
            rows = None
        self.total.clear()
        self.total.add(self._renumbered(state["total"]["cells"], state["total"]["values"], rows, places))
        self._unwritten = set(state["unwritten"].tolist())
        self._changed = set(self._unwritten)  # panes written before are read from the history
        for number, vector in _unpack(state["panes"]):
            self._panes[number] = [self._renumbered(vector.cells, vector.values, rows, places)]

    def _renumbered(
        self,
        cells: NDArray[np.int64],
        values: NDArray[np.int64],
        rows: NDArray[np.int64] | None,
        places: NDArray[np.int64] | None,
    ) -> SparseVector:
        if rows is None and places is None:
            return SparseVector(cells, values)
        row, cell = np.divmod(cells, self.row_cells if places is None else places.size)
        row = row if rows is None else rows[row]
        cell = cell if places is None else places[cell]
        kept = cell >= 0
        return SparseVector.of((row * self.row_cells + cell)[kept], values[kept])

    @property
    def nbytes(self) -> int:
        """Size of the panes, the total and the windows in bytes."""
        panes = sum(part.nbytes for parts in self._panes.values() for part in parts)
        return panes + self.total.nbytes + sum(w.sums.nbytes for w in self._windows)


def _few(parts: list[SparseVector]) -> list[SparseVector]:
    """Returns the longest vectors, and the sum of the others."""
    parts = sorted(parts, key=lambda part: -part.cells.size)
    return [*parts[:_LONG], SparseVector.sum(parts[_LONG:])]


def _pack(panes: Mapping[int, Sequence[SparseVector]]) -> dict[str, NDArray[Any]]:
    """Returns panes as columns, oldest pane first: a used cell, as a difference to the one before, and its value take
    few bytes.
    """
    numbers = sorted(panes)
    length, steps, values = [], [_NO_BYTES], [_NO_BYTES]
    for number in numbers:
        vector = SparseVector.sum(panes[number])
        length.append(vector.cells.size)
        steps.append(narrow(np.diff(vector.cells, prepend=0)))
        values.append(narrow(vector.values))
    return {
        "pane": np.array(numbers, np.int64),
        "length": np.array(length, np.int64),
        "steps": np.concatenate(steps),
        "narrowed": np.concatenate(values),
    }


def _unpack(packed: Mapping[str, NDArray[Any]]) -> Iterator[tuple[int, SparseVector]]:
    """Yields (number, vector) of the panes of `_pack`."""
    ends = np.cumsum(packed["length"])
    count = int(ends[-1]) if ends.size else 0
    steps = widen(packed["steps"], count) if "steps" in packed else None  # None: format 7 has the cells, 8 bytes each
    values = packed["values"] if steps is None else widen(packed["narrowed"], count)
    for number, start, end in zip(packed["pane"].tolist(), ends - packed["length"], ends, strict=True):
        cells = packed["cells"][start:end].copy() if steps is None else np.cumsum(steps[start:end])
        yield number, SparseVector(cells, values[start:end].copy())


class Window:
    """The sum of the panes in [start, end)."""

    def __init__(self, panes: Panes, length: int) -> None:
        # they know their windows: a cycle would keep both until garbage is collected
        self._panes = weakref.proxy(panes)
        self.length = length
        self.start = 0
        self.end = 0
        self.sums = RowSums(panes.row_cells)

    def move_to(self, end: int) -> RowSums:
        """Moves the window to [end - length, end) and returns its sums."""
        start = end - self.length
        is_disjoint = start >= self.end or end <= self.start or self.start == self.end  # no overlap
        if is_disjoint:
            self.sums.clear()
            entering: list[int] = list(self._panes.between(start, end))
            leaving: list[int] = []
        else:
            leaving = [
                *self._panes.between(self.start, min(start, self.end)),
                *self._panes.between(max(end, self.start), self.end),
            ]
            entering = [*self._panes.between(start, self.start), *self._panes.between(self.end, end)]
        for panes, sign in ((leaving, -1), (entering, 1)):
            for pane in panes:
                for part in self._panes.parts(pane):
                    self.sums.add(part, sign)
        self.start, self.end = start, end
        return self.sums

    def follow(self, pane: int, delta: SparseVector) -> None:
        """Adds a change of a pane, if the window contains it."""
        if self.start <= pane < self.end:
            self.sums.add(delta)
