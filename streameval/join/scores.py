"""Every score of some rows, whoever gave it: logged, shadow and online, in that order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streameval.events.columns import Scored, ScoreList, entries, take_scores
from streameval.join.rows import Table
from streameval.join.runs import Runs


def scores_of(table: Table, runs: Runs, rows: NDArray[np.int64], online_series: list[int], grace: int) -> Scored:
    """An online score is a violation when the model had learned labels known later than the impression (+ `grace` ms)."""
    given = [column[rows] for column in (table.pclick, *table.score[: len(online_series)])]
    on = [~np.isnan(p) for p in given]
    sizes = [int(np.count_nonzero(some)) for some in on]
    shadows = runs.shadows(rows) if runs.has_shadow else None
    if shadows is not None:
        sizes.insert(1, sum(entries(shadow.indptr, of) for shadow, of, _ in shadows))
    bounds = tuple(np.cumsum([0, *sizes]).tolist())
    k = bounds[-1]
    out = Scored(bounds, np.empty(k, np.int32), np.empty(k, np.int32), np.empty(k), np.zeros(k, np.bool_))
    logged = _given(out, 0, given[0], on[0])
    out.series[: bounds[1]] = table.series[rows] if logged is None else table.series[rows[logged]]
    if shadows is not None:
        k, end = bounds[1:3]  # behind what was logged
        part = ScoreList(out.row[k:end], out.series[k:end], out.p[k:end])
        n = 0
        for shadow, of, at in shadows:
            n = take_scores(shadow, of, at, part, n)
        if bool((part.row[1:] < part.row[:-1]).any()):  # runs interleave
            order = np.argsort(part.row, kind="stable")
            for column in part:
                column[:] = column[order]
    for model, series in enumerate(online_series):
        giver = model + len(sizes) - len(online_series)
        scored = _given(out, giver, given[model + 1], on[model + 1])
        some, own = rows if scored is None else rows[scored], slice(bounds[giver], bounds[giver + 1])
        out.series[own] = series
        out.violation[own] = table.trained[model][some] > table.ts[some] + grace
    return out


def _given(out: Scored, giver: int, p: NDArray[np.float64], on: NDArray[np.bool_]) -> NDArray[np.int64] | None:
    """Writes whose scores a giver's are, and what they are, of n rows those that are `on`: returns which, None for all."""
    part = slice(out.bounds[giver], out.bounds[giver + 1])
    if part.stop - part.start == p.size:
        out.row[part], out.p[part] = np.arange(p.size), p
        return None
    which = np.flatnonzero(on)
    out.row[part], out.p[part] = which, p[which]
    return which
