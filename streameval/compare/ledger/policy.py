"""The piece of `policy_value`: the value that a pair's own policies would have earned, from impressions that both
versions scored.

For each version, an impression is weighted by the probability with which that version would have shown it (`policies`)
over its propensity. A serving version without a probability has that of the log: a weight of 1. Propensities below the
floor count as the floor. An impression without a propensity, or without the other version's probability, is not
counted.
"""

from __future__ import annotations

import math
from functools import partial

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.compare.ledger.pieces import PieceScores, RowPiece
from streameval.compare.ledger.snips import E_UNIT, HEAVIEST_WEIGHT, WEIGHT_CLASSES
from streameval.compare.ledger.sums import Matrix
from streameval.compare.ledger.wide_sums import REAL, SQUARE, add_real, add_square
from streameval.sketches.blocks import BLOCKS, NO_ITEM, OF_ITEMS, OF_USERS
from streameval.sketches.exposure import MOST_VALUE

OWN_POLICY = "policy_value"

# cells by block of users, and by block of items: impressions; weights of the server and of the other; weighted value
# for each
L_N, L_WEIGHT, L_WORTH = 0, 1, 3
POLICY_CELLS = 3 + 2 * REAL
L_USERS, L_ITEMS, L_MOMENTS = 0, BLOCKS * POLICY_CELLS, 2 * BLOCKS * POLICY_CELLS
# sums of pairwise products of: the server's weight and weighted value, the other's weight and weighted value
TERMS = 4
_OWN, _OTHER, _WORTH = 0, 2, 1  # terms of the server, of the other; from a weight to its weighted value
MOMENTS = tuple((i, j) for i in range(TERMS) for j in range(i, TERMS))
L_CLASSES = L_MOMENTS + SQUARE * len(MOMENTS)  # counts of weights by size, of the server, then of the other
POLICY_WIDTH = L_CLASSES + 2 * WEIGHT_CLASSES


def policy_piece(min_propensity: float) -> RowPiece:
    """`min_propensity`: the smallest propensity that is believed."""
    name = f"{OWN_POLICY} {min_propensity:.17g}"
    return RowPiece(OWN_POLICY, name, POLICY_WIDTH, pairs=True, add=partial(_add, min_propensity), values=True)


def _add(least: float, some: PieceScores, sums: Matrix, column: int) -> None:
    propensity, value, policies = some.fields.get("propensity"), some.fields.get("value"), some.policies
    if propensity is None or value is None or policies is None:
        return
    scores = some.scores.row, some.scores.series, some.scores.logged_at
    labels = some.labels.label, some.labels.block, some.labels.item, propensity, value
    given = policies.row, policies.series, policies.p
    _add_pairs((some.start, some.end, column, some.sign), least, scores, labels, given, some.row_of, sums)


@numba.njit(inline="always")
def _probability(row: NDArray[np.int32], series: NDArray[np.int32], p: NDArray[np.float64], i: int, who: int) -> float:
    """Returns the probability of a version at impression i; NaN if none is given."""
    j = np.searchsorted(row, i)
    while j < row.size and row[j] == i:
        if series[j] == who:
            return float(p[j])
        j += 1
    return np.nan


@numba.njit(cache=True, nogil=True)
def _add_pairs(
    span: tuple[int, int, int, int],
    least: float,
    scores: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]],
    labels: tuple[NDArray[np.int8], NDArray[np.int8], NDArray[np.int8], NDArray[np.float64], NDArray[np.float64]],
    policies: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float64]],
    row_of: NDArray[np.int32],
    sums: Matrix,
) -> None:
    start, end, column, sign = span
    row, series, logged_at = scores
    label, block, item, propensity, value = labels
    of_row, of_series, probability = policies
    x = np.empty(TERMS)
    for k in range(start, end):
        i = row[k]
        s = logged_at[i]
        if s < 0 or not propensity[i] > 0.0:
            continue
        r = row_of[series[s], series[k] + 1]
        if r < 0 or series[s] == series[k]:
            continue
        other = _probability(of_row, of_series, probability, i, series[k])
        if np.isnan(other):
            continue
        own = _probability(of_row, of_series, probability, i, series[s])
        shown = max(propensity[i], least)
        worth = min(max(value[i], 0.0), MOST_VALUE) if label[i] else 0.0
        x[_OWN] = 1.0 if np.isnan(own) else min(own / shown, HEAVIEST_WEIGHT)
        x[_OTHER] = min(other / shown, HEAVIEST_WEIGHT)
        x[_OWN + _WORTH], x[_OTHER + _WORTH] = x[_OWN] * worth, x[_OTHER] * worth
        for by in range(2):
            group = np.int64(block[i]) if by == OF_USERS else np.int64(item[i])
            if by == OF_ITEMS and group == NO_ITEM:
                continue
            cell = column + (L_USERS if by == OF_USERS else L_ITEMS) + group * POLICY_CELLS
            sums[r, cell + L_N] += sign
            for one in range(2):
                sums[r, cell + L_WEIGHT + one] += sign * np.int64(np.rint(x[_OTHER * one] * E_UNIT))
                add_real(sums, r, cell + L_WORTH + REAL * one, x[_OTHER * one + _WORTH], sign)
        at = column + L_MOMENTS
        for a in range(TERMS):
            for b in range(a, TERMS):
                add_square(sums, r, at, x[a] * x[b], sign)
                at += SQUARE
        for one in range(2):
            if x[_OTHER * one] > 0.0:
                part, exponent = math.frexp(max(x[_OTHER * one], 1.0))
                steps = (exponent - 1) * 4 + int((part * 2.0 - 1.0) * 4)
                sums[r, column + L_CLASSES + one * WEIGHT_CLASSES + steps] += sign
