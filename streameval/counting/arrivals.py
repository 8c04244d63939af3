"""Impressions as they arrive, by pane and serving version: how deploys are detected long before their labels mature.

A late one counts when it comes: in the pane of the watermark at that place in its log, the oldest that is still awaited.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.counting.look_panes import LookPanes
from streameval.counting.pane_counts import pair_counts
from streameval.counting.version_count import NOTHING_CAME, VersionCount


class Arrivals:
    """Counts by pane (see `LookPanes.of`) and series, kept until they are taken."""

    def __init__(self, pane: int, lateness: int) -> None:
        """Both in ms."""
        self._looks, self._lateness = LookPanes(pane), lateness
        self._waiting: dict[int, dict[int, VersionCount]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def seen(self, ts: NDArray[np.int64], behind: NDArray[np.uint32], series: NDArray[np.int32]) -> None:
        """Adds new impressions: their times, how far they were behind the newest of their log, and the codes of the series
        that served them.
        """
        overdue = np.maximum(behind.astype(np.int64) - self._lateness, 0)
        both = 2 * series.astype(np.int64) + (overdue > 0)
        for number, one, n, _ in pair_counts(ts + overdue, self._looks.length, both, 1):
            row = self._waiting.setdefault(self._looks.of(number * self._looks.many), {})
            row[one // 2] = row.get(one // 2, NOTHING_CAME).plus(VersionCount(n, n * (one % 2)))

    def take(self, end: int) -> list[tuple[int, dict[int, VersionCount]]]:
        """Removes and returns (pane, impressions by series) for the panes before `end` with new impressions, oldest
        first.
        """
        return [(pane, self._waiting.pop(pane)) for pane in sorted(p for p in self._waiting if p < end)]

    def serving(self) -> set[int]:
        """Returns the series of the impressions that nobody has taken yet."""
        return {code for row in self._waiting.values() for code in row}

    def state(self) -> list[list[int]]:
        """Returns everything, for `restore`."""
        return [[pane, code, *n] for pane, row in sorted(self._waiting.items()) for code, n in row.items()]

    def restore(self, state: Any, codes: NDArray[np.int32]) -> None:
        """Restores what `state` returned. `codes[c]` is this process's code of series c."""
        waiting: dict[int, dict[int, VersionCount]] = {}
        for pane, code, *n in state:  # older checkpoints have every pane, and no late impressions
            row = waiting.setdefault(self._looks.of(pane), {})
            row[int(codes[code])] = row.get(int(codes[code]), NOTHING_CAME).plus(VersionCount(*n))
        self._waiting = waiting

    def clear(self, series: int) -> None:
        """Forgets a series."""
        for row in self._waiting.values():
            row.pop(series, None)
