"""One stream, two periods: days' noise is in the error, and only warnings come out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from streameval.compare.evidence import before_after
from streameval.compare.evidence.before_after import (
    Level,
    entropy_per_click,
    levels,
    log_e_calibration,
    shift,
    yardstick,
)
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import SCALE
from tests.compare.pairs import draw, pair_rows


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


def test_levels_change_by_what_leaving_a_block_out_changes() -> None:
    rows = served(*draw(np.random.default_rng(0), 60_000)[:3])
    rows[5] *= 30  # a block with a third of the traffic
    for kind in before_after.LEVEL_KINDS:
        level = levels(kind, rows)
        without = np.array([levels(kind, np.delete(rows, g, axis=0)).value for g in range(64)])
        np.testing.assert_allclose(level.changes, without - level.value, rtol=1e-9, atol=1e-13)
        assert level.variance() == pytest.approx(63 / 64 * np.square(without - level.value).sum())
        assert 3 < level.df < 9


def test_a_block_that_leaves_no_clicks_makes_the_level_uncertain_not_exact() -> None:
    rows = served(*draw(np.random.default_rng(0), 60_000)[:3])
    rows[1:, [cells.Y, cells.PHI1]] = 0
    before = levels("calibration", served(*draw(np.random.default_rng(1), 60_000)[:3]))
    change = shift(before, levels("calibration", rows), np.zeros((28, 1)) + np.arange(28)[:, None] * 1e-3, np.ones(1))
    assert np.isnan(change.sampling)
    assert change.log_e(0.05, 0.0) == 0.0
    assert change.half_width(0.05, 0.05) == np.inf


@pytest.mark.slow
@pytest.mark.parametrize("exponent", [0.0, 1.1, 1.3])
def test_its_error_is_the_empirical_one_with_heavy_users(exponent: float) -> None:
    """Users return, and each has its own opinion of the new version: a few of them decide the difference, and so its error."""
    rng, users = np.random.default_rng(7), 300 if exponent == 0.0 else 2_000
    activity = np.arange(1.0, users + 1) ** -exponent
    found: dict[str, list[tuple[float, float, float]]] = {"log_loss": [], "calibration": []}
    for _ in range(400):
        block, own = rng.integers(0, 64, users), 0.5 * rng.normal(size=users)
        both = []
        for opinion in (np.zeros(users), own):
            user = rng.choice(users, 4_000, p=activity / activity.sum())
            truth = -2.0 + 0.7 * rng.normal(size=user.size)
            y = (rng.random(user.size) < 1 / (1 + np.exp(-truth))).astype(np.int64)
            both.append(served(block[user], y, 1 / (1 + np.exp(-truth - opinion[user]))))
        for kind in ("log_loss", "calibration"):
            change = shift(*(levels(kind, rows) for rows in both), np.zeros(2), 1.0)
            found[kind].append((float(change.theta), float(change.sampling), float(change.df_sampling)))
    for kind, some in found.items():
        theta, v, df = np.array(some).T
        assert 0.88 < np.sqrt(v.mean()) / theta.std() < 1.25, kind
        beyond = np.abs(theta - theta.mean()) > stats.t.isf(0.025, df) * np.sqrt(v)
        assert beyond.mean() < 0.085, kind  # 5% and three standard errors


def test_log_loss_is_ne_at_the_ctr_of_the_scores() -> None:
    block, y, p, _ = draw(np.random.default_rng(1), 5000)
    p = p * y.mean() / p.mean()
    c = y.mean()
    ne = -np.log(np.where(y == 1, p, 1 - p)).mean() / -(c * np.log(c) + (1 - c) * np.log(1 - c))
    unit = entropy_per_click(y.size, y.sum())
    assert 1 + levels("log_loss", served(block, y, p)).over(unit).value == pytest.approx(ne, rel=1e-6)
    assert levels("calibration", served(block, y, p / 2)).value == pytest.approx(-np.log(2), rel=1e-6)
    assert levels("mean_pclick", served(block, y, p)).value == pytest.approx(np.log(c), rel=1e-6)


def test_the_yardstick_is_the_pair_the_other_way_round() -> None:
    from streameval.compare.evidence import paired

    block, y, p, q = draw(np.random.default_rng(2), 5000)
    rows = pair_rows(block, y, p, q)
    s = paired.statistics(paired.oriented(rows))  # (online, server): harm of the server
    level = yardstick("auc", rows.blocks)
    assert level.value == pytest.approx(float(s["auc"].theta), rel=1e-9)
    assert level.variance() == pytest.approx(float(s["auc"].v_clu), rel=1e-6)
    ne = [levels("log_loss", served(block, y, x)) for x in (p, q)]
    assert yardstick("log_loss", rows.blocks).value == pytest.approx(float(ne[0].value - ne[1].value), abs=1e-6)


def test_the_days_noise_bounds_the_evidence_from_below() -> None:
    rng = np.random.default_rng(3)
    flat = Level(np.array([0.90]), rng.normal(size=(1, 64)) * 1e-6, np.array([63.0]))
    worse = Level(np.array([0.91]), rng.normal(size=(1, 64)) * 1e-6, np.array([63.0]))
    one = np.ones(1)
    calm, wild = (0.9 + sd * rng.normal(size=(28, 1)) for sd in (0.0005, 0.02))
    assert shift(flat, worse, calm, one).log_e(0.005, 0.0)[0] > np.log(100)
    change = shift(flat, worse, wild, one)
    assert change.variance()[0] == pytest.approx(2 * wild.var(ddof=1))
    assert change.log_e(0.005, 0.0)[0] < 1.0
    assert shift(flat, worse, calm, one).log_e(0.005, 0.02)[0] < 0
    assert (change.df_between, change.df_sampling) == (27, 63)
    assert change.half_width(0.005, 0.05)[0] > shift(flat, worse, calm, one).half_width(0.005, 0.05)[0] > 0


def test_days_average_the_noise_between_days_and_hours_of_the_first_do_not() -> None:
    placebo = np.random.default_rng(6).normal(size=(28, 3))
    level = Level(np.zeros(3), np.zeros((3, 64)), np.full(3, 63.0))
    change = shift(level, level, placebo, np.array([0.6, 1.0, 4.0]))
    assert change.between == pytest.approx(2.0 * placebo.var(axis=0, ddof=1) / [1.0, 1.0, 4.0])


def test_calibration_wants_pclick_to_have_moved_and_unknown_levels_say_nothing() -> None:
    rng = np.random.default_rng(4)
    base, placebo = Level(np.zeros(1), np.zeros((1, 64)), np.array([63.0])), 0.01 * rng.normal(size=(28, 1))
    off, still = (Level(np.array([x]), np.ones((1, 64)) * 1e-5, np.array([63.0])) for x in (-0.4, 0.0))
    moved, calm = shift(base, off, placebo, np.ones(1)), shift(base, still, placebo, np.ones(1))
    assert log_e_calibration(moved, moved, moved, 0.05, 0.1)[0] > np.log(100)
    assert log_e_calibration(-moved, -moved, -moved, 0.05, 0.1)[0] > np.log(100)
    assert log_e_calibration(moved, moved, calm, 0.05, 0.1)[0] < 0  # the clicks moved
    assert log_e_calibration(moved, -moved, moved, 0.05, 0.1)[0] < 0  # from too high to right
    unknown = Level(np.array([np.nan]), np.full((1, 64), np.nan), np.array([63.0]))
    change = shift(base, unknown, placebo, np.ones(1))
    assert change.log_e(0.05, 0.0)[0] == 0.0
    assert change.half_width(0.05, 0.05)[0] == np.inf
    with pytest.raises(ValueError, match="28"):
        shift(base, off, placebo[:1], np.ones(1))
