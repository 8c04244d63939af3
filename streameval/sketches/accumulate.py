"""Adding scored impressions to series' vectors: the one kernel that every label passes through.

`Scratch` is a matrix of vectors (one row per series) that is zero between calls. `add_scores` puts the scores of one
pane into it, `drain` takes them out again as one sparse vector over all rows: the delta by which the pane, the windows
that hold it and the whole run grow. A score's terms are computed once, as integers, and added wherever they count:
to its series (overall, and in the user's block), and to the series' slice in every dimension. Nothing is paid for rows
and cells not touched.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.sketches import blocks
from streameval.sketches.copies import CLICKS_SQUARED, OTHERS_SQUARED, WEIGHED, WEIGHTS
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
    CLICKS,
    CORRECTIONS,
    IMPRESSIONS,
    SUM_ABSOLUTE,
    SUM_LOG_LOSS,
    SUM_PCLICK,
    SUM_SQUARED,
    VIOLATIONS,
    Layout,
)
from streameval.sketches.sparse import SparseVector, trimmed

CURVE_BITS = 5  # resolution of placement curves: bins per octave = 2**CURVE_BITS
_WEIGHT_CELLS = len(WEIGHTS.cells)
CLIP = 1e-7  # log loss is taken of p clipped to [CLIP, 1 - CLIP]


@numba.njit(inline="always")
def log_loss(p: float, label: int) -> float:
    """-ln of the probability given to what happened, p clipped to [1e-7, 1 - 1e-7]; nats."""
    q = min(max(p, CLIP), 1.0 - CLIP)
    return -math.log(q) if label else -math.log1p(-q)


@numba.njit(cache=True, nogil=True)
def measure(
    p: NDArray[np.float64], row: NDArray[np.int32], label: NDArray[np.int8]
) -> tuple[NDArray[np.float64], NDArray[np.int16]]:
    """Log loss of n scores, and parts of curve bins (`grid.key_part`); the label of score i stands at label[row[i]]."""
    loss, curve_part = np.empty(p.size, np.float64), np.empty(p.size, np.int16)
    for i in range(p.size):
        loss[i] = log_loss(p[i], label[row[i]])
        curve_part[i] = key_part(score_key(p[i]), CURVE_BITS, PART_BITS)
    return loss, curve_part


class ScoreColumns(NamedTuple):
    """k scores of one pane, and what `measure` makes of them."""

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
    fresh: NDArray[np.bool_]  # counted for the first time, with the label that it had when it was due
    slot: NDArray[np.int32]  # of its user
    block: NDArray[np.int8]  # of its user
    times: NDArray[np.int64]  # how often it counts, below 0 to take it out


class PlacementCurves(NamedTuple):
    """Placements of the pane (see `counting.references`), int[series, 2, bins] by label."""

    placement: NDArray[np.int32]
    ready: NDArray[np.bool_]  # by series: whether it has a curve
    counting: NDArray[np.int64]  # labels of fresh impressions are added here


class _Target(NamedTuple):
    """A `Scratch` as kernels see it; see `Layout` for the sizes. `n` of `touched` are in use."""

    cells: NDArray[np.int64]
    size: int
    blocks: int
    histogram: int
    bits: int
    bins: int
    weights: int  # first cell of `copies.WEIGHTS`, behind the histogram; below 0: the log is no sample
    rows_touched: NDArray[np.bool_]
    touched: NDArray[np.int64]


class _Given(NamedTuple):
    """What `add_scores` returns of k scores, and `used`: how many of `touched` are in use, overall and of slices."""

    used: NDArray[np.int64]
    entries: NDArray[np.uint64]
    exact: NDArray[np.uint64]
    copies: NDArray[np.uint32]  # empty: each stands for itself


class _Terms(NamedTuple):
    """What one score adds, in limbs where it is a real number."""

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
def _count(vectors: NDArray[np.int64], r: int, terms: _Terms, bucket: int, bin_cell: int) -> bool:
    """Adds terms to the vector vectors[r]; says whether its histogram cell was 0 before.

    What the buckets sum to (impressions, clicks, pClick, log loss) is left to `drain`.
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
    first = vectors[r, bin_cell] == 0
    vectors[r, bin_cell] += terms.impressions
    return bool(first)


