"""Closed requests by propensity: DCG and precision as if everything had been shown equally often, and NDCG by stratum.

A request counts for a version that scored all of its impressions (see `request_lists`). For the weighted sums all of
them must have a propensity, because the contribution of an item without one is unknown. Strata contain the clicks that
have one.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.counting.request_lists import RankedLists, Rankings
from streameval.counting.scoreboard import Labelled, Scoreboard
from streameval.sketches.blocks import blocks_of, fixed
from streameval.sketches.exposed_lists import (
    EX_CELLS,
    EX_CLIPPED,
    EX_CUT_CELLS,
    EX_DCG,
    EX_HITS,
    EX_ITEMS,
    EX_LESS_DCG,
    EX_LESS_HITS,
    EX_LESS_SQUARE,
    EX_LESS_WEIGHT,
    EX_LISTS,
    EX_SQUARE,
    EX_WEIGHT,
    EXPOSED_TALLY,
    exposed_cut,
    mean_discount,
    mean_within,
    span_of,
    standing,
    strata_ndcg,
)
from streameval.sketches.exposure import MOST_VALUE, WeightRule, add_fine
from streameval.sketches.layout import Layout
from streameval.sketches.list_cells import GROUP_SHIFT, GROUPS
from streameval.sketches.list_terms import discounts
from streameval.sketches.propensity import PropensityGrid, fine_bin
from streameval.sketches.sparse import SparseVector


class _Items(NamedTuple):
    """Impressions, by row."""

    gain: NDArray[np.float64]
    label: NDArray[np.int8]
    propensity: NDArray[np.float64]  # for weighting; NaN: none; empty: no impression has one
    stratum: NDArray[np.int16]  # bin; -1: none; empty: no impression has one


class _Cuts(NamedTuple):
    k: NDArray[np.int64]
    discount: NDArray[np.float64]  # see `list_terms`
    strata: int  # the first cell of strata
    bins: int  # bins of propensity, if sums are over spans of them (see `strata_ndcg_tallies`); 0: strata are fixed


class _Room(NamedTuple):
    """Buffers for the items of one list that have a gain and a stratum, by stratum."""

    item: NDArray[np.int64]  # index in the list
    above: NDArray[np.int64]  # see `standing`
    level: NDArray[np.int64]
    begin: NDArray[np.int64]  # index of the first item of each stratum, and the end
    terms: NDArray[np.float64]


class ExposedLists:
    """Sums one board's requests. `layout`: of its vectors."""

    def __init__(self, layout: Layout, rule: WeightRule) -> None:
        options = layout.options
        cuts, gain = ((), "click") if options is None else (options.k, options.gain)
        self._rule, self._gain, self._row_cells = rule, gain, layout.size
        strata = None if options is None or not cuts else options.strata
        names = [EXPOSED_TALLY, *map(exposed_cut, cuts)] if cuts else []
        found = [layout.tally(name) for name in names]
        # the place of each cell of a row of `_sums` in a series' vector, ascending
        parts = [at + np.arange(GROUPS * len(tally.cells)) for tally, at in (one for one in found if one is not None)]
        k = np.array(cuts, np.int64)
        bins = 0 if strata is None or strata.edges else len(strata.bounds) - 1
        self._cuts = _Cuts(k, discounts(int(k.max(initial=0))), sum(part.size for part in parts), bins)
        self._grid = None
        if strata is not None and (of := layout.tally(strata_ndcg(strata, cuts, gain))) is not None:
            self._grid = PropensityGrid.of(strata)
            parts.append(of[1] + np.arange(len(of[0].cells)))
        self._places = np.concatenate([np.empty(0, np.int64), *parts])
        assert bool((np.diff(self._places) > 0).all())  # cells are written in order
        self._sums = np.zeros((0, self._places.size), np.int64)  # by series; all 0 between calls

    def observe(self, board: Scoreboard, labelled: Labelled, ranked: RankedLists, sign: int) -> None:
        """Adds (or subtracts) complete requests."""
        if not self._cuts.k.size:
            return
        propensity, stratum = self._known(board, labelled)
        if not (propensity.size or stratum.size):
            return
        lists, rankings = ranked.lists, ranked.rankings
        group = blocks_of(lists.user).astype(np.int64) >> GROUP_SHIFT
        items = _Items(self._gains(labelled), labelled.label, propensity, stratum)
        series = int(rankings.series.max(initial=-1)) + 1
        if series > self._sums.shape[0]:
            self._sums = np.zeros((series, self._places.size), np.int64)
        for number, some in ranked.by_pane():
            if _sum_lists(
                some, lists.begin, rankings, group, items, self._cuts, self._rule, sign=sign, sums=self._sums
            ):
                board.overall.add(number, self._drain())

    def _known(self, board: Scoreboard, labelled: Labelled) -> tuple[NDArray[np.float64], NDArray[np.int16]]:
        """Returns (propensities, bins of strata) of the impressions; empty if no impression has one."""
        nothing = np.empty(0)
        propensity = labelled.fields.get(board.weigh_by, nothing)
        if not (propensity > 0).any():
            propensity = nothing
        of = labelled.fields.get(board.strata_by, nothing)
        stratum = np.empty(0, np.int16)
        if self._grid is not None and (of > 0).any():
            stratum = np.empty(of.size, np.int16)
            _bins(of, self._grid, stratum)
        return propensity, stratum

    def _gains(self, labelled: Labelled) -> NDArray[np.float64]:
        """Returns the undiscounted gain of every impression in DCG."""
        if self._gain == "click":
            return labelled.label.astype(np.float64)
        value = np.where(labelled.label != 0, labelled.fields["value"].clip(0.0, MOST_VALUE), 0.0)
        return {"value": np.positive, "sqrt_value": np.sqrt, "log_value": np.log1p}[self._gain](value)

    def _drain(self) -> SparseVector:
        """Returns the sums by cells of the board's vectors, and clears them."""
        flat = self._sums.ravel()
        some = np.flatnonzero(flat)
        values = flat[some]
        flat[some] = 0
        row, at = np.divmod(some, self._places.size)
        return SparseVector(row * self._row_cells + self._places[at], values)


