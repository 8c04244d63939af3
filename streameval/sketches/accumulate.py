"""Adding scored impressions to series' vectors: the one kernel that every label passes through.

`Scratch` is a matrix of vectors (one row per series) that is zero between calls. `add_scores` puts the scores of one
pane into it, `drain` takes them out again as one sparse vector over all rows: the delta by which the pane, the windows
that hold it and the whole run grow. A score's terms are computed once, as integers, and added wherever they count:
to its series (overall, and in the user's block), and to the series' slice in every dimension. Nothing is paid for rows
and cells not touched.
"""

from __future__ import annotations

import math

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.sketches import blocks
from streameval.sketches.fixed import limbs
from streameval.sketches.grid import key_bin, score_bits, score_key
from streameval.sketches.layout import (
    ABSOLUTE,
    BLOCK_CELLS,
    BLOCK_PLACED0,
    BUCKET_CELLS,
    BUCKETS,
    CLICKS,
    CORRECTED,
    IMPRESSIONS,
    LOG_LOSS,
    PCLICK,
    SQUARED,
    VIOLATIONS,
    Layout,
)
from streameval.sketches.sparse import SparseVector, trimmed

CURVE_BITS = 5  # resolution of placement curves: bins per octave = 2**CURVE_BITS
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
    """Log loss and curve bin of n scores; the label of score i stands at label[row[i]]."""
    loss, curve_bin = np.empty(p.size, np.float64), np.empty(p.size, np.int16)
    for i in range(p.size):
        loss[i] = log_loss(p[i], label[row[i]])
        curve_bin[i] = key_bin(score_key(p[i]), CURVE_BITS)
    return loss, curve_bin


Terms = tuple[int, int, int, int, int, int, int, int, int, int]


@numba.njit(inline="always")
def _terms(p: float, loss: float, clicked: int, sign: int) -> Terms:
    """What one score adds: count, click, and the limbs of pClick, log loss, squared and absolute error."""
    error = abs(p - clicked)
    p_high, p_low = limbs(p)
    loss_high, loss_low = limbs(loss)
    squared_high, squared_low = limbs(error * error)
    error_high, error_low = limbs(error)
    return (
        sign, sign * clicked, sign * p_high, sign * p_low, sign * loss_high, sign * loss_low,
        sign * squared_high, sign * squared_low, sign * error_high, sign * error_low,
    )  # fmt: skip


@numba.njit(inline="always")
def _count(cells: NDArray[np.int64], start: int, terms: Terms, bucket: int, bin_cell: int) -> bool:
    """Adds terms to the vector that begins at `start`; says whether its histogram cell was 0 before.

    What the buckets sum to (impressions, clicks, pClick, log loss) is left to `drain`.
    """
    count, click, p_high, p_low, loss_high, loss_low, squared_high, squared_low, error_high, error_low = terms
    cells[start + SQUARED] += squared_high
    cells[start + SQUARED + 1] += squared_low
    cells[start + ABSOLUTE] += error_high
    cells[start + ABSOLUTE + 1] += error_low
    bucket += start
    cells[bucket] += count
    cells[bucket + 1] += click
    cells[bucket + 2] += p_high
    cells[bucket + 3] += p_low
    cells[bucket + 4] += loss_high
    cells[bucket + 5] += loss_low
    bin_cell += start
    first = cells[bin_cell] == 0
    cells[bin_cell] += count
    return bool(first)


@numba.njit(inline="always")
def _count_block(
    cells: NDArray[np.int64], at: int, p: float, loss: float, clicked: int, sign: int, placed: bool, placement: int
) -> None:
    """Adds a score to the block of users that begins at `at`."""
    error = abs(p - clicked)
    cells[at + blocks.N] += sign
    cells[at + blocks.Y] += sign * clicked
    cells[at + blocks.P] += sign * np.int64(np.rint(p * blocks.SCALE))
    cells[at + blocks.L] += sign * np.int64(np.rint(loss * blocks.SCALE))
    cells[at + blocks.SQUARED] += sign * np.int64(np.rint(error * error * blocks.SCALE))
    cells[at + blocks.ABSOLUTE] += sign * np.int64(np.rint(error * blocks.SCALE))
    if placed:
        cells[at + blocks.PHI0 - clicked] += sign * placement
        cells[at + BLOCK_PLACED0 - clicked] += sign


