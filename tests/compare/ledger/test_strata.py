"""Strata: of older checkpoints, and of servers with several pairs."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from streameval.compare.ledger.curves import LabelTable
from streameval.compare.ledger.ledger import Ledger
from streameval.compare.ledger.placements import BINS, ScoreCodes
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
    ledger, strata = Ledger(PANE, 600 * PANE, 5, 0, (0.1,)), Strata(PANE, 600 * PANE)
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
    strata = Strata(PANE, 600 * PANE)
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


class Counting(LabelTable):
    """Counts how often a server's side is added; with `always` it is for every pair."""

    def __init__(self, always: bool) -> None:
        super().__init__()
        self.always, self.servers = always, 0

    def has(self, server: Hashable) -> bool:
        """As every table, or never."""
        return not self.always and super().has(server)

    def add(self, codes: ScoreCodes, pair: bool, server: bool = True) -> None:
        """As every table."""
        self.servers += server
        super().add(codes, pair, server)


def two_servers(strata: Strata, table: LabelTable) -> list[tuple[tuple[int, tuple[int, int]], list[int]]]:
    """What is placed of two servers: version 2 scored all that either served, version 3 half of it; once more with a few
    labels that came late.
    """
    strata._table = table
    rng, n = np.random.default_rng(2), 4_000
    p, half = rng.uniform(0.01, 0.99, (3, n)), rng.random(n) < 0.5
    served = rng.integers(0, 2, n).astype(np.int32)
    label = (rng.random(n) < p[0]).astype(np.int8)
    ledger, late = Ledger(PANE, 60 * PANE, 5, 0, (0.1,)), rng.random(n) < 0.01
    labelled = Labelled(
        ts=np.sort(rng.integers(0, 90 * PANE, n)),
        user=rng.integers(1, 1 << 60, n).astype(np.uint64),
        slices=np.zeros(n, np.int64),
        label=label,
        corrected=late & (label == 1),
        fields={},
        fresh=np.ones(n, np.bool_),
    )
    index, second = np.arange(n, dtype=np.int32), np.flatnonzero(half).astype(np.int32)
    row = np.concatenate((index, index, second))
    series = np.concatenate((served, np.full(n, 2, np.int32), np.full(second.size, 3, np.int32)))
    scores = np.concatenate((p[0], p[1], p[2][half]))
    scored = Scored((0, n, 2 * n, row.size), row, series, scores, np.zeros(row.size, np.bool_))
    ledger.observe(labelled, scored, +1)
    out = []
    for end in (*range(10, 100, 10), 200):
        ledger.advance(end)
        gains = strata.settle([ledger], end, over=end == 200)
        out += [(where, row.tolist()) for where, row in sorted(gains.items())]
    return out


def test_a_server_is_counted_once_for_all_that_scored_what_it_served() -> None:
    once, always = Counting(always=False), Counting(always=True)
    kept, whole = Strata(PANE, 60 * PANE), Strata(PANE, 60 * PANE)
    placed = two_servers(kept, once)
    assert placed == two_servers(whole, always)
    assert len({key for (_, key), _ in placed}) == 6
    states = [strata.state(lambda code: code)["segments"] for strata in (kept, whole)]
    for one, other in zip(*states, strict=True):
        assert one[:2] == other[:2]
        assert (one[2] == other[2]).all()
        assert (one[3] == other[3]).all()
    assert once.servers * 3 == always.servers * 2  # of a server, its pair with everything, and that with half
