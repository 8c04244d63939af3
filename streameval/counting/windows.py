"""Panes, and the windows that slide over them, in event time.

A pane holds the sparse integer vector of everything whose impression fell into it; a window is the sum of its panes,
kept as one dense vector: the pane that enters is added, the one that leaves is subtracted, exactly. A correction is a
delta to its pane, and to every window that holds the pane. A window is brought to where it should be only when
somebody looks, so a fast replay pays nothing for windows nobody saw, and a batch that spans many panes is no problem.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from streameval.sketches.sparse import SparseVector

_MERGE_AT = 8  # deltas a pane collects before they become one


class Panes:
    """Sparse vectors by pane number (event time // pane length), and their sum over the whole run."""

    def __init__(self, row_cells: int) -> None:
        self.row_cells = row_cells
        self.total = np.zeros(0, np.int64)  # the window `all`, flat
        self._panes: dict[int, list[SparseVector]] = {}
        self.changed: set[int] = set()  # panes added to since somebody looked (and cleared it)
        self._windows: list[Window] = []

    def window(self, length: int) -> Window:
        """A new window of `length` panes."""
        window = Window(self, length)
        self._windows.append(window)
        return window

    def add(self, pane: int, delta: SparseVector) -> None:
        """Adds to a pane; windows that hold it follow."""
        if not delta.cells.size:
            return
        top = int(delta.cells[-1]) + 1
        if top > self.total.size:
            rows = max(-(-top // self.row_cells), self.total.size // self.row_cells * 5 // 4)
            self.total = grown(self.total, rows * self.row_cells)
        delta.add_to(self.total)
        parts = self._panes.setdefault(pane, [])
        parts.append(delta)
        self.changed.add(pane)
        if len(parts) >= _MERGE_AT:
            self._panes[pane] = [SparseVector.sum(parts)]
        for window in self._windows:
            window.follow(pane, delta)

    def get(self, pane: int) -> SparseVector:
        """The vector of a pane (zero if nothing fell into it)."""
        parts = self._panes.get(pane)
        if not parts:
            return SparseVector.empty()
        if len(parts) > 1:
            self._panes[pane] = parts = [SparseVector.sum(parts)]
        return parts[0]

    def __len__(self) -> int:
        return len(self._panes)

    def numbers(self) -> list[int]:
        """The panes that hold something, oldest first."""
        return sorted(self._panes)

    def between(self, start: int, end: int) -> Iterable[int]:
        """The panes in [start, end) that hold something."""
        if end - start < len(self._panes):
            return (n for n in range(start, end) if n in self._panes)
        return sorted(n for n in self._panes if start <= n < end)

    def forget_before(self, pane: int) -> None:
        """Lets old panes go; the total keeps them. A window that lags behind starts over when it is looked at."""
        for number in [n for n in self._panes if n < pane]:
            del self._panes[number]
        self.changed = {n for n in self.changed if n >= pane}
        for window in self._windows:
            if window.start < pane:
                window.start = window.end = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the panes, the total and the windows."""
        panes = sum(part.nbytes for parts in self._panes.values() for part in parts)
        return panes + self.total.nbytes + sum(w.dense.nbytes for w in self._windows)


class Window:
    """The sum of the panes in [start, end)."""

    def __init__(self, panes: Panes, length: int) -> None:
        self._panes = panes
        self.length = length
        self.start = 0
        self.end = 0
        self.dense = np.zeros(0, np.int64)

    def move_to(self, end: int) -> NDArray[np.int64]:
        """Brings the window to [end - length, end) and returns its flat vector (a view; rows of panes.row_cells)."""
        start = end - self.length
        self._fit()
        if start >= self.end or end <= self.start or self.start == self.end:  # nothing in common: start over
            self.dense[:] = 0
            entering: list[int] = list(self._panes.between(start, end))
            leaving: list[int] = []
        else:
            leaving = [
                *self._panes.between(self.start, min(start, self.end)),
                *self._panes.between(max(end, self.start), self.end),
            ]
            entering = [*self._panes.between(start, self.start), *self._panes.between(self.end, end)]
        for pane in leaving:
            self._panes.get(pane).add_to(self.dense, -1)
        for pane in entering:
            self._panes.get(pane).add_to(self.dense)
        self.start, self.end = start, end
        return self.dense

    def follow(self, pane: int, delta: SparseVector) -> None:
        """A pane changed."""
        if self.start <= pane < self.end:
            self._fit()
            delta.add_to(self.dense)

    def _fit(self) -> None:
        if self.dense.size < self._panes.total.size:
            self.dense = grown(self.dense, self._panes.total.size)


def grown(vector: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """The vector with zeros behind it."""
    out = np.zeros(size, np.int64)
    out[: vector.size] = vector
    return out
