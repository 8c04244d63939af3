"""The piece of `log_loss_snips`: a pair's log losses as if everything had been shown equally often, with weight 1 /
propensity.

Propensities below the floor count as the floor, and weights are at most 2**20. Capacity: by block, sums of weights and
of weighted losses are in units of 2**-20, with terms up to 2**20 * 16.2 nats, 5e5 of these (5e7 at weights of 1e4). A
sum of squares has two cells, the whole numbers and the rest in units of 2**-30, with terms up to 2.9e14. Impressions
without a propensity are not counted.
"""

from __future__ import annotations

import math
from functools import partial

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.compare.ledger.pieces import PieceScores, RowPiece
from streameval.compare.ledger.sums import Matrix, log_odds_ratio, promised_variance
from streameval.sketches.blocks import BLOCKS, NO_ITEM, OF_ITEMS, OF_USERS
from streameval.sketches.weight_classes import weight_class

E_UNIT, E_REST = float(1 << 20), float(1 << 30)
HEAVIEST_WEIGHT = float(1 << 20)
SNIPS = "log_loss_snips"

# cells by block of users, and by block of items: weight, weight times the server's log loss, and weight times the
# other's excess
E_WEIGHT, E_LOSS, E_D = range(3)
SNIPS_CELLS = 3
# scalars: impressions; then sums of squares, two cells each: weight squared times 1, d * d, d * loss, loss * loss, and
# the variance of d implied by the scores
E_N, E_FIRST = 0, 1
E_SQUARES = 5
E_WW, E_DD, E_DL, E_LL, E_PROMISED = range(E_SQUARES)
SNIPS_SCALARS = E_FIRST + 2 * E_SQUARES
CLASS_BITS = 2  # classes of weights: four to the octave
WEIGHT_CLASSES = (20 << CLASS_BITS) + 1
E_USERS, E_ITEMS = 0, BLOCKS * SNIPS_CELLS
E_SCALARS = 2 * BLOCKS * SNIPS_CELLS
E_CLASSES = E_SCALARS + SNIPS_SCALARS
SNIPS_WIDTH = E_CLASSES + WEIGHT_CLASSES


def snips_piece(min_propensity: float) -> RowPiece:
    """`min_propensity`: the smallest propensity that is believed."""
    add = partial(_add, min_propensity)
    return RowPiece(SNIPS, f"{SNIPS} {min_propensity:.17g}", SNIPS_WIDTH, pairs=True, add=add)


def _add(least: float, some: PieceScores, sums: Matrix, column: int) -> None:
    propensity = some.fields.get("propensity")
    if propensity is None:  # a table without such a column
        return
    row, series, p, loss, _, logged_at = some.scores
    scores = row, series, p, loss, logged_at
    users = some.labels.block, some.labels.item
    _add_pairs((some.start, some.end, column, some.sign), scores, users, propensity, least, some.row_of, sums)


@numba.njit(inline="always")
def _square(sums: Matrix, r: int, at: int, value: float, sign: int) -> None:
    whole = math.floor(value)
    sums[r, at] += sign * np.int64(whole)
    sums[r, at + 1] += sign * np.int64(np.rint((value - whole) * E_REST))


@numba.njit(cache=True, nogil=True)
def _add_pairs(
    span: tuple[int, int, int, int],
    scores: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float64], NDArray[np.float64], NDArray[np.int32]],
    users: tuple[NDArray[np.int8], NDArray[np.int8]],
    propensity: NDArray[np.float64],
    least: float,
    row_of: NDArray[np.int32],
    sums: Matrix,
) -> None:
    start, end, column, sign = span
    row, series, p, loss, logged_at = scores
    block, item = users
    for k in range(start, end):
        i = row[k]
        s = logged_at[i]
        if s < 0 or not propensity[i] > 0.0:
            continue
        r = row_of[series[s], series[k] + 1]
        if r < 0 or series[s] == series[k]:
            continue
        w = min(1.0 / max(propensity[i], least), HEAVIEST_WEIGHT)
        d, own = loss[k] - loss[s], loss[s]
        weight, weighted = np.int64(np.rint(w * E_UNIT)), np.int64(np.rint(w * own * E_UNIT))
        more = np.int64(np.rint(w * d * E_UNIT))
        for by in range(2):
            group = np.int64(block[i]) if by == OF_USERS else np.int64(item[i])
            if by == OF_ITEMS and group == NO_ITEM:
                continue
            cell = column + (E_USERS if by == OF_USERS else E_ITEMS) + group * SNIPS_CELLS
            sums[r, cell + E_WEIGHT] += sign * weight
            sums[r, cell + E_LOSS] += sign * weighted
            sums[r, cell + E_D] += sign * more
        sums[r, column + E_SCALARS + E_N] += sign
        at = column + E_SCALARS + E_FIRST
        ww = w * w
        _square(sums, r, at + 2 * E_WW, ww, sign)
        _square(sums, r, at + 2 * E_DD, ww * d * d, sign)
        _square(sums, r, at + 2 * E_DL, ww * d * own, sign)
        _square(sums, r, at + 2 * E_LL, ww * own * own, sign)
        _square(sums, r, at + 2 * E_PROMISED, ww * promised_variance(p[s], p[k], log_odds_ratio(p[s], p[k])), sign)
        sums[r, column + E_CLASSES + weight_class(w, CLASS_BITS)] += sign
