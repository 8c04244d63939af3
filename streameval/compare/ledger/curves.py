"""The labels of a stratum by part of a bin, and the curves derived from them (see `placements`).

A stratum has thousands of scores, but there are twelve thousand parts: so curves are computed only at parts that
contain scores, unless scores of other labels are to be placed by them.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.compare.ledger.placements import BINS, ScoreCodes, read_code, times_of
from streameval.sketches.blocks import SCALE
from streameval.sketches.sparse import SparseVector

Labels = NDArray[np.int64]  # [side, label, BINS]: scores in each part; side 0 is the server
Curve = NDArray[np.int32]  # [side, label, BINS], in units of 1 / SCALE: F0 for label 1, S1 less the AUC for label 0
_AT_ONCE = 8  # parts checked as one word


class LabelTable:
    """A reusable table for counting the labels of one stratum after the other."""

    def __init__(self) -> None:
        self._counts = np.zeros((2, BINS, 2), np.int64)  # [side, part, label]
        self._seen = np.zeros((2, BINS), np.uint8)  # whether a part contains a score
        self._curve = np.zeros((2, 2, BINS), np.int32)
        self._room = np.empty((2, 4 * BINS), np.int64)

    def add(self, codes: ScoreCodes, pair: bool) -> None:
        """Adds the scores of one row: both sides of a pair, or only the server's."""
        _add(codes, pair, self._counts, self._seen)

    def take(self) -> tuple[SparseVector, Curve]:
        """Returns the labels (cells of `Labels`), and their curves at the parts that contain scores; empties the table.

        The next call overwrites the curves.
        """
        cells, values = self._room
        n = _take(self._counts, self._seen, self._curve, cells, values)
        return SparseVector(cells[:n].copy(), values[:n].copy()), self._curve


def curves_of(labels: SparseVector) -> Curve:
    """Returns the curves of labels at every part.

    Without clicks a non-click is placed at 0, without non-clicks a click at 1/2, because nothing is known.
    """
    out = np.empty((2, 2, BINS), np.int32)
    _everywhere(dense(labels), out)
    return out


def dense(labels: SparseVector) -> Labels:
    """Returns the labels as a dense array."""
    out = np.zeros(4 * BINS, np.int64)
    labels.add_to(out)
    return out.reshape(2, 2, BINS)


@numba.njit(cache=True, nogil=True)
def _add(codes: ScoreCodes, pair: bool, counts: NDArray[np.int64], seen: NDArray[np.uint8]) -> None:
    for code in codes:
        times = times_of(code)
        label, _, _, server, other = read_code(code)
        counts[0, np.uint32(server), np.uint32(label)] += times
        seen[0, np.uint32(server)] = 1
        if pair:
            counts[1, np.uint32(other), np.uint32(label)] += times
            seen[1, np.uint32(other)] = 1


@numba.njit(cache=True, nogil=True)
def _take(
    counts: NDArray[np.int64],
    seen: NDArray[np.uint8],
    curve: Curve,
    cells: NDArray[np.int64],
    values: NDArray[np.int64],
) -> int:
    """Writes curves and labels for all parts that contain scores, and empties the table; returns the number of cells
    with labels.
    """
    n, bins = np.int64(0), seen.shape[1]
    parts, no, yes = np.empty(bins, np.int64), np.empty(bins, np.int64), np.empty(bins, np.int64)
    for side in range(2):
        words, some = seen[side].view(np.uint64), np.int64(0)
        for word in range(words.size):
            if words[word] != 0:
                # without branches, of which every second would be mispredicted: what is not kept is written over
                for part in range(word * _AT_ONCE, (word + 1) * _AT_ONCE):
                    at = np.uint32(some)
                    parts[at], no[at], yes[at] = part, counts[side, part, 0], counts[side, part, 1]
                    counts[side, part, 0] = counts[side, part, 1] = 0
                    some += np.int64(seen[side, part])
                words[word] = 0
        _curve_at(parts[:some], no[:some], yes[:some], curve[side])
        for label in range(2):
            of_label = yes if label else no
            for i in range(some):
                cells[np.uint32(n)], values[np.uint32(n)] = (2 * side + label) * bins + parts[i], of_label[i]
                n += np.int64(of_label[i] != 0)
    return int(n)


@numba.njit(cache=True, nogil=True)
def _curve_at(parts: NDArray[np.int64], no: NDArray[np.int64], yes: NDArray[np.int64], out: NDArray[np.int32]) -> None:
    """Fills in the curves of one side, out [label, part], at the ascending `parts` that contain all labels; `no`,
    `yes`: their labels.
    """
    others, clicks, twice = np.int64(0), np.int64(0), np.int64(0)  # the last: twice the concordant pairs
    for i in range(parts.size):
        twice += yes[i] * (2 * others + no[i])
        others += no[i]
        clicks += yes[i]
    auc = twice / (2.0 * others * clicks) if others > 0 and clicks > 0 else 0.5 if clicks > 0 else 0.0
    below, above = np.int64(0), clicks
    for i in range(parts.size):
        part = np.uint32(parts[i])
        share = (below + no[i] / 2.0) / others if others > 0 else 0.5
        out[1, part] = np.int32(np.rint(share * SCALE))
        below += no[i]
        above -= yes[i]
        share = (above + yes[i] / 2.0) / clicks if clicks > 0 else 0.0
        out[0, part] = np.int32(np.rint((share - auc) * SCALE))


@numba.njit(cache=True, nogil=True)
def _everywhere(labels: Labels, out: Curve) -> None:
    parts = np.arange(labels.shape[2])
    for side in range(2):
        _curve_at(parts, labels[side, 0], labels[side, 1], out[side])
