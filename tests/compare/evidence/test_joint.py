"""One statistic of log loss and AUC: its deviations, its variance, and what it promises over a week of looks."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.detection import null
from streameval.compare.evidence import joint, paired, split
from streameval.sketches import blocks as cells
from tests.compare.pairs import draw, pair_rows


def served(rng: np.random.Generator, hours: int) -> np.ndarray:
    """Served rows of an arm, int64[hours, 64, 8]."""
    out = np.zeros((hours, 64, 8), np.int64)
    for hour in range(hours):
        block, y, p, _ = draw(rng, 3000)
        loss = -np.log(np.where(y == 1, p, 1 - p))
        columns = {cells.N: 1.0 + 0 * y, cells.Y: y, cells.P: p, cells.L: loss}
        columns |= {cells.PHI1: np.where(y == 1, p, 0.0), cells.PHI0: np.where(y == 1, 0.0, 0.5 - p)}
        for cell, x in columns.items():
            scale = 1 if cell in {cells.N, cells.Y} else cells.SCALE
            np.add.at(out[hour, :, cell], block, np.rint(x * scale).astype(np.int64))
    return out


def test_the_variances_of_a_pair_follow_from_its_deviations() -> None:
    sums = pair_rows(*draw(np.random.default_rng(0), 20_000))
    statistics = paired.statistics(sums)
    for dev, name in zip(paired.deviations(sums), ("log_loss", "auc"), strict=True):
        assert dev.shape == (64,)
        assert dev.sum() == pytest.approx(0.0, abs=1e-12)
        # the variance itself leaves blocks out one by one
        assert 64 / 63 * (dev**2).sum() == pytest.approx(float(statistics[name].v_clu), rel=0.02)
    nothing = paired.deviations(pair_rows(*(x[:0] for x in draw(np.random.default_rng(0), 10))))
    assert np.isnan(nothing).all()
    assert joint.correlation(*nothing) == 1.0


def test_deviations_of_two_arms_are_too() -> None:
    rng = np.random.default_rng(1)
    sums = split.strata(served(rng, 3), served(rng, 3)).sum()
    statistics = split.statistics(sums)
    for dev, name in zip(split.deviations(sums), ("log_loss", "auc"), strict=True):
        assert dev.shape == (128,)
        # the variance itself leaves blocks out one by one
        assert 64 / 63 * (dev**2).sum() == pytest.approx(float(statistics[name].v_clu), rel=0.02)
    assert -1.0 < joint.correlation(*split.deviations(sums)) < 1.0
    assert np.isnan(split.deviations(split.strata(served(rng, 1) * 0, served(rng, 1)).sum())).all()


def test_the_joint_variance_is_that_of_the_blocks_added_up() -> None:
    sums = pair_rows(*draw(np.random.default_rng(2), 20_000))
    one, other = paired.deviations(sums)
    r = float(joint.correlation(one, other))
    assert r == pytest.approx((one @ other) / np.sqrt((one @ one) * (other @ other)))
    v, w = (one @ one), (other @ other)
    c = joint.scale(v, w)
    assert c * c * w == pytest.approx(v)  # both weigh the same
    assert joint.variance(v, w, c, r) == pytest.approx(((one + c * other) ** 2).sum())
    assert joint.variance(v, w, c, 1.0) >= joint.variance(v, w, c, r)
    assert joint.variance(v, w, c, -1.0) > 0.0
    assert joint.correlation(one, 0 * other) == 1.0


def test_leading_shapes_give_the_same_bits() -> None:
    rng = np.random.default_rng(3)
    rows = [pair_rows(*draw(rng, 3000)) for _ in range(3)]
    whole = paired.BlockSums(np.stack([r.blocks for r in rows])[:, None], np.stack([r.scalars for r in rows])[:, None])
    together = joint.correlation(*paired.deviations(whole))
    assert together.shape == (3, 1)
    assert [float(joint.correlation(*paired.deviations(r))) for r in rows] == together[:, 0].tolist()


@pytest.mark.slow
@pytest.mark.parametrize("deff", [1.0, 10.0])
def test_a_null_of_all_metrics_alarms_no_more_often_than_alpha(deff: float) -> None:
    alarms = null.overall_alarms(deff, 120)
    assert alarms.fired["overall"] <= 12  # P(more | 5%) < 1%
    assert alarms.fired["naive z"] >= 25  # the same sums, tested naively: the simulation can tell
