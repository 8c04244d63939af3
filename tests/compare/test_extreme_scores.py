"""A broken deploy serves 0 to everybody, or 1, or every impression is clicked: whatever comes, there is an answer."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streameval

MONDAY, STEP = 1_714_953_600_000, 120_000
SCORES = (0.0, 1e-12, 1e-7, 0.1, 0.5, 1.0 - 1e-12, 1.0)


def judged(impressions: dict[str, Any], clicked: np.ndarray) -> list[dict[str, Any]]:
    """The comparisons of impressions two minutes apart, as JSON."""
    n = clicked.size
    shown = pa.table({"impression_id": [f"i{k}" for k in range(n)], "ts": MONDAY + np.arange(n) * STEP, **impressions})
    on = np.flatnonzero(clicked)
    clicks = pa.table({"impression_id": [f"i{k}" for k in on], "ts": MONDAY + on * STEP + 1_000})
    monitor = streameval.Monitor(windows=["1h"])
    monitor.update(shown, clicks)
    monitor.finish()
    comparisons = monitor.snapshot().snapshot.report()["comparisons"]
    json.dumps(comparisons, allow_nan=False)
    return comparisons


@pytest.mark.parametrize("zeros", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("items", [False, True])
def test_an_arm_that_serves_zeros_is_compared(zeros: tuple[int, ...], items: bool) -> None:
    """Its predicted clicks were divided by: the monitor ended, and would have at every restart."""
    k = np.arange(60)
    columns: dict[str, Any] = {
        "user_id": [f"u{one}" for one in k % 8],
        "model_version": np.where(k % 2 == 0, "v1", "v2"),
        "pclick": np.where(np.isin(k % 2, zeros), 0.0, 0.1),
    }
    if items:
        columns["item_id"] = [f"t{one}" for one in k % 7]
    (split,) = [one for one in judged(columns, k // 8 % 3 == 0) if one["setup"] == "split"]
    calibration = next(one for one in split["metrics"] if one["metric"] == "calibration")
    assert calibration["difference"] is not None


def test_an_arm_in_which_every_impression_is_clicked_says_so() -> None:
    k = np.arange(2_000)
    columns = {
        "user_id": [f"u{one}" for one in k % 401],
        "model_version": np.where(k % 2 == 0, "v1", "v2"),
        "pclick": 0.05 + k % 7 / 20,
    }
    (split,) = [one for one in judged(columns, (k % 2 == 1) | (k % 3 == 0)) if one["setup"] == "split"]
    assert {one["reason"] for one in split["metrics"] if one["metric"] != "gauc"} == {"no_non_clicks"}
    assert "only clicks" in split["words"]


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 120),
    users=st.integers(1, 12),
    scores=st.tuples(st.sets(st.sampled_from(SCORES), min_size=1), st.sets(st.sampled_from(SCORES), min_size=1)),
    ctr=st.sampled_from([0.0, 0.1, 0.9, 1.0]),
    items=st.integers(0, 3),
    paired=st.booleans(),
)
def test_no_scores_and_no_labels_end_the_monitor(
    seed: int, n: int, users: int, scores: tuple[set[float], set[float]], ctr: float, items: int, paired: bool
) -> None:
    rng = np.random.default_rng(seed)
    old, new = (rng.choice(sorted(one), n) for one in scores)
    arm = rng.integers(0, 2, n)
    columns: dict[str, Any] = {
        "user_id": [f"u{one}" for one in rng.integers(0, users, n)],
        "model_version": np.where(arm > 0, "v2", "v1") if not paired else ["v1"] * n,
        "pclick": np.where(arm > 0, new, old) if not paired else old,
    }
    if paired:
        columns["predictions"] = [{"v2": score} for score in new.tolist()]
    if items:
        columns["item_id"] = [f"t{one}" for one in rng.integers(0, items, n)]
    judged(columns, rng.random(n) < ctr)
