"""Further metrics in the null world, in short forms: `python -m benchmarks.detection.further` and `further_errors`."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.detection.further import METRICS, SHAPES, WEIGHTED, Week, alarms, peaks
from benchmarks.detection.further_errors import RATIOS, USERS, difference, drawn, ratio
from benchmarks.detection.whole import Case
from streameval.compare.evidence import ratio as ratios
from streameval.compare.evidence.ratio import Statistic

pytestmark = pytest.mark.slow

RUNS = 8


@pytest.mark.parametrize("shape", SHAPES)
def test_equal_versions_are_called_worse_no_more_often_than_alpha(shape: str) -> None:
    metrics = METRICS if shape == SHAPES[0] else WEIGHTED
    case = Case("zipf 0.8", "exchangeable", 0, hours=24.0, alone=1.0)
    fired, runs = alarms(RUNS, 500, case, shape, metrics)
    assert runs == 2 * RUNS
    for metric in metrics:
        assert fired[metric, 0.05] <= 3, metric  # P(more | 5%) < 1%
        assert fired[metric, 0.01] <= 1, metric


def test_the_simulation_can_tell_a_worse_version() -> None:
    week = Week.of(Case("zipf 0.8", "AUC -0.02", 1, hours=96.0, alone=1.0), "log-uniform")
    for metric in ("ndcg_5", "mrr", "pauc", "log_loss_snips"):
        worse, better = peaks(week, metric)
        assert worse >= np.log(20.0), metric
        assert better < np.log(20.0), metric


@pytest.mark.parametrize("metric", METRICS)
def test_standard_errors_are_what_the_differences_vary_by(metric: str) -> None:
    """Of 40 repetitions a ratio is known to 11%: two of these errors beyond what the long form allows."""
    for users in USERS:
        found = ratio(metric, users, 40)
        assert RATIOS[0] * 0.78 <= found <= RATIOS[1] * 1.28, users


def test_errors_that_leave_the_users_out_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: every variance as if impressions were independent."""
    monkeypatch.setattr(Statistic, "variance", lambda self: self.v_iid)
    assert ratios.Statistic.variance is Statistic.variance
    planted = [ratio(metric, USERS[0], 40) for metric in ("value", "click_yield")]
    assert max(planted) < RATIOS[0] * 0.78


def test_a_repetition_is_a_draw() -> None:
    first, second = (difference(drawn(300, seed), "pauc") for seed in (1, 2))
    assert first != second
    assert difference(drawn(300, 1), "pauc") == first
