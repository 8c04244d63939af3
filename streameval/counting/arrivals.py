"""Impressions as they arrive, by pane and serving version: how deploys are detected long before their labels mature.

A late one counts when it comes: in the pane of the watermark at that place in its log, the oldest that is still awaited.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streameval.counting.look_panes import LookPanes
from streameval.counting.pane_counts import pair_counts
from streameval.events.batch import RETIRED, Series

_Late = dict[tuple[int, int], int]  # by code of the series, and pane in which they were shown


class Arrivals:
    """Counts by pane (see `LookPanes.of`) and series, kept until they are taken."""

    def __init__(self, pane: int, lateness: int) -> None:
        """Both in ms."""
        self._looks, self._lateness = LookPanes(pane), lateness
        self._waiting: dict[int, dict[int, int]] = {}
        self._late: dict[int, _Late] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def seen(self, ts: NDArray[np.int64], series: NDArray[np.int32]) -> None:
        """Adds new impressions that are in time: their times, and the codes of the series that served them."""
        for number, code, n, _ in pair_counts(ts, self._looks.length, series.astype(np.int64), 1):
            row = self._waiting.setdefault(self._looks.of(number * self._looks.many), {})
            row[code] = row.get(code, 0) + n

    def seen_late(self, ts: NDArray[np.int64], behind: NDArray[np.uint32], series: NDArray[np.int32]) -> None:
        """Adds late ones; `behind`: how far they were behind the newest of their log, ms."""
        came = ts + behind - self._lateness
        for code in np.unique(series).tolist():
            of = series == code
            for *both, n, _ in pair_counts(came[of], self._looks.length, ts[of], self._looks.length):
                pane, shown = (self._looks.of(number * self._looks.many) for number in both)
                row = self._late.setdefault(pane, {})
                row[code, shown] = row.get((code, shown), 0) + n

    def take(self, end: int) -> list[tuple[int, dict[int, int], _Late]]:
        """Removes and returns (pane, impressions by series, late ones) for the panes before `end` with new impressions,
        oldest first.
        """
        panes = sorted(pane for pane in {*self._waiting, *self._late} if pane < end)
        return [(pane, self._waiting.pop(pane, {}), self._late.pop(pane, {})) for pane in panes]

    def serving(self) -> set[int]:
        """Returns the series of the impressions that nobody has taken yet."""
        late = {code for row in self._late.values() for code, _ in row}
        return late | {code for row in self._waiting.values() for code in row}

    def state(self) -> dict[str, list[list[int]]]:
        """Returns everything, for `restore`."""
        return {
            "in_time": [[pane, code, n] for pane, row in sorted(self._waiting.items()) for code, n in row.items()],
            "late": [[pane, *key, n] for pane, row in sorted(self._late.items()) for key, n in row.items()],
        }

    def restore(self, state: Any, codes: NDArray[np.int32]) -> None:
        """Restores what `state` returned. `codes[c]` is this process's code of series c."""
        if not isinstance(state, dict):  # an older checkpoint
            state = {"in_time": state, "late": []}
        self._waiting, self._late = {}, {}
        for pane, code, n in state["in_time"]:
            row = self._waiting.setdefault(self._looks.of(pane), {})  # older checkpoints have every pane
            row[int(codes[code])] = row.get(int(codes[code]), 0) + n
        for pane, code, shown, n in state["late"]:
            self._late.setdefault(pane, {})[int(codes[code]), shown] = n

    def clear(self, series: int) -> None:
        """Forgets a series."""
        for row in self._waiting.values():
            row.pop(series, None)
        for late in self._late.values():
            for key in [key for key in late if key[0] == series]:
                del late[key]


class Came(NamedTuple):
    """Impressions that came in a pane, by series; late ones by the pane in which they were shown, too."""

    in_time: dict[Series, int]
    late: dict[Series, dict[int, int]]


def taken(parts: Iterable[Arrivals], start: int, end: int, series: Sequence[Series]) -> Mapping[int, Came]:
    """Takes what all partitions have before the pane `end`; returns it by pane, from `start` on. `series`: by code."""
    out: dict[int, Came] = {}
    for part in parts:
        for pane, counts, late in part.take(end):
            in_time, shown_late = out.setdefault(pane, Came({}, {}))
            for code, n in counts.items():
                in_time[series[code]] = in_time.get(series[code], 0) + n
            for (code, shown), n in late.items():
                row = shown_late.setdefault(series[code], {})
                row[shown] = row.get(shown, 0) + n
    for came in out.values():
        came.in_time.pop(RETIRED, None)
        came.late.pop(RETIRED, None)
    return {pane: came for pane, came in out.items() if pane >= start}
