"""Per pane and partition: how many impressions were seen, how many have their label, how many changed later."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SEEN, MATURED, CLICKS, CORRECTED, NEWEST = 0, 1, 2, 3, 4


class PaneStats:
    """Counts by pane, and over the whole run."""

    def __init__(self, pane: int) -> None:
        self._pane = pane
        self.by_pane: dict[int, list[int]] = {}
        self.total = [0, 0, 0, 0, -(1 << 62)]

    def seen(self, ts: NDArray[np.int64]) -> None:
        """New impressions, by their times."""
        self._add(ts, SEEN, np.ones(ts.size, np.int64))

    def matured(self, ts: NDArray[np.int64], label: NDArray[np.int8], corrected: NDArray[np.bool_]) -> None:
        """Labels that have matured; `ts` ascending. `corrected`: those whose click came after maturity was due."""
        panes, first, inverse = np.unique(ts // self._pane, return_index=True, return_inverse=True)
        count = np.bincount(inverse)
        clicks = np.bincount(inverse, weights=label).astype(np.int64)
        last = np.concatenate((first[1:], [ts.size])) - 1
        for pane, n, c, newest in zip(panes.tolist(), count.tolist(), clicks.tolist(), ts[last].tolist(), strict=True):
            cell = self._cell(pane)
            for row in (cell, self.total):
                row[MATURED] += n
                row[CLICKS] += c
                row[NEWEST] = max(row[NEWEST], newest)
        self._add(ts[corrected], CORRECTED, np.ones(int(corrected.sum()), np.int64))

    def changed(self, ts: NDArray[np.int64], change: NDArray[np.int8], corrected: NDArray[np.bool_]) -> None:
        """Labels that changed after maturity."""
        self._add(ts[corrected], CORRECTED, np.ones(int(corrected.sum()), np.int64))
        self._add(ts, CLICKS, change.astype(np.int64))

    def between(self, start: int, end: int) -> list[tuple[int, list[int]]]:
        """(pane, counts) in [start, end), oldest first."""
        return sorted((n, row) for n, row in self.by_pane.items() if start <= n < end)

    def forget_before(self, pane: int) -> None:
        """Lets old panes go; the total keeps them."""
        for number in [n for n in self.by_pane if n < pane]:
            del self.by_pane[number]

    def _cell(self, pane: int) -> list[int]:
        return self.by_pane.setdefault(pane, [0, 0, 0, 0, -(1 << 62)])

    def _add(self, ts: NDArray[np.int64], column: int, amount: NDArray[np.int64]) -> None:
        if not ts.size:
            return
        panes, inverse = np.unique(ts // self._pane, return_inverse=True)
        sums = np.bincount(inverse, weights=amount).astype(np.int64)
        for pane, n in zip(panes.tolist(), sums.tolist(), strict=True):
            self._cell(pane)[column] += n
            self.total[column] += n
