"""Strata of older checkpoints are read on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streameval.compare.ledger.ledger import Ledger
from streameval.compare.ledger.placements import BINS
from streameval.compare.ledger.strata import Strata, with_placed
from streameval.counting.scoreboard import Labelled
from streameval.events.columns import Scored
from streameval.sketches.grid import PART_BITS

PANE = 60_000


def in_whole_bins(cells: NDArray[np.int64], values: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Labels as a program without parts of bins wrote them."""
    whole, of = np.unique(cells >> PART_BITS, return_inverse=True)
    return [whole, np.bincount(of, values).astype(np.int64)]


def settled(n: int = 2_000) -> Strata:
    """Of a version whose first hours are closed."""
    rng = np.random.default_rng(1)
    p = rng.uniform(0.01, 0.99, n)
    ledger, strata = Ledger(PANE, 600 * PANE, 5, 0, (0.1,)), Strata(PANE, 600 * PANE, str)
    nothing, label = np.zeros(n, np.int64), (rng.random(n) < p).astype(np.int8)
    ts = np.sort(rng.integers(0, 150 * PANE, n))
    user = rng.integers(1, 1 << 60, n).astype(np.uint64)
    labelled = Labelled(
        ts=ts,
        user=user,
        slices=nothing,
        label=label,
        corrected=np.zeros(n, np.bool_),
        fields={},
        fresh=np.ones(n, np.bool_),
    )
    index = np.arange(n, dtype=np.int32)
    ledger.observe(labelled, Scored((0, n), index, np.zeros(n, np.int32), p, np.zeros(n, np.bool_)), +1)
    ledger.advance(150)
    strata.settle([ledger], 150)
    return strata


def test_labels_by_entire_bins_are_read_as_their_first_parts() -> None:
    state = settled().state(lambda code: ["default", f"v{code}", "logged"])
    assert state["bins"] == BINS
    older = {
        "closed": [[k, first, ends, [in_whole_bins(*v) for v in labels]] for k, first, ends, labels in state["closed"]],
        "segments": [[segment, k, *in_whole_bins(a, b)] for segment, k, a, b in state["segments"]],
    }
    strata = Strata(PANE, 600 * PANE, str)
    strata.restore(older, lambda name: int(name[1][1:]))
    again = strata.state(lambda code: ["default", f"v{code}", "logged"])
    assert len(again["closed"]) == 1
    assert len(again["closed"][0][2]) > 1
    for new, old, read in zip(state["segments"], older["segments"], again["segments"], strict=True):
        assert np.array_equal(read[2], old[2] << PART_BITS)
        assert np.array_equal(read[3], old[3])
        assert read[3].sum() == new[3].sum()
    for old, read in zip(older["closed"][0][3], again["closed"][0][3], strict=True):
        assert np.array_equal(read[0], old[0] << PART_BITS)


def test_what_is_placed_is_added_to_the_counted_row_of_its_segment() -> None:
    one, other = (1, -1), (1, 2)
    counted = [(0, {one: np.array([5, 0])}), (60, {one: np.array([7, 0]), other: np.array([3, 0])})]
    placed = {(60, one): np.array([0, 4]), (0, other): np.array([0, 9])}
    found = [(at, {key: row.tolist() for key, row in rows.items()}) for at, rows in with_placed(counted, placed)]
    assert found == [(0, {one: [5, 0]}), (60, {one: [7, 4], other: [3, 0]}), (0, {other: [0, 9]})]
