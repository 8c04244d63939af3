"""The strict e-process, and what is planned with."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streameval.compare import planning
from streameval.compare.evidence import strict
from streameval.compare.evidence.evidence import Rule
from streameval.compare.evidence.overall_level import OPTIMUM


@given(st.floats(-strict.BOUND, 20.0), st.floats(0.004, 0.6))
def test_one_step_of_it_is_at_most_one_plus_a_multiple_of_the_difference(d: float, fraction: float) -> None:
    step = fraction / strict.BOUND
    assert np.exp(step * d - float(strict.psi(step)) * d * d) <= (1 + step * d) * (1 + 1e-12)


def test_a_null_of_two_points_has_mean_at_most_one() -> None:
    # d = -2 with probability 1/3, +1 with 2/3; all sequences of 10 steps
    ups = np.arange(11)
    from scipy.stats import binom

    total, squares = 1.0 * ups - 2.0 * (10 - ups), 1.0 * ups + 4.0 * (10 - ups)
    assert (np.exp(strict.log_e(total, squares)) * binom.pmf(ups, 10, 2 / 3)).sum() <= 1.0


def test_a_margin_takes_evidence_away() -> None:
    assert strict.log_e(50.0, 100.0, 1000) > strict.log_e(50.0, 100.0, 1000, margin=0.01)
    assert strict.log_e(0.0, 0.0) == pytest.approx(0.0)
    with pytest.raises(ValueError, match="margin"):
        strict.log_e(0.0, 0.0, 0, margin=-0.1)


def test_plans_follow_the_formula() -> None:
    v = planning.PAIRED_VARIANCE["auc"]
    small, large = planning.impressions(0.005, v), planning.impressions(0.02, v)
    assert small.n50 / large.n50 > 10  # about (0.02 / 0.005)**2, less for the mixture's shape
    assert small.p90 == pytest.approx(2.5 * small.n50)
    assert planning.impressions(0.005, v, alpha=0.05).n50 < small.n50
    assert planning.impressions(0.005, v, margin=0.002).n50 > small.n50
    assert planning.impressions(0.005, v, deff=2).n50 > 1.5 * small.n50
    assert planning.impressions(0.5, v, floor=20_000).n50 == 20_000
    with pytest.raises(ValueError, match="margin"):
        planning.impressions(0.001, v, margin=0.001)


def test_no_plan_promises_more_than_any_test_could_keep() -> None:
    for alpha in (0.05, 0.01):
        for metric, effect in (
            ("log_loss", 0.0146),
            ("log_loss", 0.0036),
            ("auc", 0.02),
            ("auc", 0.0047),
            ("gauc", 0.02),
        ):
            found = planning.plan(metric, effect, alpha, "paired", 0.03, 1.5)
            least = found.bounds
            assert least.fixed50 < least.sequential < least.fixed90 * 2
            assert least.fixed50 < found.n50
            assert least.fixed90 < found.n90
            assert found.n50 > 0.95 * least.sequential  # a median, less than its mean
    v = planning.bounds(0.01, 0.3, alpha=0.05)
    assert v.sequential == pytest.approx(2 * np.log(20) * 3000)
    assert v.fixed50 == pytest.approx(1.6449**2 * 3000, rel=1e-3)
    assert v.fixed90 == pytest.approx((1.6449 + 1.2816) ** 2 * 3000, rel=1e-3)
    with pytest.raises(ValueError, match="margin"):
        planning.bounds(0.001, 0.3, alpha=0.05, margin=0.001)


def test_the_plan_says_what_the_simulation_saw() -> None:
    # medians of 30 runs of benchmarks/detection at alpha 0.05, margin 0, with the harm and v of log loss there
    for effect, variance, seen in ((0.0146, 0.38, 13_100), (0.0098, 0.30, 22_700)):
        rule = Rule(alpha=0.05)
        share = (rule.weights["log_loss"] + rule.weights["auc"]) * rule.first_weight / (0.05 * np.exp(rule.log_level()))
        found = planning.impressions(effect, variance, alpha=0.05, optimum=OPTIMUM, share=float(share))
        assert found.n50 == pytest.approx(seen, rel=0.25)
