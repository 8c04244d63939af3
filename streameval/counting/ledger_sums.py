"""The kernels of the ledger: one pass over the scores of a pane adds them to every sum that they count in.

A row is what a version that served has, or a pair; a part is a row's share in one slice value, or in one bucket of
the serving pClick; a level is what a version served in such a bucket, by block of users. Rows and parts are numbered as they are first seen. A kernel stops before a score that has no numbers yet, and
goes on there once the caller has given them out (`new_rows`, `new_parts`); so nothing is looked up twice.
"""

from __future__ import annotations

import math

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.counting.placements import APART, ITEMS, SCALARS, WIDTH, code_of
from streameval.sketches import blocks
from streameval.sketches.accumulate import CLIP, log_loss
from streameval.sketches.blocks import BLOCKS, NO_ITEM, PAIR_CELLS, SCALE, SERIES_CELLS

__all__ = ["ITEMS", "SCALARS", "WIDTH"]  # of a row
STRICT = 2.0  # nats: the strict mode takes odds to be within a factor e**STRICT of each other
_MOST_ODDS = math.exp(STRICT)

# a part of a pair: N by block, D by block, then clicks and the sum of squares of D
PART_N, PART_D = 0, BLOCKS
PART_Y, PART_D_SQ = 2 * BLOCKS, 2 * BLOCKS + 1
PART_WIDTH = 2 * BLOCKS + 2
# and of a version that served
SERVED_N, SERVED_Y, SERVED_P, SERVED_L, SERVED_L_SQ, SERVED_L_Y = range(6)  # the last: log loss of the clicks
SERVED_WIDTH = 6
# a level: N, Y and P by block
LEVEL_N, LEVEL_Y, LEVEL_P = 0, BLOCKS, 2 * BLOCKS
LEVEL_WIDTH = 3 * BLOCKS

Matrix = NDArray[np.int64]


@numba.njit(inline="always")
def _fixed(x: float) -> int:
    return int(np.rint(x * SCALE))


@numba.njit(inline="always")
def strict_difference(p_served: float, p: float, clicked: int, loss: float, d: float) -> float:
    """`d`, the difference in log loss, as if the other's odds were within a factor e**STRICT of the server's."""
    a, b = min(max(p_served, CLIP), 1.0 - CLIP), min(max(p, CLIP), 1.0 - CLIP)
    odds = a / (1.0 - a)
    if b > _MOST_ODDS * odds * (1.0 - b):
        odds *= _MOST_ODDS
    elif _MOST_ODDS * b < odds * (1.0 - b):
        odds /= _MOST_ODDS
    else:
        return d
    return log_loss(odds / (1.0 + odds), clicked) - loss


@numba.njit(inline="always")
def promised_variance(a: float, b: float) -> float:
    """The variance of the difference in log loss of pClicks a and b that they promise themselves, nats squared.

    p (1 - p) (logit a - logit b)**2 with p the larger one: a click that one of them all but rules out is seen coming before
    it has come.
    """
    a, b = min(max(a, CLIP), 1.0 - CLIP), min(max(b, CLIP), 1.0 - CLIP)
    p = max(a, b)
    shift = math.log(a * (1.0 - b) / (b * (1.0 - a)))
    return p * (1.0 - p) * shift * shift


@numba.njit(cache=True, nogil=True)
def values_of(
    slices: NDArray[np.int64],
    at: NDArray[np.int32],
    p: NDArray[np.float64],
    edges: NDArray[np.float64],
    radix: int,
    width: int,
    out: NDArray[np.int32],
) -> None:
    """Every impression's slice values and bucket, as columns of the table of parts: out int32[n, dimensions + 1]."""
    last = out.shape[1] - 1
    by = np.uint64(radix)
    for i in range(at.size):
        rest = np.uint64(slices[i])  # unsigned: half the time
        for d in range(last):
            above = rest // by
            out[i, d] = d * width + np.int64(rest - above * by)
            rest = above
        if at[i] >= 0:
            b = 0
            while b < edges.size and p[at[i]] >= edges[b]:
                b += 1
            out[i, last] = last * width + b


