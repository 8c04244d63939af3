"""Which ids are on disk, for all but a few in a thousand of those that are not: a Bloom filter in blocks of a cache line.

Putze, Sanders, Singler, "Cache-, Hash- and Space-Efficient Bloom Filters" (WEA 2007). 12 bits an id that it was made
for; full, it holds 0.5% of other ids for known ones, and those are then looked for in vain. Ids are hashes, so an id's block goes
by its size, and ids in order go through the filter from its beginning to its end.
"""

from __future__ import annotations

from collections.abc import Iterable

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.sketches.directory import mix

_BITS = 12  # an id
_BLOCK = 512  # bits
_TESTS = 7  # bits of a block that an id sets: 9 bits of one hash each
_SALT = np.uint64(0x9E3779B97F4A7C15)
_LEAST = 1 << 14  # ids
_RANGE_BITS = 7  # of ids; what those of one range set stays in the cache while all are added that are in it


@numba.njit(inline="always")
def _first_word(one: np.uint64, blocks: np.uint64) -> int:
    return int(((one >> np.uint64(32)) * blocks) >> np.uint64(32)) * 8


@numba.njit(cache=True, nogil=True)
def _add(words: NDArray[np.uint64], ids: NDArray[np.uint64]) -> None:
    blocks = np.uint64(words.size // 8)
    for i in range(ids.size):
        first = _first_word(ids[i], blocks)
        bits = mix(ids[i] ^ _SALT)
        for _ in range(_TESTS):
            words[first + int((bits >> np.uint64(6)) & np.uint64(7))] |= np.uint64(1) << (bits & np.uint64(63))
            bits >>= np.uint64(9)


@numba.njit(cache=True, nogil=True)
def _known(words: NDArray[np.uint64], ids: NDArray[np.uint64], out: NDArray[np.int64]) -> int:
    """Writes the positions of ids that may be known; returns how many."""
    blocks = np.uint64(words.size // 8)
    n = 0
    for i in range(ids.size):
        first = _first_word(ids[i], blocks)
        bits = mix(ids[i] ^ _SALT)
        all_set = np.uint64(1)
        for _ in range(_TESTS):  # without leaving early: one miss of the cache, and nothing to guess
            all_set &= words[first + int((bits >> np.uint64(6)) & np.uint64(7))] >> (bits & np.uint64(63))
            bits >>= np.uint64(9)
        out[n] = i
        n += int(all_set)
    return n


class IdFilter:
    """Ids that may be known, as many as it was made for; none is taken out."""

    def __init__(self, capacity: int) -> None:
        self.capacity = max(capacity, _LEAST)
        self.used = 0
        self._words = np.zeros(8 * (-(-self.capacity * _BITS // _BLOCK)), np.uint64)

    @staticmethod
    def of(ids: Iterable[NDArray[np.uint64]]) -> IdFilter:
        """A new one of parts that ascend, with room for a third more."""
        parts = list(ids)
        out = IdFilter(sum(part.size for part in parts) * 4 // 3)
        edges = np.arange(1, 1 << _RANGE_BITS, dtype=np.uint64) << np.uint64(64 - _RANGE_BITS)
        cuts = [[0, *np.searchsorted(part, edges).tolist(), part.size] for part in parts]
        for number in range(1 << _RANGE_BITS):
            for part, cut in zip(parts, cuts, strict=True):
                out.add(part[cut[number] : cut[number + 1]])
        return out

    def add(self, ids: NDArray[np.uint64]) -> None:
        """Knows these from now on; others may ask meanwhile."""
        _add(self._words, ids)
        self.used += ids.size

    def known(self, ids: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Positions of those that may be known, ascending: every one that is, and a few others."""
        out = np.empty(ids.size, np.int64)
        return out[: _known(self._words, ids, out)]

    @property
    def nbytes(self) -> int:
        """Bytes of the bits."""
        return self._words.nbytes
