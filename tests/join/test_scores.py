"""Scores of rows read where they are kept are those of the copy, whoever gave them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from streameval.events.batch import Shadow
from streameval.join.policy import JoinPolicy
from streameval.join.rows import Run, Table
from streameval.join.runs import Runs
from streameval.join.scores import Others, Served, scores_of, served_and_others, split_scored

N, RUN = 90, 30


def _kept(seed: int) -> tuple[Table, Runs]:
    """Three runs, the second without shadow scores; some rows that nobody served, some that a model did not score."""
    rng = np.random.default_rng(seed)
    table, runs = Table.allocate(N, JoinPolicy(1, 0, 1), ("a", "b")), Runs()
    table.ts[:], table.series[:] = np.arange(N), rng.integers(0, 3, N)
    for p in (table.pclick, *table.score):
        p[:] = np.where(rng.random(N) < 0.3, np.nan, rng.random(N))
    for trained in table.trained:
        trained[:] = 0
    for number in range(3):
        indptr = np.concatenate(([0], np.cumsum(rng.integers(0, 4, RUN))))
        shadow = Shadow(indptr, rng.integers(0, 5, indptr[-1]).astype(np.int32), rng.random(indptr[-1]))
        start = number * RUN
        runs.add(Run(start, start + RUN, None, None, None if number == 1 else shadow, None), table.ts)
    return table, runs


def _found(served: Served, others: Iterable[Others]) -> list[tuple[int, int, float, int, float]]:
    """(row, who served it, pClick, who scored it too, with what) of rows that somebody served, in order."""
    out = []
    for scores, at, start, first in others:
        for row, k in enumerate((at - start).tolist(), first):
            for j in range(int(scores.indptr[k]), int(scores.indptr[k + 1])):
                own = int(served.series[served.at[row]]), float(served.p[served.at[row]])
                if not np.isnan(own[1]) and not np.isnan(scores.pclick[j]):
                    out.append((row, *own, int(scores.series[j]), float(scores.pclick[j])))
    return sorted(out)


def test_what_is_read_where_it_is_kept_is_what_a_copy_has() -> None:
    for seed in range(20):
        table, runs = _kept(seed)
        rows = np.sort(np.random.default_rng(seed).choice(N, 50, replace=False))
        found = _found(*served_and_others(table, runs, rows, [7, 8]))
        assert found == _found(*split_scored(scores_of(table, runs, rows, [7, 8], 0), rows.size))
        assert {7, 8} <= {other for _, _, _, other, _ in found}
