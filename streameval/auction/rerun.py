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


class Residuals(NamedTuple):
    """By how much leaving out a group of users changes what a placement is expected to get, the curve counting as given.

    `of_pair`, of pairs with a history: (its clicks - rate * its impressions by the curve) / the others' impressions by the curve, which
    times the curve is for one placement. `of_position`: (its clicks - reference * its impressions) / the position's impressions.
    """

    of_pair: NDArray[np.float64]  # [pairs, USER_GROUPS]
    of_position: NDArray[np.float64]  # [slots, USER_GROUPS]


_NO_RESIDUALS = Residuals(np.empty((0, USER_GROUPS)), np.empty((0, USER_GROUPS)))
_OF_BLOCKS = BLOCKS * _CELLS
CELLS_OF_A_POINT = _OF_BLOCKS + USER_GROUPS * THROUGH_CELLS  # by block, then what comes through the tables by group


def run(requests: Auctions, tables: ClickTables, points: OperatingPoints) -> NDArray[np.int64]:
    """Sums int64[versions, operating points, blocks, AUCTION_CELLS]; a request counts for the versions that scored all its candidates.

    Sums of several calls add up.
    """
    sums = np.zeros((len(requests.score), points.mainline_reserve.size, _OF_BLOCKS), np.int64)
    _run(requests, np.full(requests.block.size, -1), tables, points, _NO_RESIDUALS, sums)
    return sums.reshape(*sums.shape[:2], BLOCKS, _CELLS)


def run_through(
    requests: Auctions, server: NDArray[np.int64], tables: ClickTables, points: OperatingPoints, rest: Residuals
) -> NDArray[np.int64]:
    """int64[versions, points, CELLS_OF_A_POINT]: the sums of `run`, with what labels add to expected clicks by way of the tables.

    `server`: the number of the version that served each request; none: no number of a version. What comes through the tables is by
    group and THROUGH_CELLS, in the units of expected clicks (see `spread`). Sums of several calls add up, to the bit.
    """
    sums = np.zeros((len(requests.score), points.mainline_reserve.size, CELLS_OF_A_POINT), np.int64)
    _run(requests, server, tables, points, rest, sums)
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
    n = 0
    for j in range(start, end):
        p = score[j]
        if np.isnan(p):
            return -1
        value = bid[j] * (p if squash == 1.0 else p**squash)
        at = n
        while at > 0 and rank[at - 1] < value:  # of equal ones the first stays in front
            at -= 1
        if at == best.size:
            continue
        n = min(n + 1, best.size)
        for k in range(n - 1, at, -1):
            best[k], rank[k] = best[k - 1], rank[k - 1]
        best[at], rank[at] = j, value
    return n


@numba.njit(cache=True, nogil=True)
def _run(
    requests: Auctions,
    server: NDArray[np.int64],
    tables: ClickTables,
    points: OperatingPoints,
    rest: Residuals,
    sums: NDArray[np.int64],
) -> None:
    """Adds to `sums` [versions, points, CELLS_OF_A_POINT], or without what is by group when there is no room for it."""
    indptr, block, bid, pair, scores = requests
    rate, curve, reference, shown = tables
    mainline, slots, squash, mainline_reserve, sidebar_reserve = points
    best, rank, level, known = np.empty(slots, np.int64), np.empty(slots), np.empty(slots), np.empty(slots, np.bool_)
    flat, many, width = sums.ravel(), mainline_reserve.size, sums.shape[2]  # one cell costs as much as a request's sums
    through = width > _OF_BLOCKS
    groups = rest.of_pair.shape[1]  # a number that is known here would have loops unrolled, one cell after the other
    terms, owed = np.empty((THROUGH_CELLS, USER_GROUPS)), np.empty(THROUGH_CELLS * USER_GROUPS, np.int64)
    for v in range(scores.shape[0]):
        score = scores[v]
        for r in range(block.size):
            first = v * many * width
            at_block = first + np.int64(block[r]) * _CELLS
            for p in range(many if server[r] == v else 0):
                flat[at_block + p * width + AUCTIONS_SERVED] += 1
            n = ranked(bid, score, indptr[r], indptr[r + 1], squash, best, rank)
            for k in range(n):
                level[k] = rate[pair[best[k]]]
                known[k] = not np.isnan(level[k])
            before = -1, -1
            clicks, mainline_clicks = np.int64(0), np.int64(0)
            histories = extrapolated = 0
            for p in range(many if n >= 0 else 0):
                mainline_ads = 0
                while mainline_ads < min(n, mainline) and rank[mainline_ads] >= mainline_reserve[p]:
                    mainline_ads += 1
                ads = mainline_ads
                while ads < min(n, mainline_ads + slots - mainline) and rank[ads] >= sidebar_reserve[p]:
                    ads += 1
                if before != (mainline_ads, ads):  # else the same ads stand in the same places as at the point before
                    before = mainline_ads, ads
                    above = side = 0.0
                    histories = extrapolated = 0
                    for k in range(ads):
                        place = k if k < mainline_ads else mainline + k - mainline_ads
                        histories += known[k]
                        extrapolated += not shown[place]
                        expected = level[k] * curve[place] if known[k] else reference[place]
                        if k < mainline_ads:
                            above += expected
                        else:
                            side += expected
                    clicks = np.int64(np.rint((above + side) * CLICK_SCALE))
                    mainline_clicks = np.int64(np.rint(above * CLICK_SCALE))
                    if through:
                        _owe(before, best, known, pair, curve, rest, mainline, terms=terms, owed=owed, groups=groups)
                at = at_block + p * width
                flat[at + AUCTIONS_RUN] += 1
                flat[at + EXPECTED_CLICKS] += clicks
                flat[at + EXPECTED_MAINLINE] += mainline_clicks
                flat[at + MAINLINE_ADS] += mainline_ads
                flat[at + ADS] += ads
                flat[at + WITH_HISTORY] += histories
                flat[at + EXTRAPOLATED] += extrapolated
                if through:
                    at = first + p * width + _OF_BLOCKS
                    for cell in range(THROUGH_CELLS * groups):
                        flat[at + cell] += owed[cell]


@numba.njit(inline="always")
def _owe(
    ads: tuple[int, int],
    best: NDArray[np.int64],
    known: NDArray[np.bool_],
    pair: NDArray[np.int32],
    curve: NDArray[np.float64],
    rest: Residuals,
    mainline: int,
    terms: NDArray[np.float64],
    owed: NDArray[np.int64],
    groups: int,
) -> None:
    """Writes what expected clicks of the best candidates owe to every group, of all places and of the mainline.

    `ads`: how many of them stand in the mainline, and how many in all.
    """
    mainline_ads, many = ads
    terms[:] = 0.0
    for k in range(many):
        place = k if k < mainline_ads else mainline + k - mainline_ads
        block = 0 if k < mainline_ads else 1
        if known[k]:
            own, weight = pair[best[k]], curve[place]
            for g in range(groups):
                terms[block, g] += weight * rest.of_pair[own, g]
        else:
            for g in range(groups):
                terms[block, g] += rest.of_position[place, g]
    for g in range(groups):
        owed[THROUGH_CELLS * g] = np.int64(np.rint((terms[0, g] + terms[1, g]) * CLICK_SCALE))
        owed[THROUGH_CELLS * g + 1] = np.int64(np.rint(terms[0, g] * CLICK_SCALE))
