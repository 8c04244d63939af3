"""Weighted losses of a replay, against the formulas of the Open Bandit Pipeline, written out over single impressions."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.exposure.worlds import log, make_settings, results

LEAST, MOST = 1e-4, 100.0


@cache
def replayed() -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    events = log(40_000)
    return events, results(events, make_settings())


def columns(events: list[dict[str, Any]], version: str) -> tuple[np.ndarray, ...]:
    """(p, click, propensity) of the impressions that have one."""
    clicks = {e["impression_id"] for e in events if e.get("type") == "click"}
    shown = [e for e in events if e.get("type") != "click" and "propensity" in e]
    p = [e["pclick"] if version == "v1" else e["predictions"][version] for e in shown]
    return (
        np.array(p),
        np.array([e["impression_id"] in clicks for e in shown], float),
        np.array([e["propensity"] for e in shown]),
    )


def ips(weight: np.ndarray, d: np.ndarray) -> float:
    """obp.ope.InverseProbabilityWeighting: the mean of the estimated round rewards, iw * reward."""
    return float((weight * d).mean())


def snips(weight: np.ndarray, d: np.ndarray) -> float:
    """obp.ope.SelfNormalizedInverseProbabilityWeighting: iw * reward / iw.mean(), averaged."""
    return float((weight * d / weight.mean()).mean())


@pytest.mark.slow
@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("suffix", ["", "_clipped"])
def test_ips_and_snips_are_the_formulas_on_40_000_impressions(version: str, suffix: str) -> None:
    events, found = replayed()
    p, c, propensity = columns(events, version)
    weight = 1 / np.maximum(propensity, LEAST)
    weight = np.minimum(weight, MOST) if suffix else weight
    q = np.clip(p, 1e-7, 1 - 1e-7)
    losses = {"log_loss": -(c * np.log(q) + (1 - c) * np.log(1 - q)), "mse": (p - c) ** 2, "mae": np.abs(p - c)}
    mine = found[version]
    for name, d in losses.items():
        assert mine[f"{name}_ips{suffix}"] == pytest.approx(ips(weight, d), rel=1e-9)
        assert mine[f"{name}_snips{suffix}"] == pytest.approx(snips(weight, d), rel=1e-9)
    assert mine[f"calibration_snips{suffix}"] == pytest.approx((weight * p).sum() / (weight * c).sum(), rel=1e-9)
    assert mine[f"exposure_ess{suffix}"] == pytest.approx(weight.sum() ** 2 / (weight**2).sum(), rel=1e-9)


def test_what_is_counted_beside_them() -> None:
    events, found = replayed()
    _, _, propensity = columns(events, "v1")
    weight = 1 / np.maximum(propensity, LEAST)
    mine = found["v1"]
    assert mine["with_propensity"] == propensity.size < mine["impressions"] == 40_000
    assert mine["exposure_clipped"] == pytest.approx(((weight > MOST) | (propensity < LEAST)).mean(), rel=1e-12)
    assert (propensity < LEAST).any()
    largest = weight.max() / weight.sum()
    assert largest <= mine["exposure_largest_weight"] <= 1.25 * largest


def test_without_propensities_nothing_is_defined_and_it_says_so() -> None:
    events = [e for e in log(300) if "propensity" not in e]
    found = results(events, make_settings())["v1"]
    assert found["with_propensity"] == 0
    for name in ("log_loss_ips", "log_loss_snips", "calibration_snips_clipped", "exposure_ess", "policy_snips"):
        assert found[name] is None
    assert found["reasons"]["log_loss_snips"] == "no_propensities"
    assert found["reasons"]["policy_mean_weight"] == "no_policy"


def test_settings_of_the_rule_are_used() -> None:
    events = log(2_000)
    found = results(events, make_settings(exposure={"min_propensity": 0.05, "max_weight": 3}))["v1"]
    p, c, propensity = columns(events, "v1")
    assert found["mae_snips"] == pytest.approx(snips(1 / np.maximum(propensity, 0.05), np.abs(p - c)), rel=1e-9)
    assert found["mae_snips_clipped"] == pytest.approx(
        snips(1 / np.maximum(propensity, 1 / 3), np.abs(p - c)), rel=1e-9
    )
    assert found["exposure_clipped"] == pytest.approx((propensity < 1 / 3).mean(), rel=1e-9)


@pytest.mark.parametrize("size", [97, 100_000])
def test_order_within_the_lateness_and_batches_change_no_bit(size: int) -> None:
    events = log(4_000)
    rng = np.random.default_rng(2)
    arrival = np.array([event["ts"] for event in events]) + rng.integers(0, 25_000, len(events))
    shuffled = [events[i] for i in np.argsort(arrival, kind="stable")]
    expected, found = (results(some, make_settings(), n) for some, n in ((events, 5_000), (shuffled, size)))
    weighed = [name for name in expected["v1"] if "ips" in name or name.startswith(("exposure", "policy", "with_"))]
    assert len(weighed) > 40
    for version, row in expected.items():
        assert {name: found[version][name] for name in weighed} == {name: row[name] for name in weighed}