@numba.njit(cache=True, nogil=True)
def _bins(propensity: NDArray[np.float64], grid: PropensityGrid, out: NDArray[np.int16]) -> None:
    for i in range(propensity.size):
        out[i] = fine_bin(propensity[i], grid.edges, grid.lookup) if propensity[i] > 0.0 else -1


@numba.njit(cache=True, nogil=True)
def _sum_lists(
    some: NDArray[np.int64],
    begin: NDArray[np.int64],
    rankings: Rankings,
    group: NDArray[np.int64],
    items: _Items,
    cuts: _Cuts,
    rule: WeightRule,
    sign: int,
    sums: NDArray[np.int64],
) -> bool:
    """Adds lists to `sums` (see `ExposedLists`), for each series that scored them completely. Returns whether anything
    was added.
    """
    first, series, start, key, _ = rankings
    size = 0
    for one in some:
        size = max(size, begin[one + 1] - begin[one])
    own = np.zeros(EX_CELLS, np.int64)  # what the list adds to every series
    clicked, room = np.empty(size, np.int64), _room(size)
    added = False
    flat, width = sums.ravel(), sums.shape[1]  # a view; taking one row at a time would cost as much as the sums
    for one in some:
        if first[one] == first[one + 1]:
            continue
        a, n = begin[one], begin[one + 1] - begin[one]
        weighs = _weigh(items.propensity, a, n, rule, sign, own)
        clicks, strata = 0, False
        for i in range(n):
            if items.label[a + i]:
                clicked[clicks] = i
                clicks += 1
                strata = strata or (items.stratum.size > 0 and items.stratum[a + i] >= 0)
        if not weighs and not strata:
            continue
        added = True
        for e in range(first[one], first[one + 1]):
            of = series[e]
            if weighs:
                for c in range(EX_CELLS):
                    flat[of * width + group[one] * EX_CELLS + c] += own[c]
                for c in range(clicks):
                    i = clicked[c]
                    at = standing(key, start[e], n, i)
                    weight = 1.0 / max(items.propensity[a + i], rule.least)
                    _add_item(flat, (of * width, group[one]), at, weight, items.gain[a + i], cuts, rule.most, sign)
            if strata:
                _add_strata(sums[of], key, (start[e], a, n), clicked[:clicks], items, cuts, room=room, sign=sign)
    return added


@numba.njit(cache=True, nogil=True)
def _weigh(
    propensity: NDArray[np.float64], a: int, n: int, rule: WeightRule, sign: int, own: NDArray[np.int64]
) -> bool:
    """Writes what a list of items a to a + n - 1 adds to every series; returns False if an item has no propensity."""
    if not propensity.size:
        return False
    own[:] = 0
    own[EX_LISTS], own[EX_ITEMS] = sign, sign * n
    for i in range(a, a + n):
        if not propensity[i] > 0.0:
            return False
        weight = 1.0 / max(propensity[i], rule.least)
        own[EX_CLIPPED] += sign * int(weight > rule.most or propensity[i] < rule.least)
        add_fine(own, EX_WEIGHT, weight, sign)
        add_fine(own, EX_SQUARE, weight * weight, sign)
        if weight > rule.most:
            add_fine(own, EX_LESS_WEIGHT, weight - rule.most, sign)
            add_fine(own, EX_LESS_SQUARE, weight * weight - rule.most * rule.most, sign)
    return True


