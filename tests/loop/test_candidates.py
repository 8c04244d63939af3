"""Which candidates count, against a slow twin that reads the log event by event."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from streameval.events.batch import NO_IMPRESSIONS, Batch, Clicks, Impressions
from streameval.events.columns import PLAIN
from streameval.join.leaps import ENOUGH
from streameval.join.policy import NEVER
from streameval.loop.candidates import candidates_of

LATENESS, AHEAD, START = 50, 1_000, 1_000_000
SHOWN, CLICK, CANDIDATE = range(3)


def rows(ts: NDArray[np.int64], order: NDArray[np.int64]) -> Impressions:
    columns = {name: np.zeros(ts.size, getattr(NO_IMPRESSIONS, name).dtype) for name in PLAIN}
    return Impressions(order.astype(np.int32), **(columns | {"ts": ts, "id": order.astype(np.uint64)}))


def batch_of(kind: NDArray[np.int64], ts: NDArray[np.int64], shared: bool) -> Batch:
    order = np.arange(kind.size)
    shown, clicked, candidate = (kind == one for one in (SHOWN, CLICK, CANDIDATE))
    clicks = Clicks(order[clicked].astype(np.int32), order[clicked].astype(np.uint64), ts[clicked])
    return Batch(0, rows(ts[shown], order[shown]), clicks, shared, candidates=rows(ts[candidate], order[candidate]))


def slow(kind: NDArray[np.int64], ts: NDArray[np.int64], shared: bool, newest: int) -> tuple[list[int], int, int]:
    """(places of those that count, late ones, runaways)."""
    counts, late, runaway, leapt = [], 0, 0, 0
    for place, (what, at) in enumerate(zip(kind.tolist(), ts.tolist(), strict=True)):
        if what == CANDIDATE:
            if at < newest - LATENESS:
                late += 1
            elif newest != NEVER and at > newest + AHEAD:
                runaway += 1
            else:
                counts.append(place)
        elif what == SHOWN or shared:
            if newest == NEVER or at <= newest + AHEAD:
                newest, leapt = max(newest, at), max(leapt - 1, 0)
            else:
                leapt += 1
                if leapt == ENOUGH:
                    newest, leapt = at, 0
    return counts, late, runaway


@pytest.mark.parametrize("shared", [True, False])
def test_they_are_those_of_the_log_read_event_by_event(shared: bool) -> None:
    rng, hit = np.random.default_rng(1), np.zeros(4, np.int64)
    for number in range(300):
        n = int(rng.integers(1, 200))
        kind, drift = rng.integers(0, 3, n), np.cumsum(rng.integers(-50, 60, n))
        kind[-1] = CANDIDATE
        far = (rng.random(n) < rng.choice([0, 0.05, 0.5])) * rng.integers(-2_000, 3_000, n)
        gap = number % 2 * 5_000 * (np.arange(n) >= rng.integers(0, n))  # the log goes on later
        if number % 4 == 0:  # nothing is late, nothing leaps
            drift, far, gap = drift % LATENESS, 0 * far, 0 * gap
        newest, ts = int(rng.choice([NEVER, START, START - 900, START - 100_000])), START + drift + far + gap
        found = candidates_of(batch_of(kind, ts, shared), newest, LATENESS, AHEAD)
        expected = slow(kind, ts, shared, newest)
        assert (found.on_time.id.tolist(), found.late, found.runaway) == expected
        every = newest != NEVER and expected[1:] == (0, 0)
        hit += len(expected[0]) > 0, expected[1] > 0, expected[2] > 0, every
    assert hit[:3].min() > 50
    assert hit[3] > 10
