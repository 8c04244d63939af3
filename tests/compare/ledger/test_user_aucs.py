"""AUCs of users by pair, from scores where they are stored."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streameval.compare.ledger.user_aucs import MOST_PAIRS, Groups, UserScores
from streameval.events.batch import Shadow
from streameval.join.scores import Others, Served
from streameval.sketches.blocks import BLOCKS, G_ROWS, G_W, GAUC_CELLS, GAUC_SCALARS

ROWS = 40  # stored, of which the even ones are asked for
SERVER, MODEL = 2, 5


def _sums(others: list[Others], at: NDArray[np.int64], label: NDArray[np.int8]) -> dict[tuple[int, int], list[int]]:
    """The sums of one user by pair, over the stored rows `at`."""
    groups = Groups(np.zeros(1, np.int32), np.zeros(1, np.int8), np.zeros(at.size, np.int32), label)
    served = Served(np.full(ROWS, SERVER, np.int32), np.random.default_rng(1).random(ROWS), at)
    scores, sums = UserScores(), np.zeros((1, MOST_PAIRS, BLOCKS * GAUC_CELLS + GAUC_SCALARS), np.int64)
    scores.add(groups, served, others)
    scores.add_up(groups, sums)
    return {pair: sums[0, i].tolist() for i, pair in enumerate(scores.pairs)}


def test_a_missing_score_is_as_if_the_impression_had_not_been_asked_for() -> None:
    rng = np.random.default_rng(0)
    at, label = np.arange(0, ROWS, 2), (np.arange(ROWS // 2) % 3 == 0).astype(np.int8)
    p, there = rng.random(at.size), np.arange(at.size) % 4 != 1

    def of_model(some: NDArray[np.float64]) -> Others:
        series, indptr = np.full(some.size, MODEL, np.int32), np.arange(some.size + 1)
        return Others(Shadow(indptr, series, some), np.arange(some.size), 0, 0)

    found = _sums([of_model(np.where(there, p, np.nan))], at, label)
    assert found == _sums([of_model(p[there])], at[there], label[there])
    assert found[SERVER, MODEL][G_W] == there.sum()


def test_scores_may_be_stored_in_several_runs() -> None:
    rng = np.random.default_rng(3)
    at, label = np.arange(0, ROWS, 2), (np.arange(ROWS // 2) % 3 == 0).astype(np.int8)
    series, p = np.tile(np.array([MODEL, SERVER, 7], np.int32), ROWS), rng.random(3 * ROWS)

    def run(start: int, end: int) -> Others:
        stored = Shadow(np.arange(end - start + 1) * 3, series[3 * start : 3 * end], p[3 * start : 3 * end])
        first, last = np.searchsorted(at, (start, end)).tolist()
        return Others(stored, at[first:last], start, first)

    found = _sums([run(0, 11), run(11, 30), run(30, ROWS)], at, label)
    assert found == _sums([run(0, ROWS)], at, label)
    assert set(found) == {(SERVER, MODEL), (SERVER, 7)}
    assert all(sums[BLOCKS * GAUC_CELLS + G_ROWS] == 1 for sums in found.values())
