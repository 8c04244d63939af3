"""The sums themselves: at their extremes, against exact arithmetic, added and taken out again."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval.metrics.exposure import weighted, weighted_cells
from streameval.sketches import exposure as sums
from streameval.sketches.blocks import BLOCKS
from streameval.sketches.exposure import DEFAULT_RULE, WeightedScores, WeightRule
from streameval.sketches.policies import PolicyRows, add_policies
from streameval.sketches.weighted_room import Room, drained

TERMS = len(sums.EXPOSURE_TERMS)
TALLIES = sums.exposure_tallies(DEFAULT_RULE)


def scores(p: np.ndarray, label: np.ndarray, propensity: np.ndarray, block: np.ndarray | None = None) -> WeightedScores:
    n = p.size
    q = np.clip(p, 1e-7, 1 - 1e-7)
    return WeightedScores(
        p=p,
        loss=np.where(label == 1, -np.log(q), -np.log1p(-q)),
        row=np.arange(n, dtype=np.int32),
        series=np.zeros(n, np.int32),
        label=label.astype(np.int8),
        propensity=propensity,
        block=np.zeros(n, np.int8) if block is None else block,
    )


def add(room: Room, some: WeightedScores, rule: WeightRule, sign: int) -> None:
    n = some.label.size
    sums.add_exposure(room, np.array([[0, n]]), (0, n), some, rule, sign)


def units(room: Room) -> np.ndarray:
    return room.total[0] * TALLIES[0].units()


@pytest.mark.parametrize("most", [1.0, 100.0, 1e4])
def test_4_million_of_the_largest_terms_are_exact(most: float) -> None:
    """Weight 1e4, the log loss of 1e-7 wrong: the sum of squares is 4e14, which no cell of 30 fractional bits can hold."""
    n, times = 1 << 12, 1 << 10
    room, rule = Room.of(1, TALLIES), WeightRule(1e-4, most)
    extreme = scores(np.full(n, 1.0), np.zeros(n), np.full(n, 1e-9))
    for _ in range(times):
        add(room, extreme, rule, 1)
    cells, total = units(room), n * times
    loss = float(extreme.loss[0])
    for clipped, weight in ((False, 1e4), (True, most)):
        assert weighted(cells, sums.TERM_SQUARE, TERMS, clipped) == pytest.approx(total * weight**2, rel=1e-12)
        assert weighted(cells, sums.TERM_LOSS, TERMS, clipped) == pytest.approx(total * weight * loss, rel=1e-9)
        blocks = room.blocks[0] * TALLIES[1].units()
        assert weighted_cells(blocks, sums.TERM_LOSS, TERMS, clipped)[0] == pytest.approx(
            total * weight * loss, rel=1e-6
        )
    # and a hundred times as many would be far from the end of a cell still
    assert np.abs(room.total).max() < 2**63 / 100
    assert np.abs(room.blocks).max() < 2**63 / 100
    for _ in range(times):
        add(room, extreme, rule, -1)
    assert not room.total.any()
    assert not room.blocks.any()


def test_the_largest_values_of_policies_fit() -> None:
    n = 10_000
    kept = sums.policy_tallies(DEFAULT_RULE)
    room = Room.of(1, kept)
    rows = PolicyRows(
        row=np.arange(n, dtype=np.int32),
        series=np.zeros(n, np.int32),
        probability=np.ones(n),
        label=np.ones(n, np.int8),
        value=np.full(n, 1e300),
        propensity=np.full(n, 1e-9),
        block=np.zeros(n, np.int8),
    )
    add_policies(room, rows, DEFAULT_RULE, 1)
    cells = room.total[0] * kept[0].units()
    total = weighted(cells, sums.POLICY_VALUE, len(sums.POLICY_TERMS))
    assert total == pytest.approx(n * 1e4 * sums.MOST_VALUE, rel=1e-12)
    assert (room.blocks >= 0).all()
    add_policies(room, rows, DEFAULT_RULE, -1)
    assert not room.total.any()


one = st.tuples(
    st.floats(0, 1), st.integers(0, 1), st.floats(1e-9, 1) | st.just(float("nan")), st.integers(0, BLOCKS - 1)
)


@given(st.lists(one, min_size=1, max_size=40), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_order_and_cuts_change_no_bit_and_the_sum_is_that_of_fractions(some: list, luck) -> None:
    p, label, propensity, block = (np.array(column) for column in zip(*some, strict=True))
    whole, pieces = Room.of(1, TALLIES), Room.of(1, TALLIES)
    add(whole, scores(p, label, propensity, block.astype(np.int8)), DEFAULT_RULE, 1)
    order = np.array(luck.sample(range(len(some)), len(some)))
    for part in np.array_split(order, luck.randint(1, 5)):
        add(pieces, scores(p[part], label[part], propensity[part], block[part].astype(np.int8)), DEFAULT_RULE, 1)
    assert np.array_equal(whole.total, pieces.total)
    assert np.array_equal(whole.blocks, pieces.blocks)
    known = propensity > 0
    exact = sum((Fraction(1 / max(float(x), 1e-4)) for x in propensity[known]), Fraction(0))
    assert weighted(units(whole), sums.TERM_WEIGHT, TERMS) == pytest.approx(float(exact), abs=1e-9 * max(len(some), 1))
    assert whole.total[0, sums.COUNT] == known.sum()


def test_what_is_drained_is_at_its_cells_and_leaves_nothing() -> None:
    room = Room.of(3, TALLIES)
    some = scores(np.array([0.2, 0.7]), np.array([0, 1]), np.array([0.5, 0.004]), np.array([3, 60], np.int8))
    add(room, some._replace(series=np.array([0, 2], np.int32)), DEFAULT_RULE, 1)
    total, blocks = room.total.copy(), room.blocks.copy()
    vector = drained(room, 5000, 10, 200)
    dense = np.zeros(15_000, np.int64)
    vector.add_to(dense)
    rows = dense.reshape(3, 5000)
    assert np.array_equal(rows[:, 10 : 10 + total.shape[1]], total)
    assert np.array_equal(rows[:, 200 : 200 + blocks[0].size], blocks.reshape(3, -1))
    assert (np.diff(vector.cells) > 0).all()
    assert not room.total.any()
    assert not room.blocks.any()
