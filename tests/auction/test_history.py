"""The curve within pairs against a general optimiser, and what little data gives."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

from streameval.auction.history import ClickCurves, PairCounts, count_pairs, curves_of, tables_of

Row = tuple[int, int, int, int]  # pair, position, impressions, clicks


def counted(*rows: Row, slots: int = 4) -> PairCounts:
    pair, position, impressions, clicks = (np.array(column) for column in zip(*rows, strict=True))
    shown = np.repeat(np.arange(len(rows)), impressions)
    first = np.concatenate([np.arange(n) for n in impressions])
    clicked = (first < clicks[shown]).astype(np.int8)
    return count_pairs(pair[shown].astype(np.int32), position[shown], clicked, int(pair.max()) + 1, slots)


def within(*rows: Row, slots: int = 4) -> ClickCurves:
    return curves_of(counted(*rows, slots=slots), slots, "within_pairs")


def likeliest(counts: PairCounts, slots: int) -> NDArray[np.float64]:
    """The curve of greatest Poisson likelihood with pair and position effects, by BFGS."""
    pair = np.repeat(np.arange(counts.indptr.size - 1), np.diff(counts.indptr))
    clicked = np.bincount(pair, weights=counts.clicks) > 0

    def loss(log_curve: NDArray[np.float64]) -> float:
        curve = np.exp(np.append(0.0, log_curve))
        chance = np.bincount(pair, weights=counts.impressions * curve[counts.position])
        effect = np.bincount(pair, weights=counts.clicks) / np.maximum(chance, 1e-300)
        mean = counts.impressions * effect[pair] * curve[counts.position]
        on = clicked[pair]
        return float((mean[on] - counts.clicks[on] * np.log(mean[on])).sum())

    found = minimize(loss, np.zeros(slots - 1), options={"gtol": 1e-7})
    return np.exp(np.append(0.0, found.x))


def test_it_is_the_greatest_likelihood() -> None:
    rng = np.random.default_rng(3)
    true = np.array([1.0, 0.6, 0.3, 0.1])
    quality = rng.uniform(0.1, 0.9, 80)
    rows = []
    for pair in range(80):
        for position in np.flatnonzero(rng.random(4) < 0.6).tolist():
            n = int(rng.integers(50, 3_000))
            rows.append((pair, position, n, int(rng.binomial(n, quality[pair] * true[position]))))
    counts = counted(*rows)
    found = curves_of(counts, 4, "within_pairs")
    assert found.curve == pytest.approx(likeliest(counts, 4), rel=2e-4), "but for the one click of the prior"
    assert found.curve == pytest.approx(true, rel=0.03)


def test_pairs_seen_once_say_nothing_of_the_curve() -> None:
    compared: list[Row] = [(0, 0, 1000, 400), (0, 1, 1000, 200)]
    once: list[Row] = [(1 + i, 1, 1, int(i % 7 == 0)) for i in range(700)]
    assert within(*compared, *once, slots=2).curve == pytest.approx([1.0, 0.5], rel=0.005)


def test_a_pair_seen_once_keeps_its_own_click_however_much_it_then_promises() -> None:
    """Its rate errs, both ways alike; a cap would take from those that were lucky and give nothing to the others."""
    counts = counted((0, 0, 1000, 400), (0, 2, 1000, 40), (1, 2, 1, 1), (2, 2, 1, 0))
    curves = curves_of(counts, 4, "within_pairs")
    rate = tables_of(counts, curves).rate
    assert rate[1] * curves.curve[2] == pytest.approx(1.0)
    assert rate[1] > 5
    assert rate[2] == 0.0


def test_a_position_shown_once_has_its_own_curve() -> None:
    found = curves_of(counted((0, 0, 1000, 400), (0, 1, 1, 1)), 4, "observed")
    assert found.shown.tolist() == [True, True, False, False]
    assert found.reference.tolist() == [0.4, 1.0, 1.0, 1.0]


def test_a_position_never_shown_has_the_curve_of_the_nearest_before_it() -> None:
    found = within((0, 1, 100, 50), (0, 2, 100, 20), slots=5)
    assert found.shown.tolist() == [False, True, True, False, False]
    assert found.reference.tolist() == [0.5, 0.5, 0.2, 0.2, 0.2]
    assert found.curve == pytest.approx([1.0, 1.0, 0.4, 0.4, 0.4])


def test_positions_that_no_pair_compares_stand_as_they_were_observed() -> None:
    found = within((0, 0, 100, 40), (0, 1, 100, 20), (1, 2, 100, 10), (1, 3, 100, 5))
    assert found.curve == pytest.approx([1.0, 0.5, 0.25, 0.125], rel=1e-6)


def test_a_position_whose_compared_pairs_had_no_click_there_is_not_0() -> None:
    found = within((0, 0, 50, 20), (0, 1, 2, 0), (1, 1, 100, 30), slots=2)
    assert 0 < found.curve[1] < 1


def test_a_pair_only_shown_in_positions_without_clicks_has_no_history() -> None:
    counts = counted((0, 0, 10, 5), (1, 3, 10, 0))
    tables = tables_of(counts, curves_of(counts, 4, "within_pairs"))
    assert tables.rate[0] == 0.5
    assert np.isnan(tables.rate[1])


@pytest.mark.parametrize("kind", ["within_pairs", "observed"])
def test_a_log_without_clicks_or_without_anything(kind: str) -> None:
    silent = counted((0, 0, 10, 0), (0, 1, 10, 0))
    assert curves_of(silent, 4, kind).curve.tolist() == [0.0] * 4
    nothing = count_pairs(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int8), 3, 4)
    found = curves_of(nothing, 4, kind)
    assert not found.shown.any()
    assert np.isnan(tables_of(nothing, found).rate).all()
