"""The statistics: against brute force, the jackknife, scikit-learn's AUC, and what truly varies."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from streameval.compare.evidence.ratio import Statistic, ratio, two_means, two_way


def test_a_ratio_is_what_the_formulas_say() -> None:
    rng = np.random.default_rng(0)
    block, a, w = rng.integers(0, 64, 5000), rng.normal(size=5000), rng.random(5000)
    A, W = np.bincount(block, a, 64), np.bincount(block, w, 64)
    s = ratio(A, W, float(a @ a), float(a @ w), float(w @ w))
    theta = a.sum() / w.sum()
    assert s.theta == pytest.approx(theta)
    assert s.v_iid == pytest.approx(((a - theta * w) ** 2).sum() / w.sum() ** 2)
    without = (A.sum() - A) / (W.sum() - W)
    assert s.v_clu == pytest.approx(63 / 64 * ((without - theta) ** 2).sum())
    assert s.df == pytest.approx(W.sum() ** 2 / (W**2).sum() - 1)
    assert s.blocks == 64
    assert (-s).theta == -s.theta
    assert s.stderr() == max(s.v_clu, s.v_iid) ** 0.5


def test_leading_shapes_give_the_same_bits() -> None:
    rng = np.random.default_rng(1)
    A, W = rng.normal(size=(3, 4, 64)), rng.random((3, 4, 64))
    whole = ratio(A, W)
    for i in range(3):
        for j in range(4):
            one = ratio(A[i, j].copy(), W[i, j].copy())
            assert all(getattr(one, f) == getattr(whole[i, j], f) for f in ("theta", "weight", "v_clu", "v_iid", "df"))


def test_undefined_results_have_a_reason() -> None:
    for s in (ratio(np.zeros(64), np.zeros(64)), ratio(np.ones(64), np.eye(64)[0]), two_means(*np.zeros((4, 64)))):
        assert isinstance(s, Statistic)
        assert np.isnan(s.theta)
        assert np.isnan(s.variance())
        assert s.df == 0


def test_few_heavy_users_leave_few_degrees_of_freedom() -> None:
    weight = np.ones(64)
    weight[0] = 1000.0
    assert ratio(np.zeros(64), weight).df < 1.0
    assert ratio(np.zeros(64), np.ones(64)).df == pytest.approx(63.0)


def test_the_auc_linearisation_is_the_delete_one_block_jackknife() -> None:
    rng = np.random.default_rng(2)
    n = 40_000
    block, y = rng.integers(0, 64, n), rng.random(n) < 0.05
    user = rng.normal(size=64)[block] * 0.3
    score = np.where(y, 0.9 + 3.0 * user, 0.0) + rng.normal(size=n)
    negative, positive = np.sort(score[~y]), np.sort(score[y])
    below, above = (
        np.searchsorted(negative, score) / negative.size,
        1 - np.searchsorted(positive, score) / positive.size,
    )
    auc = roc_auc_score(y, score)
    s = two_means(
        np.bincount(block[y], below[y], 64),
        np.bincount(block[y], minlength=64).astype(float),
        np.bincount(block[~y], above[~y] - auc, 64),
        np.bincount(block[~y], minlength=64).astype(float),
        float((below[y] ** 2).sum()),
        float(((above[~y] - auc) ** 2).sum()),
    )
    assert s.theta == pytest.approx(auc, abs=1e-12)
    without = np.array([roc_auc_score(y[block != g], score[block != g]) for g in range(64)])
    jackknife = 63 / 64 * ((without - without.mean()) ** 2).sum()
    assert s.v_clu == pytest.approx(jackknife, rel=0.02)
    assert s.v_clu > 1.5 * s.v_iid  # blocks differ here


def test_its_error_is_the_empirical_one() -> None:
    rng = np.random.default_rng(3)
    effect = rng.normal(size=(4000, 64)) * 0.3
    n = rng.poisson(50, (4000, 64)).astype(float)
    s = ratio(n * effect + rng.normal(size=n.shape) * np.sqrt(n), n)
    assert np.sqrt(s.v_clu.mean()) == pytest.approx(s.theta.std(), rel=0.05)
    from scipy import stats

    inside = np.abs(s.theta) < stats.t.isf(0.025, s.df) * np.sqrt(s.v_clu)
    assert inside.mean() == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize("exponent", [0.8, 1.1, 1.3])
def test_its_error_is_the_empirical_one_with_heavy_users(exponent: float) -> None:
    """A few users have much of the traffic and, for good, an effect of their own, which draws the mean to itself."""
    rng = np.random.default_rng(7)
    activity = 20_000 * np.arange(1.0, 2_001.0) ** -exponent / (np.arange(1.0, 2_001.0) ** -exponent).sum()
    sums = []
    for _ in range(2_000):
        block, n = rng.integers(0, 64, activity.size), rng.poisson(activity).astype(float)
        a = n * rng.normal(size=n.size) * 0.5 + rng.normal(size=n.size) * np.sqrt(n)
        sums.append([np.bincount(block, x, 64) for x in (a, n)])
    A, W = np.swapaxes(np.array(sums), 0, 1)
    half, whole = np.full_like(A, 0.0), W.sum(axis=-1, keepdims=True)
    for s in (ratio(A, W), two_means(A, W, half, whole - W)):
        assert np.sqrt(s.v_clu.mean()) == pytest.approx(s.theta.std(), rel=0.1)


def test_a_block_that_has_everything_leaves_nothing_to_estimate_from() -> None:
    a, w = np.zeros((2, 64))
    a[:2], w[:2] = (3.0, 1e-12), (1.0, 1e-12)
    assert float(ratio(a, w).v_clu) < 1e-12
    assert ratio(a, w).df < 1e-6


def test_a_variance_is_not_below_its_floor() -> None:
    s = ratio(np.ones((3, 64)), np.ones((3, 64)))
    assert (s.variance() == 0).all()
    floored = Statistic(s.theta, s.weight, s.v_clu, s.v_iid, s.df, s.blocks, np.array([0.0, 0.25, np.nan]))
    assert floored.variance()[:2].tolist() == [0.0, 0.25]
    assert (-floored)[1].stderr() == 0.5
    assert np.isnan(floored.variance()[2])


def test_two_ways_of_clustering_are_what_a_brute_force_sum_over_pairs_says() -> None:
    # Cameron, Gelbach, Miller 2011, eq. 2.8: all pairs of impressions that share a user or an item
    rng = np.random.default_rng(4)
    n = 2000
    user, item = rng.integers(0, 64, n), rng.integers(0, 64, n)
    a = rng.normal(size=n) + 0.5 * rng.normal(size=64)[user] + 0.4 * rng.normal(size=64)[item]
    w = rng.random(n) + 0.5

    def by(block: np.ndarray) -> Statistic:
        return ratio(np.bincount(block, a, 64), np.bincount(block, w, 64), float(a @ a), float(a @ w), float(w @ w))

    both = two_way(by(user), by(item))
    residual = (a - a.sum() / w.sum() * w) / w.sum()
    shared = (user[:, None] == user) | (item[:, None] == item)
    brute = float(residual @ shared @ residual)
    assert both.variance() == pytest.approx(brute, rel=0.05)  # G / (G - 1) corrects for few blocks
    assert both.variance() > 1.2 * max(by(user).variance(), by(item).variance())
    assert both.theta == by(user).theta
    assert both.df == min(by(user).df, by(item).df)


def test_two_ways_err_to_the_careful_side() -> None:
    rng = np.random.default_rng(5)
    a, w = rng.normal(size=(2, 3, 64)), np.ones((2, 3, 64))
    unknown = two_way(ratio(a[0], w[0]), ratio(a[1], w[1]))
    assert np.array_equal(unknown.variance(), ratio(a[0], w[0]).v_clu + ratio(a[1], w[1]).v_clu)
    known = two_way(ratio(a[0], w[0], 1e9), ratio(a[1], w[1], 1e9))
    assert np.array_equal(known.v_clu, np.maximum(ratio(a[0], w[0]).v_clu, ratio(a[1], w[1]).v_clu))
    assert np.isnan(two_way(ratio(a[0], w[0]), ratio(0 * a[1], 0 * w[1])).variance()).all()
    still = two_way(ratio(0 * a[0], w[0]), ratio(0 * a[1], w[1]))
    assert (still.variance() == 0).all()


def test_the_error_of_two_ways_is_the_empirical_one() -> None:
    rng = np.random.default_rng(6)
    theta, error = [], []
    for _ in range(400):
        user, item = rng.integers(0, 500, 4000), rng.integers(0, 300, 4000)
        a = rng.normal(size=4000) + 0.3 * rng.normal(size=500)[user] + 0.5 * rng.normal(size=300)[item]
        w = np.ones(4000)
        sums = [ratio(np.bincount(b, a, 64), np.bincount(b, w, 64), float(a @ a), a.sum(), 4000.0)
                for b in (user % 64, item % 64)]  # fmt: skip
        s = two_way(*sums)
        theta.append(float(s.theta))
        error.append((float(s.variance()), float(sums[0].variance())))
    truth = np.var(theta)
    both, users_alone = np.mean(error, axis=0)
    assert both == pytest.approx(truth, rel=0.2)
    assert users_alone < 0.6 * truth
