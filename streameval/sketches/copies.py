"""The number of impressions that one of a downsampled log represents: its weight as a whole number of copies.

Every sum counts an impression that many times, so sums stay integers, and merge, retract and restart bit by bit. A weight that is
not a whole number is rounded up with the probability of its fraction, by a hash of the impression's id: sums are unbiased,
the same in every order, process and version, and a retraction is exact. Rounding adds a variance of at most 1/4 to the square
of a weight, so weights must be at least 1: it is negligible at 100, and would double the square at 0.5.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.sketches.directory import mix
from streameval.sketches.tally import Tally

_SALT = np.uint64(0x3E16B7C0)  # makes rounding independent of a sampler that hashes the same id
_DROPPED = np.uint64(11)  # low bits of a hash, whose other 53 are a number in [0, 1)
_PER_UNIT = 2.0**-53

# of a series: sums of squared copies of its clicks, and of its non-clicks; and how many impressions do not have one copy
CLICKS_SQUARED, OTHERS_SQUARED, WEIGHED = range(3)
WEIGHTS = Tally("weights", ("clicks_squared", "others_squared", "weighed"), blocks=False)


class Copies(NamedTuple):
    """Of n impressions, int64[n]: by their labels, and what they would be as non-clicks."""

    now: NDArray[np.int64]
    unclicked: NDArray[np.int64]

    def taken(self, rows: NDArray[np.generic]) -> Copies:
        """Those of some rows."""
        return Copies(self.now[rows], self.unclicked[rows])

    def labelled_as_due(self, unclicked: NDArray[np.bool_]) -> Copies:
        """With those that had no click when their label was due counted as non-clicks."""
        return Copies(np.where(unclicked, self.unclicked, self.now), self.unclicked)


@numba.njit(inline="always")
def _whole(impression: np.uint64, weight: float) -> int:
    low = np.floor(weight)
    if low == weight:
        return int(low)
    at = np.float64(mix(impression ^ _SALT) >> _DROPPED) * _PER_UNIT
    return int(low) + int(at < weight - low)


@numba.njit(cache=True, nogil=True)
def _copies(
    impression: NDArray[np.uint64],
    weight: NDArray[np.float64],
    out: NDArray[np.int64],
) -> None:
    for i in range(impression.size):
        out[i] = _whole(impression[i], weight[i])


def copies_of(impression: NDArray[np.uint64], weight: NDArray[np.float64]) -> NDArray[np.int64]:
    """The copies of n impressions: hashes of their ids, and weights of at least 0."""
    out = np.empty(impression.size, np.int64)
    _copies(impression, weight, out)
    return out


def by_label(impression: NDArray[np.uint64], weight: float, label: NDArray[np.int8]) -> Copies:
    """Copies where a non-click has a weight, and a click has none."""
    unclicked = copies_of(impression, np.full(impression.size, weight))
    return Copies(np.where(label == 1, 1, unclicked), unclicked)
