"""Metrics of single users against one user at a time."""

from __future__ import annotations

import numpy as np
import pytest

from streameval.metrics.users import user_auc, user_calibration, user_log_loss


def test_auc_of_a_user_is_the_share_of_concordant_pairs() -> None:
    rng = np.random.default_rng(1)
    scores = [rng.integers(0, 5, n) for n in (1, 2, 9, 30)]
    labels = [rng.integers(0, 2, len(s)) for s in scores]
    pairs = [
        sum(2 if a > b else a == b for a, c in zip(s, y, strict=True) if c for b, d in zip(s, y, strict=True) if not d)
        for s, y in zip(scores, labels, strict=True)
    ]
    n, p = np.array([len(y) for y in labels]), np.array([y.sum() for y in labels])
    got = user_auc(n, p, np.array(pairs, np.int64))
    for i, (s, y) in enumerate(zip(scores, labels, strict=True)):
        if 0 < y.sum() < len(y):
            wins = [(a > b) + (a == b) / 2 for a in s[y == 1] for b in s[y == 0]]
            assert got[i] == pytest.approx(np.mean(wins), abs=1e-12)
        else:
            assert np.isnan(got[i])


def test_log_loss_and_calibration_are_undefined_without_what_they_divide_by() -> None:
    assert user_log_loss(np.array([4, 0]), np.array([2.0, 0.0])).tolist()[0] == 0.5
    assert np.isnan(user_log_loss(np.array([0]), np.array([0.0])))[0]
    assert user_calibration(np.array([4]), np.array([2.0]))[0] == 0.5
    assert np.isnan(user_calibration(np.array([0]), np.array([2.0])))[0]


def test_no_users_have_no_metrics() -> None:
    nothing, none = np.empty(0, np.int64), np.empty(0)
    assert len(user_auc(nothing, nothing, nothing)) == len(user_log_loss(nothing, none)) == 0
