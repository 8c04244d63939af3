"""The statistics: against brute force, the jackknife, scikit-learn's AUC, and what truly varies."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from streameval.compare.ratio import Statistic, ratio, two_means


def test_a_ratio_is_what_the_formulas_say() -> None:
    rng = np.random.default_rng(0)
    block, a, w = rng.integers(0, 64, 5000), rng.normal(size=5000), rng.random(5000)
    A, W = np.bincount(block, a, 64), np.bincount(block, w, 64)
    s = ratio(A, W, float(a @ a), float(a @ w), float(w @ w))
    theta = a.sum() / w.sum()
    assert s.theta == pytest.approx(theta)
    assert s.v_iid == pytest.approx(((a - theta * w) ** 2).sum() / w.sum() ** 2)
    assert s.v_clu == pytest.approx(64 / 63 * ((A - theta * W) ** 2).sum() / W.sum() ** 2)
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


def test_what_is_not_defined_says_so() -> None:
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
