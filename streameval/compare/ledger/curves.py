"""The labels of a stratum by part of a bin, and the curves of them (see `placements`).

A stratum has thousands of scores, and there are twelve thousand parts: so curves are worked out at the parts that scores fell into,
and nowhere else, unless scores of other labels are to be placed by them.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.compare.ledger.placements import BINS, ScoreCodes, read_code, times_of
from streameval.sketches.blocks import SCALE
from streameval.sketches.sparse import SparseVector

Labels = NDArray[np.int64]  # [side, label, BINS]: how often a score fell into a part; side 0 is the server
Curve = NDArray[np.int32]  # [side, label, BINS], in units of 1 / SCALE: of label 1 F0, of label 0 S1 less the AUC
_AT_ONCE = 8  # parts that are looked at as one word


class LabelTable:
    """What labels are counted in, one stratum after the other."""

    def __init__(self) -> None:
        self._counts = np.zeros((2, BINS, 2), np.int64)  # [side, part, label]
        self._seen = np.zeros((2, BINS), np.uint8)  # whether a score fell into a part
        self._curve = np.zeros((2, 2, BINS), np.int32)
        self._room = np.empty((2, 4 * BINS), np.int64)

    def add(self, codes: ScoreCodes, pair: bool) -> None:
        """Adds scores of one row: of both sides of a pair, or of the server alone."""
        _add(codes, pair, self._counts, self._seen)

    def take(self) -> tuple[SparseVector, Curve]:
        """The labels (cells of `Labels`), and their curves at the parts that scores fell into; the table is empty again.

        The curves are those of the next stratum after the next call.
        """
        cells, values = self._room
        n = _take(self._counts, self._seen, self._curve, cells, values)
        return SparseVector(cells[:n].copy(), values[:n].copy()), self._curve


def curves_of(labels: SparseVector) -> Curve:
    """The curves of labels at every part.

    Without clicks a non-click is placed at 0, without non-clicks a click at 1/2: there is nothing to tell.
    """
    counts, out = np.ascontiguousarray(dense(labels).transpose(0, 2, 1)), np.empty((2, 2, BINS), np.int32)
    for side in range(2):
        _curve_at(np.arange(BINS), counts[side], out[side])
    return out


def dense(labels: SparseVector) -> Labels:
    """Labels by cell."""
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
    """Writes curves and labels where any score was seen, and empties the table; returns how many cells have labels."""
    n = 0
    parts = np.empty(seen.shape[1], np.int64)
    for side in range(2):
        words, some = seen[side].view(np.uint64), 0
        for word in range(words.size):
            if words[word] != 0:
                for part in range(word * _AT_ONCE, (word + 1) * _AT_ONCE):
                    if seen[side, part]:
                        parts[some] = part
                        some += 1
                words[word] = 0
        _curve_at(parts[:some], counts[side], curve[side])
        for label in range(2):
            for i in range(some):
                part = parts[i]
                if counts[side, part, label] != 0:
                    cells[n] = (2 * side + label) * seen.shape[1] + part
                    values[n] = counts[side, part, label]
                    counts[side, part, label] = 0
                    n += 1
    return n


@numba.njit(cache=True, nogil=True)
def _curve_at(parts: NDArray[np.int64], counts: NDArray[np.int64], out: NDArray[np.int32]) -> None:
    """The curves of one side at parts, in ascending order, that all labels are in: counts [part, label], out [label, part]."""
    others, clicks, twice = np.int64(0), np.int64(0), np.int64(0)  # the last: of the concordant pairs
    for part in parts:
        no, yes = counts[part, 0], counts[part, 1]
        twice += yes * (2 * others + no)
        others += no
        clicks += yes
    auc = twice / (2.0 * others * clicks) if others > 0 and clicks > 0 else 0.5 if clicks > 0 else 0.0
    below, above = np.int64(0), clicks
    for part in parts:
        no, yes = counts[part, 0], counts[part, 1]
        share = (below + no / 2.0) / others if others > 0 else 0.5
        out[1, part] = np.int32(np.rint(share * SCALE))
        below += no
        above -= yes
        share = (above + yes / 2.0) / clicks if clicks > 0 else 0.0
        out[0, part] = np.int32(np.rint((share - auc) * SCALE))
