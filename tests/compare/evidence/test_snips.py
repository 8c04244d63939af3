"""The piece of `log_loss_snips` against brute force; its orientation, retraction, floors, and the error that it truly has."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from streameval.compare.evidence import snips as evidence
from streameval.compare.ledger.pieces import PieceScores
from streameval.compare.ledger.snips import CLASS_BITS, HEAVIEST_WEIGHT, SNIPS_WIDTH, snips_piece
from streameval.compare.ledger.sums import LedgerLabels, LedgerScores
from streameval.sketches.weight_classes import class_ends

Reals = NDArray[np.float64]
LEAST = 1e-4
ROW_OF = np.full((2, 3), -1, np.int32)
ROW_OF[0, 2], ROW_OF[1, 1] = 0, 1  # (0 served, 1 scored), (1 served, 0 scored)


class Pairs:
    """n impressions that one version served and the other scored, with propensities from 0.001 on, some missing."""

    def __init__(self, n: int, seed: int, least: float = 1e-3, users: int = 400) -> None:
        rng = np.random.default_rng(seed)
        self.p = rng.uniform(0.01, 0.6, (2, n))
        self.y = (rng.random(n) < self.p[0]).astype(np.int8)
        self.user = rng.integers(0, users, n)
        self.item = rng.integers(0, 65, n).astype(np.int8)
        self.propensity = np.exp(rng.uniform(np.log(least), 0.0, n))
        self.propensity[rng.random(n) < 0.05] = np.nan
        self.served = rng.integers(0, 2, n)

    def loss(self) -> Reals:
        return -np.where(self.y == 1, np.log(self.p), np.log1p(-self.p))

    def sums(self, rows: slice = slice(None), sign: int = 1) -> NDArray[np.int64]:
        """int64[2, width] of the two ways round."""
        loss, served, n = self.loss()[:, rows], self.served[rows], self.y[rows].size
        i = np.arange(n)
        p = self.p[:, rows]
        scores = LedgerScores(
            np.tile(i, 2).astype(np.int32),
            np.concatenate([served, 1 - served]).astype(np.int32),
            np.concatenate([p[served, i], p[1 - served, i]]),
            np.concatenate([loss[served, i], loss[1 - served, i]]),
            np.zeros(2 * n, np.int16),
            i.astype(np.int32),
        )
        labels = LedgerLabels(
            self.y[rows],
            (self.user[rows] % 64).astype(np.int8),
            self.item[rows],
            np.zeros((n, 0), np.int32),
            np.zeros(n, np.bool_),
            np.zeros(n, np.int16),
            np.ones(n, np.int64),
            False,
        )
        out = np.zeros((2, 3 + SNIPS_WIDTH), np.int64)
        fields = {"propensity": self.propensity[rows]}
        snips_piece(LEAST).add(PieceScores(n, 2 * n, scores, labels, ROW_OF, fields, sign), out, 3)
        assert not out[:, :3].any()
        return out[:, 3:]

    def piece(self) -> NDArray[np.int64]:
        """Version 0 the baseline, whoever served."""
        kept = self.sums()
        return kept[0] + evidence.turned(kept[1])


def test_difference_and_levels_are_those_of_brute_force() -> None:
    some = Pairs(20_000, 1)
    loss, w = some.loss(), 1.0 / np.maximum(some.propensity, LEAST)
    known = np.isfinite(w)
    w, loss = w[known], loss[:, known]
    found = evidence.statistic(some.piece()[None])
    assert found.theta[0] == pytest.approx((w * (loss[1] - loss[0])).sum() / (w * loss[0]).sum(), abs=1e-6)
    assert evidence.levels(some.piece()) == pytest.approx(tuple((w * loss).sum(axis=1) / w.sum()), rel=1e-6)
    theta = found.theta[0]
    iid = (w**2 * (loss[1] - loss[0] - theta * loss[0]) ** 2).sum() / (w * loss[0]).sum() ** 2
    assert found.v_iid[0] >= iid * (1.0 - 1e-5)
    assert bool(evidence.is_enough(some.piece()))


def test_sums_merge_retract_and_turn_to_the_bit() -> None:
    some = Pairs(3_000, 2)
    whole = some.sums()
    assert np.array_equal(whole, some.sums(slice(0, 1_000)) + some.sums(slice(1_000, None)))
    assert not (whole + some.sums(sign=-1)).any()
    assert np.array_equal(evidence.turned(evidence.turned(whole)), whole)
    some.served = np.zeros_like(some.served)
    straight = some.piece()
    some.served = 1 - some.served
    assert np.abs(some.piece() - straight)[: 2 * 64 * 3].max() <= 3_000  # roundings of what was served the other way
    assert evidence.statistic(some.piece()[None]).theta[0] == pytest.approx(
        evidence.statistic(straight[None]).theta[0], abs=1e-6
    )


def test_weights_that_rule_the_sum_are_no_evidence() -> None:
    even = Pairs(5_000, 3, least=0.9)
    assert bool(evidence.is_enough(even.piece()))
    even.propensity[7] = 1.0 / 2_000.0  # above 5% of about 7,000
    assert not evidence.is_enough(even.piece())
    found = evidence.statistic(even.piece()[None])
    assert (found.blocks[0], found.df[0]) == (0.0, 0.0)
    assert np.isfinite(found.theta[0])
    few = Pairs(200, 4, least=0.5)
    assert not evidence.is_enough(few.piece())
    assert evidence.levels(np.zeros(SNIPS_WIDTH, np.int64)) == (None, None)


def test_propensities_below_the_floor_count_as_the_floor() -> None:
    tiny, least = Pairs(500, 5), Pairs(500, 5)
    tiny.propensity[:5], least.propensity[:5] = 1e-300, LEAST
    assert np.array_equal(tiny.piece(), least.piece())


def test_a_class_of_weights_ends_above_them() -> None:
    w = np.concatenate([np.exp(np.linspace(0.0, np.log(HEAVIEST_WEIGHT), 1_000)), [1.0, HEAVIEST_WEIGHT]])
    octave = np.floor(np.log2(w)).astype(np.int64)
    number = octave * 4 + ((w / 2.0**octave - 1.0) * 4).astype(np.int64)
    assert (class_ends(number, CLASS_BITS) > w).all()
    assert (class_ends(number, CLASS_BITS) <= 1.25 * w * (1 + 1e-12)).all()


@pytest.mark.parametrize("users", [300, 3_000])
def test_the_error_is_the_one_that_the_difference_truly_has(users: int) -> None:
    thetas, errors = [], []
    for seed in range(150):
        found = evidence.statistic(Pairs(6_000, 1_000 + seed, least=0.02, users=users).piece()[None])
        thetas.append(found.theta[0])
        errors.append(found.stderr()[0])
    assert 0.85 <= np.mean(errors) / np.std(thetas, ddof=1) <= 1.25
