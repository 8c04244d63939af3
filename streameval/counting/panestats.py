"""Counts per pane and partition: impressions seen, matured and corrected; matched clicks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.counting.measured import pane_starts
from streameval.counting.pane_counts import pane_counts

_MOST_PANES = 1 << 18  # half a year of minutes, 65 MB; event times scattered over centuries must not fill the memory
MOST_RUNS = 1 << 14  # of dropped panes

PANE_SEEN, PANE_MATURED, PANE_CLICKS, PANE_CORRECTED, PANE_NEWEST = 0, 1, 2, 3, 4
PANE_FOUND, PANE_LOST = 5, 6  # clicks, by their own time, that found their impression, and that were given up
_EMPTY = [0, 0, 0, 0, -(1 << 62), 0, 0]


class PaneStats:
    """Counts by pane, and over the entire run. Beyond `_MOST_PANES` the older half of the panes is dropped.

    For dropped panes, `runs` records which of them had clicks, and the number of impressions in those without: [first
    pane, end, impressions, or -1 if there were clicks], oldest first; the newest `MOST_RUNS` are kept.
    """

    def __init__(self, pane: int) -> None:
        self._pane = pane
        self.by_pane: dict[int, list[int]] = {}
        self.total = list(_EMPTY)
        self.runs: list[list[int]] = []

    def seen(self, ts: NDArray[np.int64]) -> None:
        """Adds new impressions, by their times."""
        self._add(ts, PANE_SEEN)

    def matured(
        self, ts: NDArray[np.int64], label: NDArray[np.int8], corrected: NDArray[np.bool_], sign: int = 1
    ) -> None:
        """Adds labels that have matured; `ts` ascending. `corrected`: those whose click came after maturity was due.

        With sign -1 they are removed again, to be added later.
        """
        first = pane_starts(ts, self._pane)
        start, last = first[:-1], first[1:] - 1
        clicks, late = (np.add.reduceat(of == 1, start, dtype=np.int64) for of in (label, corrected))
        counts = zip((first[1:] - start).tolist(), clicks.tolist(), late.tolist(), ts[last].tolist(), strict=True)
        for number, (n, clicked, corrections, newest) in zip((ts[start] // self._pane).tolist(), counts, strict=True):
            for row in (self._cell(number), self.total):
                row[PANE_MATURED] += sign * n
                row[PANE_CLICKS] += sign * clicked
                row[PANE_CORRECTED] += sign * corrections
                row[PANE_NEWEST] = max(row[PANE_NEWEST], newest)

    def changed(self, ts: NDArray[np.int64], change: NDArray[np.int8], corrected: NDArray[np.bool_]) -> None:
        """Adds labels that changed after maturity."""
        self._add(ts[corrected], PANE_CORRECTED)
        self._add(ts[change > 0], PANE_CLICKS)
        self._add(ts[change < 0], PANE_CLICKS, -1)

    def judged(self, found: NDArray[np.int64], lost: NDArray[np.int64]) -> None:
        """Adds clicks, by their times, that have found their impression, and that were given up."""
        self._add(found, PANE_FOUND)
        self._add(lost, PANE_LOST)

    def between(self, start: int, end: int) -> list[tuple[int, list[int]]]:
        """Returns (pane, counts) in [start, end), oldest first."""
        return sorted((n, row) for n, row in self.by_pane.items() if start <= n < end)

    def forget_before(self, pane: int) -> None:
        """Drops old panes; the total still includes them."""
        for number in sorted(n for n in self.by_pane if n < pane):
            row = self.by_pane.pop(number)
            last = self.runs[-1] if self.runs else None
            if last is not None and number < last[1]:  # a pane dropped before: a click of it has been given up since
                continue
            if row[PANE_CLICKS] > 0 and last is not None and last[1:] == [number, -1]:
                last[1] = number + 1
            elif row[PANE_CLICKS] > 0 or row[PANE_MATURED] > 0:
                self.runs.append([number, number + 1, -1 if row[PANE_CLICKS] > 0 else row[PANE_MATURED]])
        del self.runs[:-MOST_RUNS]

    def state(self) -> dict[str, Any]:
        """Returns everything, for `restore`."""
        rows = sorted(self.by_pane.items())
        return {
            "pane": np.array([number for number, _ in rows], np.int64),
            "counts": np.array([row for _, row in rows], np.int64).reshape(len(rows), len(self.total)),
            "total": list(self.total),
            "runs": np.array(self.runs, np.int64).reshape(len(self.runs), 3),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned."""
        self.total = list(state["total"])
        if "runs" in state:  # missing in older checkpoints
            self.runs = state["runs"].tolist()
        self.by_pane = dict(zip(state["pane"].tolist(), state["counts"].tolist(), strict=True))

    def _cell(self, pane: int) -> list[int]:
        if len(self.by_pane) >= _MOST_PANES:
            self.forget_before(sorted(self.by_pane)[_MOST_PANES // 2])
        return self.by_pane.setdefault(pane, list(_EMPTY))

    def _add(self, ts: NDArray[np.int64], column: int, sign: int = 1) -> None:
        for number, n in pane_counts(ts, self._pane):
            self._cell(number)[column] += sign * n
            self.total[column] += sign * n