@numba.njit(inline="always")
def _add_item(
    sums: NDArray[np.int64],
    where: tuple[int, int],
    at: tuple[int, int],
    weight: float,
    gain: float,
    cuts: _Cuts,
    most: float,
    sign: int,
) -> None:
    """Adds a clicked item, standing `at` (above, level), at every cut that it may reach; `where`: a series' first cell
    in `sums`, and the group of users.
    """
    above, level = at
    first, group = where
    for j in range(cuts.k.size):
        if above >= cuts.k[j]:
            continue
        cell = first + GROUPS * EX_CELLS + (j * GROUPS + group) * EX_CUT_CELLS
        gained = gain * mean_discount(above, level, cuts.k[j], cuts.discount)
        within = mean_within(above, level, cuts.k[j])
        add_fine(sums, cell + EX_DCG, weight * gained, sign)
        add_fine(sums, cell + EX_HITS, weight * within, sign)
        if weight > most:
            add_fine(sums, cell + EX_LESS_DCG, (weight - most) * gained, sign)
            add_fine(sums, cell + EX_LESS_HITS, (weight - most) * within, sign)


@numba.njit(inline="always")
def _room(size: int) -> _Room:
    whole = np.empty((3, size), np.int64)
    return _Room(whole[0], whole[1], whole[2], np.empty(size + 1, np.int64), np.empty(size))


@numba.njit(cache=True, nogil=True)
def _add_strata(
    sums: NDArray[np.int64],
    key: NDArray[np.float64],
    span: tuple[int, int, int],
    clicked: NDArray[np.int64],
    items: _Items,
    cuts: _Cuts,
    room: _Room,
    sign: int,
) -> None:
    """Adds the NDCG of the items with a gain in every stratum, or every span of bins, within the full list to one
    series' sums.

    `span`: where its keys and its items begin, and the number of items; `clicked`: indexes of the clicked ones.
    """
    a, begin, stratum = span[1], room.begin, items.stratum
    many = _stand(key, span, clicked, items, room)
    width = 1 + cuts.k.size
    for p in range(many):
        first = stratum[a + room.item[begin[p]]]
        for q in range(p, many if cuts.bins else p + 1):
            for j in range(width):
                got = np.int64(1)
                if j:
                    got = fixed(_ndcg(a, begin[p], begin[q + 1], items, cuts.k[j - 1], cuts.discount, room))
                if cuts.bins == 0:
                    sums[cuts.strata + first * width + j] += sign * got
                    continue
                for before in range(2 if p else 1):  # f(p, q) is part of four differences
                    for after in range(2 if q + 1 < many else 1):
                        x = stratum[a + room.item[begin[p - before]]]
                        y = stratum[a + room.item[begin[q + after]]]
                        cell = cuts.strata + span_of(x, y, cuts.bins) * width + j
                        sums[cell] += sign * (got if before == after else -got)


@numba.njit(cache=True, nogil=True)
def _stand(
    key: NDArray[np.float64], span: tuple[int, int, int], clicked: NDArray[np.int64], items: _Items, room: _Room
) -> int:
    """Fills `room` with the items that have a gain and a stratum, lowest strata first. Returns the number of strata."""
    start, a, n = span
    m = 0
    for i in clicked:
        b = items.stratum[a + i]
        if b < 0 or not items.gain[a + i] > 0.0:
            continue
        at = m
        while at > 0 and items.stratum[a + room.item[at - 1]] > b:
            room.item[at] = room.item[at - 1]
            at -= 1
        room.item[at] = i
        m += 1
    many = 0
    for c in range(m):
        room.above[c], room.level[c] = standing(key, start, n, room.item[c])
        if c == 0 or items.stratum[a + room.item[c]] != items.stratum[a + room.item[c - 1]]:
            room.begin[many] = c
            many += 1
    room.begin[many] = m
    return many


@numba.njit(cache=True, nogil=True)
def _ndcg(a: int, low: int, high: int, items: _Items, k: int, discount: NDArray[np.float64], room: _Room) -> float:
    """Returns NDCG at k of only the items low to high - 1 of `room`, within the full list, whose items begin at `a`."""
    terms = room.terms[: high - low]
    for c in range(low, high):
        gain = items.gain[a + room.item[c]]
        terms[c - low] = gain * mean_discount(room.above[c], room.level[c], k, discount)
    terms.sort()  # for a defined order of summation
    got = terms.sum()
    for c in range(low, high):
        terms[c - low] = items.gain[a + room.item[c]]
    terms.sort()
    ideal = 0.0
    for i in range(min(high - low, k)):
        ideal += terms[high - low - 1 - i] * (discount[i + 1] - discount[i])
    return got / ideal
