"""Adding scored impressions to series' vectors: the one kernel that every label passes through.

`Scratch` is a matrix of vectors (one row per series) that is zero between calls. `add` puts scored impressions of one
pane into it, `drain` takes them out again as one sparse vector over all rows: the delta by which the pane, the windows
that hold it and the whole run grow. Cost: about 60 ns an impression, and nothing for rows and cells not touched.
"""

from __future__ import annotations

import math

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.sketches.fixed import add_real
from streameval.sketches.grid import key_bin, score_key
from streameval.sketches.layout import (
    ABSOLUTE,
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
from streameval.sketches.sparse import SparseVector

CLIP = 1e-7  # log loss is taken of p clipped to [CLIP, 1 - CLIP]


@numba.njit(inline="always")
def log_loss(p: float, label: int) -> float:
    """-ln of the probability given to what happened, p clipped to [1e-7, 1 - 1e-7]; nats."""
    q = min(max(p, CLIP), 1.0 - CLIP)
    return -math.log(q) if label else -math.log1p(-q)


@numba.njit(cache=True, nogil=True)
def _add(
    matrix: NDArray[np.int64],
    touched_rows: NDArray[np.bool_],
    touched: NDArray[np.int64],
    n_touched: int,
    row: NDArray[np.int32],
    p: NDArray[np.float64],
    label: NDArray[np.int8],
    corrected: NDArray[np.bool_],
    violation: NDArray[np.bool_],
    sign: int,
    edges: NDArray[np.float64],
    bits: int,
    histogram: int,
    bins: int,
) -> int:
    for i in range(row.size):
        r = row[i]
        cells = matrix[r]
        touched_rows[r] = True
        x = p[i]
        clicked = np.int64(label[i])
        loss = log_loss(x, clicked)
        error = x - clicked
        cells[IMPRESSIONS] += sign
        cells[CLICKS] += sign * clicked
        cells[CORRECTED] += sign * np.int64(corrected[i])
        cells[VIOLATIONS] += sign * np.int64(violation[i])
        add_real(cells, PCLICK, x, sign)
        add_real(cells, LOG_LOSS, loss, sign)
        add_real(cells, SQUARED, error * error, sign)
        add_real(cells, ABSOLUTE, abs(error), sign)
        b = 0
        while b < edges.size and x >= edges[b]:
            b += 1
        cell = BUCKETS + BUCKET_CELLS * b
        cells[cell] += sign
        cells[cell + 1] += sign * clicked
        add_real(cells, cell + 2, x, sign)
        add_real(cells, cell + 4, loss, sign)
        cell = histogram + clicked * bins + key_bin(score_key(x), bits)
        if cells[cell] == 0:
            touched[n_touched] = r * matrix.shape[1] + cell
            n_touched += 1
        cells[cell] += sign
    return n_touched


@numba.njit(cache=True, nogil=True)
def _take(flat: NDArray[np.int64], cells: NDArray[np.int64], values: NDArray[np.int64]) -> int:
    """Moves the cells' non-zero values out of `flat`, compacting `cells` in place; a cell named twice counts once."""
    k = 0
    for i in range(cells.size):
        value = flat[cells[i]]
        if value != 0:
            flat[cells[i]] = 0
            cells[k] = cells[i]
            values[k] = value
            k += 1
    return k


class Scratch:
    """A matrix of vectors to add into; grows by rows when a new series comes."""

    def __init__(self, layout: Layout, rows: int = 4) -> None:
        self.layout = layout
        self.matrix = np.zeros((rows, layout.size), np.int64)
        self._touched_rows = np.zeros(rows, np.bool_)
        self._touched = np.empty(1024, np.int64)
        self._n = 0
        self._edges = np.array(layout.edges)

    def grow(self, rows: int) -> None:
        """Makes sure that rows 0 .. rows - 1 exist."""
        have = len(self.matrix)
        if rows > have:
            more = max(rows, have + have // 2)
            matrix = np.zeros((more, self.layout.size), np.int64)
            matrix[:have] = self.matrix
            self.matrix = matrix
            self._touched_rows = np.concatenate((self._touched_rows, np.zeros(more - have, np.bool_)))

    def add(
        self,
        row: NDArray[np.int32],
        p: NDArray[np.float64],
        label: NDArray[np.int8],
        corrected: NDArray[np.bool_],
        violation: NDArray[np.bool_],
        sign: int = 1,
    ) -> None:
        """n scored impressions (or, with sign -1, their retraction): the row of each, pClick in [0, 1], label 0/1."""
        need = self._n + row.size
        if need > self._touched.size:
            bigger = np.empty(2 * need, np.int64)
            bigger[: self._n] = self._touched[: self._n]
            self._touched = bigger
        layout = self.layout
        self._n = _add(
            self.matrix, self._touched_rows, self._touched, self._n, row, p, label, corrected, violation, sign,
            self._edges, layout.bits, layout.histogram, layout.bins,
        )  # fmt: skip

    def add_cell(self, row: int, cell: int, value: int) -> None:
        """Adds to one count or limb of one row (not a histogram cell)."""
        self.matrix[row, cell] += value
        self._touched_rows[row] = True

    def drain(self) -> SparseVector:
        """Everything added since the last drain, as one sparse vector over all rows (row * layout.size + cell)."""
        layout = self.layout
        rows = np.flatnonzero(self._touched_rows)
        heads = (rows[:, None] * layout.size + np.arange(layout.histogram)).ravel()
        cells = np.concatenate((heads, self._touched[: self._n]))
        cells.sort()
        values = np.empty(cells.size, np.int64)
        k = _take(self.matrix.reshape(-1), cells, values)
        self._touched_rows[rows] = False
        self._n = 0
        return SparseVector(cells[:k].copy(), values[:k].copy())
