"""A matrix of vectors that kernels add to (one row per series, zero between calls), and what is taken out of it again.

Which cells of the histograms were added to is noted bit by bit, and words of such bits that are not 0 likewise: so they
come out in order without being sorted, and nothing is paid for those not touched.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.sketches.bits import zeros_below
from streameval.sketches.copies import WEIGHTS
from streameval.sketches.layout import (
    BUCKET_CELLS,
    BUCKET_CLICKS,
    BUCKET_IMPRESSIONS,
    BUCKET_LOG_LOSS,
    BUCKET_PCLICK,
    BUCKETS,
    CLICKS,
    IMPRESSIONS,
    SUM_LOG_LOSS,
    SUM_PCLICK,
    Layout,
)
from streameval.sketches.sparse import SparseVector

_WEIGHT_CELLS = len(WEIGHTS.cells)


class Target(NamedTuple):
    """A `Scratch` as kernels see it; see `Layout` for the sizes."""

    cells: NDArray[np.int64]
    size: int
    blocks: int
    histogram: int
    bits: int
    bins: int
    weights: int  # first cell of `copies.WEIGHTS`, behind the histogram; below 0: the log is no sample
    rows_touched: NDArray[np.bool_]
    touched: NDArray[np.uint64]  # [row, word]: histogram cells that were added to, a bit each
    words: NDArray[np.uint64]  # [row, word]: words of `touched` that are not 0, a bit each


class Drained(NamedTuple):
    """Cells that are not 0 and their values, pane after pane; pane j's end at `ends[j + 1]`."""

    cells: NDArray[np.int64]
    values: NDArray[np.int64]
    ends: NDArray[np.int64]


@numba.njit(inline="always")
def mark(touched: NDArray[np.uint64], words: NDArray[np.uint64], r: int, at: int) -> None:
    """Notes that histogram cell `at` of row r was added to."""
    bit = np.uint64(at)
    touched[r, bit >> np.uint64(6)] |= np.uint64(1) << (bit & np.uint64(63))
    words[r, bit >> np.uint64(12)] |= np.uint64(1) << ((bit >> np.uint64(6)) & np.uint64(63))


@numba.njit(cache=True, nogil=True)
def drain(target: Target, k: int, cells: NDArray[np.int64], values: NDArray[np.int64]) -> int:
    """Moves what is not 0 to `cells` and `values`, in order and from place k on, and returns where it ends."""
    flat, size, touched, words = target.cells, target.size, target.touched, target.words
    for row in range(target.rows_touched.size):
        if not target.rows_touched[row]:
            continue
        target.rows_touched[row] = False
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
                cells[k], values[k], flat[cell] = cell, flat[cell], 0
                k += 1
        for group in range(words.shape[1]):
            while words[row, group] != np.uint64(0):
                word = group * 64 + np.int64(zeros_below(words[row, group]))
                words[row, group] &= words[row, group] - np.uint64(1)
                bits = touched[row, word]
                touched[row, word] = 0
                while bits != np.uint64(0):
                    place = start + target.histogram + word * 64 + np.int64(zeros_below(bits))
                    bits &= bits - np.uint64(1)
                    if flat[place] != 0:
                        cells[k], values[k], flat[place] = place, flat[place], 0
                        k += 1
        if target.weights >= 0:
            for cell in range(start + target.weights, start + target.weights + _WEIGHT_CELLS):
                if flat[cell] != 0:
                    cells[k], values[k], flat[cell] = cell, flat[cell], 0
                    k += 1
    return k


class Scratch:
    """A matrix of vectors to add into; grows by rows when a new series comes."""

    def __init__(self, layout: Layout, rows: int = 4) -> None:
        self.edges = np.array(layout.edges)
        self._words = -(-2 * layout.bins // 64)
        weights = layout.tally(WEIGHTS.name)
        self.target = Target(
            cells=np.zeros(rows * layout.size, np.int64),
            size=layout.size,
            blocks=layout.blocks,
            histogram=layout.histogram,
            bits=layout.bits,
            bins=layout.bins,
            weights=-1 if weights is None else weights[1],
            rows_touched=np.zeros(rows, np.bool_),
            touched=np.zeros((rows, self._words), np.uint64),
            words=np.zeros((rows, -(-self._words // 64)), np.uint64),
        )

    def reserve(self, rows: int) -> None:
        """Makes sure that rows 0 .. rows - 1 exist. Nothing may be in any."""
        have = self.target.rows_touched.size
        if rows > have:
            more = max(rows, have + have // 2)
            self.target = self.target._replace(
                cells=np.zeros(more * self.target.size, np.int64),
                rows_touched=np.zeros(more, np.bool_),
                touched=np.zeros((more, self._words), np.uint64),
                words=np.zeros((more, -(-self._words // 64)), np.uint64),
            )

    def room(self, scores: NDArray[np.int64]) -> NDArray[np.int64]:
        """The most cells that so many scores of a pane are not 0 in."""
        rows = np.minimum(self.target.rows_touched.size, scores)
        return rows * (self.target.histogram + _WEIGHT_CELLS) + scores


def no_room(panes: int) -> Drained:
    """What is added stays in the scratch."""
    return Drained(np.empty(0, np.int64), np.empty(0, np.int64), np.zeros(panes + 1, np.int64))


def room_of(cells: int, panes: int) -> Drained:
    """For so many cells of all panes together."""
    return Drained(np.empty(cells, np.int64), np.empty(cells, np.int64), np.zeros(panes + 1, np.int64))


def vectors_of(drained: Drained) -> list[SparseVector]:
    """Of every pane, with arrays of its own: panes leave memory one by one."""
    ends = drained.ends.tolist()
    return [SparseVector(drained.cells[a:b].copy(), drained.values[a:b].copy()) for a, b in pairwise(ends)]
