"""Decides which candidates (impressions that were not shown) count: a function of their log, independent of batches."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.events.batch import Batch, Impressions
from streameval.events.columns import take_impressions
from streameval.join.leaps import ENOUGH
from streameval.join.policy import NEVER

_NO_EVENTS = np.empty(0, np.int64), np.empty(0, np.int32)
_COUNTS, _LATE, _RUNAWAY = range(3)
_FEW = 256  # candidates


class Candidates(NamedTuple):
    """The candidates that count, and how many do not."""

    on_time: Impressions
    late: int
    runaway: int


def candidates_of(batch: Batch, newest: int, lateness: int, ahead: int) -> Candidates:
    """Candidates that are behind the newest event before them in their log by more than the lateness are late; those further
    ahead of it than `ahead` are runaways. `newest`: the newest event before the batch. All in ms.
    """
    candidates, shown, clicks = batch.candidates, batch.impressions, batch.clicks
    clicked = (clicks.ts, clicks.order) if batch.shared else _NO_EVENTS
    events = (shown.ts, shown.order), clicked, (candidates.ts, candidates.order)
    if _all_count(*events, newest, lateness, ahead):
        return Candidates(candidates, 0, 0)
    found = np.empty(len(candidates), np.int8)
    counts = _judge(*events, newest, lateness, ahead, found=found)
    if counts[_COUNTS] < len(candidates):
        rows = np.flatnonzero(found == _COUNTS)
        candidates = take_impressions(candidates, rows, candidates.order[rows])
    return Candidates(candidates, int(counts[_LATE]), int(counts[_RUNAWAY]))


_Events = tuple[NDArray[np.int64], NDArray[np.int32]]  # their times and places, the places strictly increasing


@numba.njit(cache=True)
def _all_count(shown: _Events, clicked: _Events, candidates: _Events, newest: int, lateness: int, ahead: int) -> bool:
    """Whether all candidates count because nothing leaps, and no few of them have one behind the newest event before the
    last one: told in a tenth of the time in which each of them is judged.
    """
    if newest == NEVER:
        return False
    last, ts, place = newest + ahead, candidates[0], candidates[1]
    i = j = 0
    for first in range(0, ts.size, _FEW):
        end = min(first + _FEW, ts.size)
        i, newest = _newest(shown, i, place[end - 1], newest)
        j, newest = _newest(clicked, j, place[end - 1], newest)
        oldest = latest = ts[first]
        for one in ts[first:end]:
            oldest, latest = min(oldest, one), max(latest, one)
        if newest > last or latest > last or oldest < newest - lateness:
            return False
    return True


@numba.njit(inline="always")
def _newest(events: _Events, first: int, place: int, newest: int) -> tuple[int, int]:
    """Returns (where those after `place` begin, the newest time up to there) for events from number `first` on."""
    end = first + int(np.searchsorted(events[1][first:], place, side="right"))
    for k in range(first, end):
        newest = max(newest, events[0][k])
    return end, newest


@numba.njit(cache=True)
def _judge(
    shown: _Events,
    clicked: _Events,
    candidates: _Events,
    newest: int,
    lateness: int,
    ahead: int,
    found: NDArray[np.int8],
) -> NDArray[np.int64]:
    """Writes what every candidate is, and returns how many are so; events that leap ahead of their stream (see
    `join.leaps`) do not move it before there are enough of them.
    """
    counts, leapt, i, j = np.zeros(3, np.int64), 0, 0, 0
    for c in range(candidates[0].size):
        at, place = candidates[0][c], candidates[1][c]
        while True:  # the next event before it, of either kind
            is_shown = i < shown[1].size and shown[1][i] <= place
            is_click = j < clicked[1].size and clicked[1][j] <= place
            if is_shown and not (is_click and clicked[1][j] < shown[1][i]):
                ts = shown[0][i]
                i += 1
            elif is_click:
                ts = clicked[0][j]
                j += 1
            else:
                break
            if newest == NEVER or ts <= newest + ahead:
                newest, leapt = max(newest, ts), max(leapt - 1, 0)
            else:
                leapt += 1
                if leapt >= ENOUGH:  # a gap
                    newest, leapt = ts, 0
        if at < newest - lateness:
            found[c] = _LATE
        elif newest != NEVER and at > newest + ahead:
            found[c] = _RUNAWAY
        else:
            found[c] = _COUNTS
        counts[found[c]] += 1
    return counts
