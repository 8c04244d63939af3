"""A matrix of vectors that kernels add to (one row per series, zero between calls), and its draining into sparse vectors.

One bitmap marks the histogram cells that were added to, and a second one the first one's non-zero words: so cells are
found in order without sorting, and cells that were not touched cost nothing. Clicks by propensity and score, few in many cells, are
bitmaps alone: their counts would be as much memory again as the histograms, nearly all of it cold.
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
_WORD_BITS = 64
_WORD, _IN_WORD = np.uint64(6), np.uint64(_WORD_BITS - 1)  # bit b is bit `b & _IN_WORD` of word `b >> _WORD`


class Marks(NamedTuple):
    """Which cells of some rows were added to."""

    touched: NDArray[np.uint64]  # [row, word]: a bit for each cell
    words: NDArray[np.uint64]  # [row, word]: non-zero words of `touched`, a bit each

    @classmethod
    def of(cls, rows: int, cells: int) -> Marks:
        """No marks of so many cells."""
        n = -(-cells // _WORD_BITS)
        return cls(np.zeros((rows, n), np.uint64), np.zeros((rows, -(-n // _WORD_BITS)), np.uint64))


class Target(NamedTuple):
    """A `Scratch` as kernels read it; see `Layout` for the sizes."""

    cells: NDArray[np.int64]
    size: int
    blocks: int
    histogram: int
    bits: int
    bins: int
    weights: int  # first cell of `copies.WEIGHTS`, behind the histogram; negative: the log is not a sample
    strata: int  # first cell of the sums by propensity, behind the histogram; negative: none
    strata_clicks: int  # first cell of clicks by propensity and score, right behind those
    strata_cells: int  # of clicks by propensity and score
    rows_touched: NDArray[np.bool_]
    marks: Marks  # of the histogram
    clicked: Marks  # of clicks by propensity and score, nearly all of which are alone in their cell
    more: NDArray[np.int64]  # row * `strata_cells` + cell of clicks that are not the first of their cell, in any order
    more_count: NDArray[np.int64]  # [1]


class Drained(NamedTuple):
    """Non-zero cells and their values, pane by pane; pane j's end at `ends[j + 1]`."""

    cells: NDArray[np.int64]
    values: NDArray[np.int64]
    ends: NDArray[np.int64]


@numba.njit(inline="always")
def mark(touched: NDArray[np.uint64], words: NDArray[np.uint64], r: int, at: int) -> bool:
    """Marks cell `at` of row r as touched; returns whether it was already."""
    bit = np.uint64(at)
    word, one = bit >> _WORD, np.uint64(1) << (bit & _IN_WORD)
    before = touched[r, word]
    touched[r, word] = before | one
    words[r, word >> _WORD] |= np.uint64(1) << (word & _IN_WORD)
    return (before & one) != np.uint64(0)


@numba.njit(cache=True, nogil=True)
def drain(target: Target, sign: int, k: int, cells: NDArray[np.int64], values: NDArray[np.int64]) -> int:
    """Moves non-zero cells to `cells` and `values`, in order, starting at place k; returns where they end.

    `sign`: with which scores were added.
    """
    flat, size = target.cells, target.size
    more, used = np.sort(target.more[: target.more_count[0]]), 0
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
        k = _drain_all(flat, start, start + target.histogram, k, cells, values)
        first = k
        k = _drain_marked(target.marks, row, start + target.histogram, k, cells)
        n = first
        for i in range(first, k):
            place = cells[i]
            if flat[place] != 0:
                cells[n], values[n], flat[place] = place, flat[place], 0
                n += 1
        k = n
        if target.strata >= 0:
            k = _drain_all(flat, start + target.strata, start + target.strata_clicks, k, cells, values)
            first, at = k, start + target.strata_clicks
            k = _drain_marked(target.clicked, row, at, k, cells)
            values[first:k] = sign
            for i in range(first, k):
                code = row * target.strata_cells + cells[i] - at
                while used < more.size and more[used] == code:
                    values[i] += sign
                    used += 1
        if target.weights >= 0:
            k = _drain_all(flat, start + target.weights, start + target.weights + _WEIGHT_CELLS, k, cells, values)
    target.more_count[0] = 0
    return k


