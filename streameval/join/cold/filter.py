"""Which ids are on disk, for all but a few in a thousand of those that are not: a Bloom filter in blocks of a cache line.

Putze, Sanders, Singler, "Cache-, Hash- and Space-Efficient Bloom Filters" (WEA 2007). 12 bits an id that it was made
for; full, it holds 0.4% of other ids for known ones, and those are then looked for in vain. Ids are hashes, so an id's block goes
by its size, and ids in order go through the filter from its beginning to its end: several threads fill a part of it each.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.events.words64 import load64
from streameval.sketches.directory import mix

_BITS = 12  # an id
_WORDS = 8  # of 64 bits, a block; an id sets a bit of each: 6 bits of one hash say which
_SALT = np.uint64(0x9E3779B97F4A7C15)
_LEAST = 1 << 14  # ids
_RANGES = 512  # of ids; what those of one range set stays in the cache while all are added that are in it
_THREADS = 4
_SHIFTS = np.arange(_WORDS, dtype=np.uint64) * np.uint64(6)


@numba.njit(inline="always")
def _first_word(one: np.uint64, blocks: np.uint64) -> np.uint64:
    return np.uint64(((one >> np.uint64(32)) * blocks) >> np.uint64(32)) * np.uint64(_WORDS)


@numba.njit(inline="always")
def _set(words: NDArray[np.uint64], blocks: np.uint64, shifts: NDArray[np.uint64], one: np.uint64) -> None:
    first = _first_word(one, blocks)
    bits = mix(one ^ _SALT)
    for word in range(np.uint64(shifts.size)):  # side by side: how many is not known to the compiler, or it would not
        words[first + word] |= np.uint64(1) << ((bits >> shifts[word]) & np.uint64(63))


@numba.njit(cache=True, nogil=True)
def _add(words: NDArray[np.uint64], ids: NDArray[np.uint64], shifts: NDArray[np.uint64]) -> None:
    blocks = np.uint64(words.size // _WORDS)
    for i in range(ids.size):
        _set(words, blocks, shifts, ids[i])


@numba.njit(cache=True, nogil=True)
def _add_ranges(
    words: NDArray[np.uint64],
    parts: NDArray[np.int64],
    cuts: NDArray[np.int64],
    ranges: tuple[int, int],
    shifts: NDArray[np.uint64],
) -> None:
    """Of the ids at some addresses those of ranges [first, end), cuts[part, range] being the first of a range."""
    blocks = np.uint64(words.size // _WORDS)
    for number in range(ranges[0], ranges[1]):
        for part in range(parts.size):
            for place in range(cuts[part, number], cuts[part, number + 1]):
                _set(words, blocks, shifts, load64(parts[part] + 8 * place))


@numba.njit(cache=True, nogil=True)
def _known(words: NDArray[np.uint64], ids: NDArray[np.uint64], out: NDArray[np.int64]) -> int:
    """Writes the positions of ids that may be known; returns how many."""
    blocks = np.uint64(words.size // _WORDS)
    n = 0
    for i in range(ids.size):
        first = _first_word(ids[i], blocks)
        bits = mix(ids[i] ^ _SALT)
        all_set = np.uint64(1)
        for word in range(_WORDS):  # without leaving early: one miss of the cache, and nothing to guess
            all_set &= words[first + np.uint64(word)] >> ((bits >> np.uint64(6 * word)) & np.uint64(63))
        out[n] = i
        n += int(all_set)
    return n


class IdFilter:
    """Ids that may be known, as many as it was made for; none is taken out."""

    def __init__(self, capacity: int) -> None:
        self.capacity = max(capacity, _LEAST)
        self.used = 0
        blocks = -(-self.capacity * _BITS // (64 * _WORDS))
        self._words = np.zeros(_WORDS * (-(-blocks // _THREADS) * _THREADS), np.uint64)

    @staticmethod
    def of(ids: Iterable[NDArray[np.uint64]]) -> IdFilter:
        """A new one of parts that ascend, with room for a third more."""
        parts = list(ids)
        out = IdFilter(sum(part.size for part in parts) * 4 // 3)
        if not parts:
            return out
        edges = np.arange(1, _RANGES, dtype=np.uint64) * np.uint64(2**64 // _RANGES)
        cuts = np.array([[0, *np.searchsorted(part, edges).tolist(), part.size] for part in parts], np.int64)
        places = np.array([part.ctypes.data for part in parts], np.int64)
        each = _RANGES // _THREADS  # whole blocks: a thread writes to no word of another

        def add(first: int) -> None:
            _add_ranges(out._words, places, cuts, (first, first + each), _SHIFTS)

        with ThreadPoolExecutor(_THREADS) as threads:
            list(threads.map(add, range(0, _RANGES, each)))
        out.used = int(cuts[:, -1].sum())
        return out

    def add(self, ids: NDArray[np.uint64]) -> None:
        """Knows these from now on; others may ask meanwhile."""
        _add(self._words, ids, _SHIFTS)
        self.used += ids.size

    def known(self, ids: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Positions of those that may be known, ascending: every one that is, and a few others."""
        out = np.empty(ids.size, np.int64)
        return out[: _known(self._words, ids, out)]

    @property
    def nbytes(self) -> int:
        """Bytes of the bits."""
        return self._words.nbytes
