"""The ranking metrics of every closed request, added to the pane of the request's first impression.

A request counts for a version that scored all of its impressions (see `request_lists`). For a version that served them
all, the list is counted a second time in the order of the positions.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.counting.request_lists import RankedLists, Rankings
from streameval.counting.scoreboard import Labelled, Scoreboard
from streameval.sketches.blocks import blocks_of, fixed
from streameval.sketches.layout import Layout
from streameval.sketches.list_cells import (
    BY_CLICKED,
    BY_CLICKS,
    BY_GAINED,
    CUT_CELLS,
    GAINED,
    GROUP_SHIFT,
    GROUPS,
    LIST_CELLS,
    LIST_CLICKS,
    LISTS,
    LISTS_CLICKED,
    LISTS_SHOWN,
    LISTS_TALLY,
    PRECISION,
    RECIPROCAL,
    SHOWN_GAINED,
    SHOWN_NDCG,
    SHOWN_RECIPROCAL,
    averages_of,
    cut_tally,
)
from streameval.sketches.list_terms import (
    HITS,
    NDCG,
    TERMS_A_CUT,
    click_room,
    discounts,
    find_clicks,
    list_terms,
    stand_clicks,
)
from streameval.sketches.sparse import SparseVector

_NOTHING = np.empty(0)


class _Items(NamedTuple):
    """Impressions, by row."""

    label: NDArray[np.int8]
    gain: NDArray[np.float64]
    position: NDArray[np.float64]  # NaN: unknown; empty: all are unknown


class _Cuts(NamedTuple):
    k: NDArray[np.int64]
    discount: NDArray[np.float64]  # see `list_terms`
    graded: bool  # whether a click may have a gain of 0


class _UserRows(NamedTuple):
    """Rows of `Averages`, at most one per list and series, if they are needed: series by series."""

    term: NDArray[np.int64]
    per: NDArray[np.float64]
    kind: NDArray[np.int64]
    of: NDArray[np.int64]  # list
    cells: NDArray[np.int64]
    end: NDArray[np.int64]  # of each series' rows so far


class RankingSums:
    """Sums one board's requests. `layout`: of its vectors, including the cuts and the gain."""

    def __init__(self, layout: Layout) -> None:
        cuts, gain = ((), "click") if layout.options is None else (layout.options.k, layout.options.gain)
        self._row_cells = layout.size
        k = np.array(cuts, np.int64)
        self._cuts = _Cuts(k, discounts(int(k.max(initial=0))), gain != "click")
        self._gain = gain
        names = [LISTS_TALLY, *(cut_tally(one, gain) for one in cuts)] if cuts else []
        found = [layout.tally(name) for name in names]
        # the place of each cell of a row of `_sums` in a series' vector, ascending
        parts = [at + np.arange(GROUPS * len(tally.cells)) for tally, at in (one for one in found if one is not None)]
        self._places = np.concatenate([np.empty(0, np.int64), *parts])
        self._sums = np.zeros((0, self._places.size), np.int64)  # by series; all 0 between calls
        options = layout.options
        self._averages = None if options is None else averages_of(options.by_user, options.k, options.gain)

    @property
    def kept(self) -> bool:
        """Whether any metric is needed."""
        return bool(self._cuts.k.size)

    def observe(self, board: Scoreboard, labelled: Labelled, ranked: RankedLists, sign: int) -> None:
        """Adds (or subtracts) complete requests."""
        user, rankings = ranked.lists.user, ranked.rankings
        group = blocks_of(user).astype(np.int64) >> GROUP_SHIFT
        position = labelled.fields.get("position", _NOTHING)
        items = _Items(labelled.label, self._gains(labelled), position)
        series = int(rankings.series.max(initial=-1)) + 1
        if series > self._sums.shape[0]:
            self._sums = np.zeros((series, self._places.size), np.int64)
        rows = self._user_rows(rankings.series)
        panes, ends = [], [rows.end.copy()]
        for number, some in ranked.by_pane():
            _sum_lists(some, ranked.lists.begin, rankings, group, items, self._cuts, rows, sign=sign, sums=self._sums)
            board.overall.add(number, self._drain())
            panes.append(number)
            ends.append(rows.end.copy())
        if self._averages is not None:
            _add_users(board, board.users.slots(user), rows, panes, ends)

    def _user_rows(self, series: NDArray[np.int32]) -> _UserRows:
        """Returns buffers for rows of users, at most one for each of `series`."""
        of = self._averages
        if of is None:
            none = np.empty(0, np.int64)
            return _UserRows(none, np.empty(0), none, none, np.empty((0, 0), np.int64), none)
        term, per, kind = np.array(of.term, np.int64), np.array(of.per, np.float64), np.array(of.kinds, np.int64)
        cells, begin = np.empty((series.size, of.cells), np.int64), np.cumsum(np.bincount(series + 1))[:-1]
        return _UserRows(term, per, kind, np.empty(series.size, np.int64), cells, begin)

    def _gains(self, labelled: Labelled) -> NDArray[np.float64]:
        """Returns the undiscounted gain of every impression in NDCG."""
        if self._gain == "click":
            return labelled.label.astype(np.float64)
        value = np.where(labelled.label != 0, np.maximum(labelled.fields["value"], 0.0), 0.0)
        return {"value": np.positive, "sqrt_value": np.sqrt, "log_value": np.log1p}[self._gain](value)

    def _drain(self) -> SparseVector:
        """Returns the sums by cells of the board's vectors, and clears them."""
        flat = self._sums.ravel()
        some = np.flatnonzero(flat)
        values = flat[some]
        flat[some] = 0
        return SparseVector(
            some // self._places.size * self._row_cells + self._places[some % self._places.size], values
        )


