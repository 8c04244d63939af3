"""How many impressions of every version came late: comparisons do not have those yet.

A late impression counts in comparisons only once nothing can correct it any more (see `ledger.as_due`). Which ones are late
is no accident: a client that sends what was clicked at once, and the rest with its next batch, leaves mostly clicks in time.
The counts are a function of the logs: an impression counts at the place in its log where it came.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.counting.look_panes import LookPanes
from streameval.counting.pane_counts import pair_counts
from streameval.counting.version_count import NOTHING_CAME, VersionCount
from streameval.events.batch import RETIRED, Series
from streameval.events.durations import HOUR
from streameval.join.policy import LATE
from streameval.join.rows import Table

_FEWEST = 10  # late ones before anything is judged
_RECENT = 2  # hours by which it is judged, the last of which has only begun; and by all whose late ones are missing


_Row = dict[int, VersionCount]  # by code of the series that served


class LateImpressions:
    """Of one partition. `hours`: of what came before the last `advance`, by the hour of event time in which it came."""

    def __init__(self, pane: int) -> None:
        """`pane` in ms."""
        self._pane, self._looks = pane, LookPanes(pane)
        self._coming: dict[int, _Row] = {}  # by the pane in which they came (see `LookPanes.of`)
        self._due: list[int] = []  # those panes, a heap
        self.hours: dict[int, _Row] = {}

    def add(self, table: Table, rows: NDArray[np.int64]) -> None:
        """A batch's new rows."""
        if not rows.size:
            return
        new = slice(int(rows[0]), int(rows[-1]) + 1)  # rows are consecutive
        late = (table.state[new] & LATE) != 0
        both = 2 * table.series[new].astype(np.int64) + late
        for number, one, n, _ in pair_counts(table.ts[new] + table.behind[new], self._looks.length, both, 1):
            pane = self._looks.of(number * self._looks.many)
            if pane not in self._coming:
                self._coming[pane] = {}
                heappush(self._due, pane)
            _add(self._coming[pane], {one // 2: VersionCount(n, n * (one % 2))})

    def advance(self, until: int, oldest: int) -> None:
        """Moves on to what came before a pane; drops hours before `oldest`."""
        while self._due and self._due[0] < until:
            pane = heappop(self._due)
            _add(self.hours.setdefault(pane * self._pane // HOUR, {}), self._coming.pop(pane))
        for old in [hour for hour in self.hours if hour < oldest]:
            del self.hours[old]

    def clear(self, series: int) -> None:
        """Forgets a series, so that its code can be reused."""
        for row in (*self._coming.values(), *self.hours.values()):
            row.pop(series, None)

    def state(self) -> dict[str, Any]:
        """Everything, for `restore`."""
        return {"coming": _listed(self._coming), "hours": _listed(self.hours)}

    def restore(self, state: Mapping[str, Any], codes: NDArray[np.int32]) -> None:
        """Restores what `state` returned. `codes[c]` is this process's code of series c."""
        self._coming, self.hours = _by_key(state["coming"], codes), _by_key(state["hours"], codes)
        self._due = sorted(self._coming)


def mostly_late(parts: Sequence[LateImpressions], hour: int, series: Sequence[Series]) -> dict[Series, VersionCount]:
    """The versions that no comparison may decide anything about: of their impressions that came until this hour, too many
    came late. `series`: by code.
    """
    hours: dict[int, _Row] = {}
    for part in parts:
        for number, row in part.hours.items():
            _add(hours.setdefault(number, {}), row)
    whole, recent = _sum(hours.values()), _sum(row for number, row in hours.items() if number > hour - _RECENT)
    found = {
        series[code]: count
        for row in (whole, recent)
        for code, count in row.items()
        if count.late >= _FEWEST and count.is_behind
    }
    return {one: count for one, count in found.items() if one != RETIRED}


def _sum(rows: Iterable[_Row]) -> _Row:
    out: _Row = {}
    for row in rows:
        _add(out, row)
    return out


def _add(to: _Row, row: _Row) -> None:
    for code, count in row.items():
        to[code] = to.get(code, NOTHING_CAME).plus(count)


def _listed(rows: Mapping[int, _Row]) -> list[list[int]]:
    return [[key, code, *count] for key, row in sorted(rows.items()) for code, count in sorted(row.items())]


def _by_key(listed: Iterable[Sequence[int]], codes: NDArray[np.int32]) -> dict[int, _Row]:
    out: dict[int, _Row] = {}
    for key, code, *count in listed:
        _add(out.setdefault(key, {}), {int(codes[code]): VersionCount(*count)})
    return out