@numba.njit(cache=True, nogil=True)
def add_served(
    start: int,
    end: int,
    row: NDArray[np.int32],
    series: NDArray[np.int32],
    p: NDArray[np.float64],
    loss: NDArray[np.float64],
    bins: NDArray[np.int16],
    label: NDArray[np.int8],
    block: NDArray[np.int8],
    item: NDArray[np.int8],
    value: NDArray[np.int32],
    row_of: NDArray[np.int32],
    part_of: NDArray[np.int32],
    full: bool,
    sign: int,
    codes: NDArray[np.uint64],
    coded: NDArray[np.int64],
    sums: Matrix,
    parts: Matrix,
    untracked: NDArray[np.int64],
    first_bucket: int,
    level_of: NDArray[np.int32],
    levels: Matrix,
) -> int:
    """Adds logged scores start .. end - 1 to what their versions have; returns where it stopped.

    Codes of the scores (see `placements`) go to `codes` from `coded[0]` on. `first_bucket`: the column of parts that stands for the lowest bucket; `level_of`: by row and bucket.
    """
    for k in range(start, end):
        i = row[k]
        r = row_of[series[k], 0]
        if r < 0:
            if not full:
                return k
            untracked[0] += 1
            continue
        for d in range(value.shape[1]):
            if part_of[r, value[i, d]] < 0:
                return k
        clicked = np.int64(label[i])
        error = abs(p[k] - clicked)
        at = np.int64(block[i]) * SERIES_CELLS
        p_fixed, loss_fixed, loss_sq = _fixed(p[k]), _fixed(loss[k]), _fixed(loss[k] * loss[k])
        sums[r, at + blocks.N] += sign
        sums[r, at + blocks.Y] += sign * clicked
        sums[r, at + blocks.P] += sign * p_fixed
        sums[r, at + blocks.L] += sign * loss_fixed
        sums[r, at + blocks.SQUARED] += sign * _fixed(error * error)
        sums[r, at + blocks.ABSOLUTE] += sign * _fixed(error)
        sums[r, SCALARS + blocks.LOSS_SQ] += sign * loss_sq
        sums[r, SCALARS + blocks.LOSS_Y] += sign * clicked * loss_fixed
        if item[i] != NO_ITEM:
            at = ITEMS + np.int64(item[i]) * SERIES_CELLS
            sums[r, at + blocks.N] += sign
            sums[r, at + blocks.Y] += sign * clicked
            sums[r, at + blocks.P] += sign * p_fixed
            sums[r, at + blocks.L] += sign * loss_fixed
        codes[coded[0]] = code_of(r, item[i], block[i], clicked, bins[k], 0)
        coded[0] += 1
        for d in range(value.shape[1]):
            q = part_of[r, value[i, d]]
            parts[q, SERVED_N] += sign
            parts[q, SERVED_Y] += sign * clicked
            parts[q, SERVED_P] += sign * p_fixed
            parts[q, SERVED_L] += sign * loss_fixed
            parts[q, SERVED_L_SQ] += sign * loss_sq
            parts[q, SERVED_L_Y] += sign * clicked * loss_fixed
        level = level_of[r, value[i, value.shape[1] - 1] - first_bucket]
        levels[level, LEVEL_N + block[i]] += sign
        levels[level, LEVEL_Y + block[i]] += sign * clicked
        levels[level, LEVEL_P + block[i]] += sign * p_fixed
    return end


