"""How many clicks came after the label of their impression was due: a producer of clicks that lags shows here, and nowhere else.

Where all clicks stop, a stretch without any tells it (see `results.health`). Where a part of them lags, the others hide
it: labels are due without the clicks that are on their way, and look like those of a model that predicts too much. What
is usual is not judged: where a fifth of the clicks always comes late, labels have always been due without them. The
counts are a function of the logs: a click counts at the place in its log where it came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streameval.counting.join_panes import MIN_CLICKS, RECENT_PANES, SILENT_CLICKS
from streameval.counting.look_panes import LookPanes
from streameval.counting.pane_counts import pair_counts
from streameval.events.durations import HOUR
from streameval.join.fates import Fates
from streameval.join.policy import FOREVER

# of the clicks, more than usual, that come late: what differs by less is seldom undone by what they correct
_UNUSUAL = 0.2


class LateCount(NamedTuple):
    """Clicks that found their impression, and labels that one corrected after they were due, the first of them at `since`."""

    clicks: int = 0
    corrected: int = 0
    since: int = FOREVER  # time of the impression, ms

    def plus(self, other: LateCount) -> LateCount:
        """Both."""
        return LateCount(self.clicks + other.clicks, self.corrected + other.corrected, min(self.since, other.since))


_NONE = LateCount()


class LateLabels:
    """Of one partition. `recent` is of what came in the last `RECENT_PANES` panes before the last `advance`, `before` of
    what came earlier, `hours` of both, by hour of event time.
    """

    def __init__(self, pane: int) -> None:
        """`pane` in ms."""
        self._looks = LookPanes(pane)
        # by the pane in which a click came (see `LookPanes.of`): by hour
        self._coming: dict[int, dict[int, LateCount]] = {}
        self._due: list[int] = []  # those panes, a heap
        self._recent: deque[tuple[int, LateCount]] = deque()  # by the pane in which a click came, in order
        self.recent = self.before = _NONE
        self.hours: dict[int, LateCount] = {}

    def add(self, fates: Fates) -> None:
        """A batch."""
        self._count(*fates.found, False)
        self._count(fates.corrected.shown, fates.corrected.key, True)

    def advance(self, until: int) -> set[int]:
        """Moves on to what came before a pane; returns the hours of which labels were corrected by it."""
        touched = set()
        while self._due and self._due[0] < until:
            pane, total = heappop(self._due), _NONE
            for hour, count in self._coming.pop(pane).items():
                self.hours[hour] = self.hours.get(hour, _NONE).plus(count)
                total = total.plus(count)
                if count.corrected:
                    touched.add(hour)
            self._recent.append((pane, total))
            self.recent = self.recent.plus(total)
        while self._recent and self._recent[0][0] < until - RECENT_PANES:
            _, count = self._recent.popleft()
            left = self.recent.clicks - count.clicks, self.recent.corrected - count.corrected
            self.recent = LateCount(*left, self.recent.since)
            self.before = self.before.plus(count)
        return touched

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
            "recent": [[pane, *n] for pane, n in self._recent],
            "before": list(self.before),
            "hours": [[hour, *n] for hour, n in sorted(self.hours.items())],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned."""
        for pane, hour, *count in state["coming"]:
            self._coming.setdefault(pane, {})[hour] = _restored(hour, count)
        self._due = sorted(self._coming)
        self._recent = deque((pane, LateCount(*count)) for pane, *count in state["recent"])
        self.recent, self.before = _sum(count for _, count in self._recent), LateCount(*state["before"])
        self.hours = {hour: _restored(hour, count) for hour, *count in state["hours"]}

    def _count(self, ts: NDArray[np.int64], key: NDArray[np.int64], corrected: bool) -> None:
        for number, hour, n, first in pair_counts(key, self._looks.length, ts, HOUR):
            pane = self._looks.of(number * self._looks.many)
            if pane not in self._coming:
                self._coming[pane] = {}
                heappush(self._due, pane)
            row = self._coming[pane]
            row[hour] = row.get(hour, _NONE).plus(LateCount(0, n, first) if corrected else LateCount(n))


def lagging(parts: Sequence[LateLabels]) -> str | None:
    """Why no comparison may decide anything by labels that are due now: more of the last clicks came late than is usual."""
    for some in _judged(parts):
        recent = _sum(part.recent for part in some)
        if recent.corrected >= MIN_CLICKS and recent.corrected > _most(some) * recent.clicks:
            share = recent.corrected / recent.clicks
            return f"{share:.0%} of the last {recent.clicks} clicks came after the label of their impression was due"
    return None


def incomplete_hours(parts: Sequence[LateLabels], hours: Collection[int]) -> frozenset[int]:
    """Those of some hours in which so many more labels than is usual were due without their click that no comparison may read
    them yet.
    """
    out: set[int] = set()
    for some in _judged(parts) if hours else ():
        most = _most(some)
        for hour in hours:
            count = _sum(part.hours.get(hour, _NONE) for part in some)
            if count.corrected >= SILENT_CLICKS and count.corrected > most * count.clicks:
                out.add(hour)
    return frozenset(out)


def corrected_since(parts: Sequence[LateLabels], hours: Iterable[int]) -> int:
    """The time of the first impression of some hours whose label was corrected, ms; FOREVER: none was."""
    return _sum(part.hours.get(hour, _NONE) for hour in hours for part in parts).since


def _judged(parts: Sequence[LateLabels]) -> list[Sequence[LateLabels]]:
    """All partitions together, and each by itself, whose clicks the others may hide."""
    return [parts, *([part] for part in parts)] if len(parts) > 1 else [parts]


def _most(parts: Sequence[LateLabels]) -> float:
    """The largest share of late clicks that means nothing. While little came before, any."""
    before = _sum(part.before for part in parts)
    return _UNUSUAL + (before.corrected / before.clicks if before.clicks >= MIN_CLICKS else 1.0)


def _restored(hour: int, count: Sequence[int]) -> LateCount:
    """From a checkpoint; older ones do not say which label was the first to be corrected."""
    clicks, corrected, *since = count
    return LateCount(clicks, corrected, since[0] if since else hour * HOUR if corrected else FOREVER)


def _sum(counts: Iterable[LateCount]) -> LateCount:
    return reduce(LateCount.plus, counts, _NONE)
