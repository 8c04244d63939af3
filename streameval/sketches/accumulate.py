"""Adds scored impressions to series' vectors: the one kernel that every label passes through.

`Scratch` is a matrix of vectors (one row per series) that is zero between calls. `add_scores` adds the scores of a
pane to it and drains it into one sparse vector over all rows: the delta to add to the pane, the windows that contain
it and the whole run. One call handles many panes, since panes of a second have few scores each. A score's terms are
computed once, as integers, and added wherever they count: to its series (overall, and in the user's block), and to the
series' slice in every dimension. Rows and cells that are not touched cost nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.sketches import blocks
from streameval.sketches.copies import CLICKS_SQUARED, OTHERS_SQUARED, WEIGHED
from streameval.sketches.fixed import limbs
from streameval.sketches.grid import PART_BITS, bin_count, key_bin, key_part, score_bits, score_key
from streameval.sketches.layout import (
    BLOCK_CELLS,
    BLOCK_PLACED0,
    BUCKET_CELLS,
    BUCKET_CLICKS,
    BUCKET_IMPRESSIONS,
    BUCKET_LOG_LOSS,
    BUCKET_PCLICK,
    BUCKETS,
    CORRECTIONS,
    SUM_ABSOLUTE,
    SUM_SQUARED,
    VIOLATIONS,
    Layout,
)
from streameval.sketches.propensity import (
    SCORE_BINS,
    STRATA_BITS,
    STRATUM_L,
    STRATUM_MASS,
    STRATUM_MASS_FRACTION,
    STRATUM_N,
    STRATUM_P,
    STRATUM_SUMS,
    STRATUM_Y,
    StrataRows,
    score_bin,
)
from streameval.sketches.scratch import Drained, Scratch, Target, drain, mark, room_of, vectors_of
from streameval.sketches.sorted_lists import SLOT
from streameval.sketches.sparse import SparseVector

CURVE_BITS = 5  # resolution of placement curves: bins per octave = 2**CURVE_BITS
assert STRATA_BITS == CURVE_BITS  # clicks are placed in strata by the bins of curves
CLIP = 1e-7  # log loss uses p clipped to [CLIP, 1 - CLIP]


@numba.njit(inline="always")
def log_loss(p: float, label: int) -> float:
    """-ln of the probability of the observed label, p clipped to [1e-7, 1 - 1e-7]; nats."""
    q = min(max(p, CLIP), 1.0 - CLIP)
    return -math.log(q) if label else -math.log1p(-q)


@numba.njit(cache=True, nogil=True)
def measure(
    p: NDArray[np.float64], row: NDArray[np.int32], label: NDArray[np.int8]
) -> tuple[NDArray[np.float64], NDArray[np.int16]]:
    """Log loss of n scores, and parts of curve bins (`grid.key_part`); the label of score i is label[row[i]]."""
    loss, curve_part = np.empty(p.size, np.float64), np.empty(p.size, np.int16)
    for i in range(p.size):
        loss[i] = log_loss(p[i], label[row[i]])
        curve_part[i] = key_part(score_key(p[i]), CURVE_BITS, PART_BITS)
    return loss, curve_part


class ScoreColumns(NamedTuple):
    """k scores, and what `measure` computes from them."""

    p: NDArray[np.float64]  # pClick in [0, 1]
    loss: NDArray[np.float64]  # nats
    curve_part: NDArray[np.int16]
    row: NDArray[np.int32]  # its impression, in `LabelColumns`
    series: NDArray[np.int32]  # row of the overall matrix
    slice_row: NDArray[np.int32]  # [dimensions, k]: rows of the slices' matrix
    violation: NDArray[np.bool_]


class LabelColumns(NamedTuple):
    """Impressions, by row."""

    label: NDArray[np.int8]  # 0, 1
    corrected: NDArray[np.bool_]
    fresh: NDArray[np.bool_]  # counted for the first time, with the label as of its due time
    slot: NDArray[np.int32]  # of its user
    block: NDArray[np.int8]  # of its user
    times: NDArray[np.int64]  # how often it counts; negative: retracted
    strata: StrataRows


class PlacementCurves(NamedTuple):
    """Placements of the panes (see `counting.references`), int[series, 2, bins] by label."""

    placement: NDArray[np.int32]
    ready: NDArray[np.bool_]  # by series: whether it has a curve
    counting: NDArray[np.int64]  # labels of fresh impressions are added here


class Given(NamedTuple):
    """What `add_scores` returns about k scores."""

    entries: NDArray[np.uint64]  # see `ranks.entries`
    exact: NDArray[np.uint64]  # `grid.score_bits`
    copies: NDArray[np.uint32]  # empty: one each

    @classmethod
    def of(cls, k: int, with_copies: bool) -> Given:
        """Room for k scores."""
        return cls(np.empty(k, np.uint64), np.empty(k, np.uint64), np.empty(k if with_copies else 0, np.uint32))


class _Terms(NamedTuple):
    """What one score adds; real numbers in limbs."""

    impressions: int
    clicks: int
    p_high: int
    p_low: int
    loss_high: int
    loss_low: int
    squared_high: int
    squared_low: int
    error_high: int
    error_low: int


@numba.njit(inline="always")
def _terms(p: float, loss: float, clicked: int, sign: int) -> _Terms:
    error = abs(p - clicked)
    p_high, p_low = limbs(p)
    loss_high, loss_low = limbs(loss)
    squared_high, squared_low = limbs(error * error)
    error_high, error_low = limbs(error)
    return _Terms(
        impressions=sign,
        clicks=sign * clicked,
        p_high=sign * p_high,
        p_low=sign * p_low,
        loss_high=sign * loss_high,
        loss_low=sign * loss_low,
        squared_high=sign * squared_high,
        squared_low=sign * squared_low,
        error_high=sign * error_high,
        error_low=sign * error_low,
    )


@numba.njit(inline="always")
def _count(vectors: NDArray[np.int64], r: int, terms: _Terms, bucket: int, bin_cell: int) -> None:
    """Adds terms to the vector vectors[r].

    The totals over buckets (impressions, clicks, pClick, log loss) are left to `drain`.
    """
    vectors[r, SUM_SQUARED] += terms.squared_high
    vectors[r, SUM_SQUARED + 1] += terms.squared_low
    vectors[r, SUM_ABSOLUTE] += terms.error_high
    vectors[r, SUM_ABSOLUTE + 1] += terms.error_low
    vectors[r, bucket + BUCKET_IMPRESSIONS] += terms.impressions
    vectors[r, bucket + BUCKET_CLICKS] += terms.clicks
    vectors[r, bucket + BUCKET_PCLICK] += terms.p_high
    vectors[r, bucket + BUCKET_PCLICK + 1] += terms.p_low
    vectors[r, bucket + BUCKET_LOG_LOSS] += terms.loss_high
    vectors[r, bucket + BUCKET_LOG_LOSS + 1] += terms.loss_low
    vectors[r, bin_cell] += terms.impressions


@numba.njit(cache=True, nogil=True)
def _add(
    scores: ScoreColumns,
    begin: int,
    end: int,
    labels: LabelColumns,
    curves: PlacementCurves,
    edges: NDArray[np.float64],
    overall: Target,
    slices: Target,
    sign: int,
    out: Given,
) -> None:
    """Adds scores begin .. end - 1 to both targets, and updates `out`."""
    # Unpacked here, because reading a field in the loop would triple its time. Indices that cannot be negative are unsigned,
    # which saves the tenth of the time that checks for wrap-around take.
    ps, losses, curve_parts = scores.p[begin:end], scores.loss[begin:end], scores.curve_part[begin:end]
    rows, series, violations = scores.row[begin:end], scores.series[begin:end], scores.violation[begin:end]
    slice_row = scores.slice_row[:, begin:end]
    label, corrected, fresh, slot, block, times, (stratum, mass) = labels
    with_strata = stratum.size > 0 and overall.strata >= 0
    click_touched, click_words = overall.clicked
    more, more_count = overall.more, overall.more_count
    placement, ready, counting = curves
    (touched, words), rows_touched = overall.marks, overall.rows_touched
    entries, exact = out.entries[begin:end], out.exact[begin:end]
    with_copies = out.copies.size > 0
    copies = out.copies[begin:end] if with_copies else out.copies
    (slice_touched, slice_words), slice_rows_touched = slices.marks, slices.rows_touched
    vectors = overall.cells.reshape(rows_touched.size, overall.size)
    slice_vectors = slices.cells.reshape(slice_rows_touched.size, slices.size)
    has_blocks = overall.blocks < overall.histogram
    for i in range(ps.size):
        p, at, curve_bin = ps[i], np.uint32(rows[i]), np.uint16(curve_parts[i] >> PART_BITS)
        clicked = np.int64(np.uint8(label[at]))
        many = times[at]
        terms = _terms(p, losses[i], clicked, many)
        b = 0
        for edge in edges:  # without a branch: faster than a search among so few
            b += p >= edge
        bucket = np.int64(np.uint32(BUCKETS + BUCKET_CELLS * b))
        key = score_key(p)
        r = np.uint32(series[i])
        rows_touched[r] = True
        at_bin = np.uint32(clicked * overall.bins + key_bin(key, overall.bits))
        _count(vectors, r, terms, bucket, np.uint32(overall.histogram + at_bin))
        mark(touched, words, r, at_bin)
        rare = corrected[at] or violations[i]
        if rare:
            vectors[r, CORRECTIONS] += sign * np.int64(corrected[at])
            vectors[r, VIOLATIONS] += sign * np.int64(violations[i])
        if has_blocks:
            place = np.int64(placement[r, clicked, curve_bin])
            if fresh[at]:  # a corrected label was "no click" at its due time
                counting[r, 0 if corrected[at] else clicked, curve_bin] += abs(many)
            first = np.int64(np.uint32(overall.blocks + np.int64(block[at]) * BLOCK_CELLS))
            p_fixed, loss_fixed, error = blocks.fixed(p), blocks.fixed(losses[i]), abs(p - clicked)
            blocks.add_score(vectors, r, first, p_fixed, loss_fixed, error, clicked, many)
            if ready[r]:
                vectors[r, first + blocks.PHI0 - clicked] += many * place
                vectors[r, first + BLOCK_PLACED0 - clicked] += many
            if with_strata and stratum[at] >= 0:
                of_stratum = np.int64(stratum[at])
                sums = np.int64(np.uint32(overall.strata + of_stratum * STRATUM_SUMS))
                # all is read before anything is written, so that the two sums are one addition
                whole, rest = mass[at, 0], mass[at, 1]
                whole, rest = vectors[r, sums + STRATUM_MASS] + whole, vectors[r, sums + STRATUM_MASS_FRACTION] + rest
                vectors[r, sums + STRATUM_MASS], vectors[r, sums + STRATUM_MASS_FRACTION] = whole, rest
                vectors[r, sums + STRATUM_P] += many * p_fixed
                vectors[r, sums + STRATUM_L] += many * loss_fixed
                vectors[r, sums + STRATUM_N] += many
                if clicked:
                    vectors[r, sums + STRATUM_Y] += many
                    of_click = of_stratum * SCORE_BINS + score_bin(np.int64(curve_bin))
                    if mark(click_touched, click_words, r, of_click):
                        more[more_count[0]] = r * overall.strata_cells + of_click
                        more_count[0] += 1
        at_bin = np.uint32(clicked * slices.bins + key_bin(key, slices.bits))
        for d in range(slice_row.shape[0]):
            r = np.uint32(slice_row[d, i])
            slice_rows_touched[r] = True
            _count(slice_vectors, r, terms, bucket, np.uint32(slices.histogram + at_bin))
            mark(slice_touched, slice_words, r, at_bin)
            if rare:
                slice_vectors[r, CORRECTIONS] += sign * np.int64(corrected[at])
                slice_vectors[r, VIOLATIONS] += sign * np.int64(violations[i])
        entries[i] = (np.uint64(slot[at]) << SLOT) | np.uint64((key << 1) | clicked)
        exact[i] = score_bits(p, clicked)
        if with_copies:
            copies[i] = abs(many)
            r = np.uint32(series[i])
            vectors[r, overall.weights + (CLICKS_SQUARED if clicked else OTHERS_SQUARED)] += many * abs(many)
            vectors[r, overall.weights + WEIGHED] += sign * np.int64(abs(many) != 1)


@numba.njit(cache=True, nogil=True)
def _add_panes(
    scores: ScoreColumns,
    cuts: NDArray[np.int64],
    labels: LabelColumns,
    curves: PlacementCurves,
    edges: NDArray[np.float64],
    overall: Target,
    slices: Target,
    sign: int,
    out: Given,
    drained: Drained,
    slice_drained: Drained,
) -> None:
    """Adds scores pane by pane and moves the sums to `drained`, or leaves them in the scratch if `drained` has no room."""
    for j in range(cuts.shape[1] - 1):
        for giver in range(cuts.shape[0]):
            begin, end = cuts[giver, j], cuts[giver, j + 1]
            if begin < end:
                _add(scores, begin, end, labels, curves, edges, overall, slices, sign=sign, out=out)
        if drained.cells.size > 0:
            drained.ends[j + 1] = drain(overall, sign, drained.ends[j], drained.cells, drained.values)
            at = slice_drained.ends[j]
            slice_drained.ends[j + 1] = drain(slices, sign, at, slice_drained.cells, slice_drained.values)


def add_scores(
    targets: tuple[Scratch, Scratch],
    scores: ScoreColumns,
    cuts: NDArray[np.int64],
    labels: LabelColumns,
    curves: PlacementCurves,
    drained: Sequence[Drained],
    out: Given,
    sign: int = 1,
) -> None:
    """Adds (sign 1) or retracts (sign -1) the scores of some panes, overall and by slice: those of pane j are from
    cuts[g, j] to cuts[g, j + 1], for every g.

    `sign` is that of `labels.times`, which says how often they count; counts of events count each once. The rows in
    `scores` must be reserved in both targets, and `drained` must have room for them.
    """
    overall, slices = targets
    _add_panes(
        scores,
        cuts,
        labels,
        curves,
        overall.edges,
        overall.target,
        slices.target,
        sign=sign,
        out=out,
        drained=drained[0],
        slice_drained=drained[1],
    )


def sketched(
    layout: Layout, series: NDArray[np.int32], p: NDArray[np.float64], label: NDArray[np.generic], sign: int = 1
) -> SparseVector:
    """The vectors of n scores of one pane, without slices: series, pClick and label (0/1) of each."""
    n, no = p.size, np.zeros(p.size, np.bool_)
    overall, slices = Scratch(layout), Scratch(Layout(1, layout.edges))
    overall.reserve(int(series.max(initial=0)) + 1, n)
    row, clicked = np.arange(n, dtype=np.int32), label.astype(np.int8)
    loss, curve_part = measure(p, row, clicked)
    curve = np.zeros((int(series.max(initial=0)) + 1, 2, bin_count(CURVE_BITS)), np.int32)
    scores = ScoreColumns(p, loss, curve_part, row, series, np.empty((0, n), np.int32), no)
    slot, block, times = np.zeros(n, np.int32), np.zeros(n, np.int8), np.full(n, sign, np.int64)
    labels = LabelColumns(clicked, no, no, slot, block, times, StrataRows.none())
    curves = PlacementCurves(curve, np.zeros(len(curve), np.bool_), curve.astype(np.int64))
    drained = room_of(int(overall.room(np.array(n))), 1), room_of(1, 1)
    add_scores(
        (overall, slices), scores, np.array([[0, n]]), labels, curves, drained, Given.of(n, with_copies=False), sign
    )
    return vectors_of(drained[0])[0]
