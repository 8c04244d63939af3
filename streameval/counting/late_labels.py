"""How many clicks came after the label of their impression was due: a producer of clicks that lags shows here, and nowhere else.

Where all clicks stop, a stretch without any tells it (see `results.health`). Where a part of them lags, the others hide
it: labels are due without the clicks that are on their way, and look like those of a model that predicts too much. What
is usual is not judged: where a fifth of the clicks always comes late, labels have always been due without them. The
counts are a function of the logs: a click counts at the place in its log where it came.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streameval.counting.join_panes import MIN_CLICKS, RECENT_PANES, SILENT_CLICKS
from streameval.events.durations import HOUR
from streameval.join.fates import Fates

# of the clicks, more than usual, that come late: what differs by less is seldom undone by what they correct
_UNUSUAL = 0.2


class LateCount(NamedTuple):
    """Clicks that found their impression, and labels that one corrected after they were due."""

    clicks: int = 0
    corrected: int = 0

    def plus(self, other: LateCount) -> LateCount:
        """Both."""
        return LateCount(self.clicks + other.clicks, self.corrected + other.corrected)


_NONE = LateCount()


class LateLabels:
    """Of one partition."""

    def __init__(self, pane: int) -> None:
        """`pane` in ms."""
        self._pane = pane
        self._coming: dict[int, dict[int, LateCount]] = {}  # by the pane in which a click came: by hour of event time
        self._recent: dict[int, LateCount] = {}  # by the pane in which it came
        self.before = _NONE  # what came before those
        self.hours: dict[int, LateCount] = {}  # of what came before the last `advance`

    def add(self, fates: Fates) -> None:
        """A batch."""
        for (ts, key), corrected in ((fates.found, False), (fates.corrected, True)):
            if ts.size:
                self._count(ts, key, corrected)

    def advance(self, until: int) -> None:
        """Moves on to what came before a pane."""
        for pane in sorted(pane for pane in self._coming if pane < until):
            by_hour = self._coming.pop(pane)
            for hour, count in by_hour.items():
                self.hours[hour] = self.hours.get(hour, _NONE).plus(count)
                self._recent[pane] = self._recent.get(pane, _NONE).plus(count)
        for pane in [pane for pane in self._recent if pane < until - RECENT_PANES]:
            self.before = self.before.plus(self._recent.pop(pane))

    def recent(self) -> LateCount:
        """Of what came in the last `RECENT_PANES` panes before the last `advance`."""
        return _sum(self._recent.values())

    def forget_before(self, hour: int) -> None:
        """Drops hours whose labels cannot change any more."""
        for old in [one for one in self.hours if one < hour]:
            del self.hours[old]

    def state(self) -> dict[str, Any]:
        """Everything, for `restore`."""
        return {
            "coming": [
                [pane, hour, *n] for pane, row in sorted(self._coming.items()) for hour, n in sorted(row.items())
            ],
            "recent": [[pane, *n] for pane, n in sorted(self._recent.items())],
            "before": list(self.before),
            "hours": [[hour, *n] for hour, n in sorted(self.hours.items())],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned."""
        for pane, hour, *count in state["coming"]:
            self._coming.setdefault(pane, {})[hour] = LateCount(*count)
        self._recent = {pane: LateCount(*count) for pane, *count in state["recent"]}
        self.before = LateCount(*state["before"])
        self.hours = {hour: LateCount(*count) for hour, *count in state["hours"]}

    def _count(self, ts: NDArray[np.int64], key: NDArray[np.int64], corrected: bool) -> None:
        hours = ts // HOUR
        low, width = int(hours.min()), int(hours.max() - hours.min()) + 1
        cells, counts = np.unique(key // self._pane * width + (hours - low), return_counts=True)
        for cell, n in zip(cells.tolist(), counts.tolist(), strict=True):
            row, hour = self._coming.setdefault(cell // width, {}), cell % width + low
            row[hour] = row.get(hour, _NONE).plus(LateCount(0, n) if corrected else LateCount(n, 0))


def lagging(parts: Sequence[LateLabels]) -> str | None:
    """Why no comparison may decide anything by labels that are due now: more of the last clicks came late than is usual."""
    for some in _judged(parts):
        recent = _sum(part.recent() for part in some)
        if recent.corrected >= MIN_CLICKS and recent.corrected > _most(some) * recent.clicks:
            share = recent.corrected / recent.clicks
            return f"{share:.0%} of the last {recent.clicks} clicks came after the label of their impression was due"
    return None


def incomplete_hours(parts: Sequence[LateLabels]) -> frozenset[int]:
    """The hours of event time in which so many more labels than is usual were due without their click that no comparison may
    read them yet.
    """
    out: set[int] = set()
    for some in _judged(parts):
        most = _most(some)
        for hour in {hour for part in some for hour in part.hours}:
            count = _sum(part.hours.get(hour, _NONE) for part in some)
            if count.corrected >= SILENT_CLICKS and count.corrected > most * count.clicks:
                out.add(hour)
    return frozenset(out)


def _judged(parts: Sequence[LateLabels]) -> list[Sequence[LateLabels]]:
    """All partitions together, and each by itself, whose clicks the others may hide."""
    return [parts, *([part] for part in parts)] if len(parts) > 1 else [parts]


def _most(parts: Sequence[LateLabels]) -> float:
    """The largest share of late clicks that means nothing. While little came before, any."""
    before = _sum(part.before for part in parts)
    return _UNUSUAL + (before.corrected / before.clicks if before.clicks >= MIN_CLICKS else 1.0)


def _sum(counts: Iterable[LateCount]) -> LateCount:
    return reduce(LateCount.plus, counts, _NONE)
