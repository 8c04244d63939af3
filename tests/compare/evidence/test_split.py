"""Arms of disjoint users: additive over hours, fair under ramps, with the error that they truly have."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval.compare.evidence import split
from streameval.compare.evidence.paired import GAP, MID
from streameval.metrics.left_out import degrees_of_freedom
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import SCALE


def arm(
    rng: np.random.Generator, hours: int, n: float | np.ndarray, ctr: float | np.ndarray = 0.05, scale: float = 1.0
) -> np.ndarray:
    """Served rows [hours, 64, 8] of a model that knows the CTR of the hour, and a little more."""
    rows = np.zeros((hours, 64, 8), np.int64)
    n, ctr = np.broadcast_to(n, hours), np.broadcast_to(ctr, hours)
    for h in range(hours):
        size = int(n[h] * 64)
        block = rng.integers(0, 64, size)
        p = np.clip(ctr[h] * np.exp(0.5 * rng.normal(size=size) - 0.125), 1e-4, 0.9)
        y = rng.random(size) < p
        p = np.clip(p * scale, 1e-6, 0.99)
        rank = np.searchsorted(np.sort(p), p) / size
        for c, x in ((cells.N, np.ones(size)), (cells.Y, y * 1.0)):
            rows[h, :, c] = np.bincount(block, x, 64)
        for c, x in (
            (cells.P, p),
            (cells.L, -np.log(np.where(y, p, 1 - p))),
            (cells.PHI1, np.where(y, rank, 0)),
            (cells.PHI0, np.where(y, 0, 0.5 - rank)),
        ):
            np.add.at(rows[h, :, c], block, np.rint(x * SCALE).astype(np.int64))
    return rows


@given(st.integers(0, 1000), st.integers(1, 5))
@settings(max_examples=10, deadline=None)
def test_hours_add_up(seed: int, cut: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = arm(rng, 6, 20.0), arm(rng, 6, 5.0)
    s = split.strata(a, b)
    whole = split.statistics(s.sum())
    parts = split.StrataSums(s.totals[:cut], s.devs[:cut]).sum() + split.StrataSums(s.totals[cut:], s.devs[cut:]).sum()
    for name, other in split.statistics(parts).items():
        assert other.theta == pytest.approx(whole[name].theta, rel=1e-9, abs=1e-12)
        assert other.v_clu == pytest.approx(whole[name].v_clu, rel=1e-9)
    one = split.strata(a[2], b[2])
    assert np.array_equal(one.devs, s.devs[2])
    assert np.abs(s.devs.sum(axis=-1)[:, :, 1:]).max() < 1e-6 * s.totals.max()


def test_an_hour_that_one_arm_lacks_weighs_nothing() -> None:
    rng = np.random.default_rng(1)
    a, b = arm(rng, 3, 20.0), arm(rng, 3, 20.0)
    b[1] = 0
    s = split.strata(a, b)
    assert not s.totals[1].any()
    assert not s.devs[1].any()
    nothing = split.statistics(split.strata(a[1], b[1]))
    assert all(np.isnan(x.theta) for x in nothing.values())


def test_a_ramp_over_a_changing_ctr_is_no_difference() -> None:
    rng = np.random.default_rng(2)
    ctr = np.linspace(0.02, 0.10, 12)
    share = np.linspace(0.02, 0.9, 12)
    a, b = arm(rng, 12, 400 * (1 - share), ctr), arm(rng, 12, 400 * share, ctr)
    for s in split.statistics(split.strata(a, b).sum()).values():
        assert abs(s.theta) < 4 * s.stderr()
    # while pooled raw log loss is far off
    pooled = [x[..., cells.L].sum() / x[..., cells.N].sum() for x in (a, b)]
    assert pooled[1] / pooled[0] > 1.2


def test_a_scaled_arm_is_out_of_level() -> None:
    rng = np.random.default_rng(3)
    s = split.statistics(split.strata(arm(rng, 4, 400.0), arm(rng, 4, 400.0, scale=1.5)).sum())
    assert s[GAP].theta == pytest.approx(0.5, abs=0.1)
    assert s[MID].theta == pytest.approx(0.5, abs=0.1)
    assert s["log_loss"].theta > 4 * s["log_loss"].stderr()


def test_its_error_is_the_empirical_one_and_users_count() -> None:
    rng = np.random.default_rng(4)
    got = [split.statistics(split.strata(arm(rng, 2, 25.0), arm(rng, 2, 8.0)).sum()) for _ in range(300)]
    for name in ("log_loss", "auc", GAP):
        theta = np.array([float(g[name].theta) for g in got])
        error = np.sqrt(np.mean([float(g[name].v_clu) for g in got]))
        assert 0.85 < error / theta.std() < 1.2, name
    # of 40 clicks of an arm chance puts some into the same blocks, which `spread`s would tell
    assert 28 <= float(got[0]["auc"].df) <= 126


def with_a_clicker(rng: np.random.Generator, hours: int, n: float) -> np.ndarray:
    """An arm of which one block has as many clicks more as there are, and no other impressions more."""
    rows = arm(rng, hours, n)
    clicks = rows[..., cells.Y].sum(axis=1)
    rows[:, 0, cells.N] += clicks
    rows[:, 0, cells.Y] += clicks
    rows[:, 0, cells.P] += int(SCALE) * clicks // 2
    rows[:, 0, cells.L] += int(SCALE) * clicks
    rows[:, 0, cells.PHI1] += int(SCALE) * clicks // 2
    return rows


def dfs(a: np.ndarray, b: np.ndarray, by_item: bool = False) -> dict[str, float]:
    """Degrees of freedom of arms [hours, 64, 8]."""
    s = split.strata(a, b).sum()
    scalars = np.zeros((2, 64), np.int64)
    spreads = np.sum([split.spread(np.stack((x, y)), scalars) for x, y in zip(a, b, strict=True)], axis=0)
    return {name: float(x.df) for name, x in split.statistics(s, spreads, s if by_item else None).items()}


@pytest.mark.parametrize("by_item", [False, True])
def test_a_block_with_half_of_the_clicks_leaves_few_degrees_of_freedom(by_item: bool) -> None:
    rng = np.random.default_rng(3)
    a, b = with_a_clicker(rng, 6, 100.0), with_a_clicker(rng, 6, 100.0)
    y, n = (b[..., c].sum(axis=0).astype(float) for c in (cells.Y, cells.N))
    effective, by_impressions = (x.sum() ** 2 / (x * x).sum() for x in (y, n))
    assert effective < 4
    assert by_impressions > 30
    assert max(dfs(a, b, by_item).values()) < 2 * effective - 1  # by users either arm has as many


def test_half_of_the_clicks_in_a_block_of_items_leaves_few_even_where_users_are_alike() -> None:
    rng = np.random.default_rng(4)
    a, b = arm(rng, 6, 100.0), arm(rng, 6, 100.0)
    by_item = split.strata(with_a_clicker(rng, 6, 100.0), with_a_clicker(rng, 6, 100.0)).sum()
    found = split.statistics(split.strata(a, b).sum(), items=by_item)
    assert max(float(x.df) for x in found.values()) < 4


def test_few_clicks_in_blocks_alike_keep_the_degrees_of_freedom() -> None:
    rng = np.random.default_rng(5)
    # 3 clicks a block and arm: as counted, in effectively 48 blocks; without what chance does, in 64
    found = [dfs(arm(rng, 2, 30.0), arm(rng, 2, 30.0))["auc"] for _ in range(20)]
    assert np.mean(found) > 105


def test_an_arm_is_known_as_a_level_is() -> None:
    rng = np.random.default_rng(6)
    a = with_a_clicker(rng, 1, 200.0)
    rows = [x[0, :, c] for x in (a, arm(rng, 1, 200.0)) for c in (cells.N, cells.Y)]
    clicker, other = degrees_of_freedom(*rows[:2]), degrees_of_freedom(*rows[2:])
    # of equal arms the sum of either's
    assert dfs(a, a)["auc"] == pytest.approx(2 * clicker, rel=1e-9)
    assert clicker < 4
    assert other > 40


def test_an_arm_with_all_clicks_in_a_block_has_no_degrees_of_freedom() -> None:
    rng = np.random.default_rng(7)
    a, b = arm(rng, 1, 100.0), arm(rng, 1, 100.0)
    b[:, 1:, cells.Y] = 0
    assert all(float(x.df) == 0 for x in split.statistics(split.strata(a, b).sum()).values())


def test_clicks_are_those_of_the_smaller_arm() -> None:
    rng = np.random.default_rng(5)
    a, b = arm(rng, 1, 50.0)[0], arm(rng, 1, 5.0)[0]
    assert split.clicks(a, b) == b[:, cells.Y].sum()


def heavy(rng: np.random.Generator, hours: int, n: int, exponent: float) -> np.ndarray:
    """Served rows of users of whom a few have much of the traffic and, for good, a CTR of their own; new ones every time."""
    activity = np.arange(1.0, 2_001.0) ** -exponent
    block, own = rng.integers(0, 64, activity.size), rng.normal(size=activity.size)
    rows = np.zeros((hours, 64, 8), np.int64)
    for h in range(hours):
        user = rng.choice(activity.size, n, p=activity / activity.sum())
        score = rng.normal(size=n)
        p = 0.1 / (0.1 + np.exp(-0.7 * score))
        y = rng.random(n) < 1.0 / (1.0 + np.exp(-np.log(p / (1 - p)) - 0.7 * own[user]))
        yes, no = np.sort(score[y]), np.sort(score[~y])
        phi1 = np.where(y, np.searchsorted(no, score) / no.size, 0.0)
        phi0 = np.where(y, 0.0, 1.0 - np.searchsorted(yes, score) / yes.size)
        phi0 -= np.where(y, 0.0, phi0.sum() / no.size)
        for c, x in ((cells.N, np.ones(n)), (cells.Y, y * 1.0)):
            rows[h, :, c] = np.bincount(block[user], x, 64)
        for c, x in ((cells.P, p), (cells.L, -np.log(np.where(y, p, 1 - p))), (cells.PHI1, phi1), (cells.PHI0, phi0)):
            np.add.at(rows[h, :, c], block[user], np.rint(x * SCALE).astype(np.int64))
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("exponent", [0.8, 1.1, 1.3])
def test_its_error_is_the_empirical_one_with_heavy_users(exponent: float) -> None:
    rng = np.random.default_rng(6)
    some = [split.strata(*(heavy(rng, 3, 1_500, exponent) for _ in range(2))).sum() for _ in range(400)]
    got = [split.statistics(s) for s in some]
    for name in ("log_loss", "auc", GAP):
        theta = np.array([float(g[name].theta) for g in got])
        error = np.sqrt(np.mean([float(g[name].v_clu) for g in got]))
        # a block that is most of an arm is left out at a larger error than it makes; a smaller one would be a false alarm
        assert 0.88 < error / theta.std() < 1.25, name


def test_placements_of_weighted_impressions_vary_about_their_mean() -> None:
    """Its square, near 1 for non-clicks, was left in: of a log with a tenth of the non-clicks most of the variance of AUC."""
    rng = np.random.default_rng(7)
    rows, scalars = np.zeros((2, 64, 8), np.int64), np.zeros((2, 64), np.int64)
    want = np.zeros((2, 2))
    for arm_of in range(2):
        for label, (many, weight, mean) in enumerate([(3_000, 10, 0.9), (200, 2, 0.7)]):
            phi = rng.beta(20 * mean, 20 * (1 - mean), many)
            rows[arm_of, 0, cells.N] += many * weight
            rows[arm_of, 0, cells.Y] += many * weight * label
            rows[arm_of, 0, (cells.PHI0, cells.PHI1)[label]] = round(weight * phi.sum() * SCALE)
            scalars[arm_of, (cells.PHI0_SQ, cells.PHI1_SQ)[label]] = round(weight * (phi * phi).sum() * SCALE)
            scalars[arm_of, (cells.OTHERS_EXCESS, cells.CLICKS_EXCESS)[label]] = many * weight * (weight - 1)
            want[arm_of, label] = 0.25 * weight**2 * ((phi - phi.mean()) ** 2).sum()  # either arm has half
    found = split.spread(rows, scalars)[:, [4, 3]]
    np.testing.assert_allclose(found, want, rtol=1e-4)
