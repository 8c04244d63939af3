"""The auction itself: requests with all their candidates, run again under every version's scores at every operating point.

Rank score = bid * pClick^squash. The best candidates of at least the mainline reserve take the mainline's positions from the
top; those that follow and have at least the sidebar reserve take the sidebar's, which begin at position `mainline` however
full the mainline is. A placement is expected to get (Yi, Chen, Li, Sett and Yan, Predictive Model Performance: Offline and
Online Evaluations, KDD 2013, 4.6):

    rate of its (query, ad) * curve[position]    when the pair has a history (rate: its clicks over the curve it was shown at)
    reference[position]                          else

So the version that served, at its own operating point over its own log, gets exactly the clicks that were observed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.sketches.blocks import BLOCKS
from streameval.sketches.list_cells import GROUPS

# what is summed by version, operating point and block of users; clicks are expected ones, in units of 1 / CLICK_SCALE
# "served": requests that this version served itself, for who runs them to say
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
USER_GROUPS = GROUPS  # of blocks that stand together
THROUGH_CELLS = 2  # of a group: all expected clicks, and those in the mainline
_TOGETHER = 4  # rows that are added up at a time


class OperatingPoints(NamedTuple):
    """Where auctions are run: the places there are, and the lowest rank score of either block by operating point."""

    mainline: int  # positions from the top
    slots: int  # positions in all
    squash: float
    mainline_reserve: NDArray[np.float64]
    sidebar_reserve: NDArray[np.float64]


class Auctions(NamedTuple):
    """n requests: number r has the candidates indptr[r] to indptr[r + 1] - 1, of which equal rank scores keep this order."""

    indptr: NDArray[np.int64]  # [n + 1]
    block: NDArray[np.int8]  # [n] of the user
    bid: NDArray[np.float64]  # [candidates]
    pair: NDArray[np.int32]  # [candidates] number of the (query, ad)
    score: NDArray[np.float64]  # [versions, candidates]; NaN: this version did not score it


class ClickTables(NamedTuple):
    """What is known of clicks, by pair and by position."""

    rate: NDArray[np.floating[Any]]  # [pairs] clicks at a position of curve 1; NaN: no history
    curve: NDArray[np.float64]  # [slots]
    reference: NDArray[np.float64]  # [slots] clicks over impressions
    shown: NDArray[
        np.bool_
    ]  # [slots] whether anything was ever shown there; elsewhere the nearest such position stands in


_NO_RESIDUALS = np.zeros((1, USER_GROUPS), np.float32)
_OF_BLOCKS = BLOCKS * _CELLS
CELLS_OF_A_POINT = _OF_BLOCKS + USER_GROUPS * THROUGH_CELLS  # by block, then what comes through the tables by group


def run(requests: Auctions, tables: ClickTables, points: OperatingPoints) -> NDArray[np.int64]:
    """Sums int64[versions, operating points, blocks, AUCTION_CELLS]; a request counts for the versions that scored all its candidates.

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
    """int64[panes, versions, points, CELLS_OF_A_POINT]: the sums of `run`, with what labels add to expected clicks by way of the tables.

    `server`: the number of the version that served each request; none: no number of a version. `pane`: of each request, ascending from 0.
    `residuals` [slots + pairs, USER_GROUPS]: by how much leaving out a group of users changes what a placement is expected to get, the curve
    counting as given. First of positions: (the group's clicks - reference * its impressions) / the position's impressions; then of pairs
    with a history, whose numbers go on from there: (its clicks - rate * its impressions by the curve) / the others' impressions by the
    curve, which times the curve is for one placement. What comes through the tables is by group and THROUGH_CELLS, in the units of expected
    clicks (see `spread`). Sums of several calls add up, to the bit.
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
    """Fills `best` with the candidates of the highest rank scores in order, as many as it holds; -1: one has no score."""
    # unsigned: not asked whether they count from the end
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
    """Fills `sums` [panes, versions, points, CELLS_OF_A_POINT], which are zero, or without what is by group when there is no room for it.

    Until the end a point has what it adds to the point before: nothing where the same ads stand in the same places; and of what is by group
    first all cells of one kind, then those of the next.
    """
    indptr, block, bid, pair, scores = requests
    rate, curve, reference, shown = tables
    mainline, slots, squash, mainline_reserve, sidebar_reserve = points
    best, rank, level, known = np.empty(slots, np.int64), np.empty(slots), np.empty(slots), np.empty(slots, np.bool_)
    above, histories = np.zeros(slots + 1), np.zeros(slots + 1, np.int64)  # of the k best ones, the mainline's on top
    unused = np.zeros(slots + 1, np.int64)  # of the first k places
    unused[1:] = np.cumsum(~shown)
    versions, many, width = sums.shape[1:]
    flat = sums.ravel()  # one cell costs as much as a request's sums
    through = width > _OF_BLOCKS
    now, before = np.zeros(_CELLS, np.int64), np.zeros(_CELLS, np.int64)
    groups, rest = (
        residuals.shape[1],
        residuals.ravel(),
    )  # a number that is known here would have loops unrolled, cell after cell
    row, weight = np.zeros(slots + _TOGETHER, np.int64), np.zeros(slots + _TOGETHER, np.float32)
    every, own, owed = np.empty(groups, np.float32), np.empty(groups, np.float32), np.zeros(2 * groups, np.int64)
    for r in range(block.size):
        for v in range(versions):  # of one request in a row: what is known of its pairs is at hand
            first = (pane[r] * versions + v) * many * width
            at_block = first + np.int64(block[r]) * _CELLS
            flat[at_block + AUCTIONS_SERVED] += server[r] == v
            n = ranked(bid, scores[v], indptr[r], indptr[r + 1], squash, best, rank)
            if n < 0:
                continue
            flat[at_block + AUCTIONS_RUN] += 1
            for k in range(n):
                level[k] = rate[pair[best[k]]]
                known[k] = not np.isnan(level[k])
                histories[k + 1] = histories[k] + known[k]
                by_pair, by_position = level[k] * curve[k], reference[k]  # both, then one: nobody can predict which
                above[k + 1] = above[k] + (by_pair if known[k] else by_position)
            before[:], owed[:] = 0, 0
            let_in = 0
            for p in range(many):
                if p == 0 or sidebar_reserve[p] != sidebar_reserve[p - 1]:
                    let_in = _at_least(sidebar_reserve[p], rank, n)
                mainline_ads = _at_least(mainline_reserve[p], rank, min(n, mainline))
                ads = max(mainline_ads, min(let_in, mainline_ads + slots - mainline))
                if (mainline_ads, ads) == (before[MAINLINE_ADS], before[ADS]):
                    continue
                side, in_sidebar = 0.0, ads - mainline_ads
                for k in range(in_sidebar):
                    one, place = mainline_ads + k, mainline + k
                    by_pair, by_position = level[one] * curve[place], reference[place]
                    side += by_pair if known[one] else by_position
                now[EXPECTED_CLICKS] = np.int64(np.rint((above[mainline_ads] + side) * CLICK_SCALE))
                now[EXPECTED_MAINLINE] = np.int64(np.rint(above[mainline_ads] * CLICK_SCALE))
                now[MAINLINE_ADS], now[ADS], now[WITH_HISTORY] = mainline_ads, ads, histories[ads]
                now[EXTRAPOLATED] = unused[mainline_ads] + unused[mainline + in_sidebar] - unused[mainline]
                for cell in range(EXPECTED_CLICKS, AUCTIONS_SERVED):
                    flat[at_block + p * width + cell] += now[cell] - before[cell]
                    before[cell] = now[cell]
                if through:
                    for k in range(ads):
                        place = k if k < mainline_ads else mainline + k - mainline_ads
                        by_pair, of_pair = curve[place], np.int64(pair[best[k]])
                        row[k], weight[k] = of_pair if known[k] else place, np.float32(by_pair if known[k] else 1.0)
                    _owe(mainline_ads, ads, row, weight, rest, every, own)
                    _replace(every, own, owed, flat, first + p * width + _OF_BLOCKS)
    _settle(sums)


@numba.njit(inline="always")
def _at_least(reserve: float, rank: NDArray[np.float64], n: int) -> int:
    """How many of the first n rank scores, which fall, reach a reserve: counted, without a branch that nobody can predict."""
    found = 0
    for k in range(n):
        found += rank[k] >= reserve
    return found


@numba.njit(inline="always")
def _owe(
    mainline_ads: int,
    ads: int,
    row: NDArray[np.int64],
    weight: NDArray[np.float32],
    rest: NDArray[np.float32],
    every: NDArray[np.float32],
    own: NDArray[np.float32],
) -> None:
    """Writes what expected clicks of all ads and of those in the mainline owe to every group: weighted rows of `rest`, added up in their order.

    As many at a time as one pass over the groups has; those beyond the last weigh nothing.
    """
    many, nothing = np.uint64(every.size), np.float32(0.0)
    for k in range(ads, ads + _TOGETHER - 1):
        row[k], weight[k] = 0, nothing
    every[:], own[:] = nothing, nothing
    for k in range(0, ads, _TOGETHER):
        a, b, c, d = row[k], row[k + 1], row[k + 2], row[k + 3]
        of_a, of_b, of_c, of_d = weight[k], weight[k + 1], weight[k + 2], weight[k + 3]
        on_a, on_b, on_c = (
            np.float32(k < mainline_ads),
            np.float32(k + 1 < mainline_ads),
            np.float32(k + 2 < mainline_ads),
        )
        on_d = np.float32(k + 3 < mainline_ads)
        at_a, at_b, at_c, at_d = np.uint64(a) * many, np.uint64(b) * many, np.uint64(c) * many, np.uint64(d) * many
        for g in range(many):
            w, x, y, z = of_a * rest[at_a + g], of_b * rest[at_b + g], of_c * rest[at_c + g], of_d * rest[at_d + g]
            every[g] += (w + x) + (y + z)
            own[g] += (on_a * w + on_b * x) + (on_c * y + on_d * z)


@numba.njit(inline="always")
def _replace(
    every: NDArray[np.float32], own: NDArray[np.float32], owed: NDArray[np.int64], flat: NDArray[np.int64], at: int
) -> None:
    """Adds what is owed, less what was before, to cells from `at` on: of all ads, then of those in the mainline."""
    many, first = np.uint64(every.size), np.uint64(at)
    for g in range(many):
        new = np.int64(np.rint(np.float64(every[g]) * CLICK_SCALE))
        flat[first + g] += new - owed[g]
        owed[g] = new
    for g in range(many):
        new = np.int64(np.rint(np.float64(own[g]) * CLICK_SCALE))
        flat[first + many + g] += new - owed[many + g]
        owed[many + g] = new


@numba.njit(inline="always")
def _settle(sums: NDArray[np.int64]) -> None:
    """Every point with what the points before it have, its cells by group in the order of their tally."""
    panes, versions, many, width = sums.shape
    by_kind = np.empty(width - _OF_BLOCKS, np.int64)
    for one in range(panes):
        for v in range(versions):
            for p in range(1, many):
                sums[one, v, p] += sums[one, v, p - 1]
            for p in range(many):
                own = sums[one, v, p, _OF_BLOCKS:]
                by_kind[:] = own
                for kind in range(THROUGH_CELLS):
                    for g in range(own.size // THROUGH_CELLS):
                        own[g * THROUGH_CELLS + kind] = by_kind[kind * (own.size // THROUGH_CELLS) + g]
