"""Policies' values of a pair: sums by hand, the estimates of the formulas, errors by leaving blocks out, and when nothing is told."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from streameval.compare.evidence import policy
from streameval.compare.ledger.pieces import PieceScores
from streameval.compare.ledger.policy import policy_piece
from streameval.compare.ledger.sums import LedgerLabels, LedgerScores
from streameval.events.columns import ScoreList
from streameval.sketches.blocks import BLOCKS, NO_ITEM

ROW_OF = np.array([[-1, -1, 0], [-1, -1, -1]], np.int32)


class Shown:
    """n impressions served by version 0 and scored by version 1; `own`: what version 0's policy says, NaN: nothing."""

    def __init__(self, n: int, seed: int, spread: float = 0.5) -> None:
        rng = np.random.default_rng(seed)
        self.n = n
        self.propensity = np.where(rng.random(n) < 0.1, np.nan, rng.uniform(0.05, 0.9, n))
        self.own = np.full(n, np.nan)
        self.other = self.propensity * np.exp(rng.normal(0.0, spread, n) - spread**2 / 2)
        self.other[rng.random(n) < 0.05] = np.nan
        self.label = (rng.random(n) < 0.3).astype(np.int8)
        self.value = np.exp(rng.normal(0.0, 0.5, n))
        self.block = rng.integers(0, BLOCKS, n).astype(np.int8)
        self.item = np.full(n, NO_ITEM, np.int8)

    def weights(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
        """(of version 0, of version 1, worth, which impressions count)."""
        on = ~np.isnan(self.propensity) & ~np.isnan(self.other)
        shown = np.maximum(self.propensity, 1e-3)
        own = np.where(np.isnan(self.own), 1.0, self.own / shown)
        return own, self.other / shown, np.where(self.label == 1, self.value, 0.0), on

    def piece(self) -> NDArray[np.int64]:
        n, i = self.n, np.arange(self.n, dtype=np.int32)
        nothing = np.zeros(2 * n)
        series = np.repeat(np.array([0, 1], np.int32), n)
        scores = LedgerScores(np.tile(i, 2), series, nothing, nothing, np.zeros(2 * n, np.int16), i)
        no, ones = np.zeros(n, np.bool_), np.ones(n, np.int64)
        value, weight = np.zeros((n, 0), np.int32), np.zeros(n, np.int16)
        labels = LedgerLabels(self.label, self.block, self.item, value, no, weight, ones, False)
        both = np.stack([self.own, self.other], axis=1)
        of, version = np.nonzero(~np.isnan(both))
        policies = ScoreList(of.astype(np.int32), version.astype(np.int32), both[of, version])
        fields = {"propensity": self.propensity, "value": self.value}
        made = policy_piece(1e-3)
        sums = np.zeros((1, made.width), np.int64)
        assert made.add is not None
        made.add(PieceScores(n, 2 * n, scores, labels, ROW_OF, fields, 1, policies), sums, 0)
        out = sums[0].copy()
        made.add(PieceScores(n, 2 * n, scores, labels, ROW_OF, fields, -1, policies), sums, 0)
        assert not sums.any()
        return out


@pytest.mark.parametrize("named", [False, True])
def test_values_are_those_of_the_formula_and_errors_those_of_blocks_left_out(named: bool) -> None:
    some = Shown(6_000, 1)
    if named:
        some.own = some.propensity * np.exp(np.random.default_rng(2).normal(0.0, 0.3, some.n) - 0.045)
    piece = some.piece()
    own, other, worth, on = some.weights()

    def values(which: NDArray[np.bool_]) -> tuple[float, float]:
        return tuple(float((w * worth)[which].sum() / w[which].sum()) for w in (own, other))  # type: ignore[return-value]

    assert policy.levels(piece) == pytest.approx(values(on), rel=1e-6)
    found = policy.statistic(piece)
    old, new = values(on)
    assert float(found.theta) == pytest.approx(1.0 - new / old, abs=1e-6)
    left = np.array([1.0 - np.divide(*values(on & (some.block != g))[::-1]) for g in range(BLOCKS)])
    jackknife = (BLOCKS - 1) / BLOCKS * ((left - left.mean()) ** 2).sum()
    assert float(found.v_clu) == pytest.approx(jackknife, rel=0.1)
    a0, a1, w0, w1 = (own * worth)[on], (other * worth)[on], own[on], other[on]
    parts = new / old * (a1 / a1.sum() - w1 / w1.sum() - a0 / a0.sum() + w0 / w0.sum())
    assert float(found.v_iid) == pytest.approx((parts**2).sum(), rel=1e-4)
    assert policy.reason(piece) is None
    turned = policy.turned(piece)
    assert policy.levels(turned) == policy.levels(piece)[::-1]
    assert float(policy.statistic(turned).theta) == pytest.approx(1.0 - old / new, abs=1e-6)
    assert np.array_equal(policy.turned(turned), piece)


def test_an_equal_policy_differs_by_0() -> None:
    some = Shown(4_000, 3)
    some.own = some.other.copy()
    found = policy.statistic(some.piece())
    assert abs(float(found.theta)) < 1e-15
    assert float(found.variance()) < 1e-18


def test_few_effective_samples_and_one_heavy_weight_decide_nothing() -> None:
    few = Shown(300, 4)
    assert policy.reason(few.piece()) == "too_few_effective_samples"
    heavy = Shown(6_000, 5)
    total = np.nansum(heavy.other / heavy.propensity)
    assert policy.reason(heavy.piece()) is None
    one = int(np.flatnonzero(heavy.weights()[3])[0])
    heavy.propensity[one] = 1e-3
    heavy.other[one] = min(0.07 * total * 1e-3, 1.0)
    piece = heavy.piece()
    assert policy.reason(piece) == "too_few_effective_samples"
    found = policy.statistic(piece)
    assert np.isfinite(found.theta)
    assert (float(found.df), float(found.blocks)) == (0.0, 0.0)


def test_impossible_propensities_are_reported() -> None:
    some = Shown(6_000, 6)
    some.other *= 1.3
    piece = some.piece()
    assert policy.reason(piece) == "propensities_inconsistent"
    assert float(policy.statistic(piece).blocks) == 0.0


def test_without_policies_or_worth_there_is_a_reason() -> None:
    some = Shown(500, 7)
    some.value[:] = 0.0
    assert policy.reason(some.piece()) == "no_values"
    some.other[:] = np.nan
    assert policy.reason(some.piece()) == "no_policy"
    assert policy.levels(some.piece()) == (None, None)


def test_where_items_are_named_their_errors_count_too() -> None:
    some = Shown(6_000, 8)
    before = float(policy.statistic(some.piece()).variance())
    some.item = (np.random.default_rng(9).integers(0, 64, some.n)).astype(np.int8)
    lucky = some.item < 8
    some.other[lucky] *= 1.0
    some.value[lucky] *= 20.0
    some.other[some.item == 3] *= 1.5
    some.other *= np.nansum(some.propensity * 0 + 1.0) / np.nansum(some.other / some.propensity)
    after = policy.statistic(some.piece())
    assert float(after.variance()) > before
