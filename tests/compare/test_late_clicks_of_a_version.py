"""A version whose clicks take hours to come is called nothing until they have come: its labels are due without them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import streameval
from streameval.compare.reading.reading import Comparison
from streameval.events.durations import HOUR

pytestmark = pytest.mark.slow

MONDAY = 1_714_953_600_000
HOURS, ALONE, RATE = 16, 6, 9_000  # impressions an hour
CHUNK = 20 * 60_000


def looks(seed: int, share: float, late: float, base: float = -2.6) -> list[Comparison]:
    """What somebody sees every 20 minutes, and in the end, of an identical model with a share of the users, and of whose clicks
    so many come three hours late; `base`: the logit of the CTR, about."""
    rng = np.random.default_rng(seed)
    n, users = HOURS * RATE, 6_000
    ts = np.sort(rng.integers(0, HOURS * HOUR, n))
    user = rng.integers(0, users, n)
    logit = rng.normal(base, 0.9, n)
    clicked = rng.random(n) < 1 / (1 + np.exp(-logit))
    new = (rng.random(users) < share)[user] & (ts > ALONE * HOUR)
    delay = np.where(new & (rng.random(n) < late), 3 * HOUR, 0) + rng.integers(0, 60_000, n)
    shown = pa.table(
        {
            "impression_id": [f"i{k}" for k in range(n)],
            "ts": MONDAY + ts,
            "user_id": [f"u{k}" for k in user],
            "pclick": 1 / (1 + np.exp(-logit)),
            "model_version": np.where(new, "v2", "v1"),
        }
    )
    on = np.flatnonzero(clicked)
    comes = (ts + delay)[on]
    on, comes = on[np.argsort(comes)], np.sort(comes)
    clicks = pa.table({"impression_id": [f"i{k}" for k in on], "ts": MONDAY + ts[on]})
    monitor = streameval.Monitor(windows=["1h"])
    seen = []
    for start in range(0, int(comes[-1]) + CHUNK, CHUNK):
        a, b = np.searchsorted(ts, (start, start + CHUNK)).tolist()
        c, d = np.searchsorted(comes, (start, start + CHUNK)).tolist()
        monitor.update(shown.slice(a, b - a) if b > a else None, clicks.slice(c, d - c) if d > c else None)
        seen += [one for one in monitor.snapshot().snapshot.comparisons if one.setup == "split"]
    monitor.finish()
    return [*seen, *(one for one in monitor.snapshot().snapshot.comparisons if one.setup == "split")]


@pytest.mark.parametrize(("seed", "share", "late"), [(1, 0.1, 1.0), (1, 0.5, 0.4), (2, 0.5, 0.18)])
def test_an_identical_model_is_not_worse_because_its_clicks_come_late(seed: int, share: float, late: float) -> None:
    seen = looks(seed, share, late)
    known = next(at for at, one in enumerate(seen) if one.withheld)
    assert "worse" not in {one.verdict for one in seen[known:]}
    if "worse" in {one.verdict for one in seen[:known]}:  # as long as none of them had come, nobody could know of them
        assert all(one.retracted for one in seen[known:])
    why = {one.reason for one in seen if one.withheld}
    assert any("of v2 came after the label of their impression was due" in str(one) for one in why)
    assert not seen[-1].withheld, "in the end every label is final"
    assert min(seen[-1].impressions, seen[-1].clicks) > 0


@pytest.mark.parametrize("seed", [4, 5])
def test_where_most_impressions_are_clicked_the_auc_is_right_in_the_end(seed: int) -> None:
    """It was 0.1 too low, for good: later clicks were among the non-clicks that earlier ones were placed by."""
    seen = looks(seed, 0.5, 1.0, base=0.5)
    auc = next(one for one in seen[-1].metrics if one.metric == "auc")
    assert seen[-1].verdict != "worse"
    assert auc.difference == pytest.approx(0.0, abs=0.015)
    assert auc.candidate == pytest.approx(auc.baseline, abs=0.015)


def test_where_the_clicks_of_all_versions_are_in_time_nothing_is_withheld() -> None:
    assert not any(one.withheld for one in looks(2, 0.1, 0.0))
