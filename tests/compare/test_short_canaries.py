"""A version that serves beside the old one for less than `compare.min_duration`, and then alone: what it showed counts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import streameval
from streameval.compare.reading.reading import Comparison
from streameval.events.durations import HOUR

pytestmark = pytest.mark.slow

MONDAY, MINUTE = 1_714_953_600_000, 60_000
HOURS, RATE = 6, 24_000  # impressions an hour
FIRST, ALONE = 183 * MINUTE, 237 * MINUTE  # of the new version, within one hour of the clock


def comparison(noise: float) -> Comparison:
    """What is known in the end of a version whose scores have that much noise (logit)."""
    rng = np.random.default_rng(3)
    n, users = HOURS * RATE, 8_000
    ts, user = np.sort(rng.integers(0, HOURS * HOUR, n)), rng.integers(0, users, n)
    logit = rng.normal(-2.2, 1.0, n)
    clicked = rng.random(n) < 1 / (1 + np.exp(-logit))
    new = ((rng.random(users) < 0.3)[user] & (ts > FIRST)) | (ts > ALONE)
    shown = pa.table(
        {
            "impression_id": [f"i{k}" for k in range(n)],
            "ts": MONDAY + ts,
            "user_id": [f"u{k}" for k in user],
            "pclick": 1 / (1 + np.exp(-logit - np.where(new, rng.normal(0, noise, n), 0))),
            "model_version": np.where(new, "v2", "v1"),
        }
    )
    on = np.flatnonzero(clicked)
    clicks = pa.table({"impression_id": [f"i{k}" for k in on], "ts": MONDAY + ts[on] + 30_000})
    monitor = streameval.Monitor(windows=["1h"])
    for start in range(0, HOURS * HOUR, 10 * MINUTE):
        a, b = np.searchsorted(ts, (start, start + 10 * MINUTE)).tolist()
        c, d = np.searchsorted(ts[on], (start, start + 10 * MINUTE)).tolist()
        monitor.update(shown.slice(a, b - a), clicks.slice(c, d - c))
        monitor.snapshot()
    monitor.finish()
    return next(one for one in monitor.snapshot().snapshot.comparisons if one.setup == "split")


@pytest.mark.parametrize(("noise", "verdict"), [(1.5, "worse"), (0.0, "undecided")])
def test_it_is_judged_once_the_minimum_duration_is_over(noise: float, verdict: str) -> None:
    """No impression of both came after it, and no look was taken: the evidence stayed as it was."""
    found = comparison(noise)
    assert found.verdict == verdict
    if verdict == "worse":
        assert found.decided_at == MONDAY + FIRST // MINUTE * MINUTE + HOUR, "an hour after its first impression"


def test_where_both_served_the_same_hours_for_moments_only_the_reason_is_said() -> None:
    """A switch at the hour, there and back: clicks enough of both, and next to none in hours of both."""
    rng = np.random.default_rng(4)
    n, users = HOURS * RATE, 8_000
    ts = np.sort(rng.integers(0, HOURS * HOUR, n))
    new = (ts >= 3 * HOUR + 300) & (ts < 4 * HOUR + 300)
    clicked = rng.random(n) < 0.05
    table = pa.table(
        {
            "impression_id": [f"i{k}" for k in range(n)],
            "ts": MONDAY + ts,
            "user_id": [f"u{k}" for k in rng.integers(0, users, n)],
            "pclick": rng.uniform(0.01, 0.09, n),
            "model_version": np.where(new, "v2", "v1"),
        }
    )
    on = np.flatnonzero(clicked)
    clicks = pa.table({"impression_id": [f"i{k}" for k in on], "ts": MONDAY + ts[on] + 30_000})
    monitor = streameval.Monitor(windows=["1h"])
    monitor.update(table, clicks)
    monitor.finish()
    splits = [one for one in monitor.snapshot().snapshot.comparisons if one.setup == "split"]
    found = splits[0]
    assert found.clicks > 500
    assert [one.difference for one in found.metrics] == [None] * len(found.metrics)
    assert (found.verdict, found.reason) == ("undecided", "too_few_clicks")
