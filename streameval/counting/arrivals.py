"""Impressions as they arrive, by pane and serving version: how deploys are detected long before their labels mature."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.counting.look_panes import LookPanes
from streameval.counting.pane_counts import pair_counts


class Arrivals:
    """Counts by pane (see `LookPanes.of`) and series, kept until they are taken."""

    def __init__(self, pane: int) -> None:
        """`pane` in ms."""
        self._looks = LookPanes(pane)
        self._waiting: dict[int, dict[int, int]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def seen(self, ts: NDArray[np.int64], series: NDArray[np.int32]) -> None:
        """Adds new impressions: their times, and the codes of the series that served them."""
        for number, code, n, _ in pair_counts(ts, self._looks.length, series.astype(np.int64), 1):
            row = self._waiting.setdefault(self._looks.of(number * self._looks.many), {})
            row[code] = row.get(code, 0) + n

    def take(self, end: int) -> list[tuple[int, dict[int, int]]]:
        """Removes and returns (pane, impressions by series) for the panes before `end` with new impressions, oldest
        first.
        """
        return [(pane, self._waiting.pop(pane)) for pane in sorted(p for p in self._waiting if p < end)]

    def serving(self) -> set[int]:
        """Returns the series of the impressions that nobody has taken yet."""
        return {code for row in self._waiting.values() for code in row}

    def state(self) -> list[list[int]]:
        """Returns everything, for `restore`."""
        return [[pane, code, n] for pane, row in sorted(self._waiting.items()) for code, n in row.items()]

    def restore(self, state: Any, codes: NDArray[np.int32]) -> None:
        """Restores what `state` returned. `codes[c]` is this process's code of series c."""
        waiting: dict[int, dict[int, int]] = {}
        for pane, code, n in state:
            row = waiting.setdefault(self._looks.of(pane), {})  # older checkpoints have every pane
            row[int(codes[code])] = row.get(int(codes[code]), 0) + n
        self._waiting = waiting

    def clear(self, series: int) -> None:
        """Forgets a series."""
        for row in self._waiting.values():
            row.pop(series, None)