@numba.njit(cache=True, nogil=True)
def _add(
    scores: ScoreColumns,
    labels: LabelColumns,
    curves: PlacementCurves,
    edges: NDArray[np.float64],
    overall: _Target,
    slices: _Target,
    sign: int,
    out: _Given,
) -> None:
    """Adds scores to both targets, and updates `out`."""
    # taken apart here: a field read in the loop costs twice the rest of it. Indices that cannot be below 0 are unsigned, or a
    # tenth of the time is spent on wrapping them around
    ps, losses, curve_parts, rows, series, slice_row, violations = scores
    label, corrected, fresh, slot, block, times = labels
    placement, ready, counting = curves
    touched, rows_touched = overall.touched, overall.rows_touched
    used, entries, exact, copies = out
    weighed = copies.size > 0
    slice_touched, slice_rows_touched = slices.touched, slices.rows_touched
    vectors = overall.cells.reshape(rows_touched.size, overall.size)
    slice_vectors = slices.cells.reshape(slice_rows_touched.size, slices.size)
    has_blocks = overall.blocks < overall.histogram
    n, slice_n = used
    for i in range(ps.size):
        p, at, curve_bin = ps[i], np.uint32(rows[i]), np.uint16(curve_parts[i] >> PART_BITS)
        clicked = np.int64(np.uint8(label[at]))
        many = times[at]
        terms = _terms(p, losses[i], clicked, many)
        b = 0
        for edge in edges:  # all of them: sooner done than guessed
            b += p >= edge
        bucket = np.int64(np.uint32(BUCKETS + BUCKET_CELLS * b))
        key = score_key(p)
        r = np.uint32(series[i])
        rows_touched[r] = True
        cell = np.uint32(overall.histogram + clicked * overall.bins + key_bin(key, overall.bits))
        if _count(vectors, r, terms, bucket, cell):
            touched[np.uint32(n)] = r * overall.size + cell
            n += 1
        rare = corrected[at] or violations[i]
        if rare:
            vectors[r, CORRECTIONS] += sign * np.int64(corrected[at])
            vectors[r, VIOLATIONS] += sign * np.int64(violations[i])
        if has_blocks:
            place = np.int64(placement[r, clicked, curve_bin])
            if fresh[at]:  # a label that was corrected was "no click" when it was due
                counting[r, 0 if corrected[at] else clicked, curve_bin] += abs(many)
            begin = np.int64(np.uint32(overall.blocks + np.int64(block[at]) * BLOCK_CELLS))
            p_fixed, loss_fixed, error = blocks.fixed(p), blocks.fixed(losses[i]), abs(p - clicked)
            blocks.add_score(vectors, r, begin, p_fixed, loss_fixed, error, clicked, many)
            if ready[r]:
                vectors[r, begin + blocks.PHI0 - clicked] += many * place
                vectors[r, begin + BLOCK_PLACED0 - clicked] += many
        cell = np.uint32(slices.histogram + clicked * slices.bins + key_bin(key, slices.bits))
        for d in range(slice_row.shape[0]):
            r = np.uint32(slice_row[d, i])
            slice_rows_touched[r] = True
            if _count(slice_vectors, r, terms, bucket, cell):
                slice_touched[np.uint32(slice_n)] = r * slices.size + cell
                slice_n += 1
            if rare:
                slice_vectors[r, CORRECTIONS] += sign * np.int64(corrected[at])
                slice_vectors[r, VIOLATIONS] += sign * np.int64(violations[i])
        entries[i] = (np.uint64(slot[at]) << np.uint64(32)) | np.uint64((key << 1) | clicked)
        exact[i] = score_bits(p, clicked)
        if weighed:
            copies[i] = abs(many)
            r = np.uint32(series[i])
            vectors[r, overall.weights + (CLICKS_SQUARED if clicked else OTHERS_SQUARED)] += many * abs(many)
            vectors[r, overall.weights + WEIGHED] += sign * np.int64(abs(many) != 1)
    used[0], used[1] = n, slice_n


