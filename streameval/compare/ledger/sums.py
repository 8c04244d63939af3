"""The kernels of the ledger: a single pass over the scores of a pane adds them to all their sums.

A row belongs to a version that served, or to a pair; a part is a row's share in one slice value, or in one bucket of
the serving pClick; a level is what a version served in such a bucket, by block of users. Rows and parts are numbered
when they are first seen. A kernel stops before a score that has no numbers yet, and continues there once the caller has
assigned them (`unnumbered`); so nothing is looked up twice.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.compare.ledger.exposure import EXPOSED, add_exposed
from streameval.compare.ledger.placements import APART, ITEMS, SCALARS, WIDTH, code_of, copied, weighted
from streameval.sketches import blocks
from streameval.sketches.accumulate import CLIP, log_loss
from streameval.sketches.blocks import BLOCKS, NO_ITEM, PAIR_CELLS, SERIES_CELLS, fixed
from streameval.sketches.logarithm import natural_log

__all__ = ["ITEMS", "SCALARS", "WIDTH"]  # of a row
STRICT = 2.0  # nats: strict mode clips odds to within a factor e**STRICT of each other
_MOST_ODDS = math.exp(STRICT)
_MOST_TERM = 2.0**56
_AHEAD = 512  # scores whose log-odds, or buckets, are computed per batch

# a part of a pair: N by block, D by block, then clicks and the sum of squares of D
PART_N, PART_D = 0, BLOCKS
PART_Y, PART_D_SQ = 2 * BLOCKS, 2 * BLOCKS + 1
PART_WIDTH = 2 * BLOCKS + 2
# the same for a version that served
SERVED_N, SERVED_Y, SERVED_P, SERVED_L, SERVED_L_SQ, SERVED_L_Y = range(6)  # the last: log loss of the clicks
SERVED_WIDTH = 6
# a level: N, Y and P by block
LEVEL_N, LEVEL_Y, LEVEL_P = 0, BLOCKS, 2 * BLOCKS
LEVEL_WIDTH = 3 * BLOCKS

Matrix = NDArray[np.int64]


class LedgerScores(NamedTuple):
    """Scores of labelled impressions, logged ones first, and what `accumulate.measure` computes from them."""

    row: NDArray[np.int32]  # the impression
    series: NDArray[np.int32]
    p: NDArray[np.float64]
    loss: NDArray[np.float64]
    parts: NDArray[np.int16]  # of bins
    logged_at: NDArray[np.int32]  # by impression, the index of the server's score; -1: none


class LedgerLabels(NamedTuple):
    """Labelled impressions."""

    label: NDArray[np.int8]
    block: NDArray[np.int8]  # of the user
    item: NDArray[np.int8]  # block of the item, or `NO_ITEM`
    value: NDArray[np.int32]  # see `values_of`
    apart: NDArray[np.bool_]  # impressions that are added to the sums of those apart instead (pairs only)
    weight: NDArray[np.int16]  # code of the inverse propensity (see `exposure`); 0: not known, or not kept
    times: NDArray[np.int64]  # how often it counts, negative to subtract it
    weighed: bool  # whether any may count more or less than once


class Numbers(NamedTuple):
    """Tables of numbers; -1: none yet."""

    row_of: NDArray[np.int32]  # [served, other + 1]
    part_of: NDArray[np.int32]  # [row, column]
    level_of: NDArray[np.int32]  # [row, bucket]
    first_bucket: int  # the column of parts for the lowest bucket
    full: bool  # no more rows are numbered


class LedgerTarget(NamedTuple):
    """Output: the sums of a pane, codes of scores (see `placements`), and counts."""

    sums: Matrix
    parts: Matrix
    levels: Matrix
    codes: NDArray[np.uint64]  # [row, n-th code of the row]
    coded: NDArray[np.int64]  # [row, 2]: number of codes, and of clicks among them
    untracked: NDArray[np.int64]  # [1]


@numba.njit(inline="always")
def log_odds_ratio(a: float, b: float) -> float:
    """Returns logit a - logit b, for pClicks clipped to [1e-7, 1 - 1e-7] as in the log loss."""
    a, b = min(max(a, CLIP), 1.0 - CLIP), min(max(b, CLIP), 1.0 - CLIP)
    return natural_log(a * (1.0 - b) / (b * (1.0 - a)))


@numba.njit(inline="always")
def strict_difference(p_served: float, shift: float, clicked: int, loss: float, d: float) -> float:
    """Returns `d`, the difference in log loss, as if the other's odds were within a factor e**STRICT of the server's.

    `shift`: the server's log-odds less the other's.
    """
    if abs(shift) <= STRICT:
        return d
    a = min(max(p_served, CLIP), 1.0 - CLIP)
    odds = a / (1.0 - a)
    odds = odds * _MOST_ODDS if shift < 0.0 else odds / _MOST_ODDS
    return log_loss(odds / (1.0 + odds), clicked) - loss


@numba.njit(inline="always")
def promised_variance(a: float, b: float, shift: float) -> float:
    """Returns the variance of the difference in log loss that pClicks a and b, `shift` apart, imply themselves, in nats
    squared.

    It is p (1 - p) (logit a - logit b)**2 with p the larger one: so the effect of a click that one version all but
    rules out is anticipated before the click has come.
    """
    p = min(max(a, b, CLIP), 1.0 - CLIP)
    return p * (1.0 - p) * shift * shift


@numba.njit(inline="always")
def by_square(many: int, term: int) -> int:
    """Returns a squared term (or a product of two) of an impression that counts `many` times, at most 2**56; negative
    to subtract it.
    """
    times = abs(many)
    if float(times) * float(times) * float(term) > _MOST_TERM:
        return int(_MOST_TERM) if many > 0 else -int(_MOST_TERM)
    return many * times * term


@numba.njit(inline="always")
def excess_of(many: int, clicked: int) -> tuple[int, int]:
    """Returns the square of a weight less the weight, for a click and for a non-click; negative to subtract it."""
    excess = many * (abs(many) - 1)
    return excess * clicked, excess * (1 - clicked)


@numba.njit(cache=True, nogil=True)
def values_of(
    slices: NDArray[np.int64],
    row: NDArray[np.int32],
    p: NDArray[np.float64],
    edges: NDArray[np.float64],
    radix: int,
    width: int,
    out: NDArray[np.int32],
) -> None:
    """Fills in every impression's slice values and, of those that have a logged score (`row`, `p`), its bucket, as
    columns of the table of parts: out int32[n, dimensions + 1].
    """
    last = out.shape[1] - 1
    by = np.uint64(radix)
    for i in range(slices.size):
        rest = np.uint64(slices[i])  # unsigned: takes half the time
        for d in range(last - 1):
            above = rest // by
            out[i, d] = d * width + np.int64(rest - above * by)
            rest = above
        if last > 0:  # the rest is the last dimension's
            out[i, last - 1] = (last - 1) * width + np.int64(rest)
    bucket = np.empty(_AHEAD, np.int64)
    for begin in range(0, row.size, _AHEAD):
        some = p[begin : begin + _AHEAD]
        bucket[:] = last * width
        for edge in edges:  # edge by edge, in vector steps: takes a third of the time of score by score
            for k in range(some.size):
                bucket[k] += some[k] >= edge
        for k in range(some.size):
            out[np.uint32(row[begin + k]), last] = bucket[k]


@numba.njit(cache=True, nogil=True)
def add_served(
    start: int,
    end: int,
    scores: LedgerScores,
    impressions: LedgerLabels,
    numbers: Numbers,
    sign: int,
    out: LedgerTarget,
) -> int:
    """Adds logged scores start .. end - 1 to the sums of their versions; returns where it stopped."""
    # unpacked here, because reading a field in the loop costs twice as much as the rest of it. Indices that cannot be
    # negative are unsigned, because a third of the time would be spent on wrapping them around
    row, series, p = scores.row[start:end], scores.series[start:end], scores.p[start:end]
    loss, placed = scores.loss[start:end], scores.parts[start:end]
    label, block, item, value, _, _, times, _ = impressions
    row_of, part_of, level_of, first_bucket, full = numbers
    sums, parts, levels, codes, coded, untracked = out
    bucket = value.shape[1] - 1
    for k in range(end - start):
        i = np.uint32(row[k])
        r = row_of[np.uint32(series[k]), 0]
        if r < 0:
            if not full:
                return start + k
            untracked[0] += 1
            continue
        for d in range(value.shape[1]):
            if part_of[r, np.uint32(value[i, d])] < 0:
                return start + k
        clicked, many = np.int64(label[i]), times[i]
        user, thing = np.int64(np.uint8(block[i])), np.int64(np.uint8(item[i]))
        score, nats = p[k], loss[k]
        p_fixed, loss_fixed, loss_sq = fixed(score), fixed(nats), fixed(nats * nats)
        blocks.add_score(sums, r, user * SERIES_CELLS, p_fixed, loss_fixed, abs(score - clicked), clicked, many)
        loss_sq, loss_y = by_square(many, loss_sq), by_square(many, clicked * loss_fixed)
        sums[r, SCALARS + blocks.LOSS_SQ] += loss_sq
        sums[r, SCALARS + blocks.LOSS_Y] += loss_y
        sums[r, SCALARS + blocks.OTHERS_EXCESS - clicked] += many * (abs(many) - 1)
        if thing != NO_ITEM:
            blocks.add_counts(sums, r, ITEMS + thing * SERIES_CELLS, p_fixed, loss_fixed, clicked, many)
        if many != 0:
            codes[r, np.uint32(coded[r, 0])] = code_of(r, thing, user, clicked, placed[k], 0) | copied(abs(many))
            coded[r, 0] += 1
            coded[r, 1] += clicked
        for d in range(value.shape[1]):
            q = np.uint32(part_of[r, np.uint32(value[i, d])])
            parts[q, SERVED_N] += many
            parts[q, SERVED_Y] += many * clicked
            parts[q, SERVED_P] += many * p_fixed
            parts[q, SERVED_L] += many * loss_fixed
            parts[q, SERVED_L_SQ] += loss_sq
            parts[q, SERVED_L_Y] += loss_y
        level = np.uint32(level_of[r, np.uint32(value[i, bucket] - first_bucket)])
        levels[level, LEVEL_N + user] += many
        levels[level, LEVEL_Y + user] += many * clicked
        levels[level, LEVEL_P + user] += many * p_fixed
    return end


@numba.njit(inline="always")
def _add_cells(sums: Matrix, r: int, at: int, cells: tuple[int, int, int, int, int, int]) -> None:
    n, y, d, loss, p, other = cells
    sums[r, at + blocks.PAIR_N] += n
    sums[r, at + blocks.PAIR_Y] += y
    sums[r, at + blocks.D] += d
    sums[r, at + blocks.PAIR_L] += loss
    sums[r, at + blocks.PAIR_P] += p
    sums[r, at + blocks.PAIR_P_OTHER] += other


@numba.njit(inline="always")
def _add_pair(
    sums: Matrix,
    r: int,
    base: int,
    block: int,
    item: int,
    cells: tuple[int, int, int, int, int, int],
    scalars: tuple[int, int, int, int, int],
) -> None:
    """Adds one score to a pair's sums from column `base` on; without loops, which would cost more than the
    additions.
    """
    _add_cells(sums, r, base + np.int64(block) * PAIR_CELLS, cells)
    if item != NO_ITEM:
        _add_cells(sums, r, base + ITEMS + np.int64(item) * PAIR_CELLS, cells)
    d_sq, promised, strict, strict_sq, clipped = scalars
    sums[r, base + SCALARS + blocks.D_SQ] += d_sq
    sums[r, base + SCALARS + blocks.D_PROMISED] += promised
    sums[r, base + SCALARS + blocks.D_STRICT] += strict
    sums[r, base + SCALARS + blocks.D_STRICT_SQ] += strict_sq
    sums[r, base + SCALARS + blocks.STRICT_CLIPPED] += clipped


@numba.njit(cache=True, nogil=True, error_model="numpy")  # a check of every divisor would prevent vectorisation
def _log_odds_ratios(a: NDArray[np.float64], b: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    for j in range(out.size):
        out[j] = log_odds_ratio(a[j], b[j])


@numba.njit(cache=True, nogil=True)
def add_pairs(
    start: int,
    end: int,
    scores: LedgerScores,
    impressions: LedgerLabels,
    numbers: Numbers,
    sign: int,
    out: LedgerTarget,
) -> int:
    """Adds scores start .. end - 1 of versions that did not serve to the sums of their pairs; returns where it
    stopped.
    """
    # 15 to 16 ns a score. The same loads and stores in C take 14.5 to 15, and 14 in loops of a column each: additions to
    # memory, 19 a score, are the most of it
    row, series, p, loss, placed, logged_at = scores
    label, block, item, value, apart, weight, times, weighed = impressions
    row_of, part_of, _, _, full = numbers
    sums, parts, _, codes, coded, untracked = out
    exposed = sums.shape[1] - EXPOSED
    rows, others = row[start:end], series[start:end]
    p_others, loss_others, placed_others = p[start:end], loss[start:end], placed[start:end]
    ahead, known = 0, 0
    p_servers, shifts = np.empty(_AHEAD), np.empty(_AHEAD)  # of the scores `ahead` .. `known` - 1
    for k in range(end - start):
        if k >= known:
            ahead, known = k, min(k + _AHEAD, end - start)
            for j in range(known - ahead):
                p_servers[j] = p[max(logged_at[rows[ahead + j]], 0)]
            _log_odds_ratios(p_servers, p_others[ahead:known], shifts[: known - ahead])
        i = np.uint32(rows[k])
        s = logged_at[i]
        if s < 0:
            continue
        served, other = np.uint32(series[s]), np.uint32(others[k])
        if served == other or row_of[served, 0] < 0:
            continue
        r = row_of[served, other + np.uint32(1)]
        if r < 0:
            if not full:
                return start + k
            untracked[0] += 1
            continue
        for d in range(value.shape[1]):
            if part_of[r, np.uint32(value[i, d])] < 0:
                return start + k
        clicked, many, shift = np.int64(label[i]), times[i], shifts[k - ahead]
        user, thing = np.int64(np.uint8(block[i])), np.int64(np.uint8(item[i]))
        difference = loss_others[k] - loss[s]
        d_once, d_sq = fixed(difference), fixed(difference * difference)
        loss_fixed, p_fixed, other_fixed = fixed(loss[s]), fixed(p[s]), fixed(p_others[k])
        promised = fixed(promised_variance(p[s], p_others[k], shift))
        strict = strict_difference(p[s], shift, clicked, loss[s], difference)
        strict_fixed, strict_sq = fixed(strict), fixed(strict * strict)
        d_fixed = many * d_once
        cells = many, many * clicked, d_fixed, many * loss_fixed, many * p_fixed, many * other_fixed
        d_sq, clipped, strict_sq = by_square(many, d_sq), many * np.int64(strict != difference), many * strict_sq
        if weighed:  # there is no strict mode then
            clipped, strict_sq = excess_of(many, clicked)
        scalars = d_sq, many * promised, many * strict_fixed, strict_sq, clipped
        # without a branch, which would be unpredictable
        _add_pair(sums, r, WIDTH * np.int64(apart[i]), user, thing, cells, scalars)
        code = code_of(r, thing, user, clicked, placed[s], placed_others[k])
        if weight[i] > 0:
            add_exposed(sums, r, exposed, user, weight[i], difference, clicked, sign)
            code = weighted(code, weight[i])
        if many != 0:
            code |= copied(abs(many))
            codes[r, np.uint32(coded[r, 0])] = code | APART if apart[i] else code
            coded[r, 0] += 1
            coded[r, 1] += clicked
        for d in range(value.shape[1]):
            q = np.uint32(part_of[r, np.uint32(value[i, d])])
            parts[q, PART_N + user] += many
            parts[q, PART_D + user] += d_fixed
            parts[q, PART_Y] += many * clicked
            parts[q, PART_D_SQ] += d_sq
    return end
