"""Decides which candidates (impressions that were not shown) count: a function of their log, independent of batches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streameval.events.batch import Batch, Impressions
from streameval.events.columns import take_impressions
from streameval.join.leaps import ENOUGH
from streameval.join.policy import NEVER


class Candidates(NamedTuple):
    """The candidates that count, and how many do not."""

    on_time: Impressions
    late: int
    runaway: int


def candidates_of(batch: Batch, newest: int, lateness: int, ahead: int) -> Candidates:
    """Candidates that are behind the newest event before them in their log by more than the lateness are late; those further
    ahead of it than `ahead` are runaways. `newest`: the newest event before the batch. All in ms.
    """
    candidates, ts, order = batch.candidates, batch.impressions.ts, batch.impressions.order
    if batch.shared:
        ts, order = np.concatenate((ts, batch.clicks.ts)), np.concatenate((order, batch.clicks.order))
    places = 1 + int(max(order.max(initial=0), candidates.order.max()))
    before = _reached(ts, order, places, newest, ahead)[candidates.order]
    late = candidates.ts < before - lateness
    runaway = (candidates.ts > before + ahead) & (before != NEVER)
    if late.any() or runaway.any():
        rows = np.flatnonzero(~late & ~runaway)
        candidates = take_impressions(candidates, rows, candidates.order[rows])
    return Candidates(candidates, int(np.count_nonzero(late)), int(np.count_nonzero(runaway)))


def _reached(
    ts: NDArray[np.int64], order: NDArray[np.int32], places: int, newest: int, ahead: int
) -> NDArray[np.int64]:
    """The newest time up to each place of a batch, int64[places], without events that leap ahead of it (see `join.leaps`)."""
    reached = np.full(places, newest, np.int64)
    reached[order] = ts
    np.maximum(reached, newest, out=reached)
    np.maximum.accumulate(reached, out=reached)
    begun = reached[reached != NEVER]
    leaps = np.diff(begun, prepend=begun[:1] if newest == NEVER else newest) > ahead
    if not leaps.any():
        return reached
    reached[:] = newest
    leapt = 0
    for i in np.argsort(order).tolist():
        t = int(ts[i])
        if newest == NEVER or t <= newest + ahead:
            newest, leapt = max(newest, t), max(leapt - 1, 0)
        else:
            leapt += 1
            if leapt >= ENOUGH:  # a gap
                newest, leapt = t, 0
        reached[order[i]] = newest
    return np.maximum.accumulate(reached)
