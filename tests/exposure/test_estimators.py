"""Estimated propensities, against worlds with known ones, SciPy's zeta function, and the equations that define them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import zeta

from streameval.exposure.logistic import fit
from streameval.exposure.naive_bayes import by_outcome
from streameval.exposure.popularity import _zeta, exponent, propensities


@pytest.mark.parametrize("seed", range(5))
def test_naive_bayes_from_3000_randomised_outcomes_is_within_3_errors_of_every_propensity(seed: int) -> None:
    rng = np.random.default_rng(seed)
    true = 0.5 * np.array([0.25**3, 0.25**2, 0.25, 1.0, 1.0])  # by stars, as in Schnabel et al., section 6.1
    pairs = 400_000
    stars = rng.choice(5, pairs, p=[0.53, 0.24, 0.14, 0.06, 0.03])
    shown = rng.random(pairs) < true[stars]
    randomised = rng.choice(stars, 3000, replace=False)
    found = by_outcome(np.bincount(stars[shown], minlength=5), np.bincount(randomised, minlength=5), pairs)
    assert (np.abs(found.propensity - true) < 3 * found.stderr).all()
    assert (found.stderr < 0.2 * true).all()  # and not by being vague


def test_the_naive_bayes_error_is_the_empirical_one() -> None:
    rng = np.random.default_rng(3)
    true, pairs, share = np.array([0.02, 0.3]), 40_000, np.array([0.7, 0.3])
    found = [
        by_outcome(
            np.array([rng.binomial(int(pairs * s), p) for s, p in zip(share, true, strict=True)]),
            rng.multinomial(500, share),
            pairs,
        )
        for _ in range(400)
    ]
    empirical = np.std([f.propensity for f in found], axis=0)
    stated = np.mean([f.stderr for f in found], axis=0)
    assert (stated / empirical > 0.85).all()
    assert (stated / empirical < 1.15).all()


def test_a_class_that_the_randomised_slice_lacks_is_unknown_and_no_propensity_is_above_1() -> None:
    found = by_outcome(np.array([50, 90]), np.array([0, 10]), 100 + 40)
    assert np.isnan(found.propensity[0])
    assert by_outcome(np.array([10, 90]), np.array([50, 50]), 100).propensity.tolist() == [0.2, 1.0]
    with pytest.raises(ValueError, match="pairs = 99"):
        by_outcome(np.array([10, 90]), np.array([50, 50]), 99)
    with pytest.raises(ValueError, match="none negative"):
        by_outcome(np.array([-1, 90]), np.array([50, 50]), 99)


@pytest.mark.parametrize("g", [1.0001, 1.2, 1.7, 2.5, 4.0, 9.0, 19.0])
def test_zeta_and_its_slope_are_scipys(g: float) -> None:
    value, slope = _zeta(g)
    step = (g - 1) * 1e-5
    assert value == pytest.approx(float(zeta(g)), rel=1e-12)
    assert slope == pytest.approx(float(zeta(g + step) - zeta(g - step)) / (2 * step), rel=1e-6)


@pytest.mark.parametrize("g", [1.4, 1.8, 2.5])
def test_the_exponent_is_the_maximum_of_the_likelihood(g: float) -> None:
    rng = np.random.default_rng(5)
    counts = rng.zipf(g, 5000).clip(max=1 << 40)

    def minus(x: float) -> float:
        return float(x * np.log(counts).mean() + np.log(zeta(x)))

    judge = minimize_scalar(minus, bounds=(1.001, 6), method="bounded", options={"xatol": 1e-10}).x
    found = exponent(counts)
    assert found == pytest.approx(judge, abs=1e-5)
    assert found == pytest.approx(g, abs=0.1)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=50), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_popularity_does_not_depend_on_the_order_of_items(counts: list[int], random: object) -> None:
    order = np.random.default_rng(len(counts)).permutation(len(counts))
    found = propensities(np.array(counts))
    assert np.array_equal(propensities(np.array(counts)[order]), found[order])
    assert ((found >= 0) & (found <= 1)).all()
    assert (np.argsort(counts, kind="stable") == np.argsort(found, kind="stable")).all() or min(counts) == max(counts)


def test_popularity_is_the_power_g_plus_1_over_2_of_all_counts() -> None:
    counts = np.array([1, 1, 1, 2, 3, 5, 40, 0])
    g = exponent(counts[:-1])
    assert g is not None
    assert exponent(counts) == g
    assert propensities(counts) == pytest.approx((counts / 40) ** ((g + 1) / 2), rel=1e-12)
    assert exponent(np.zeros(3, np.int64)) is None
    assert propensities(np.zeros(3, np.int64)).tolist() == [0, 0, 0]
    assert propensities(np.ones(3, np.int64)).tolist() == [1, 1, 1]


def world(seed: int, users: int, items: int, share: float) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    b, c = rng.normal(-1.5, 1, items), rng.normal(0, 0.7, users)
    rows = rng.random((users, items)) < share
    user, item = np.nonzero(rows)
    p = 1 / (1 + np.exp(-b[item] - c[user]))
    return item, user, rng.random(item.size) < p, p


@pytest.mark.parametrize(
    ("seed", "users", "items", "share"), [(1, 200, 80, 0.5), (2, 500, 300, 0.03), (3, 30, 20, 1.0)]
)
def test_predicted_sums_of_every_item_and_user_are_the_observed_ones(
    seed: int, users: int, items: int, share: float
) -> None:
    item, user, shown, true = world(seed, users, items, share)
    found = fit(item, user, shown, items, users)
    p = found.propensity(item, user)
    assert found.off < 1e-8
    assert np.bincount(item, p) == pytest.approx(np.bincount(item, shown), abs=1e-7)
    assert np.bincount(user, p) == pytest.approx(np.bincount(user, shown), abs=1e-7)
    if share == 0.5:
        assert np.corrcoef(p, true)[0, 1] > 0.85


def test_what_is_always_or_never_shown_has_propensity_1_or_0_and_others_are_as_without_it() -> None:
    item, user, shown, _ = world(3, 40, 20, 1.0)
    shown = np.where(item == 4, True, np.where(item == 7, False, shown))
    found = fit(item, user, shown, 21, 40)
    p = found.propensity(item, user)
    assert set(p[item == 4]) == {1.0}
    assert set(p[item == 7]) == {0.0}
    assert np.isnan(found.item[20])
    rest = (item != 4) & (item != 7)
    again = fit(item[rest], user[rest], shown[rest], 21, 40)
    assert again.propensity(item[rest], user[rest]) == pytest.approx(p[rest], abs=1e-9)
    assert np.bincount(user, p) == pytest.approx(np.bincount(user, shown), abs=1e-7)


def test_nothing_and_one_kind_only() -> None:
    none = np.empty(0, np.int64)
    assert np.isnan(fit(none, none, np.empty(0, np.bool_), 2, 2).item).all()
    all_shown = fit(np.array([0, 1]), np.array([0, 0]), np.ones(2, np.bool_), 2, 1)
    assert all_shown.propensity(np.array([0, 1]), np.array([0, 0])).tolist() == [1.0, 1.0]