@numba.njit(cache=True, nogil=True)
def _add(
    p: NDArray[np.float64],
    loss: NDArray[np.float64],
    curve_bin: NDArray[np.int16],
    row: NDArray[np.int32],
    series: NDArray[np.int32],
    violation: NDArray[np.bool_],
    label: NDArray[np.int8],
    corrected: NDArray[np.bool_],
    slot: NDArray[np.int32],
    block: NDArray[np.int8],
    fresh: NDArray[np.bool_],
    curve: NDArray[np.int32],
    ready: NDArray[np.bool_],
    counting: NDArray[np.int64],
    sign: int,
    edges: NDArray[np.float64],
    blocks_at: int,
    histogram: int,
    slice_histogram: int,
    cells: NDArray[np.int64],
    size: int,
    rows_touched: NDArray[np.bool_],
    touched: NDArray[np.int64],
    n: int,
    bits: int,
    bins: int,
    slice_row: NDArray[np.int32],
    slice_cells: NDArray[np.int64],
    slice_size: int,
    slice_rows_touched: NDArray[np.bool_],
    slice_touched: NDArray[np.int64],
    slice_n: int,
    slice_bits: int,
    slice_bins: int,
    entries: NDArray[np.uint64],
    exact: NDArray[np.uint64],
) -> tuple[int, int]:
    for i in range(p.size):
        at = row[i]
        clicked = np.int64(label[at])
        terms = _terms(p[i], loss[i], clicked, sign)
        rare = corrected[at] or violation[i]
        b = 0
        while b < edges.size and p[i] >= edges[b]:
            b += 1
        bucket = BUCKETS + BUCKET_CELLS * b
        key = score_key(p[i])
        r = series[i]
        rows_touched[r] = True
        cell = histogram + clicked * bins + key_bin(key, bits)
        if _count(cells, r * size, terms, bucket, cell):
            touched[n] = r * size + cell
            n += 1
        if rare:
            cells[r * size + CORRECTED] += sign * np.int64(corrected[at])
            cells[r * size + VIOLATIONS] += sign * np.int64(violation[i])
        if blocks_at < histogram:
            placement = np.int64(curve[r, clicked, curve_bin[i]])
            if fresh[at]:
                counting[r, 0 if corrected[at] else clicked, curve_bin[i]] += 1
            _count_block(
                cells, r * size + blocks_at + block[at] * BLOCK_CELLS, p[i], loss[i], clicked, sign, ready[r], placement
            )
        cell = slice_histogram + clicked * slice_bins + key_bin(key, slice_bits)
        for d in range(slice_row.shape[0]):
            r = slice_row[d, i]
            slice_rows_touched[r] = True
            if _count(slice_cells, r * slice_size, terms, bucket, cell):
                slice_touched[slice_n] = r * slice_size + cell
                slice_n += 1
            if rare:
                slice_cells[r * slice_size + CORRECTED] += sign * np.int64(corrected[at])
                slice_cells[r * slice_size + VIOLATIONS] += sign * np.int64(violation[i])
        entries[i] = (np.uint64(slot[at]) << np.uint64(32)) | np.uint64((key << 1) | clicked)
        exact[i] = score_bits(p[i], clicked)
    return n, slice_n


@numba.njit(cache=True, nogil=True)
def _drain(
    flat: NDArray[np.int64],
    size: int,
    blocks_at: int,
    histogram: int,
    rows: NDArray[np.int64],
    touched: NDArray[np.int64],
    cells: NDArray[np.int64],
    values: NDArray[np.int64],
) -> int:
    """Moves the non-zero cells of `rows` out of `flat`, in order; `touched`: sorted histogram cells, maybe twice."""
    k = 0
    t = 0
    for row in rows:
        start = row * size
        for bucket in range(start + BUCKETS, start + blocks_at, BUCKET_CELLS):
            flat[start + IMPRESSIONS] += flat[bucket]
            flat[start + CLICKS] += flat[bucket + 1]
            flat[start + PCLICK] += flat[bucket + 2]
            flat[start + PCLICK + 1] += flat[bucket + 3]
            flat[start + LOG_LOSS] += flat[bucket + 4]
            flat[start + LOG_LOSS + 1] += flat[bucket + 5]
        for cell in range(start, start + histogram):
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
    return k


