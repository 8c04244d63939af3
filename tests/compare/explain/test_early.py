"""Early readings against loops, and against the truth of simulated worlds whose clicks are still to come."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from streameval.compare.explain.early import (
    ENOUGH_CLICKS,
    FEW,
    Arm,
    DelayCurve,
    corrected_calibration,
    early_readings,
    learn_delays,
    promised_auc,
    promised_ctr,
    score_shift,
)
from streameval.join.policy import DELAY_EDGES

WINDOW = 1_800_000.0


def slow_promised_auc(p: NDArray[np.float64]) -> float:
    won = all_pairs = 0.0
    for a in p:
        for b in p:
            weight = a * (1 - b)  # a is the click, b is none
            won += weight * (1.0 if a > b else 0.5 if a == b else 0.0)
            all_pairs += weight
    return won / all_pairs


@pytest.mark.parametrize("seed", range(5))
def test_promised_auc_is_that_of_all_pairs_weighted_by_the_scores(seed: int) -> None:
    p = np.round(np.random.default_rng(seed).beta(1, 5, 150), 1 + seed % 3)  # with ties
    assert promised_auc(p) == pytest.approx(slow_promised_auc(p), abs=1e-12)


def test_promises_of_calibrated_scores_are_kept() -> None:
    rng = np.random.default_rng(7)
    p = rng.beta(1, 12, 200_000)
    clicked = rng.random(p.size) < p
    order = np.argsort(p)
    ranks = np.empty(p.size)
    ranks[order] = np.arange(1, p.size + 1)
    n = int(clicked.sum())
    auc = (ranks[clicked].sum() - n * (n + 1) / 2) / (n * (p.size - n))
    assert promised_auc(p) == pytest.approx(auc, abs=0.006)
    assert promised_ctr(p) == pytest.approx(clicked.mean(), abs=0.002)
    assert math.isnan(promised_auc(np.zeros(10)))


def test_the_score_shift_is_the_mean_of_log_odds_and_survives_certain_scores() -> None:
    p = np.array([0.1, 0.5, 0.9])
    q = 1 / (1 + np.exp(-(np.log(p / (1 - p)) + 0.7)))
    assert score_shift(p, q) == pytest.approx(0.7)
    assert math.isfinite(score_shift(np.array([0.0, 1.0]), np.array([1.0, 0.0])))


def world(seed: int, hours: float, n: int, median_s: float = 60.0) -> dict[str, NDArray[np.float64]]:
    """Impressions up to now with log-normal click delays; what is seen now."""
    rng = np.random.default_rng(seed)
    age = rng.uniform(0, hours * 3_600_000, n)
    p = rng.beta(1, 12, n)
    delay = np.full(n, np.inf)
    while bool((far := delay >= WINDOW).any()):  # clicks after the window are none
        delay[far] = median_s * 1000 * np.exp(rng.normal(0, 1.2, int(far.sum())))
    clicked = rng.random(n) < p
    seen = clicked & (delay <= age)
    return {"age": age, "p": p, "delay": delay, "clicked": clicked, "seen": seen}


def histogram(delay: NDArray[np.float64]) -> NDArray[np.int64]:
    edges = np.array([0.0, *(e * 1000 for e in DELAY_EDGES)])
    return np.histogram(delay, edges)[0].astype(np.int64)


def learned(w: dict[str, NDArray[np.float64]]) -> DelayCurve:
    pending = w["age"] < WINDOW
    delays = learn_delays(histogram(w["delay"][w["seen"]]), DELAY_EDGES, WINDOW, w["age"][w["seen"] & pending])
    assert delays is not None
    return delays


@pytest.mark.parametrize("seed", range(3))
def test_delays_are_learned_although_those_of_pending_impressions_are_cut_short(seed: int) -> None:
    w = world(seed, 0.75, 400_000, median_s=300.0)  # two thirds are pending: the plain histogram is far off
    delays = learned(w)
    truth = np.sort(w["delay"])
    for age in (30_000.0, 60_000.0, 180_000.0, 600_000.0, 1_200_000.0):
        share = np.searchsorted(truth, age) / truth.size
        naive = np.mean(w["delay"][w["seen"]] <= age)
        assert float(delays.within(np.array([age]))[0]) == pytest.approx(share, abs=0.03)
        if age == 180_000.0:
            assert naive > share + 0.03
    ages = np.linspace(0, 2 * WINDOW, 5_000)
    within = delays.within(ages)
    assert within[0] == 0.0
    assert within[-1] == 1.0
    assert bool((np.diff(within) >= -1e-12).all())


@pytest.mark.parametrize("factor", [1.0, 1.3])
def test_calibration_of_pending_impressions_is_that_of_their_final_labels(factor: float) -> None:
    w = world(11, 6.0, 1_500_000)
    delays = learned(w)
    pending = w["age"] < WINDOW
    said = np.minimum(factor * w["p"][pending], 1.0)
    final = said.sum() / w["clicked"][pending].sum()
    raw = said.sum() / w["seen"][pending].sum()
    found = corrected_calibration(said, delays.within(w["age"][pending]), int(w["seen"][pending].sum()))
    assert raw > 1.05 * final
    assert found == pytest.approx(final, rel=0.03)


def test_too_few_mature_clicks_teach_nothing() -> None:
    counts = np.zeros(len(DELAY_EDGES), np.int64)
    counts[3] = ENOUGH_CLICKS
    assert learn_delays(counts, DELAY_EDGES, WINDOW, np.empty(0)) is not None
    assert learn_delays(counts, DELAY_EDGES, WINDOW, np.array([5_000.0])) is None
    assert learn_delays(counts, DELAY_EDGES, 50.0, np.empty(0)) is not None, "a window below the first edge"


def test_readings_say_why_they_are_not_known() -> None:
    rng = np.random.default_rng(0)
    n = 2 * FEW
    p, q = rng.beta(2, 12, n), rng.beta(2, 12, n)
    clicked, none = rng.random(n) < p, np.zeros(n, np.bool_)
    served, arrived = np.ones(n, np.bool_), np.ones(n)
    by_name = {
        r.name: r for r in early_readings(Arm(p, served, clicked, arrived), Arm(q, none, clicked, arrived), True)
    }
    assert by_name["promised_auc"].reason is None
    assert by_name["score_shift"].baseline == 0.0
    corrected = by_name["corrected_calibration"]
    assert corrected.baseline == pytest.approx(p.sum() / clicked.sum())
    assert (corrected.candidate, corrected.reason) == (None, "does_not_serve")
    by_name = {r.name: r for r in early_readings(Arm(p, served, clicked, None), Arm(q, served, clicked, None), False)}
    assert by_name["score_shift"].reason == "not_the_same_impressions"
    assert by_name["corrected_calibration"].reason == "click_delays_unknown"
    few = Arm(p[:10], served[:10], clicked[:10], arrived[:10])
    assert {r.reason for r in early_readings(few, few, True)} == {"too_few_pending_impressions", "too_few_clicks"}
