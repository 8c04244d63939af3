"""AUC from a histogram: inside its own stated error, where others' bins fail."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from streameval.metrics.auc import binned_auc, ranked_auc
from streameval.metrics.tables import quantile_buckets, score_counts
from streameval.sketches.grid import scores_bits
from streameval.sketches.layout import Layout, read_histogram
from streameval.testing import sketched

LAYOUT = Layout(10, (0.01,))


def histogram(p: np.ndarray, y: np.ndarray, layout: Layout = LAYOUT) -> tuple[np.ndarray, np.ndarray]:
    row = np.zeros(layout.size, np.int64)
    sketched(layout, np.zeros(p.size, np.int32), p, y).add_to(row)
    return read_histogram(row, layout)


def test_at_a_ctr_of_two_in_a_thousand_equal_bins_are_far_off_and_ours_are_not() -> None:
    rng = np.random.default_rng(0)
    p = 1 / (1 + np.exp(-rng.normal(-6.8, 1, 400_000)))
    y = rng.random(p.size) < p
    exact = roc_auc_score(y, p)
    equal = np.minimum((p * 200).astype(int), 199)
    negatives, positives = np.bincount(equal[~y], minlength=200), np.bincount(equal[y], minlength=200)
    assert binned_auc(negatives, positives)[0] < exact - 0.1  # 200 equal bins, as in torcheval and TF-Keras
    auc, error = binned_auc(*histogram(p, y))
    assert error < 1e-3
    # what rounding to bins does to y.sum() ranks; up to 4 million scores the scores themselves are sorted
    assert abs(auc - exact) < 4 * 0.58 * error / np.sqrt(y.sum())
    assert ranked_auc(np.sort(scores_bits(p, y))) == pytest.approx(exact, abs=1e-14)


@pytest.mark.parametrize("digits", [1, 2, 3])
@pytest.mark.parametrize("bits", [7, 10])
def test_with_heavy_ties_the_exact_auc_lies_inside_the_certified_interval(digits: int, bits: int) -> None:
    rng = np.random.default_rng(digits)
    p = np.round(rng.beta(1, 6, 20_000), digits)
    y = rng.random(p.size) < p
    auc, error = binned_auc(*histogram(p, y, Layout(bits, (0.01,))))
    assert abs(auc - roc_auc_score(y, p)) <= error + 1e-12


def test_the_order_of_equal_scores_does_not_matter() -> None:
    y = np.array([0, 1] * 500, bool)
    p = np.full(1000, 0.3)
    for order in (np.arange(1000), np.argsort(y, kind="stable"), np.argsort(~y, kind="stable")):
        assert binned_auc(*histogram(p[order], y[order]))[0] == 0.5
        assert ranked_auc(np.sort(scores_bits(p[order], y[order]))) == 0.5


def test_pair_counts_do_not_overflow_at_ten_million_clicks() -> None:
    negatives, positives = np.full(1000, 10**10, np.int64), np.full(1000, 10**7, np.int64)
    auc, error = binned_auc(negatives, positives)
    assert auc == pytest.approx(0.5)
    assert error == pytest.approx(0.0005)


def test_one_class_is_no_auc() -> None:
    assert binned_auc(np.array([3, 4]), np.array([0, 0])) is None
    assert binned_auc(np.array([0, 0]), np.array([1, 2])) is None


def test_quantile_buckets_count_exactly_and_stay_inside_their_stated_error() -> None:
    rng = np.random.default_rng(1)
    p = 1 / (1 + np.exp(-rng.normal(-3, 1, 50_000)))
    y = rng.random(p.size) < p
    buckets = quantile_buckets(score_counts(*histogram(p, y), LAYOUT), 20)
    assert len(buckets) == 20
    assert sum(b.impressions for b in buckets) == p.size
    assert sum(b.clicks for b in buckets) == y.sum()
    for b in buckets:
        assert b.impressions == pytest.approx(p.size / 20, rel=0.05)
        inside = (p >= b.lower) & (p < b.upper)
        assert b.mean_pclick == pytest.approx(p[inside].mean(), rel=2**-10)
