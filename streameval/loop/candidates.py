"""Which candidates of a batch, impressions that were not shown, count: a function of their log, wherever a batch ends."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streameval.events.batch import Batch, Impressions
from streameval.events.columns import take_impressions
from streameval.join.leaps import ENOUGH
from streameval.join.policy import NEVER


class Candidates(NamedTuple):
    """Those that count, and how many do not."""

    on_time: Impressions
    late: int
    runaway: int


def candidates_of(batch: Batch, newest: int, lateness: int, ahead: int) -> Candidates:
    """Those behind the newest event before them in their log by more than the lateness are late, and those further ahead
    of it than `ahead` dated wrongly. `newest`: event before the batch. All in ms.
    """
    candidates, clicks = batch.candidates, batch.clicks
    ts, order = batch.impressions.ts, batch.impressions.order
    if batch.shared:
        ts, order = np.concatenate((ts, clicks.ts)), np.concatenate((order, clicks.order))
    arrival = np.argsort(order, kind="stable")
    reached = _reached(ts[arrival], newest, ahead)
    before = reached[np.searchsorted(order[arrival], candidates.order)]
    late = candidates.ts < before - lateness
    runaway = (candidates.ts > before + ahead) & (before != NEVER)
    if late.any() or runaway.any():
        rows = np.flatnonzero(~late & ~runaway)
        candidates = take_impressions(candidates, rows, candidates.order[rows])
    return Candidates(candidates, int(np.count_nonzero(late)), int(np.count_nonzero(runaway)))


def _reached(ts: NDArray[np.int64], newest: int, ahead: int) -> NDArray[np.int64]:
    """The newest time before each event and at the end, without those that leap ahead of it (see `join.leaps`)."""
    reached = np.maximum.accumulate(np.concatenate((np.array([newest]), ts)))
    known = reached[reached != NEVER]
    if not (np.diff(known) > ahead).any():
        return reached
    leapt = 0
    for i, t in enumerate(ts.tolist()):
        if newest == NEVER or t <= newest + ahead:
            newest, leapt = max(newest, t), max(leapt - 1, 0)
        else:
            leapt += 1
            if leapt >= ENOUGH:  # a gap
                newest, leapt = t, 0
        reached[i + 1] = newest
    return reached
