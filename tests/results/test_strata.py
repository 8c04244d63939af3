"""Strata of propensity from events to results, against loops over impressions; and their laws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import log_loss, roc_auc_score

import streameval
from streameval.settings.toml import ConfigError, load
from streameval.sketches.accumulate import CURVE_BITS
from streameval.sketches.grid import key_bin, score_key

BASE = 1_700_000_000_000
N = 40_000


def events(n: int = N, seed: int = 0) -> dict[str, Any]:
    """Impressions that carry their label, some with ties, an eighth without a propensity."""
    rng = np.random.default_rng(seed)
    shown = 1 / np.arange(1, 151)
    item = rng.choice(150, n, p=shown / shown.sum())
    propensity = (shown / shown.sum())[item] * rng.uniform(0.5, 1.0, n)
    propensity[::997] = 1e-6  # weighs as 1e-4
    p = np.round(rng.beta(1, 8, n), 3).clip(0.001, 0.999)
    return {
        "ts": BASE + np.sort(rng.integers(0, 7_200_000, n)),
        "user_id": [f"u{k}" for k in rng.integers(0, 900, n)],
        "model_version": ["v1", "v2"][0:1] * n,
        "pclick": p,
        "propensity": pa.array(propensity, mask=rng.random(n) < 0.125),
        "clicked": (rng.random(n) < p * (0.5 + 2 * propensity)).astype(bool),
    }


def monitor(**strata: Any) -> streameval.Monitor:
    return streameval.Monitor(windows=["1h"], settings={"strata": strata})


def results(of: streameval.Monitor) -> dict[str, Any]:
    """The report's results by window."""
    return {r["window"]: r for r in of.snapshot().report()["results"] if r["slice"] is None}


def test_every_number_is_that_of_a_loop_over_impressions() -> None:
    table = events()
    one = monitor(count=4)
    one.update(pa.table(table))
    one.finish()
    found = results(one)["all"]
    p, y = table["pclick"], table["clicked"].astype(int)
    propensity = table["propensity"].to_numpy(zero_copy_only=False)
    tie = np.array([key_bin(score_key(x), CURVE_BITS) for x in p])
    rows = found["strata"]
    assert len(rows) == 5
    assert sum(row["impressions"] for row in rows) == N
    assert max(row["impressions"] for row in rows[:4]) < 1.5 * min(row["impressions"] for row in rows[:4])
    sums = {name: [0.0, 0.0] for name in ("log_loss", "auc", "calibration")}
    for row in rows:
        on = np.isnan(propensity)
        if row["lower"] is not None:
            on = (propensity >= row["lower"]) & (propensity < row["upper"])
        assert (row["impressions"], row["clicks"]) == (on.sum(), y[on].sum())
        assert row["log_loss"] == pytest.approx(log_loss(y[on], p[on]), abs=1e-9)
        assert row["calibration"] == pytest.approx(p[on].sum() / y[on].sum(), abs=1e-9)
        against = (y == 0) | (on & (y == 1))
        assert row["auc_of_clicks"] == pytest.approx(roc_auc_score(y[against], tie[against]), abs=1e-9)
        exact = roc_auc_score(y[against], p[against])
        assert abs(row["auc_of_clicks"] - exact) <= row["auc_of_clicks_error"] + 1e-12
        assert abs(row["auc_of_clicks"] - exact) < 1e-3
        if row["lower"] is None:
            assert row["inverse_mass"] is None
            continue
        mass = float((1 / np.maximum(propensity[on], 1e-4)).sum())
        assert row["inverse_mass"] == pytest.approx(mass, rel=1e-9)
        for name, value, own in (
            ("log_loss", row["log_loss"], on.sum()), ("auc", row["auc_of_clicks"], y[on].sum()), ("calibration", row["calibration"], y[on].sum()),
        ):  # fmt: skip
            sums[name][0] += value * own * mass / on.sum()
            sums[name][1] += own * mass / on.sum()
    for name, (value, weight) in sums.items():
        assert found["stratified"][name]["uniform_exposure"] == pytest.approx(value / weight, abs=1e-9)
    known = ~np.isnan(propensity)  # by share it is the mean again, and corrects nothing
    assert found["stratified"]["log_loss"]["share"] == pytest.approx(log_loss(y[known], p[known]), abs=1e-9)
    for name in sums:
        assert len({round(v, 4) for v in found["stratified"][name].values()}) == 3
    together = sum(row["auc_of_clicks"] * row["clicks"] for row in rows) / y.sum()  # a decomposition of the AUC
    assert together == pytest.approx(roc_auc_score(y, tie), abs=1e-12)
    assert abs(together - found["auc"]) < 1e-4