@numba.njit(cache=True, nogil=True)
def add_pairs(
    start: int,
    end: int,
    row: NDArray[np.int32],
    series: NDArray[np.int32],
    p: NDArray[np.float64],
    loss: NDArray[np.float64],
    bins: NDArray[np.int16],
    logged_at: NDArray[np.int32],
    label: NDArray[np.int8],
    block: NDArray[np.int8],
    item: NDArray[np.int8],
    value: NDArray[np.int32],
    row_of: NDArray[np.int32],
    part_of: NDArray[np.int32],
    full: bool,
    sign: int,
    codes: NDArray[np.uint64],
    coded: NDArray[np.int64],
    sums: Matrix,
    parts: Matrix,
    untracked: NDArray[np.int64],
    apart: NDArray[np.bool_],
) -> int:
    """Adds scores start .. end - 1 of versions that did not serve to what their pairs have; returns where it stopped.

    `logged_at`: by impression, where the server's score stands; -1: nowhere. `apart`: which impressions count behind the sums
    of all as well.
    """
    for k in range(start, end):
        i = row[k]
        s = logged_at[i]
        if s < 0:
            continue
        served, other = series[s], series[k]
        if served == other or row_of[served, 0] < 0:
            continue
        r = row_of[served, other + 1]
        if r < 0:
            if not full:
                return k
            untracked[0] += 1
            continue
        for d in range(value.shape[1]):
            if part_of[r, value[i, d]] < 0:
                return k
        clicked = np.int64(label[i])
        difference = loss[k] - loss[s]
        d_fixed, d_sq = _fixed(difference), _fixed(difference * difference)
        loss_fixed, p_fixed, other_fixed = _fixed(loss[s]), _fixed(p[s]), _fixed(p[k])
        promised = _fixed(promised_variance(p[s], p[k]))
        strict = strict_difference(p[s], p[k], clicked, loss[s], difference)
        strict_fixed, strict_sq = _fixed(strict), _fixed(strict * strict)
        code = code_of(r, item[i], block[i], clicked, bins[s], bins[k])
        base = 0
        for _ in range(2 if apart[i] else 1):
            at = base + np.int64(block[i]) * PAIR_CELLS
            for _ in range(1 if item[i] == NO_ITEM else 2):
                sums[r, at + blocks.PAIR_N] += sign
                sums[r, at + blocks.PAIR_Y] += sign * clicked
                sums[r, at + blocks.D] += sign * d_fixed
                sums[r, at + blocks.PAIR_L] += sign * loss_fixed
                sums[r, at + blocks.PAIR_P] += sign * p_fixed
                sums[r, at + blocks.PAIR_P_OTHER] += sign * other_fixed
                at = base + ITEMS + np.int64(item[i]) * PAIR_CELLS
            sums[r, base + SCALARS + blocks.D_SQ] += sign * d_sq
            sums[r, base + SCALARS + blocks.D_PROMISED] += sign * promised
            sums[r, base + SCALARS + blocks.D_STRICT] += sign * strict_fixed
            sums[r, base + SCALARS + blocks.D_STRICT_SQ] += sign * strict_sq
            sums[r, base + SCALARS + blocks.STRICT_CLIPPED] += sign * np.int64(strict != difference)
            base = WIDTH
        codes[coded[0]] = code | APART if apart[i] else code
        coded[0] += 1
        for d in range(value.shape[1]):
            q = part_of[r, value[i, d]]
            parts[q, PART_N + block[i]] += sign
            parts[q, PART_D + block[i]] += sign * d_fixed
            parts[q, PART_Y] += sign * clicked
            parts[q, PART_D_SQ] += sign * d_sq
    return end


@numba.njit(cache=True, nogil=True)
def new_rows(
    first: int,
    row: NDArray[np.int32],
    series: NDArray[np.int32],
    logged_at: NDArray[np.int32],
    row_of: NDArray[np.int32],
    count: int,
    most: int,
    out: NDArray[np.int64],
) -> int:
    """Numbers the rows of a whole batch, whose scores from `first` on are others'. out[n]: (served, other + 1)."""
    made = 0
    for k in range(series.size):
        s = k if k < first else logged_at[row[k]]
        if s < 0 or count + made == most:
            continue
        served = series[s]
        other = 0 if k < first else series[k] + 1
        if k >= first and (series[k] == served or row_of[served, 0] < 0):
            continue
        if row_of[served, other] < 0:
            row_of[served, other] = count + made
            out[made, 0], out[made, 1] = served, other
            made += 1
    return made


@numba.njit(cache=True, nogil=True)
def new_parts(
    start: int,
    end: int,
    pairs: bool,
    row: NDArray[np.int32],
    series: NDArray[np.int32],
    logged_at: NDArray[np.int32],
    value: NDArray[np.int32],
    row_of: NDArray[np.int32],
    part_of: NDArray[np.int32],
    count: int,
    out: NDArray[np.int64],
) -> int:
    """Numbers the parts of scores start .. end - 1 (`pairs`: of others', or else logged); out[n]: (row, column).

    As many as `out` has room for.
    """
    made = 0
    for k in range(start, end):
        i = row[k]
        s = logged_at[i]
        if s < 0 or (pairs and (series[k] == series[s] or row_of[series[s], 0] < 0)):
            continue
        r = row_of[series[s], series[k] + 1 if pairs else 0]
        if r < 0:
            continue
        for d in range(value.shape[1]):
            if part_of[r, value[i, d]] < 0:
                if made == len(out):
                    return made
                part_of[r, value[i, d]] = count + made
                out[made, 0], out[made, 1] = r, value[i, d]
                made += 1
    return made
