"""How much every block of users contributes to expected clicks through the tables: the part of an error that the
requests do not show.

A placement's expected clicks are a pair's rate times the curve, or a position's reference, and both are clicks of the
same users. Leaving out block g changes them by about - sum over its impressions shown of

    W_i / chance_i * (click - rate_i curve_k)    pairs i with a history: W_i is the curve summed over i's placements
    U_k / impressions_k * (click - reference_k)  positions k: U_k placements there of pairs without one

(the infinitesimal jackknife of Jaeckel 1972, with the curve as given). Over all blocks these sum to 0, so values do not
change. For the version that served, at its own operating point, W_i = chance_i, and the sum is the block's clicks.

For a stream both sums use the tables at the start of the hour, by group of users (see `rerun.run_through`): they are
added up request by request, with the placements, so panes and windows contain them like the yields, and a label that
many hours' tables include counts in each of them.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.auction.gather import Book
from streameval.auction.ranks import RANKED_AT_A_TIME, ranked, room_for, squashed
from streameval.auction.rerun import (
    AUCTION_CELLS,
    CLICK_SCALE,
    EXPECTED_CLICKS,
    EXPECTED_MAINLINE,
    Auctions,
    ClickTables,
    OperatingPoints,
)
from streameval.sketches.blocks import BLOCKS


def through_tables(book: Book, tables: ClickTables, points: OperatingPoints) -> NDArray[np.int64]:
    """Returns the effect of the blocks' labels on expected clicks through the tables, int64[versions, points, blocks,
    AUCTION_CELLS].

    In the units of `rerun.run`, only for errors. `tables`: of this book.
    """
    block = book.auctions.block[book.request].astype(np.int64)
    curve, clicked = tables.curve[book.position], book.clicked.astype(np.float64)
    chance = np.bincount(book.pair, weights=curve, minlength=book.pairs)
    impressions = np.bincount(book.position, minlength=points.slots)
    of_pair = clicked - np.nan_to_num(tables.rate)[book.pair] * curve
    of_position = clicked - tables.reference[book.position]
    versions = len(book.auctions.score)
    out = np.zeros((versions, points.mainline_reserve.size, BLOCKS, len(AUCTION_CELLS)), np.int64)
    for v in range(versions):
        for p in range(points.mainline_reserve.size):
            weight, unknown = np.zeros((2, book.pairs)), np.zeros((2, points.slots))
            _placements(book.auctions, tables, points, v, p, weight, unknown)
            np.divide(weight, chance, out=weight, where=chance > 0)
            unknown /= np.maximum(impressions, 1)
            for number, cell in enumerate((EXPECTED_CLICKS, EXPECTED_MAINLINE)):
                terms = weight[number][book.pair] * of_pair + unknown[number][book.position] * of_position
                found = np.bincount(block, weights=terms, minlength=BLOCKS)
                out[v, p, :, cell] = np.rint(found * CLICK_SCALE).astype(np.int64)
    return out


@numba.njit(cache=True, nogil=True)
def _placements(
    requests: Auctions,
    tables: ClickTables,
    points: OperatingPoints,
    v: int,
    p: int,
    weight: NDArray[np.float64],
    unknown: NDArray[np.float64],
) -> None:
    """Adds the curve by pair with a history, and placements by position of the others: for all places, and for the
    mainline.
    """
    indptr, block, bid, pair, scores, position, item = requests
    rate, curve, _, _ = tables
    mainline, slots, squash, mainline_reserve, sidebar_reserve = points
    some, score = room_for(min(block.size, RANKED_AT_A_TIME), slots), squashed(scores[v], squash)
    for r in range(block.size):
        own = r % RANKED_AT_A_TIME
        if own == 0:
            ranked(bid, score, position, item, indptr[r : r + RANKED_AT_A_TIME + 1], slots, some)
        n, best, rank = some.many[own], some.best[own], some.rank[own]
        mainline_ads = 0
        for k in range(n):
            in_mainline = k == mainline_ads and k < mainline and rank[k] >= mainline_reserve[p]
            place = k if in_mainline else mainline + k - mainline_ads
            if not in_mainline and (rank[k] < sidebar_reserve[p] or place >= slots):
                break
            mainline_ads += in_mainline
            one = pair[best[k]]
            for number in range(2 if in_mainline else 1):
                if np.isnan(rate[one]):
                    unknown[number, place] += 1.0
                else:
                    weight[number, one] += curve[place]