class Scratch:
    """A matrix of vectors to add into; grows by rows when a new series comes."""

    def __init__(self, layout: Layout, rows: int = 4) -> None:
        self.layout = layout
        self.matrix = np.zeros((rows, layout.size), np.int64)
        self.rows_touched = np.zeros(rows, np.bool_)
        self.touched = np.empty(1024, np.int64)  # histogram cells that may be non-zero
        self.n = 0
        self.edges = np.array(layout.edges)

    def reserve(self, rows: int, scores: int) -> None:
        """Makes sure that rows 0 .. rows - 1 exist, and that there is room for so many more scores."""
        have = len(self.matrix)
        if rows > have:
            more = max(rows, have + have // 2)
            matrix = np.zeros((more, self.layout.size), np.int64)
            matrix[:have] = self.matrix
            self.matrix = matrix
            self.rows_touched = np.concatenate((self.rows_touched, np.zeros(more - have, np.bool_)))
        need = self.n + scores
        if need > self.touched.size:
            bigger = np.empty(2 * need, np.int64)
            bigger[: self.n] = self.touched[: self.n]
            self.touched = bigger

    def add_cell(self, row: int, cell: int, value: int) -> None:
        """Adds to one count or limb of one row (not a histogram cell)."""
        self.matrix[row, cell] += value
        self.rows_touched[row] = True

    def drain(self) -> SparseVector:
        """Everything added since the last drain, as one sparse vector over all rows (row * layout.size + cell)."""
        rows = np.flatnonzero(self.rows_touched)
        touched = np.sort(self.touched[: self.n])
        room = rows.size * self.layout.histogram + touched.size
        cells, values = np.empty(room, np.int64), np.empty(room, np.int64)
        k = _drain(
            self.matrix.reshape(-1), self.layout.size, self.layout.blocks, self.layout.histogram, rows, touched, cells, values,
        )  # fmt: skip
        self.rows_touched[rows] = False
        self.n = 0
        return trimmed(cells, values, k)


def add_scores(
    overall: Scratch,
    slices: Scratch,
    p: NDArray[np.float64],
    loss: NDArray[np.float64],
    curve_bin: NDArray[np.int16],
    row: NDArray[np.int32],
    series: NDArray[np.int32],
    slice_row: NDArray[np.int32],
    violation: NDArray[np.bool_],
    label: NDArray[np.int8],
    corrected: NDArray[np.bool_],
    slot: NDArray[np.int32],
    block: NDArray[np.int8],
    fresh: NDArray[np.bool_],
    curve: NDArray[np.int32],
    ready: NDArray[np.bool_],
    counting: NDArray[np.int64],
    sign: int = 1,
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Adds k scores (or, with sign -1, takes them out); returns their rank entries (see `ranks`) and `grid.score_bits`.

    Score i of pClick p[i] in [0, 1] (with what `measure` makes of it) belongs to row series[i] of `overall` and rows slice_row[d, i] of `slices`
    (int32[dimensions, k]), which must be reserved. Its impression's label (0/1), whether that was corrected, the
    user's slot and block stand at row[i] of `label`, `corrected`, `slot` and `block`. `curve` holds every series'
    placements by label and bin, as far as `ready[series]` (int32[series, 2, bins], see `counting.references`); in `counting`, of the same shape, the
    labels of `fresh` impressions are counted, as they were when they were due.
    """
    entries, exact = np.empty(p.size, np.uint64), np.empty(p.size, np.uint64)
    overall.n, slices.n = _add(
        p, loss, curve_bin, row, series, violation, label, corrected, slot, block, fresh, curve, ready, counting, sign,
        overall.edges, overall.layout.blocks,
        overall.layout.histogram, slices.layout.histogram,
        overall.matrix.reshape(-1), overall.layout.size, overall.rows_touched, overall.touched, overall.n,
        overall.layout.bits, overall.layout.bins, slice_row, slices.matrix.reshape(-1), slices.layout.size,
        slices.rows_touched, slices.touched, slices.n, slices.layout.bits, slices.layout.bins, entries, exact,
    )  # fmt: skip
    return entries, exact
