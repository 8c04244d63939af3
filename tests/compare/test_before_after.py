"""One stream, two periods: days' noise is in the error, and only warnings come out."""

from __future__ import annotations

import numpy as np
import pytest

from streameval.compare import before_after
from streameval.compare.before_after import Level, levels, log_e, log_e_either, shift, yardstick
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import SCALE

from .pairs import draw, pair_rows


def served(block: np.ndarray, y: np.ndarray, p: np.ndarray) -> np.ndarray:
    rows = np.zeros((64, 8), np.int64)
    loss = -np.log(np.where(y == 1, p, 1 - p))
    for c, x in ((cells.N, np.ones_like(y)), (cells.Y, y)):
        rows[:, c] = np.bincount(block, x, 64)
    for c, x in (
        (cells.P, p),
        (cells.L, loss),
        (cells.PHI1, np.where(y == 1, p, 0)),
        (cells.PHI0, np.where(y == 1, 0, 0.5 - p)),
    ):
        np.add.at(rows[:, c], block, np.rint(x * SCALE).astype(np.int64))
    return rows


def test_levels_and_their_deviations_are_those_of_leaving_a_block_out() -> None:
    rows = served(*draw(np.random.default_rng(0), 60_000)[:3])
    for kind in before_after.KINDS:
        level = levels(kind, rows)
        assert level.devs.sum() == pytest.approx(0.0, abs=1e-9)
        without = np.array([levels(kind, np.delete(rows, g, axis=0)).value for g in range(64)])
        jackknife = 63 / 64 * ((without - without.mean()) ** 2).sum()
        assert 64 / 63 * (level.devs**2).sum() == pytest.approx(jackknife, rel=0.02)


def test_ne_is_log_loss_over_entropy() -> None:
    block, y, p, _ = draw(np.random.default_rng(1), 5000)
    c = y.mean()
    ne = -np.log(np.where(y == 1, p, 1 - p)).mean() / -(c * np.log(c) + (1 - c) * np.log(1 - c))
    assert levels("ne", served(block, y, p)).value == pytest.approx(ne, rel=1e-6)
    assert levels("calibration", served(block, y, p)).value == pytest.approx(np.log(p.sum() / y.sum()), rel=1e-6)


def test_the_yardstick_is_the_pair_the_other_way_round() -> None:
    from streameval.compare import paired

    block, y, p, q = draw(np.random.default_rng(2), 5000)
    rows = pair_rows(block, y, p, q)
    s = paired.statistics(paired.oriented(rows))  # (online, server): harm of the server
    for kind, name in (("log_loss", "log_loss"), ("auc", "auc")):
        level = yardstick(kind, rows.blocks)  # type: ignore[arg-type]
        assert level.value == pytest.approx(float(s[name].theta), rel=1e-9)
        assert 64 / 63 * (level.devs**2).sum() == pytest.approx(float(s[name].v_clu), rel=1e-6)


def test_the_days_noise_bounds_the_evidence_from_below() -> None:
    rng = np.random.default_rng(3)
    flat = Level(np.array([0.90]), rng.normal(size=(1, 64)) * 1e-6)
    worse = Level(np.array([0.91]), rng.normal(size=(1, 64)) * 1e-6)
    one = np.ones(1)
    calm, wild = (0.9 + sd * rng.normal(size=(28, 1)) for sd in (0.0005, 0.02))
    assert log_e(shift(flat, worse, calm, one), 0.005)[0] > np.log(100)
    change = shift(flat, worse, wild, one)
    assert change.variance[0] == pytest.approx(2 * wild.var(ddof=1))
    assert log_e(change, 0.005)[0] < 1.0
    assert log_e(shift(flat, worse, calm, one), 0.005, margin=0.02)[0] < 0
    assert change.df == 27


def test_both_directions_of_calibration_and_unknown_levels() -> None:
    base, off = Level(np.zeros(1), np.zeros((1, 64))), Level(np.array([-0.4]), np.ones((1, 64)) * 1e-5)
    placebo = 0.01 * np.random.default_rng(4).normal(size=(28, 1))
    assert log_e_either(shift(base, off, placebo, np.ones(1)), 0.05, 0.1)[0] > np.log(100)
    unknown = Level(np.array([np.nan]), np.full((1, 64), np.nan))
    assert log_e(shift(base, unknown, placebo, np.ones(1)), 0.05)[0] == 0.0
    with pytest.raises(ValueError, match="28"):
        shift(base, off, placebo[:1], np.ones(1))
