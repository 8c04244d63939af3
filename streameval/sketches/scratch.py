"""A matrix of vectors that kernels add to (one row per series, zero between calls), and its draining into sparse vectors.

One bitmap marks the cells of the histogram, and of clicks by propensity and score, that were added to, and a second one the
first one's non-zero words: so cells are found in order without sorting, and cells that were not touched cost nothing.
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
_GROUP = 12  # bit b is marked in word `b >> _GROUP` of `words`


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
    clicks_marked: int  # the bit that marks the first of those, the first of a word of `words`
    rows_touched: NDArray[np.bool_]
    touched: NDArray[np.uint64]  # [row, word]: cells that were added to, a bit each: of the histogram, then of clicks
    words: NDArray[np.uint64]  # [row, word]: non-zero words of `touched`, a bit each


class Drained(NamedTuple):
    """Non-zero cells and their values, pane by pane; pane j's end at `ends[j + 1]`."""

    cells: NDArray[np.int64]
    values: NDArray[np.int64]
    ends: NDArray[np.int64]


@numba.njit(inline="always")
def mark(touched: NDArray[np.uint64], words: NDArray[np.uint64], r: int, at: int) -> None:
    """Marks histogram cell `at` of row r as touched; or cell `at` - `clicks_marked` of clicks."""
    bit = np.uint64(at)
    word = bit >> _WORD
    touched[r, word] |= np.uint64(1) << (bit & _IN_WORD)
    words[r, word >> _WORD] |= np.uint64(1) << (word & _IN_WORD)


@numba.njit(cache=True, nogil=True)
def drain(target: Target, k: int, cells: NDArray[np.int64], values: NDArray[np.int64]) -> int:
    """Moves non-zero cells to `cells` and `values`, in order, starting at place k; returns where they end."""
    flat, size, words = target.cells, target.size, target.words
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
        clicks = target.clicks_marked >> _GROUP
        k = _drain_marked(target, row, (0, clicks), start + target.histogram, k, cells, values)
        if target.strata >= 0:
            k = _drain_all(flat, start + target.strata, start + target.strata_clicks, k, cells, values)
            of_click = start + target.strata_clicks - target.clicks_marked
            k = _drain_marked(target, row, (clicks, words.shape[1]), of_click, k, cells, values)
        if target.weights >= 0:
            k = _drain_all(flat, start + target.weights, start + target.weights + _WEIGHT_CELLS, k, cells, values)
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
def _drain_marked(
    target: Target,
    row: int,
    groups: tuple[int, int],
    first: int,
    k: int,
    cells: NDArray[np.int64],
    values: NDArray[np.int64],
) -> int:
    """As `drain`, of the marked cells of some words of `words`; the bit 0 would be of cell `first`."""
    flat, touched, words = target.cells, target.touched, target.words
    for group in range(groups[0], groups[1]):
        while words[row, group] != np.uint64(0):
            word = group * _WORD_BITS + np.int64(zeros_below(words[row, group]))
            words[row, group] &= words[row, group] - np.uint64(1)
            bits = touched[row, word]
            touched[row, word] = 0
            while bits != np.uint64(0):
                place = first + word * _WORD_BITS + np.int64(zeros_below(bits))
                bits &= bits - np.uint64(1)
                if flat[place] != 0:
                    cells[k], values[k], flat[place] = place, flat[place], 0
                    k += 1
    return k


class Scratch:
    """A matrix of vectors to add to; gets more rows when a new series appears."""

    def __init__(self, layout: Layout, rows: int = 4) -> None:
        self.edges = np.array(layout.edges)
        weights, strata = layout.tally(WEIGHTS.name), layout.strata
        clicks_marked = -(-2 * layout.bins >> _GROUP) << _GROUP
        self._words = (clicks_marked + (0 if strata is None else strata.clicks[0].size)) // _WORD_BITS + 1
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
            clicks_marked=clicks_marked,
            rows_touched=np.zeros(rows, np.bool_),
            touched=np.zeros((rows, self._words), np.uint64),
            words=np.zeros((rows, self._words // _WORD_BITS + 1), np.uint64),
        )

    def reserve(self, rows: int) -> None:
        """Makes sure that rows 0 .. rows - 1 exist. All rows must be zero."""
        have = self.target.rows_touched.size
        if rows > have:
            more = max(rows, have + have // 2)
            self.target = self.target._replace(
                cells=np.zeros(more * self.target.size, np.int64),
                rows_touched=np.zeros(more, np.bool_),
                touched=np.zeros((more, self._words), np.uint64),
                words=np.zeros((more, self._words // _WORD_BITS + 1), np.uint64),
            )

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
