"""The piece of `pauc`: a pair's partial AUCs over a range of false positive rates, as sums over impressions.

Like the AUC's placements (see `placements`), it uses the curves of the stratum's own labels: with u the share of its
non-clicks that score above an impression, a click adds clip(high - u, 0, high - low), and a non-click the true positive
rate at clip(u, low, high), less the mean of that over the stratum's non-clicks (the partial placement values of He and
Escobar 2008, Statistics in Medicine 27:5291). The curve is a chord within a bin, also where the range ends inside it.
So the clicks' mean is exactly the partial area of the stratum, and equal scores differ by 0.
"""

from __future__ import annotations

from functools import partial

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.compare.ledger.curves import Labels
from streameval.compare.ledger.pieces import RowPiece
from streameval.compare.ledger.placements import OUT, Row, ScoreCodes, read_code
from streameval.sketches.blocks import BLOCKS, NO_ITEM, OF_ITEMS, OF_USERS, SCALE

PAUC = "pauc"

# cells by block of users, and by block of items: impressions, clicks, and how much higher the other version places
# clicks and non-clicks
P_N, P_Y, P_PHI1, P_PHI0 = range(4)
PAUC_CELLS = 4
P_USERS, P_ITEMS, P_SCALARS = 0, BLOCKS * PAUC_CELLS, 2 * BLOCKS * PAUC_CELLS
# scalars: the squares of these differences for clicks and for non-clicks, and the server's own placements
P_PHI1_SQ, P_PHI0_SQ, P_SERVER1, P_SERVER0 = range(P_SCALARS, P_SCALARS + 4)
PAUC_WIDTH = P_SCALARS + 4


def pauc_piece(low: float, high: float) -> RowPiece:
    """Returns the piece for false positive rates in [low, high]."""
    return RowPiece(
        PAUC,
        f"{PAUC} {low:.17g} {high:.17g}",
        PAUC_WIDTH,
        pairs=True,
        curves=partial(partial_curves, low=low, high=high),
        place=_place,
    )


def partial_curves(labels: Labels, low: float, high: float) -> NDArray[np.int32]:
    """Returns what an impression adds by part of a bin (see `placements`), int32[side, label, BINS] in units of 1 /
    SCALE, from labels int64[side, label, BINS].

    Without clicks a non-click adds 0, without non-clicks a click adds its expectation by chance, because nothing is
    known.
    """
    out = np.empty(labels.shape, np.int32)
    for side in range(len(labels)):
        _curve(labels[side, 0], labels[side, 1], low, high, out[side])
    return out


@numba.njit(cache=True, nogil=True)
def _rate(no: NDArray[np.int64], yes: NDArray[np.int64], at: float) -> float:
    """Returns the true positive rate at which `at` non-clicks score higher, on the chords; there must be a click."""
    others, clicks, total = 0.0, 0.0, float(yes.sum())
    for b in range(no.size - 1, -1, -1):
        if no[b] > 0 and others + no[b] >= at:
            return (clicks + yes[b] * (at - others) / no[b]) / total
        others += no[b]
        clicks += yes[b]
    return clicks / total


@numba.njit(cache=True, nogil=True)
def _curve(no: NDArray[np.int64], yes: NDArray[np.int64], low: float, high: float, out: NDArray[np.int32]) -> None:
    n, p = float(no.sum()), float(yes.sum())
    if n == 0.0 or p == 0.0:
        out[0], out[1] = 0, np.int32(np.rint((high * high - low * low) / 2.0 * SCALE))
        return
    at_low, at_high = _rate(no, yes, low * n), _rate(no, yes, high * n)
    worth, mean = np.empty(no.size), 0.0
    others, clicks = 0.0, 0.0
    for b in range(no.size - 1, -1, -1):
        begin, end = others / n, (others + no[b]) / n
        if no[b] == 0:
            click = min(max(high - begin, 0.0), high - low)
            rate = (clicks + yes[b] / 2.0) / p
            worth[b] = at_low if begin <= low else at_high if begin >= high else rate
        else:  # the mean over the bin, part of which may lie before or after the range
            before, after = max(min(end, low) - begin, 0.0), max(end - max(begin, high), 0.0)
            left, right = min(max(begin, low), high), min(max(end, low), high)
            middle = (left + right) / 2.0
            click = (before * (high - low) + (right - left) * (high - middle)) / (end - begin)
            rate = (clicks + yes[b] * (middle - begin) / (end - begin)) / p
            worth[b] = (before * at_low + (right - left) * rate + after * at_high) / (end - begin)
        out[1, b] = np.int32(np.rint(click * SCALE))
        mean += no[b] * worth[b] / n
        others += no[b]
        clicks += yes[b]
    for b in range(no.size):
        out[0, b] = np.int32(np.rint((worth[b] - mean) * SCALE))


@numba.njit(cache=True, nogil=True)
def _place(codes: ScoreCodes, curves: NDArray[np.int32], out: Row, column: int) -> None:
    """Adds the terms of scores to out[column:], the row of their pair."""
    for code in codes:
        sign = -1 if code & OUT else 1
        label, user, item, server_bin, other_bin = read_code(code)
        server = np.int64(curves[0, label, server_bin])
        d = np.int64(curves[1, label, other_bin]) - server
        real = d / SCALE
        for by in range(2):
            group = user if by == OF_USERS else item
            if by == OF_ITEMS and group == NO_ITEM:
                continue
            cell = column + (P_USERS if by == OF_USERS else P_ITEMS) + group * PAUC_CELLS
            out[cell + P_N] += sign
            out[cell + P_Y] += sign * label
            out[cell + P_PHI0 - label] += sign * d
        out[column + P_PHI0_SQ - label] += sign * np.int64(np.rint(real * real * SCALE))
        out[column + P_SERVER0 - label] += sign * server
