"""Pairs: sums that merge, retract and turn without loss, and statistics that mean what they say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss, roc_auc_score

from streameval.compare.evidence import evidence, paired
from streameval.compare.evidence.paired import GAP, MID
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import SCALE, BlockSums
from tests.compare.pairs import draw, pair_rows, plus

FIELDS = ("theta", "weight", "v_clu", "v_iid", "df", "blocks")


def same_bits(a: dict[str, paired.Statistic], b: dict[str, paired.Statistic]) -> bool:
    return a.keys() == b.keys() and all(
        np.array_equal(getattr(a[k], f), getattr(b[k], f), equal_nan=True) for k in a for f in FIELDS
    )


@given(st.integers(0, 2**32 - 1), st.integers(1, 5))
@settings(max_examples=30, deadline=None)
def test_merge_equals_one_pass_and_retract_undoes_bit_for_bit(seed: int, parts: int) -> None:
    rng = np.random.default_rng(seed)
    columns = draw(rng, 400)
    whole = pair_rows(*columns)
    part = rng.integers(0, parts, 400)
    merged = BlockSums(np.zeros((64, 8), np.int64), np.zeros(cells.PAIR_SCALARS, np.int64))
    for i in rng.permutation(parts):
        merged = plus(merged, pair_rows(*(c[part == i] for c in columns)))
    assert same_bits(paired.statistics(whole), paired.statistics(merged))
    extra = pair_rows(*draw(rng, 50))
    assert same_bits(paired.statistics(whole), paired.statistics(plus(plus(whole, extra), extra, -1)))


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_turning_gives_the_rows_of_the_other_order(seed: int) -> None:
    block, y, p, q = draw(np.random.default_rng(seed), 300)
    rows, other = pair_rows(block, y, p, q), pair_rows(block, y, q, p)
    turned = paired.oriented(rows)
    # a loss and a difference are rounded apart: the sum may be off by a unit a term
    assert np.abs(turned.blocks - other.blocks).max() <= 300
    assert np.array_equal(
        turned.blocks[:, [cells.D, cells.PAIR_PHI1, cells.PAIR_PHI0]],
        -rows.blocks[:, [cells.D, cells.PAIR_PHI1, cells.PAIR_PHI0]],
    )
    assert np.array_equal(turned.scalars[[0, 1, 2, 4, 5]], rows.scalars[[0, 1, 2, 4, 5]])
    own = [cells.SERVER_PHI1, cells.SERVER_PHI0]
    assert np.abs(turned.scalars[own] - other.scalars[own]).max() <= 300
    back = paired.oriented(turned)
    assert np.array_equal(back.blocks, rows.blocks)
    assert np.array_equal(back.scalars, rows.scalars)


def test_turning_works_on_any_shape() -> None:
    rng = np.random.default_rng(0)
    sums = BlockSums(
        rng.integers(-(2**40), 2**40, (5, 7, 64, 8)), rng.integers(-(2**40), 2**40, (5, 7, cells.PAIR_SCALARS))
    )
    turned = paired.oriented(sums)
    assert np.array_equal(turned.blocks[..., cells.D], -sums.blocks[..., cells.D])
    gauc = BlockSums(rng.integers(-(2**40), 2**40, (5, 64, 2)), rng.integers(-(2**40), 2**40, (5, cells.GAUC_SCALARS)))
    assert np.array_equal(paired.oriented_gauc(gauc).blocks[..., cells.G_WD], -gauc.blocks[..., cells.G_WD])
    assert np.array_equal(paired.oriented_gauc(paired.oriented_gauc(gauc)).scalars, gauc.scalars)


def test_log_loss_is_the_relative_increase() -> None:
    block, y, p, q = draw(np.random.default_rng(1), 20_000)
    s = paired.statistics(pair_rows(block, y, p, q))["log_loss"]
    assert s.theta == pytest.approx(log_loss(y, q) / log_loss(y, p) - 1, rel=1e-5)
    d = np.log(np.where(y == 1, p, 1 - p)) - np.log(np.where(y == 1, q, 1 - q))
    assert s.v_iid == pytest.approx(len(d) * d.var() / s.weight**2, rel=1e-5)


def test_auc_by_placements_is_the_difference_of_aucs() -> None:
    rng = np.random.default_rng(2)
    block, y, p, q = draw(rng, 60_000, noise=0.5)
    click = y == 1
    half = np.arange(y.size) < 30_000  # the reference
    blocks, scalars = np.zeros((64, 8), np.int64), np.zeros(cells.PAIR_SCALARS, np.int64)
    terms = []
    for s in (p, q):
        negative, positive = np.sort(s[half & ~click]), np.sort(s[half & click])
        below = np.searchsorted(negative, s) / negative.size
        above = 1 - np.searchsorted(positive, s) / positive.size
        terms.append(np.where(click, below, above - roc_auc_score(y[half], s[half])))  # centred
    phi = terms[1] - terms[0]
    rest = ~half
    np.add.at(blocks[:, cells.PAIR_N], block[rest], 1)
    np.add.at(blocks[:, cells.PAIR_Y], block[rest & click], 1)
    np.add.at(blocks[:, cells.PAIR_PHI1], block[rest & click], np.rint(phi[rest & click] * SCALE).astype(np.int64))
    np.add.at(blocks[:, cells.PAIR_PHI0], block[rest & ~click], np.rint(phi[rest & ~click] * SCALE).astype(np.int64))
    blocks[:, cells.PAIR_L] = 1
    s = paired.statistics(BlockSums(blocks, scalars))["auc"]
    exact = roc_auc_score(y[rest], q[rest]) - roc_auc_score(y[rest], p[rest])
    assert s.theta == pytest.approx(-exact, abs=0.1 * float(s.stderr()))  # stale reference: second order


@pytest.mark.parametrize(
    ("old", "new", "clicks"), [(1.0, 1.2, 1.0), (1.2, 1.0, 1.0), (0.7, 1.4, 1.0), (0.8, 0.9, 1.0), (1.5, 1.2, 1.0)]
)
def test_calibration_says_whose_level_is_further_from_the_clicks(old: float, new: float, clicks: float) -> None:
    rows = np.zeros((64, 8), np.int64)
    rows[:, cells.PAIR_N] = 1000
    rows[:, cells.PAIR_Y] = round(30 * clicks)
    rows[:, cells.PAIR_P] = round(30 * old * SCALE)
    rows[:, cells.PAIR_P_OTHER] = round(30 * new * SCALE)
    rows[:, cells.PAIR_L] = round(100 * SCALE)
    s = paired.statistics(BlockSums(rows, np.zeros(cells.PAIR_SCALARS, np.int64)))
    assert evidence.harm(s)["calibration"] == pytest.approx(abs(new - clicks) - abs(old - clicks), abs=1e-8)
    assert s[GAP].theta == pytest.approx(new - old)
    assert s[MID].theta == pytest.approx(new + old - 2)


def test_gauc_is_the_weighted_mean_of_rows() -> None:
    rng = np.random.default_rng(3)
    block, w, d = rng.integers(0, 64, 900), rng.integers(2, 30, 900), rng.normal(0.01, 0.2, 900)
    blocks = np.zeros((64, 2), np.int64)
    np.add.at(blocks[:, 0], block, w)
    np.add.at(blocks[:, 1], block, np.rint(w * d * SCALE).astype(np.int64))
    k = np.array(
        [round(float(x) * SCALE) for x in (((w * d) ** 2).sum(), (w * w * d).sum())] + [int((w * w).sum()), 900, 0],
        np.int64,
    )
    pair = pair_rows(*draw(rng, 100))
    s = paired.statistics(pair, BlockSums(blocks, k))["gauc"]
    theta = (w * d).sum() / w.sum()
    assert s.theta == pytest.approx(-theta, rel=1e-6)
    assert s.v_iid == pytest.approx((w**2 * (d - theta) ** 2).sum() / w.sum() ** 2, rel=1e-5)


def test_windows_are_exact_differences() -> None:
    rng = np.random.default_rng(4)
    steps = [pair_rows(*draw(rng, 60)) for _ in range(5)]
    total = BlockSums(np.stack([s.blocks for s in steps]).cumsum(0), np.stack([s.scalars for s in steps]).cumsum(0))
    before = BlockSums(
        np.stack([0 * steps[0].blocks, steps[0].blocks]), np.stack([0 * steps[0].scalars, steps[0].scalars])
    )
    w = paired.windows(total, before)
    assert w.blocks.shape == (5, 2, 64, 8)
    assert np.array_equal(w.blocks[4, 1], sum(s.blocks for s in steps[1:]))
    assert np.array_equal(paired.clicks(w)[4, 1], sum(s.blocks[:, cells.PAIR_Y].sum() for s in steps[1:]))
