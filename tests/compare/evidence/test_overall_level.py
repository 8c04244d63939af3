"""The level of the overall verdict: the table is what Brownian motion says, and a wrong one would be seen."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.detection import overall_level as simulated
from streameval.compare.evidence import overall_level


@pytest.mark.parametrize("alpha", [0.01, 0.05])
def test_the_level_is_reached_once_in_one_over_alpha_weeks(alpha: float) -> None:
    level = math.exp(overall_level.log_level(alpha))
    rate, error = simulated.crossing(alpha, level, 400)
    assert rate == pytest.approx(alpha, abs=3 * error)
    assert error < 0.03 * alpha
    lower, error = simulated.crossing(alpha, 0.8 * level, 400)
    assert lower > alpha + 3 * error  # a level that is too low is seen


@pytest.mark.parametrize("clicks", [5_000.0, 100_000.0])
def test_less_traffic_spends_less(clicks: float) -> None:
    level = math.exp(overall_level.log_level(0.05))
    rate, error = simulated.crossing(0.05, level, 300, clicks=clicks)
    assert rate < 0.05 + 3 * error


def test_independent_metrics_spend_no_more_than_one() -> None:
    level = math.exp(overall_level.log_level(0.05))
    rate, error = simulated.crossing(0.05, level, 300, parts=(0.5, 0.3, 0.2))
    assert rate < 0.05 + 3 * error


def test_the_sampling_agrees_with_plain_counting() -> None:
    rate, error = simulated.crossing(0.2, 4.0, 400, clicks=20_000.0)
    counted, spread = simulated.crossing(0.2, 4.0, 1500, clicks=20_000.0, plain=True)
    assert rate == pytest.approx(counted, abs=3 * math.hypot(error, spread))
    assert spread < 0.02


def test_levels_between_the_table_are_between() -> None:
    alphas = np.geomspace(1e-6, 0.499, 60)
    levels = np.array([overall_level.log_level(a) for a in alphas])
    assert (np.diff(levels) < 0).all()
    assert (levels > 0).all()
    assert (levels <= np.log(1 / alphas)).all()
    assert math.exp(overall_level.log_level(0.05)) == pytest.approx(15.6)
