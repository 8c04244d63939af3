"""A series' vector as bytes of the history, in which tallies stand at cells of their names.

Where a tally stands in memory follows from the settings, which change; in the file it is always at the same cells, so
that one that is asked for later, or no longer, needs no other file. Sums of tallies that nobody asks for are not read.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from streameval.sketches.codec import decode, encode
from streameval.sketches.layout import IMPRESSIONS, Layout
from streameval.sketches.sparse import SparseVector
from streameval.sketches.tally import Tally

TALLIES = 1 << 52  # beyond the cells that every vector has
_ROOM = 20  # bits for the cells of one


@dataclass(frozen=True, slots=True)
class EncodedVector:
    """A vector as bytes: (counts, sums and buckets) apart from users' blocks, the score histogram and tallies, because
    most queries need only the first, which is a twentieth of it."""

    impressions: int  # or, without any, those that say what its policy would have shown
    sums: bytes
    scores: bytes

    @property
    def nbytes(self) -> int:
        """Bytes of both."""
        return len(self.sums) + len(self.scores)


def encode_vector(vector: SparseVector, layout: Layout) -> EncodedVector:
    """One series' vector (cells from 0) as bytes."""
    if not vector.cells.size or vector.cells[-1] < layout.tallies:
        return encode_stored(vector, layout)
    first = layout.tallies + np.cumsum([0, *(tally.size for tally in layout.tallied)])
    ends = np.searchsorted(vector.cells, first)
    moved = np.array([_place(tally) for tally in layout.tallied]) - first[:-1]
    cells = vector.cells.copy()
    cells[ends[0] :] += np.repeat(moved, np.diff(ends))
    return encode_stored(SparseVector.of(cells, vector.values), layout)


def encode_stored(vector: SparseVector, layout: Layout) -> EncodedVector:
    """The same of a vector whose tallies are at the cells of their names."""
    at = int(np.searchsorted(vector.cells, layout.blocks))
    impressions = int(vector.values[0]) if at and vector.cells[0] == IMPRESSIONS else 0
    policy = layout.tally("policy")
    if not impressions and policy is not None:  # a version that only has a policy has a result, too
        cell = np.searchsorted(vector.cells, _place(policy[0]))
        if cell < vector.cells.size and vector.cells[cell] == _place(policy[0]):
            impressions = int(vector.values[cell])
    sums = SparseVector(vector.cells[:at], vector.values[:at])
    scores = SparseVector(vector.cells[at:], vector.values[at:])
    return EncodedVector(impressions, encode(sums), encode(scores))


def decode_vector(data: bytes, layout: Layout) -> SparseVector:
    """The vector of either half. Raises CodecError."""
    vector = decode(data)
    if not vector.cells.size or vector.cells[-1] < TALLIES:
        return vector
    cells, known = vector.cells.copy(), vector.cells < TALLIES
    at = layout.tallies
    for tally in layout.tallied:
        low, high = np.searchsorted(vector.cells, (_place(tally), _place(tally) + tally.size))
        cells[low:high] += at - _place(tally)
        known[low:high] = True
        at += tally.size
    return SparseVector.of(cells[known], vector.values[known])


def _place(tally: Tally) -> int:
    """The first cell of a tally in the file."""
    return TALLIES + (zlib.crc32(tally.name.encode()) << _ROOM)
