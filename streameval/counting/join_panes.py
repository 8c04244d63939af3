"""The health of the join, look by look, when the labels of the pane by which a look goes (`LookPanes.of`) were due: can a
comparison rely on them?

An event counts in the pane of its own time if it had arrived, by its place in its log, before the labels of that pane
were due; in the same way a click has found its impression if both had arrived. Events that came later are not counted.
So these counts depend only on the logs, not on batches, on how far one log was read ahead of the other, or on when
results are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import add, sub
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.counting.look_panes import LookPanes
from streameval.counting.pane_counts import entry
from streameval.join.fates import Fates
from streameval.join.policy import KNOWN, LATE
from streameval.join.rows import Table

_MOST_PANES = 4_096  # beyond that, the older half is dropped; more than can be waiting for a look

MIN_JOIN_RATE = 0.9  # below it, too many positives are missing for calibration to mean anything
MIN_CLICKS = 50  # clicks before the join rate is judged
MIN_CONFLICTS = 10  # impressions rejected for their id before anything is called unreliable
SILENT_CLICKS = 30.0  # expected clicks that did not come: a stretch of panes without any click is then no accident
UNHEARD_CLICKS = 100  # the same, expected by scores, which may be far too high; while fewer were counted
RECENT_PANES = 60  # panes for the join rate while running, and for a look of a comparison

# impressions; those of them that were on time and wait for clicks; those rejected for their id; clicks; those that
# found their impression; and events held back for being too far ahead, counted at the newest time of the log where they
# occurred
READ_IMPRESSIONS, UNLABELLED, REFUSED, READ_CLICKS, MATCHED_CLICKS, _AHEAD = range(6)
_CELLS = 6
_NO_STATES = np.empty(0, np.uint8)


class JoinPanes:
    """The counts of one partition."""

    def __init__(self, pane: int, window: int, lateness: int) -> None:
        """All in ms; `window`: the attribution window."""
        self._looks, self._slack = LookPanes(pane), window + lateness
        self._by_pane: dict[int, list[int]] = {}
        self._start = self._end = 0  # the panes of the last `between`, and their sums
        self._sums = [0] * _CELLS

    def add(self, table: Table, rows: NDArray[np.int64], fates: Fates) -> None:
        """Adds a batch: its new rows, and the fates of its other events."""
        if rows.size:  # rows are consecutive
            new = slice(int(rows[0]), int(rows[-1]) + 1)
            self._count((READ_IMPRESSIONS, UNLABELLED), table.ts[new], table.behind[new], table.state[new])
        for column, (ts, key) in ((REFUSED, fates.refused), (READ_CLICKS, fates.clicks), (MATCHED_CLICKS, fates.found)):
            self._count((column,), ts, key - ts)
        if len(self._by_pane) > _MOST_PANES:
            self.forget_before(sorted(self._by_pane)[_MOST_PANES // 2])

    def ahead(self, newest: NDArray[np.int64]) -> None:
        """Counts events that were too far ahead, by the newest time in their log before them."""
        self._count((_AHEAD,), newest, np.zeros_like(newest))

    def between(self, start: int, end: int) -> list[int]:
        """Returns the six columns, summed over the panes [start, end). Quick where these have moved on by a few panes."""
        if not self._start <= start <= self._end <= end:
            self._start = self._end = start
            self._sums = [0] * _CELLS
        for pane in range(self._end, end):
            if (row := self._by_pane.get(pane)) is not None:
                self._sums = list(map(add, self._sums, row))
        for pane in range(self._start, start):
            if (row := self._by_pane.get(pane)) is not None:
                self._sums = list(map(sub, self._sums, row))
        self._start, self._end = start, end
        return [*self._sums]

    def unlabelled(self, pane: int) -> int:
        """Returns the number of impressions of a pane, on time, that wait for clicks.

        If there are any and their labels are complete, both logs have been read far enough for all earlier panes to be
        complete, too.
        """
        row = self._by_pane.get(pane)
        return 0 if row is None else row[UNLABELLED]

    def forget_before(self, pane: int) -> None:
        """Drops old panes."""
        for number in [n for n in self._by_pane if n < pane]:
            row = self._by_pane.pop(number)
            if self._start <= number < self._end:
                self._sums = list(map(sub, self._sums, row))

    def state(self) -> list[list[int]]:
        """Returns everything, for `restore`."""
        return [[pane, *row] for pane, row in sorted(self._by_pane.items())]

    def restore(self, state: Any) -> None:
        """Restores what `state` returned."""
        self._by_pane = {}
        for pane, *row in state:  # older checkpoints have every pane
            look = self._looks.of(int(pane))
            self._by_pane[look] = list(map(add, self._by_pane.get(look, [0] * _CELLS), map(int, row)))
        self._start = self._end = 0

    def _count(
        self,
        columns: tuple[int, ...],
        ts: NDArray[np.int64],
        behind: NDArray[np.integer[Any]],
        state: NDArray[np.uint8] = _NO_STATES,
    ) -> None:
        """`behind`: how far the logs had advanced beyond these times; `state`: of rows, whose second column counts
        those waiting for clicks.
        """
        if not ts.size:
            return
        out = np.empty((ts.size, 2 + len(columns)), np.int64)
        for number, _, *counts in out[: _tally(ts, behind, state, self._looks.length, self._slack, out)].tolist():
            pane = self._looks.of(number * self._looks.many)
            row = self._by_pane.setdefault(pane, [0] * _CELLS)
            for column, count in zip(columns, counts, strict=True):
                row[column] += count
                if self._start <= pane < self._end:
                    self._sums[column] += count


def broken(joins: Sequence[JoinPanes], pane: int) -> str | None:
    """Returns why no comparison may decide anything by a pane whose labels are complete, judged by the `RECENT_PANES`
    panes before it; or None.

    This depends only on the logs, unlike `results.health`, which describes the current state. A partition in which no
    impression of the pane was waiting for clicks is left out, because it is not known how far its clicks have been
    read.
    """
    rows = [one.between(pane - RECENT_PANES, pane) for one in joins if one.unlabelled(pane)]
    n = [sum(column) for column in zip(*rows, strict=True)]
    if not n:
        return None
    return (
        lost(n[MATCHED_CLICKS], n[READ_CLICKS])
        or refused(n[REFUSED], n[READ_IMPRESSIONS])
        or leapt(n[_AHEAD], n[READ_IMPRESSIONS] + n[READ_CLICKS])
    )


def lost(found: int, clicks: int) -> str | None:
    """Returns a reason if too many clicks match no impression, else None."""
    if clicks < MIN_CLICKS or found / clicks >= MIN_JOIN_RATE:
        return None
    return f"only {found / clicks:.0%} of {clicks} clicks matched an impression"


def refused(refused: int, counted: int) -> str | None:
    """Returns a reason if too many impressions have an id that is in use, else None."""
    if refused < MIN_CONFLICTS or refused < (1 - MIN_JOIN_RATE) * (refused + counted):
        return None
    return (
        f"{refused} of {refused + counted} impressions were rejected: another model or version has used "
        "their impression_id"
    )


def leapt(ahead: int, others: int) -> str | None:
    """Returns a reason if too many events are dated far ahead, else None."""
    if ahead < MIN_CLICKS or ahead < (1 - MIN_JOIN_RATE) * (ahead + others):
        return None
    return f"{ahead} of {ahead + others} events are dated further ahead of their stream than join.correction_horizon"


def outdated(expired: int, counted: int) -> str | None:
    """Returns a reason if too many impressions came too late to be counted at all, else None.

    Comparisons go on: what never became a row is missing for both versions alike.
    """
    if expired < MIN_CLICKS or expired < (1 - MIN_JOIN_RATE) * (expired + counted):
        return None
    return (
        f"{expired} of {expired + counted} impressions came later than join.correction_horizon and were not counted: "
        "is the log in order of time?"
    )


@numba.njit(cache=True, nogil=True)
def _tally(
    ts: NDArray[np.int64],
    behind: NDArray[np.integer[Any]],
    state: NDArray[np.uint8],
    length: int,
    slack: int,
    out: NDArray[np.int64],
) -> int:
    """Fills (pane, 0, events in time, and of rows those of them that wait for clicks), see `pair_counts`."""
    n, at = 0, -1
    pane = start = np.int64(0)
    for i in range(ts.size):
        if at < 0 or not start <= ts[i] < start + length:
            pane = ts[i] // length
            start, at = pane * length, -1
        if ts[i] + np.int64(behind[i]) >= start + length + slack:
            continue
        if at < 0:
            at = entry(out, n, pane, 0)
            if at == n:
                out[n] = 0
                out[n, 0] = pane
                n += 1
        out[at, 2] += 1
        if out.shape[1] > 3 and not state[i] & (KNOWN | LATE):
            out[at, 3] += 1
    return n