@numba.njit(cache=True, nogil=True)
def _drain(
    target: _Target,
    rows: NDArray[np.int64],
    touched: NDArray[np.int64],
    cells: NDArray[np.int64],
    values: NDArray[np.int64],
) -> int:
    """Moves the non-zero cells of `rows` to `cells` and `values`, in order, and returns how many there are.

    `touched`: sorted histogram cells, some maybe twice.
    """
    flat, size = target.cells, target.size
    k = 0
    t = 0
    for row in rows:
        start = row * size
        for bucket in range(start + BUCKETS, start + target.blocks, BUCKET_CELLS):
            flat[start + IMPRESSIONS] += flat[bucket + BUCKET_IMPRESSIONS]
            flat[start + CLICKS] += flat[bucket + BUCKET_CLICKS]
            flat[start + SUM_PCLICK] += flat[bucket + BUCKET_PCLICK]
            flat[start + SUM_PCLICK + 1] += flat[bucket + BUCKET_PCLICK + 1]
            flat[start + SUM_LOG_LOSS] += flat[bucket + BUCKET_LOG_LOSS]
            flat[start + SUM_LOG_LOSS + 1] += flat[bucket + BUCKET_LOG_LOSS + 1]
        for cell in range(start, start + target.histogram):
            if flat[cell] != 0:
                cells[k] = cell
                values[k] = flat[cell]
                flat[cell] = 0
                k += 1
        while t < touched.size and touched[t] < start + size:
            cell = touched[t]
            if flat[cell] != 0:
                cells[k] = cell
                values[k] = flat[cell]
                flat[cell] = 0
                k += 1
            t += 1
        if target.weights >= 0:
            for cell in range(start + target.weights, start + target.weights + _WEIGHT_CELLS):
                if flat[cell] != 0:
                    cells[k] = cell
                    values[k] = flat[cell]
                    flat[cell] = 0
                    k += 1
    return k


class Scratch:
    """A matrix of vectors to add into; grows by rows when a new series comes."""

    def __init__(self, layout: Layout, rows: int = 4) -> None:
        self.layout = layout
        self.n = 0  # histogram cells that may be non-zero: the first of `target.touched`
        self.edges = np.array(layout.edges)
        weights = layout.tally(WEIGHTS.name)
        self.target = _Target(
            cells=np.zeros(rows * layout.size, np.int64),
            size=layout.size,
            blocks=layout.blocks,
            histogram=layout.histogram,
            bits=layout.bits,
            bins=layout.bins,
            weights=-1 if weights is None else weights[1],
            rows_touched=np.zeros(rows, np.bool_),
            touched=np.empty(1024, np.int64),
        )

    def reserve(self, rows: int, scores: int) -> None:
        """Makes sure that rows 0 .. rows - 1 exist, and that there is room for so many more scores."""
        old, need = self.target, self.n + scores
        have = old.rows_touched.size
        if rows > have:
            more = max(rows, have + have // 2)
            cells, rows_touched = np.zeros(more * old.size, np.int64), np.zeros(more, np.bool_)
            cells[: old.cells.size] = old.cells
            rows_touched[:have] = old.rows_touched
            self.target = self.target._replace(cells=cells, rows_touched=rows_touched)
        if need > old.touched.size:
            touched = np.empty(2 * need, np.int64)
            touched[: self.n] = old.touched[: self.n]
            self.target = self.target._replace(touched=touched)

    def drain(self) -> SparseVector:
        """Everything added since the last drain, as one sparse vector over all rows (row * layout.size + cell)."""
        rows = np.flatnonzero(self.target.rows_touched)
        touched = np.sort(self.target.touched[: self.n])
        room = rows.size * (self.layout.histogram + _WEIGHT_CELLS) + touched.size
        cells, values = np.empty(room, np.int64), np.empty(room, np.int64)
        k = _drain(self.target, rows, touched, cells, values)
        self.target.rows_touched[rows] = False
        self.n = 0
        return trimmed(cells, values, k)


def add_scores(
    overall: Scratch,
    slices: Scratch,
    scores: ScoreColumns,
    labels: LabelColumns,
    curves: PlacementCurves,
    sign: int = 1,
    *,
    weighed: bool = False,
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint32]]:
    """Adds k scores (or, with sign -1, takes them out); returns their rank entries (see `ranks`), `grid.score_bits` and copies.

    `sign` is that of `labels.times`, which says how often they count; what is counted of events counts once. The rows that
    `scores` names must be reserved in both. `weighed`: the log is a sample, and its weights are kept; if not, no copies are returned.
    """
    k = scores.p.size
    copies = np.empty(k if weighed and overall.target.weights >= 0 else 0, np.uint32)
    out = _Given(np.array((overall.n, slices.n)), np.empty(k, np.uint64), np.empty(k, np.uint64), copies)
    _add(scores, labels, curves, overall.edges, overall.target, slices.target, sign, out)
    overall.n, slices.n = out.used.tolist()
    return out.entries, out.exact, copies


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
    labels = LabelColumns(clicked, no, no, np.zeros(n, np.int32), np.zeros(n, np.int8), np.full(n, sign, np.int64))
    curves = PlacementCurves(curve, np.zeros(len(curve), np.bool_), curve.astype(np.int64))
    add_scores(overall, slices, scores, labels, curves, sign)
    return overall.drain()
