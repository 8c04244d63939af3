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

from streameval.auction.ranks import RANKED_AT_A_TIME, ranked, room_for, squashed
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
    """n requests: number r has the candidates indptr[r] to indptr[r + 1] - 1. Of equal rank scores the lower position is
    first, then the lower item, then this order.
    """

    indptr: NDArray[np.int64]  # [n + 1]
    block: NDArray[np.int8]  # [n] of the user
    bid: NDArray[np.float64]  # [candidates]
    pair: NDArray[np.int32]  # [candidates] number of the (query, ad)
    score: NDArray[np.float64]  # [versions, candidates]; NaN: this version did not score it
    position: NDArray[np.float64]  # [candidates] infinite: not shown
    item: NDArray[np.uint64]  # [candidates]


class ClickTables(NamedTuple):
    """What is known about clicks, by pair and by position."""

    rate: NDArray[np.floating[Any]]  # [pairs] clicks at a position of curve 1; NaN: no history
    curve: NDArray[np.float64]  # [slots]
    reference: NDArray[np.float64]  # [slots] clicks over impressions
    shown: NDArray[np.bool_]  # [slots] whether anything was ever shown there; if not, the nearest such position is used


_NO_RESIDUALS = np.zeros((1, USER_GROUPS), np.float32)
_OF_BLOCKS = BLOCKS * _CELLS
_STEP = 4  # placements whose residuals are added at a time
_BEHIND = np.uint64(USER_GROUPS)  # a group's clicks in the mainline are so far behind all its clicks, until the end
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
    What the first m candidates get in the mainline is the same at every point: it is computed once, for every m.
    """
    indptr, block, bid, pair, scores, position, item = requests
    rate, curve, reference, shown = tables
    mainline, slots, squash, mainline_reserve, sidebar_reserve = points
    some = room_for(min(block.size, RANKED_AT_A_TIME), slots)
    best, rank, room = some.best.ravel(), some.rank.ravel(), some.rank.shape[1]
    residual, level = np.empty(slots, np.int64), np.empty(slots)
    flat, many, width = sums.ravel(), sums.shape[2], sums.shape[3]  # a view costs as much as a request's sums
    through = width > _OF_BLOCKS
    rest, room_of_groups = residuals.ravel(), (slots + _STEP) * USER_GROUPS
    clicks, histories, never = np.zeros(mainline + 1), np.zeros(slots + 1, np.int64), np.zeros(slots + 1, np.int64)
    for k in range(slots):
        never[k + 1] = never[k] + (not shown[k])
    row, weight = np.empty(slots + _STEP, np.int64), np.empty(slots + _STEP)
    above, beside, owed = (
        np.zeros(room_of_groups),
        np.zeros(room_of_groups),
        np.empty(THROUGH_CELLS * USER_GROUPS, np.int64),
    )
    now, before = np.zeros(_CELLS, np.int64), np.zeros(_CELLS, np.int64)
    score = squashed(scores, squash)
    for k in range(-(-block.size // RANKED_AT_A_TIME) * scores.shape[0]):
        start, v = k // scores.shape[0] * RANKED_AT_A_TIME, k % scores.shape[0]
        ranked(bid, score[v], position, item, indptr[start : start + RANKED_AT_A_TIME + 1], slots, some)
        for r in range(start, min(start + RANKED_AT_A_TIME, block.size)):
            first = (pane[r] * scores.shape[0] + v) * many * width
            at_block = first + np.int64(block[r]) * _CELLS
            flat[np.uint64(at_block + AUCTIONS_SERVED)] += server[r] == v
            n, at_best = some.many[r - start], np.uint64((r - start) * room)
            if n < 0:
                continue
            flat[np.uint64(at_block + AUCTIONS_RUN)] += 1
            _look_up(n, best, at_best, pair, rate, residual, level, histories)
            _expect_mainline(min(n, mainline), level, curve, reference, clicks)
            if through:
                _weigh((0, min(n, mainline)), 0, residual, level, curve, row, weight)
                _owe(min(n, mainline), row, weight, rest, above)
            before[:], owed[:], reaching = 0, 0, 0
            for p in range(many):
                if p == 0 or sidebar_reserve[p] != sidebar_reserve[p - 1]:
                    reaching = _reaching(rank, at_best, n, sidebar_reserve[p])
                mainline_ads = _reaching(rank, at_best, min(n, mainline), mainline_reserve[p])
                ads = max(mainline_ads, min(reaching, mainline_ads + slots - mainline))
                if (mainline_ads, ads) == (before[MAINLINE_ADS], before[ADS]):
                    continue
                of_sidebar = _expect_sidebar((mainline_ads, ads), level, curve, reference, mainline)
                now[EXPECTED_CLICKS] = np.int64(np.rint((clicks[mainline_ads] + of_sidebar) * CLICK_SCALE))
                now[EXPECTED_MAINLINE] = np.int64(np.rint(clicks[mainline_ads] * CLICK_SCALE))
                now[MAINLINE_ADS], now[ADS], now[WITH_HISTORY] = mainline_ads, ads, histories[ads]
                now[EXTRAPOLATED] = never[mainline_ads] + never[mainline + ads - mainline_ads] - never[mainline]
                for cell in range(EXPECTED_CLICKS, AUCTIONS_SERVED):
                    flat[np.uint64(at_block + p * width + cell)] += now[cell] - before[cell]
                    before[cell] = now[cell]
                if through:
                    _weigh((mainline_ads, ads), mainline - mainline_ads, residual, level, curve, row, weight)
                    _owe(ads - mainline_ads, row, weight, rest, beside)
                    at = np.uint64(first + p * width + _OF_BLOCKS)
                    top, side = np.uint64(mainline_ads * USER_GROUPS), np.uint64((ads - mainline_ads) * USER_GROUPS)
                    for g in range(np.uint64(USER_GROUPS)):
                        all_owed = np.int64(np.rint((above[top + g] + beside[side + g]) * CLICK_SCALE))
                        mainline_owed = np.int64(np.rint(above[top + g] * CLICK_SCALE))
                        flat[at + g] += all_owed - owed[g]
                        flat[at + _BEHIND + g] += mainline_owed - owed[_BEHIND + g]
                        owed[g], owed[_BEHIND + g] = all_owed, mainline_owed
    for one in range(sums.shape[0]):
        for v in range(scores.shape[0]):
            for p in range(1, many):
                sums[one, v, p] += sums[one, v, p - 1]
            if through:
                for p in range(many):
                    owed[:] = sums[one, v, p, _OF_BLOCKS:]
                    for g in range(USER_GROUPS):
                        to = _OF_BLOCKS + THROUGH_CELLS * g
                        sums[one, v, p, to], sums[one, v, p, to + 1] = owed[g], owed[USER_GROUPS + g]


# The functions below belong to `_run`. Indices are unsigned: they are not checked for counting from the end. Whether a
# pair has a history is unpredictable, so it selects a value, not a branch.


@numba.njit(inline="always")
def _reaching(rank: NDArray[np.float64], first: np.uint64, n: int, reserve: float) -> int:
    """Returns how many of the n best candidates have at least a reserve; their rank scores, from `first` on, descend."""
    ads = 0
    for k in range(np.uint64(n)):
        ads += rank[first + k] >= reserve
    return ads


@numba.njit(inline="always")
def _look_up(
    n: int,
    best: NDArray[np.int64],
    first: np.uint64,
    pair: NDArray[np.int32],
    rate: NDArray[np.floating[Any]],
    residual: NDArray[np.int64],
    level: NDArray[np.float64],
    histories: NDArray[np.int64],
) -> None:
    """Writes of the n best candidates, which `best` has from `first` on, where the residuals of their pairs are, their
    rates, and how many of the first so many have a history.
    """
    for k in range(np.uint64(n)):
        own = np.uint64(pair[np.uint64(best[first + k])])
        residual[k], level[k] = own * np.uint64(USER_GROUPS), rate[own]
        histories[k + np.uint64(1)] = histories[k] + (not np.isnan(level[k]))


@numba.njit(inline="always")
def _expect_mainline(
    n: int,
    level: NDArray[np.float64],
    curve: NDArray[np.float64],
    reference: NDArray[np.float64],
    clicks: NDArray[np.float64],
) -> None:
    """Writes the expected clicks of the first candidates in the mainline, for any number of them up to n."""
    for k in range(np.uint64(n)):
        of_pair, of_position = level[k] * curve[k], reference[k]
        clicks[k + np.uint64(1)] = clicks[k] + (of_position if np.isnan(level[k]) else of_pair)


@numba.njit(inline="always")
def _expect_sidebar(
    ads: tuple[int, int],
    level: NDArray[np.float64],
    curve: NDArray[np.float64],
    reference: NDArray[np.float64],
    mainline: int,
) -> float:
    """Returns the expected clicks in the sidebar; `ads`: how many are in the mainline, and how many in total."""
    total = 0.0
    for k in range(np.uint64(ads[0]), np.uint64(ads[1])):
        place = k + np.uint64(mainline - ads[0])
        of_pair, of_position = level[k] * curve[place], reference[place]
        total += of_position if np.isnan(level[k]) else of_pair
    return total


@numba.njit(inline="always")
def _weigh(
    ads: tuple[int, int],
    shift: int,
    residual: NDArray[np.int64],
    level: NDArray[np.float64],
    curve: NDArray[np.float64],
    row: NDArray[np.int64],
    weight: NDArray[np.float64],
) -> None:
    """Writes where the residuals of some placements are, and by what they are multiplied; weights of 0 follow, up to a
    whole step. The placements are of candidates ads[0] to ads[1] - 1, `shift` places further down.
    """
    for k in range(np.uint64(ads[0]), np.uint64(ads[1])):
        place, at, unknown = k + np.uint64(shift), k - np.uint64(ads[0]), np.isnan(level[k])
        row[at] = np.int64(place * np.uint64(USER_GROUPS)) if unknown else residual[k]
        weight[at] = 1.0 if unknown else curve[place]
    for k in range(np.uint64(_STEP - 1)):
        row[np.uint64(ads[1] - ads[0]) + k], weight[np.uint64(ads[1] - ads[0]) + k] = 0, 0.0


@numba.njit(inline="always")
def _owe(
    n: int, row: NDArray[np.int64], weight: NDArray[np.float64], rest: NDArray[np.float32], owed: NDArray[np.float64]
) -> None:
    """Writes how much of the expected clicks of the first placements is due to each group, for any number of them up
    to n; those of none are 0 already.

    Several placements in a step: the loop over groups is too long to be unrolled, which would be one cell after the
    other, and becomes vector instructions.
    """
    groups = np.uint64(USER_GROUPS)
    for k in range(np.uint64(0), np.uint64(n), np.uint64(_STEP)):
        a, b, c, d = row[k], row[k + np.uint64(1)], row[k + np.uint64(2)], row[k + np.uint64(3)]
        of_a, of_b, of_c, of_d = weight[k], weight[k + np.uint64(1)], weight[k + np.uint64(2)], weight[k + np.uint64(3)]
        at = k * groups
        for g in range(groups):
            one = owed[at + g] + of_a * rest[np.uint64(a) + g]
            two = one + of_b * rest[np.uint64(b) + g]
            three = two + of_c * rest[np.uint64(c) + g]
            owed[at + groups + g], owed[at + groups * np.uint64(2) + g] = one, two
            owed[at + groups * np.uint64(3) + g] = three
            owed[at + groups * np.uint64(4) + g] = three + of_d * rest[np.uint64(d) + g]
