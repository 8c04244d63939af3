"""How many events of every version come late, hour by hour: see `lagging`. The counts are a function of the logs: an event
counts at the place in its log where it came.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.counting.look_panes import LookPanes
from streameval.events.batch import RETIRED, Series
from streameval.events.durations import HOUR
from streameval.join.policy import FOREVER

_CELLS, _NEAR = 5, 32  # of an entry of `_tally`; entries that are looked through before there is another one


class Share(NamedTuple):
    """Of a version's events in an hour: how many, how many of them late; the time of the first impression, and of the first
    late one (ms); `waited`: from the start of the hour until the late ones came, ms in all.
    """

    events: int = 0
    late: int = 0
    first: int = FOREVER
    first_late: int = FOREVER
    waited: int = 0

    def plus(self, other: Share) -> Share:
        """Both."""
        first, first_late = min(self.first, other.first), min(self.first_late, other.first_late)
        events, late, waited = self.events + other.events, self.late + other.late, self.waited + other.waited
        return Share(events, late, first, first_late, waited)


NONE_SHOWN = Share()
_Key = tuple[int, int]  # code of the series, hour


class LateByVersion:
    """Of one partition: events by version and hour of the impression, in hours that may still be corrected."""

    def __init__(self, pane: int) -> None:
        """`pane` in ms."""
        self._pane, self._looks = pane, LookPanes(pane)
        self._coming: dict[int, dict[_Key, Share]] = {}  # by the pane in which they came (see `LookPanes.of`)
        self._due: list[int] = []  # those panes, a heap
        self._settled = 0
        self.cleared = 0  # how often a series was forgotten
        self.hours: dict[_Key, Share] = {}

    def count(self, shown: NDArray[np.int64], came: NDArray[np.int64], series: NDArray[np.int32]) -> None:
        """Adds events: the times of their impressions, the newest time of their log when they came, who served."""
        self._add(shown, came, series, late=False)

    def count_late(self, shown: NDArray[np.int64], came: NDArray[np.int64], series: NDArray[np.int32]) -> None:
        """Tells those of the events that are late."""
        self._add(shown, came, series, late=True)

    def advance(self, until: int, settled: int) -> list[tuple[_Key, Share]]:
        """Moves on to what came before the pane `until`, and returns it; drops hours before `settled`: nothing can correct
        them any more.
        """
        gains = []
        while self._due and self._due[0] < until:
            for key, share in self._coming.pop(heappop(self._due)).items():
                self.hours[key] = self.hours.get(key, NONE_SHOWN).plus(share)
                gains.append((key, share))
        if settled > self._settled:
            self._settled = settled
            for old in [key for key in self.hours if key[1] < settled]:
                del self.hours[old]
        return gains

    def clear(self, code: int) -> None:
        """Forgets a series, so that its code can be reused."""
        self.cleared += 1
        for row in (self.hours, *self._coming.values()):
            for key in [key for key in row if key[0] == code]:
                del row[key]

    def state(self) -> dict[str, Any]:
        """Everything, for `restore`."""
        return {
            "coming": [
                [pane, *key, *one] for pane, row in sorted(self._coming.items()) for key, one in sorted(row.items())
            ],
            "hours": [[*key, *one] for key, one in sorted(self.hours.items())],
        }

    def restore(self, state: Mapping[str, Any], codes: NDArray[np.int32]) -> None:
        """Restores what `state` returned. `codes[c]`: this process's code of series c."""
        for pane, code, hour, *one in state["coming"]:
            self._coming.setdefault(pane, {})[int(codes[code]), hour] = Share(*one)
        self._due = sorted(self._coming)
        self.hours = {(int(codes[code]), hour): Share(*one) for code, hour, *one in state["hours"]}

    def _add(self, shown: NDArray[np.int64], came: NDArray[np.int64], series: NDArray[np.int32], late: bool) -> None:
        if not series.size:
            return
        out = np.empty((shown.size, _CELLS), np.int64)
        last = np.full(int(series.max()) + 1, -1, np.int64)
        for start, hour, code, n, first in out[: _tally(shown, came, series, self._looks.length, last, out)].tolist():
            pane = self._looks.of(start // self._pane)
            if pane not in self._coming:
                self._coming[pane] = {}
                heappush(self._due, pane)
            row, key = self._coming[pane], (code, hour // HOUR)
            waited = max(pane * self._pane - hour, 0) * n
            one = Share(0, n, first_late=first, waited=waited) if late else Share(n, first=first)
            row[key] = row.get(key, NONE_SHOWN).plus(one)


@numba.njit(cache=True, nogil=True)
def _tally(
    shown: NDArray[np.int64],
    came: NDArray[np.int64],
    series: NDArray[np.int32],
    length: int,
    last: NDArray[np.int64],
    out: NDArray[np.int64],
) -> int:
    """Fills `out` with (start of the pane in which they came, start of the hour in which they were shown, series, events,
    first shown), and returns how many; the same may come more than once. `last`: by series, -1.
    """
    n = 0
    for i in range(shown.size):
        at = last[series[i]]
        if at < 0 or not (out[at, 0] <= came[i] < out[at, 0] + length and out[at, 1] <= shown[i] < out[at, 1] + HOUR):
            pane, hour = came[i] // length * length, shown[i] // HOUR * HOUR
            at = n - 1
            while at >= max(n - _NEAR, 0) and not (
                out[at, 0] == pane and out[at, 1] == hour and out[at, 2] == series[i]
            ):
                at -= 1
            if at < max(n - _NEAR, 0):
                at = n
                out[n] = pane, hour, np.int64(series[i]), 0, shown[i]
                n += 1
            last[series[i]] = at
        out[at, 3] += 1
        out[at, 4] = min(out[at, 4], shown[i])
    return n


ByHour = dict[int, Share]  # of a version


class LateOfAll:
    """What the partitions of a process have counted together, kept from one look to the next."""

    def __init__(self) -> None:
        self._of: list[tuple[LateByVersion, int]] = []  # those of which it is the sum, and how often each was cleared
        self._hours: dict[Series, ByHour] = {}

    def advance(
        self, parts: Sequence[LateByVersion], series: Sequence[Series], until: int, settled: int
    ) -> dict[Series, ByHour]:
        """Advances all of them, and returns the sums in order of the names. `series`: by code."""
        gains = [gain for part in parts for gain in part.advance(until, settled)]
        of = [(part, part.cleared) for part in parts]
        if of != self._of:
            self._of, self._hours = of, {}
            gains = [gain for part in parts for gain in part.hours.items()]
        for (code, hour), share in gains:
            mine = self._hours.setdefault(series[code], {})
            mine[hour] = mine.get(hour, NONE_SHOWN).plus(share)
        out = {}
        for one in sorted(self._hours.keys() - {RETIRED}):
            row = self._hours[one]
            for old in [hour for hour in row if hour < settled]:
                del row[old]
            if row:
                out[one] = row
        self._hours = out
        return out


def total(shares: Iterable[Share]) -> Share:
    """All together."""
    return reduce(Share.plus, shares, NONE_SHOWN)
