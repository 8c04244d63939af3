"""A version takes over by a ramp, while another one scores in shadow: what is compared of the two begins with the segment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import streameval
from streameval.events.durations import HOUR

pytestmark = pytest.mark.slow

T0 = 1_760_000_400_000 // HOUR * HOUR
SETTINGS = {"join": {"attribution_window": "1m"}, "compare": {"min_duration": "1m"}}


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def world(until: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """(impressions, clicks) of so many hours: b serves 30% of the users from minute 10 and all from minute 40; s scores all."""
    rng = np.random.default_rng(3)
    n = 40_000
    ts = np.sort(rng.integers(0, 3 * HOUR, n)) + T0
    user, x = rng.integers(0, 500, n), rng.normal(0, 1, n)
    minute = (ts - T0) / 60_000
    share = np.select([minute < 10, minute < 40], [0.0, 0.3], 1.0)
    served = np.where(rng.random(500)[user] < share, "b", "a")
    clicked = rng.random(n) < sigmoid(x - 2)
    p, q = (sigmoid(x - 2 + rng.normal(0, 0.3, n)) for _ in range(2))
    kept = ts < T0 + until * HOUR
    impressions = {
        "impression_id": np.arange(n).astype(str), "ts": ts, "user_id": user, "model_version": served, "pclick": p,
        "predictions.s": q, "clicked": clicked,
    }  # fmt: skip
    on = kept & clicked
    clicks = {"impression_id": impressions["impression_id"][on], "ts": ts[on] + 1_000}
    return {name: column[kept] for name, column in impressions.items()}, clicks


def compared(monitor: streameval.Monitor) -> Mapping[str, Any]:
    """The comparison of s with b."""
    (found,) = (
        c
        for c in monitor.snapshot().report()["comparisons"]
        if (c["baseline"]["version"], c["candidate"]["version"]) == ("b", "s")
    )
    return dict(found)


def test_the_aucs_are_of_the_impressions_that_count_and_a_restart_changes_nothing(tmp_path: Path) -> None:
    impressions, clicks = world(2.5)
    monitor = streameval.Monitor(settings=SETTINGS)
    monitor.update({name: column for name, column in impressions.items() if name != "clicked"}, clicks)
    found = compared(monitor)
    monitor.save(tmp_path / "state")
    again = compared(streameval.Monitor.load(tmp_path / "state"))
    assert {**again, "looks": []} == {**found, "looks": []}

    counted = impressions["model_version"] == "b"
    counted &= np.cumsum(counted) <= found["impressions"]
    assert counted.sum() == found["impressions"]
    (auc,) = (m for m in found["metrics"] if m["metric"] == "auc")
    labels = impressions["clicked"][counted]
    for side, column in (("baseline", "pclick"), ("candidate", "predictions.s")):
        assert auc[side] == pytest.approx(roc_auc_score(labels, impressions[column][counted]), abs=0.005)