@numba.njit(cache=True, nogil=True)
def _drain_all(
    flat: NDArray[np.int64], first: int, end: int, k: int, cells: NDArray[np.int64], values: NDArray[np.int64]
) -> int:
    for cell in range(first, end):
        if flat[cell] != 0:
            cells[k], values[k], flat[cell] = cell, flat[cell], 0
            k += 1
    return k


@numba.njit(cache=True, nogil=True)
def _drain_marked(marks: Marks, row: int, first: int, k: int, cells: NDArray[np.int64]) -> int:
    """Moves the marked cells of a row, whose cell 0 is `first`, to `cells`, as `drain`."""
    touched, words = marks.touched[row], marks.words[row]
    for group in range(words.size):
        while words[group] != np.uint64(0):
            word = group * _WORD_BITS + np.int64(zeros_below(words[group]))
            words[group] &= words[group] - np.uint64(1)
            bits = touched[word]
            touched[word] = 0
            while bits != np.uint64(0):
                cells[k] = first + word * _WORD_BITS + np.int64(zeros_below(bits))
                bits &= bits - np.uint64(1)
                k += 1
    return k


class Scratch:
    """A matrix of vectors to add to; gets more rows when a new series appears."""

    def __init__(self, layout: Layout, rows: int = 4) -> None:
        self.edges = np.array(layout.edges)
        weights, strata = layout.tally(WEIGHTS.name), layout.strata
        self._bits = 2 * layout.bins, 0 if strata is None else strata.clicks[0].size
        self._sums = _WEIGHT_CELLS + (0 if strata is None else strata.sums[0].size)
        self.target = Target(
            cells=np.zeros(rows * layout.size, np.int64),
            size=layout.size,
            blocks=layout.blocks,
            histogram=layout.histogram,
            bits=layout.bits,
            bins=layout.bins,
            weights=-1 if weights is None else weights[1],
            strata=-1 if strata is None else strata.sums[1],
            strata_clicks=-1 if strata is None else strata.clicks[1],
            strata_cells=self._bits[1],
            rows_touched=np.zeros(rows, np.bool_),
            marks=Marks.of(rows, self._bits[0]),
            clicked=Marks.of(rows, self._bits[1]),
            more=np.empty(0, np.int64),
            more_count=np.zeros(1, np.int64),
        )

    def reserve(self, rows: int, scores: int) -> None:
        """Makes sure that rows 0 .. rows - 1 exist, and room for so many scores. All rows must be zero."""
        have = self.target.rows_touched.size
        if rows > have:
            more = max(rows, have + have // 2)
            self.target = self.target._replace(
                cells=np.zeros(more * self.target.size, np.int64),
                rows_touched=np.zeros(more, np.bool_),
                marks=Marks.of(more, self._bits[0]),
                clicked=Marks.of(more, self._bits[1]),
            )
        if self.target.strata >= 0 and scores > self.target.more.size:
            self.target = self.target._replace(more=np.empty(scores, np.int64))

    def room(self, scores: NDArray[np.int64]) -> NDArray[np.int64]:
        """The largest number of non-zero cells that this many scores of a pane can have."""
        rows = np.minimum(self.target.rows_touched.size, scores)
        of_a_score = 1 + (self.target.strata >= 0)  # of the histogram; and if it was clicked, by its propensity
        return rows * (self.target.histogram + self._sums) + of_a_score * scores


def no_room(panes: int) -> Drained:
    """Room for no cells: sums stay in the scratch."""
    return Drained(np.empty(0, np.int64), np.empty(0, np.int64), np.zeros(panes + 1, np.int64))


def room_of(cells: int, panes: int) -> Drained:
    """Room for this many cells of all panes together."""
    return Drained(np.empty(cells, np.int64), np.empty(cells, np.int64), np.zeros(panes + 1, np.int64))


def vectors_of(drained: Drained) -> list[SparseVector]:
    """The vectors of all panes, each with its own arrays, because panes leave memory one by one."""
    ends = drained.ends.tolist()
    return [SparseVector(drained.cells[a:b].copy(), drained.values[a:b].copy()) for a, b in pairwise(ends)]
