"""The auction itself: requests with all their candidates, replayed under every version's scores at every operating
point.

Rank score = bid * pClick^squash. The best candidates with at least the mainline reserve take the mainline's positions
from the top; the following ones with at least the sidebar reserve take the sidebar's, which begin at position
`mainline` however full the mainline is. The expected clicks of a placement are (Yi, Chen, Li, Sett and Yan, Predictive
Model Performance: Offline and Online Evaluations, KDD 2013, 4.6):

    rate of its (query, ad) * curve[position]    if the pair has a history (rate: its clicks over the curve it was shown at)
    reference[position]                          otherwise

So the version that served, at its own operating point over its own log, gets exactly the clicks that were observed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.sketches.blocks import BLOCKS
from streameval.sketches.list_cells import GROUPS

# sums by version, operating point and block of users; clicks are expected ones, in units of 1 / CLICK_SCALE. "served":
# requests that this version served itself, filled in by the caller
AUCTION_CELLS = (
    "requests",
    "clicks",
    "mainline_clicks",
    "mainline_ads",
    "ads",
    "with_history",
    "extrapolated",
    "served",
)
AUCTIONS_RUN, EXPECTED_CLICKS, EXPECTED_MAINLINE, MAINLINE_ADS, ADS, WITH_HISTORY, EXTRAPOLATED, AUCTIONS_SERVED = (
    range(len(AUCTION_CELLS))
)
_CELLS = len(AUCTION_CELLS)
CLICK_SCALE = float(1 << 40)
USER_GROUPS = GROUPS  # of adjacent blocks
THROUGH_CELLS = 2  # per group: all expected clicks, and those in the mainline


class OperatingPoints(NamedTuple):
    """The rules of auctions: the positions available, and the lowest rank score in mainline and sidebar by operating
    point.
    """

    mainline: int  # positions from the top
    slots: int  # positions in total
    squash: float
    mainline_reserve: NDArray[np.float64]
    sidebar_reserve: NDArray[np.float64]


class Auctions(NamedTuple):
    """n requests: number r has the candidates indptr[r] to indptr[r + 1] - 1; ties in rank score keep this order."""

    indptr: NDArray[np.int64]  # [n + 1]
    block: NDArray[np.int8]  # [n] of the user
    bid: NDArray[np.float64]  # [candidates]
    pair: NDArray[np.int32]  # [candidates] number of the (query, ad)
    score: NDArray[np.float64]  # [versions, candidates]; NaN: this version did not score it


class ClickTables(NamedTuple):
    """What is known about clicks, by pair and by position."""

    rate: NDArray[np.floating[Any]]  # [pairs] clicks at a position of curve 1; NaN: no history
    curve: NDArray[np.float64]  # [slots]
    reference: NDArray[np.float64]  # [slots] clicks over impressions
    shown: NDArray[np.bool_]  # [slots] whether anything was ever shown there; if not, the nearest such position is used


_NO_RESIDUALS = np.zeros((1, USER_GROUPS), np.float32)
_OF_BLOCKS = BLOCKS * _CELLS
CELLS_OF_A_POINT = _OF_BLOCKS + USER_GROUPS * THROUGH_CELLS  # by block, then the effects through the tables by group


def run(requests: Auctions, tables: ClickTables, points: OperatingPoints) -> NDArray[np.int64]:
    """Returns sums int64[versions, operating points, blocks, AUCTION_CELLS]; a request counts for the versions that
    scored all its candidates.

    Sums of several calls add up.
    """
    sums = np.zeros((1, len(requests.score), points.mainline_reserve.size, _OF_BLOCKS), np.int64)
    number = requests.block.size
    _run(requests, np.full(number, -1), np.zeros(number, np.int64), tables, points, residuals=_NO_RESIDUALS, sums=sums)
    return sums.reshape(*sums.shape[1:3], BLOCKS, _CELLS)


def run_through(
    requests: Auctions,
    server: NDArray[np.int64],
    pane: NDArray[np.int64],
    tables: ClickTables,
    points: OperatingPoints,
    residuals: NDArray[np.float32],
) -> NDArray[np.int64]:
    """Returns int64[panes, versions, points, CELLS_OF_A_POINT]: the sums of `run`, with the effect of labels on
    expected clicks through the tables.

    `server`: the number of the version that served each request, or a number that no version has. `pane`: of each
    request, ascending from 0. `residuals` [slots + pairs, USER_GROUPS]: by how much leaving out a group of users
    changes a placement's expected clicks, with the curve as given. The first rows are those of positions: (the group's
    clicks - reference * its impressions) / the position's impressions; then come those of pairs with a history: (its
    clicks - rate * its impressions by the curve) / the others' impressions by the curve, to be multiplied by the curve
    at the placement. The effects through the tables are by group and THROUGH_CELLS, in the units of expected clicks
    (see `spread`). Sums of several calls add up, to the bit.
    """
    panes = pane[-1] + 1 if pane.size else 0
    sums = np.zeros((panes, len(requests.score), points.mainline_reserve.size, CELLS_OF_A_POINT), np.int64)
    _run(requests, server, pane, tables, points, residuals, sums)
    return sums


@numba.njit(cache=True, nogil=True)
def ranked(
    bid: NDArray[np.float64],
    score: NDArray[np.float64],
    start: int,
    end: int,
    squash: float,
    best: NDArray[np.int64],
    rank: NDArray[np.float64],
) -> int:
    """Fills `best` with the candidates of the highest rank scores in order, as many as it holds; returns their number,
    or -1 if one has no score.
    """
    # unsigned: not checked for counting from the end
    n, most, one = np.uint64(0), np.uint64(best.size), np.uint64(1)
    for j in range(np.uint64(start), np.uint64(end)):
        p = score[j]
        if np.isnan(p):
            return -1
        value = bid[j] * (p if squash == 1.0 else p**squash)
        if n < most:
            n += one
        elif not rank[most - one] < value:
            continue
        at = n - one
        while at > 0 and rank[at - one] < value:  # of equal ones the first stays in front
            best[at], rank[at] = best[at - one], rank[at - one]
            at -= one
        best[at], rank[at] = j, value
    return int(n)


@numba.njit(cache=True, nogil=True)
def _run(
    requests: Auctions,
    server: NDArray[np.int64],
    pane: NDArray[np.int64],
    tables: ClickTables,
    points: OperatingPoints,
    residuals: NDArray[np.float32],
    sums: NDArray[np.int64],
) -> None:
    """Fills `sums` [panes, versions, points, CELLS_OF_A_POINT], which must be zero, without the cells by group if there
    is no room for them.

    Until the end, a point holds its difference to the previous point: nothing if the same ads are in the same places.
    """
    indptr, block, bid, pair, scores = requests
    rate, curve, reference, shown = tables
    mainline, slots, squash, mainline_reserve, sidebar_reserve = points
    best, rank, level, known = np.empty(slots, np.int64), np.empty(slots), np.empty(slots), np.empty(slots, np.bool_)
    flat, many, width = sums.ravel(), sums.shape[2], sums.shape[3]  # a view costs as much as a request's sums
    through = width > _OF_BLOCKS
    now, before = np.zeros(_CELLS, np.int64), np.zeros(_CELLS, np.int64)
    groups, rest = (
        residuals.shape[1],
        residuals.ravel(),
    )  # if this number were known at compile time, the loops would be unrolled, one cell after the other
    above, side, owed = np.empty(groups), np.empty(groups), np.zeros((THROUGH_CELLS, groups), np.int64)
    for v in range(scores.shape[0]):
        score = scores[v]
        for r in range(block.size):
            first = (pane[r] * scores.shape[0] + v) * many * width
            at_block = first + np.int64(block[r]) * _CELLS
            flat[at_block + AUCTIONS_SERVED] += server[r] == v
            n = ranked(bid, score, indptr[r], indptr[r + 1], squash, best, rank)
            if n < 0:
                continue
            flat[at_block + AUCTIONS_RUN] += 1
            for k in range(n):
                level[k] = rate[pair[best[k]]]
                known[k] = not np.isnan(level[k])
            before[:], owed[:] = 0, 0
            for p in range(many):
                ads = _placed(rank, n, mainline, slots, mainline_reserve[p], sidebar_reserve[p])
                if ads == (before[MAINLINE_ADS], before[ADS]):
                    continue
                _expect(ads, level, known, curve, reference, shown, mainline, now)
                for cell in range(EXPECTED_CLICKS, AUCTIONS_SERVED):
                    flat[at_block + p * width + cell] += now[cell] - before[cell]
                    before[cell] = now[cell]
                if through:
                    _owe(ads, best, known, pair, curve, rest, mainline, above=above, side=side)
                    at = np.uint64(first + p * width + _OF_BLOCKS)  # unsigned: not checked for counting from the end
                    for g in range(above.size):
                        all_owed = np.int64(np.rint((above[g] + side[g]) * CLICK_SCALE))
                        mainline_owed = np.int64(np.rint(above[g] * CLICK_SCALE))
                        place = at + np.uint64(THROUGH_CELLS * g)
                        flat[place] += all_owed - owed[0, g]
                        flat[place + np.uint64(1)] += mainline_owed - owed[1, g]
                        owed[0, g], owed[1, g] = all_owed, mainline_owed
    for one in range(sums.shape[0]):
        for v in range(scores.shape[0]):
            for p in range(1, many):
                sums[one, v, p] += sums[one, v, p - 1]


@numba.njit(inline="always")
def _placed(
    rank: NDArray[np.float64], n: int, mainline: int, slots: int, mainline_reserve: float, sidebar_reserve: float
) -> tuple[int, int]:
    """Returns how many of the n best candidates are in the mainline at an operating point, and how many are shown in
    total.

    Their rank scores are descending, so those of at least a reserve are counted: without a branch, which would be
    unpredictable.
    """
    mainline_ads = ads = 0
    for k in range(min(n, mainline)):
        mainline_ads += rank[k] >= mainline_reserve
    for k in range(n):
        ads += rank[k] >= sidebar_reserve
    return mainline_ads, max(mainline_ads, min(ads, mainline_ads + slots - mainline))


@numba.njit(inline="always")
def _expect(
    ads: tuple[int, int],
    level: NDArray[np.float64],
    known: NDArray[np.bool_],
    curve: NDArray[np.float64],
    reference: NDArray[np.float64],
    shown: NDArray[np.bool_],
    mainline: int,
    cells: NDArray[np.int64],
) -> None:
    """Writes the expected clicks and counts of the best candidates in their places; `ads`: see `_placed`."""
    mainline_ads, many = ads
    above = side = 0.0
    histories = extrapolated = 0
    for k in range(many):
        place = k if k < mainline_ads else mainline + k - mainline_ads
        histories += known[k]
        extrapolated += not shown[place]
        expected = level[k] * curve[place] if known[k] else reference[place]
        if k < mainline_ads:
            above += expected
        else:
            side += expected
    cells[EXPECTED_CLICKS] = np.int64(np.rint((above + side) * CLICK_SCALE))
    cells[EXPECTED_MAINLINE] = np.int64(np.rint(above * CLICK_SCALE))
    cells[MAINLINE_ADS], cells[ADS] = mainline_ads, many
    cells[WITH_HISTORY], cells[EXTRAPOLATED] = histories, extrapolated


@numba.njit(inline="always")
def _owe(
    ads: tuple[int, int],
    best: NDArray[np.int64],
    known: NDArray[np.bool_],
    pair: NDArray[np.int32],
    curve: NDArray[np.float64],
    rest: NDArray[np.float32],
    mainline: int,
    above: NDArray[np.float64],
    side: NDArray[np.float64],
) -> None:
    """Writes how much of the best candidates' expected clicks is due to each group, for those in the mainline and for
    the others.

    `ads`: how many of them are in the mainline, and how many in total.
    """
    mainline_ads, many = ads
    groups = above.size
    above[:], side[:] = 0.0, 0.0
    for k in range(many):
        place = k if k < mainline_ads else mainline + k - mainline_ads
        terms = above if k < mainline_ads else side
        if known[k]:
            own, weight = np.uint64(pair[best[k]] * groups), curve[place]
            for g in range(groups):
                terms[g] += weight * rest[own + np.uint64(g)]
        else:
            own = np.uint64(place * groups)
            for g in range(groups):
                terms[g] += rest[own + np.uint64(g)]
