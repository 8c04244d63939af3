"""The scores of some rows: all (logged, shadow and online, in that order), or those of the serving version and all others apart."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streameval.events.batch import Shadow
from streameval.events.columns import Scored, ScoreList, entries, index_of, take_scores
from streameval.join.rows import Table
from streameval.join.runs import Runs


def scores_of(table: Table, runs: Runs, rows: NDArray[np.int64], online_series: list[int], grace: int) -> Scored:
    """All scores. An online score is a violation if the model had learned labels known later than the impression (+ `grace` ms)."""
    here = index_of(rows)
    given = [column[here] for column in (table.pclick, *table.score[: len(online_series)])]
    on = [~np.isnan(p) for p in given]
    sizes = [int(np.count_nonzero(some)) for some in on]
    shadows = runs.shadows(rows) if runs.has_shadow else None
    if shadows is not None:
        sizes.insert(1, sum(entries(shadow.indptr, of) for shadow, of, _ in shadows))
    bounds = tuple(np.cumsum([0, *sizes]).tolist())
    k = bounds[-1]
    out = Scored(bounds, np.empty(k, np.int32), np.empty(k, np.int32), np.empty(k), np.zeros(k, np.bool_))
    logged = _given(out, 0, given[0], on[0])
    out.series[: bounds[1]] = table.series[here] if logged is None else table.series[rows[logged]]
    if shadows is not None:
        k, end = bounds[1:3]  # after the logged scores
        part = ScoreList(out.row[k:end], out.series[k:end], out.p[k:end])
        n = 0
        for shadow, of, at in shadows:
            n = take_scores(shadow, of, at, part, n)
        if bool((part.row[1:] < part.row[:-1]).any()):  # rows of several runs are interleaved
            order = np.argsort(part.row, kind="stable")
            for column in part:
                column[:] = column[order]
    for model, series in enumerate(online_series):
        giver = model + len(sizes) - len(online_series)
        scored = _given(out, giver, given[model + 1], on[model + 1])
        some, own = here if scored is None else rows[scored], slice(bounds[giver], bounds[giver + 1])
        out.series[own] = series
        out.violation[own] = table.trained[model][some] > table.ts[some] + grace
    return out


def _given(out: Scored, giver: int, p: NDArray[np.float64], on: NDArray[np.bool_]) -> NDArray[np.int64] | None:
    """Writes rows and scores of one giver, for those of n rows where `on` is set; returns which rows, None for all."""
    part = slice(out.bounds[giver], out.bounds[giver + 1])
    if part.stop - part.start == p.size:
        out.row[part], out.p[part] = np.arange(p.size), p
        return None
    which = np.flatnonzero(on)
    out.row[part], out.p[part] = which, p[which]
    return which


class Served(NamedTuple):
    """The serving versions of rows, and their scores, where they are stored: those of requested row k are at `at[k]`."""

    series: NDArray[np.int32]
    p: NDArray[np.float64]  # NaN: none
    at: NDArray[np.int64]


class Others(NamedTuple):
    """Scores of other versions, where they are stored: those of requested row `first + k` begin at
    `scores.indptr[at[k] - start]`. NaN: none.
    """

    scores: Shadow
    at: NDArray[np.int64]
    start: int
    first: int


def served_and_others(
    table: Table, runs: Runs, rows: NDArray[np.int64], online_series: list[int]
) -> tuple[Served, Iterator[Others]]:
    """The scores of the serving version and of the others, of ascending rows; only those of online models are copied."""

    def others() -> Iterator[Others]:
        for run, first, end in runs.spans(rows):
            if run.shadow is not None:
                yield Others(run.shadow, rows[first:end], run.start, first)
        for model, code in enumerate(online_series):
            yield _of_one(np.full(rows.size, code, np.int32), table.score[model][rows], np.arange(rows.size + 1))

    return Served(table.series, table.pclick, rows), others()


def split_scored(scored: Scored, n: int) -> tuple[Served, list[Others]]:
    """`served_and_others` from all scores of n rows."""
    first = scored.bounds[1]
    served = Served(np.full(n, -1, np.int32), np.full(n, np.nan), np.arange(n))
    served.series[scored.row[:first]], served.p[scored.row[:first]] = scored.series[:first], scored.p[:first]
    givers = [slice(*bounds) for bounds in pairwise(scored.bounds[1:])]
    others = [
        _of_one(scored.series[own], scored.p[own], np.searchsorted(scored.row[own], np.arange(n + 1))) for own in givers
    ]
    return served, others


def _of_one(series: NDArray[np.int32], p: NDArray[np.float64], indptr: NDArray[np.int64]) -> Others:
    """The scores of one giver: row i has those from `indptr[i]` on."""
    return Others(Shadow(indptr, series, p), np.arange(indptr.size - 1), 0, 0)