def _add_users(
    board: Scoreboard, slot: NDArray[np.int32], rows: _UserRows, panes: list[int], ends: list[NDArray[np.int64]]
) -> None:
    """Adds each series' rows to its users. `slot`: of each list's user; `ends`: of the rows of each series, before panes and
    after each of them.
    """
    for one in np.flatnonzero(ends[-1] > ends[0]).tolist():
        cuts = pairwise(int(end[one]) for end in ends)
        parts = {
            pane: (slot[rows.of[a:b]], rows.cells[a:b].copy())  # panes are forgotten one by one
            for pane, (a, b) in zip(panes, cuts, strict=True)
            if a < b
        }
        board.users.add_lists(one, parts)


@numba.njit(cache=True, nogil=True)
def _sum_lists(
    some: NDArray[np.int64],
    begin: NDArray[np.int64],
    rankings: Rankings,
    group: NDArray[np.int64],
    items: _Items,
    cuts: _Cuts,
    rows: _UserRows,
    sign: int,
    sums: NDArray[np.int64],
) -> None:
    """Adds the terms of lists to `sums` (see `RankingSums`) and to `rows`, for each series that scored them
    completely.
    """
    first, series, start, key, server = rankings
    label, gain, position = items
    k, discount, graded = cuts
    most = 0
    for one in some:
        most = max(most, begin[one + 1] - begin[one])
    room, place, terms = click_room(most, k.size), np.empty(most), np.zeros(TERMS_A_CUT * k.size + 2)
    flat, width = sums.ravel(), sums.shape[1]  # a view; taking one row at a time would cost as much as the sums
    by_user = rows.term.size > 0
    counts = np.ones(4, np.int64)  # by kind of denominator
    of_row, rows_end = rows.of, rows.end
    for one in some:
        a, n, at = begin[one], begin[one + 1] - begin[one], group[one] * LIST_CELLS
        clicks, best = 0, 0.0
        for e in range(first[one], first[one + 1]):
            cell = series[e] * width
            flat[cell + at + LISTS] += sign
            if start[e] >= 0:
                if clicks == 0:
                    clicks, best = find_clicks(label, gain, a, n, k, discount, room)
                stand_clicks(key, start[e], n, clicks, best, room)
                list_terms(room, clicks, k, discount, terms)
                flat[cell + at + LISTS_CLICKED] += sign
                flat[cell + at + LIST_CLICKS] += sign * clicks
                _add_terms(flat, cell, group[one], terms, graded and best > 0.0, sign)
            if by_user:
                counts[BY_CLICKED], counts[BY_GAINED], counts[BY_CLICKS] = clicks > 0, best > 0.0, clicks
                of_user = rows_end[series[e]]
                if _add_row(rows, of_user, counts, clicks > 0, terms, sign):
                    of_row[of_user] = one
                    rows_end[series[e]] += 1
        if clicks and position.size and server[one] >= 0:
            known = True
            for i in range(n):
                place[i] = -position[a + i]
                known = known and not np.isnan(place[i])
            if known:
                stand_clicks(place, 0, n, clicks, best, room)
                list_terms(room, clicks, k, discount, terms)
                _add_shown(flat, server[one] * width, group[one], terms, graded and best > 0.0, sign)


@numba.njit(inline="always")
def _add_row(
    rows: _UserRows, i: int, counts: NDArray[np.int64], clicked: bool, terms: NDArray[np.float64], sign: int
) -> bool:
    """Writes the i-th row, of a list with these `counts`; returns whether it has anything. Without clicks, `terms` are those of another list."""
    term, per, kind, _, cells, _ = rows
    some = False
    for c in range(kind.size):
        cells[i, c] = sign * counts[kind[c]]
        some = some or cells[i, c] != 0
    for c in range(term.size):
        cells[i, kind.size + c] = sign * fixed(terms[term[c]] / per[c]) if clicked else 0
    return some


@numba.njit(inline="always")
def _add_terms(
    sums: NDArray[np.int64], first: int, group: int, terms: NDArray[np.float64], gained: bool, sign: int
) -> None:
    """Adds the terms of a list to the sums of a series, which begin at `first`."""
    at = first + group * LIST_CELLS
    sums[at + RECIPROCAL] += sign * fixed(terms[-2])
    sums[at + PRECISION] += sign * fixed(terms[-1])
    for j in range(terms.size // TERMS_A_CUT):
        at = first + GROUPS * LIST_CELLS + (j * GROUPS + group) * CUT_CELLS
        if terms[TERMS_A_CUT * j + HITS] > 0.0:  # without any, all others are 0
            for t in range(TERMS_A_CUT):
                sums[at + t] += sign * fixed(terms[TERMS_A_CUT * j + t])
        sums[at + GAINED] += sign * int(gained)


@numba.njit(inline="always")
def _add_shown(
    sums: NDArray[np.int64], first: int, group: int, terms: NDArray[np.float64], gained: bool, sign: int
) -> None:
    """Adds the same terms for the list in the order in which it was shown."""
    at = first + group * LIST_CELLS
    sums[at + LISTS_SHOWN] += sign
    sums[at + SHOWN_RECIPROCAL] += sign * fixed(terms[-2])
    for j in range(terms.size // TERMS_A_CUT):
        at = first + GROUPS * LIST_CELLS + (j * GROUPS + group) * CUT_CELLS
        sums[at + SHOWN_NDCG] += sign * fixed(terms[TERMS_A_CUT * j + NDCG])
        sums[at + SHOWN_GAINED] += sign * int(gained)