@pytest.mark.parametrize("cut", [{"cut": "width", "count": 3}, {"cut": [0.01, 0.1, 0.5]}, {"cut": "mass", "count": 10}])
def test_strata_of_any_cut_are_of_all_that_has_a_propensity(cut: dict[str, Any]) -> None:
    table = events(6_000)
    one = monitor(**cut)
    one.update(pa.table(table))
    one.finish()
    propensity = table["propensity"].to_numpy(zero_copy_only=False)
    rows = [row for row in results(one)["all"]["strata"] if row["lower"] is not None]
    edges = [row["lower"] for row in rows] + [rows[-1]["upper"]]
    if isinstance(cut["cut"], list):
        assert edges == [0.0, 0.01, 0.1, 0.5, 1.0]
        assert rows[3]["impressions"] == 0
        assert rows[3]["log_loss"] is None
    else:
        assert len(rows) == cut["count"]
        assert edges[-1] - edges[0] < 0.3
    if cut["cut"] == "width":
        assert np.diff(edges) == pytest.approx(np.full(3, (edges[-1] - edges[0]) / 3), rel=0.15)
    expected = np.histogram(propensity[~np.isnan(propensity)], [*edges[:-1], 1.0])[0]
    assert [row["impressions"] for row in rows] == expected.tolist()


def test_batches_restarts_and_late_clicks_change_nothing(tmp_path: Path) -> None:
    table = pa.table(events(8_000))
    shown = table.drop_columns("clicked").append_column("impression_id", pa.array([f"i{k}" for k in range(8_000)]))
    clicked = np.flatnonzero(table["clicked"].to_numpy())
    rng = np.random.default_rng(1)
    at = table["ts"].to_numpy()[clicked] + rng.exponential(300_000, clicked.size).astype(int)
    order = np.argsort(at + 3_600_000 * (rng.random(clicked.size) < 0.15))  # some are delivered long after maturity
    clicks = pa.table({"impression_id": [f"i{k}" for k in clicked[order]], "ts": at[order]})

    def play(step: int, save_at: int = -1) -> dict[str, Any]:
        one = monitor(count=5)
        times, given = np.maximum.accumulate(clicks["ts"].to_numpy()), 0
        for start in range(0, 8_000, step):
            part = shown.slice(start, step)
            upto = int(np.searchsorted(times, part["ts"].to_numpy()[-1], "right"))
            one.update(part, clicks.slice(given, upto - given))
            given = upto
            if start == save_at:
                one.save(tmp_path / "state")
                one = streameval.Monitor.load(tmp_path / "state")
        one.update(shown.slice(8_000), clicks.slice(given))
        one.finish()
        return results(one)

    straight = play(8_000)
    assert straight["all"]["corrected"] > 50
    for other in (play(1_000), play(500, save_at=4_000)):
        for window in ("all", "1h"):
            for key in ("strata", "stratified"):
                assert other[window][key] == straight[window][key]
    assert straight["1h"]["strata"] != straight["all"]["strata"]


def test_a_log_without_propensities_has_strata_of_nothing() -> None:
    table = pa.table(events(500)).drop_columns("propensity")
    one, without = monitor(count=4), streameval.Monitor(windows=["1h"])
    for each in (one, without):
        each.update(table)
        each.finish()
    found, yesterday = results(one)["all"], results(without)["all"]
    assert [(row["lower"], row["impressions"]) for row in found["strata"]] == [(None, 500)]
    assert set(found["stratified"]["auc"].values()) == {None}
    assert found["reasons"]["stratified"] == "no_propensities"
    assert {"strata", "stratified"}.isdisjoint(yesterday)
    for name, value in yesterday.items():
        if name != "reasons":
            assert found[name] == value


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("count = 1", "strata.count = 1: must be greater than or equal to 2"),
        ("count = 11", "strata.count = 11: must be less than or equal to 10"),
        ("cut = [0.5, 0.1]", "strata.cut = [0.5, 0.1]: edges must increase, above 0 and below 1; for example [0.01, 0.1, 0.5]"),
        ("cut = [0.0, 0.1]", "strata.cut = [0.0, 0.1]: edges must increase, above 0 and below 1; for example [0.01, 0.1, 0.5]"),
        ("cut = [0.1, 1.5]", "strata.cut = [0.1, 1.5]: edges must increase, above 0 and below 1; for example [0.01, 0.1, 0.5]"),
        ("cut = []", "strata.cut = []: must have 1 to 9 edges, for 2 to 10 strata; for example [0.01, 0.1, 0.5]"),
        ("cut = [nan]", 'strata.cut = [NaN]: must be "mass", "width", or a list of edges, for example [0.01, 0.1, 0.5]'),
        ('cut = "thirds"', 'strata.cut = "thirds": must be "mass", "width", or a list of edges, for example [0.01, 0.1, 0.5]'),
        ('by = "age"', "strata.by = \"age\": must be '', 'propensity' or 'popularity'"),
    ],
)  # fmt: skip
def test_a_stratum_that_cannot_be_is_one_clear_error(tmp_path: Path, written: str, message: str) -> None:
    path = tmp_path / "streameval.toml"
    path.write_text(f"[strata]\n{written}\n")
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    assert str(caught.value).removeprefix(f"{path}: ").splitlines() == [message]
