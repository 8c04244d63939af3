"""The ROC curve and its thinning."""

from __future__ import annotations

import numpy as np
import pytest

from streameval.metrics.tables import ScoreCounts
from streameval.server.api.roc import roc_curve


def scores(negatives: list[int], positives: list[int]) -> ScoreCounts:
    edges = np.linspace(0, 1, len(negatives) + 1)
    return ScoreCounts(edges[:-1], edges[1:], np.array(negatives, np.int64), np.array(positives, np.int64))


def test_points_are_counts_at_or_above_each_lower_edge() -> None:
    curve = roc_curve(scores([5, 3, 0], [1, 0, 2]), 100)
    assert curve is not None
    assert curve.false_positives.tolist() == [0, 0, 3, 8]
    assert curve.true_positives.tolist() == [0, 2, 2, 3]
    assert np.isnan(curve.threshold[0])
    assert curve.threshold[1:].tolist() == [2 / 3, 1 / 3, 0.0]


def test_points_on_a_straight_line_go_first_and_the_curve_stays_the_same() -> None:
    curve = roc_curve(scores([2, 2, 2, 2], [1, 1, 1, 1]), 100)
    assert curve is not None
    assert curve.points == 5
    assert curve.false_positives.tolist() == [0, 8]


@pytest.mark.parametrize(("negatives", "positives"), [([], []), ([3, 4], [0, 0]), ([0, 0], [1, 2])])
def test_without_both_classes_there_is_no_curve(negatives: list[int], positives: list[int]) -> None:
    assert roc_curve(scores(negatives, positives), 10) is None


@pytest.mark.parametrize("max_points", [2, 3, 10, 100, 999])
def test_thinning_keeps_both_ends_moves_no_point_and_bounds_the_gaps(max_points: int) -> None:
    rng = np.random.default_rng(max_points)
    counts = scores(rng.integers(0, 50, 3000).tolist(), rng.integers(0, 5, 3000).tolist())
    whole, thin = roc_curve(counts, 10_000), roc_curve(counts, max_points)
    assert whole is not None
    assert thin is not None
    assert len(thin.threshold) <= max_points
    every = set(zip(whole.false_positives.tolist(), whole.true_positives.tolist(), strict=True))
    kept = list(zip(thin.false_positives.tolist(), thin.true_positives.tolist(), strict=True))
    assert set(kept) <= every
    assert kept == sorted(kept)
    assert kept[0] == (0, 0)
    assert kept[-1] == (counts.negatives.sum(), counts.positives.sum())
    along = thin.false_positive_rate + thin.true_positive_rate
    assert np.diff(along).max() <= 2 / (max_points - 1) * 2 + 0.01
