"""Two arms' means by the hour, as one relative difference: Simpson, the error that they truly have, an hour of one arm alone."""

from __future__ import annotations

import numpy as np
import pytest

from streameval.compare.evidence import means
from streameval.compare.evidence.means import ArmTerms
from streameval.compare.evidence.ratio import Statistic

FIRST = np.zeros(1, np.int64)


def hour(rng: np.random.Generator, n: tuple[int, int], rate: tuple[float, float], items: int = 0) -> ArmTerms:
    """Bernoulli terms of 640 users in 64 blocks; `items`: of each a tenth or so of the odds is an item's own."""
    users, by_item, squares = np.zeros((2, 64, 2)), np.zeros((2, 64, 2)), np.zeros((2, 3))
    for arm in range(2):
        lift = np.exp(0.3 * rng.standard_normal(640))[user := rng.integers(0, 640, n[arm])]
        y = (rng.random(n[arm]) < np.minimum(rate[arm] * lift, 1.0)).astype(np.float64)
        np.add.at(users[arm], user % 64, np.stack([y, np.ones_like(y)], axis=1))
        if items:
            np.add.at(by_item[arm], rng.integers(0, items, n[arm]) % 64, np.stack([y, np.ones_like(y)], axis=1))
        squares[arm] = y.sum(), y.sum(), y.size
    return ArmTerms(users, by_item, squares)


def told(hours: list[ArmTerms]) -> Statistic:
    strata = [found for one in hours if (found := means.stratum(one)) is not None]
    return means.relative(means.windows(strata, FIRST, 64))


def test_a_ramp_over_a_rate_that_moves_is_no_difference() -> None:
    rng = np.random.default_rng(1)
    hours = [hour(rng, (20_000, 1_000), (0.02, 0.02)), hour(rng, (1_000, 20_000), (0.10, 0.10))]
    found = told(hours)
    assert abs(found.theta[0]) < 3.0 * found.stderr()[0] < 0.3
    pooled = sum(one.users.sum(axis=1) for one in hours)
    rates = pooled[:, 0] / pooled[:, 1]
    assert rates[1] / rates[0] > 3.0  # what Simpson would say


def test_one_hour_is_the_ratio_of_two_rates_and_an_hour_of_one_arm_is_none() -> None:
    rng = np.random.default_rng(2)
    one = hour(rng, (5_000, 3_000), (0.1, 0.12))
    alone = hour(rng, (5_000, 0), (0.5, 0.5))
    total = one.users.sum(axis=1)
    expected = (total[1, 0] / total[1, 1]) / (total[0, 0] / total[0, 1]) - 1.0
    assert told([one]).theta[0] == pytest.approx(expected, rel=1e-12)
    assert told([one, alone]).theta[0] == told([one]).theta[0]
    assert np.isnan(told([alone]).theta[0]) or means.stratum(alone) is None


def test_the_error_is_the_one_that_means_truly_have() -> None:
    thetas, errors = [], []
    for seed in range(150):
        rng = np.random.default_rng([3, seed])
        found = told([hour(rng, (3_000, 1_000), (0.05, 0.06)), hour(rng, (1_000, 2_000), (0.08, 0.096))])
        thetas.append(found.theta[0])
        errors.append(found.stderr()[0])
    assert np.mean(thetas) == pytest.approx(0.2, abs=3.0 * np.std(thetas) / np.sqrt(150) + 0.01)
    assert 0.85 <= np.mean(errors) / np.std(thetas, ddof=1) <= 1.25


def test_blocks_without_users_are_no_samples() -> None:
    one = hour(np.random.default_rng(5), (5_000, 3_000), (0.1, 0.12))
    users = one.users.copy()
    users[:, 10:] = 0.0
    found = told([ArmTerms(users, np.zeros_like(one.items), one.squares)])
    variance = 0.0
    for arm in users[:, :10]:
        (clicks, n), without = arm.sum(axis=0), arm.sum(axis=0) - arm
        variance += 9 / 10 * ((without[:, 0] / without[:, 1] / (clicks / n) - 1.0) ** 2).sum()
    assert found.v_clu[0] == pytest.approx((1.0 + found.theta[0]) ** 2 * variance, rel=1e-9)
    assert found.blocks[0] == 10


def test_items_that_both_arms_share_are_an_error_too() -> None:
    rng = np.random.default_rng(4)
    some = hour(rng, (5_000, 5_000), (0.1, 0.1), items=640)
    by_user = told([ArmTerms(some.users, np.zeros_like(some.items), some.squares)])
    both = told([some])
    assert both.theta[0] == by_user.theta[0]
    assert both.stderr()[0] >= by_user.stderr()[0] * (1.0 - 1e-12)
    assert both.df[0] <= by_user.df[0]
