"""Which ids are on disk, and in which segments: a Bloom filter in blocks of a cache line.

Putze, Sanders, Singler, "Cache-, Hash- and Space-Efficient Bloom Filters" (WEA 2007). 16 bits an id that it was made
for. An id sets a bit in each of the eight words of its block: in three whatever segment it is in, so that an id is known by one
miss of the cache; in five depending on the segment's mark, so that of hundreds of segments few are looked into without need. Full, it holds
7% of other ids for known, and each of them to be in 1% of the segments: an id that is new has the disk read less than once in five times
with 300 of them. Ids are hashes, so an id's block goes by its size, and ids in order go through the filter from its beginning to its end: several threads fill a part of it each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.events.words64 import load64
from streameval.join.cold.ids import PAGE_BYTES, SortedIds, cut
from streameval.sketches.directory import mix

_BITS = 16  # an id
_WORDS = 8  # of 64 bits, a block; 6 bits of a hash say which bit of a word an id sets
_COMMON = 3  # of them, the first, whatever segment the id is in
_LOW = np.uint64((1 << 6 * _COMMON) - 1)
_HIGH = np.uint64(64 - 6 * (_WORDS - _COMMON))
_SALT = np.uint64(0x9E3779B97F4A7C15)
_LEAST = 1 << 14  # ids
_RANGES = 512  # of ids; what those of one range set stays in the cache while all are added that are in it
_THREADS = 4
_FORM = 1  # of what a file holds: to be raised when an id sets other bits
_PART = 1 << 23  # words, of an array of a file
_WORTH_A_FILE = 1 << 22  # ids; of fewer a restart rebuilds it
_SHIFTS = np.arange(_WORDS, dtype=np.uint64) * np.uint64(6)


@numba.njit(inline="always")
def _first_word(one: np.uint64, blocks: np.uint64) -> np.uint64:
    return np.uint64(((one >> np.uint64(32)) * blocks) >> np.uint64(32)) * np.uint64(_WORDS)


@numba.njit(inline="always")
def _bits_of(hashed: np.uint64, mark: np.uint64) -> np.uint64:
    """Which bit of each word, those of a segment's mark above those that all have."""
    return (hashed & _LOW) | ((hashed * mark) >> _HIGH) << np.uint64(6 * _COMMON)


@numba.njit(inline="always")
def _all_set(words: NDArray[np.uint64], first: np.uint64, bits: np.uint64, begin: int, end: int) -> np.uint64:
    """1 when the bits of words [begin, end) of a block are set, else 0; without leaving early: there is nothing to guess."""
    out = np.uint64(1)
    for word in range(begin, end):
        out &= words[first + np.uint64(word)] >> ((bits >> np.uint64(6 * word)) & np.uint64(63))
    return out


@numba.njit(inline="always")
def some_segments(words: NDArray[np.uint64], one: np.uint64, marks: NDArray[np.uint64], out: NDArray[np.int64]) -> int:
    """Writes the numbers of the segments, of these marks, that an id may be in; returns how many."""
    first = _first_word(one, np.uint64(words.size // _WORDS))
    hashed = mix(one ^ _SALT)
    n = 0
    for number in range(marks.size):
        out[n] = number
        n += int(_all_set(words, first, _bits_of(hashed, marks[number]), _COMMON, _WORDS))
    return n


@numba.njit(inline="always")
def _set(
    words: NDArray[np.uint64], blocks: np.uint64, shifts: NDArray[np.uint64], one: np.uint64, mark: np.uint64
) -> None:
    first = _first_word(one, blocks)
    bits = _bits_of(mix(one ^ _SALT), mark)
    for word in range(np.uint64(shifts.size)):  # side by side: how many is not known to the compiler, or it would not
        words[first + word] |= np.uint64(1) << ((bits >> shifts[word]) & np.uint64(63))


@numba.njit(cache=True, nogil=True)
def _add(words: NDArray[np.uint64], ids: NDArray[np.uint64], mark: np.uint64, shifts: NDArray[np.uint64]) -> None:
    blocks = np.uint64(words.size // _WORDS)
    for i in range(ids.size):
        _set(words, blocks, shifts, ids[i], mark)


class _Parts(NamedTuple):
    """Ids of segments."""

    places: NDArray[np.int64]  # [part, 5]: see `SortedIds.places`
    marks: NDArray[np.uint64]
    cuts: NDArray[np.int64]  # [part, range]: the first id of a range


@numba.njit(cache=True, nogil=True)
def _add_ranges(words: NDArray[np.uint64], parts: _Parts, ranges: tuple[int, int], shifts: NDArray[np.uint64]) -> None:
    """Of the ids those of ranges [first, end)."""
    places, marks, cuts = parts
    blocks = np.uint64(words.size // _WORDS)
    for number in range(ranges[0], ranges[1]):
        for part in range(marks.size):
            pages, _, per_page, _, _ = places[part]
            slot = cuts[part, number] % per_page
            address = pages + cuts[part, number] // per_page * PAGE_BYTES + 8 * slot
            for _ in range(cuts[part, number], cuts[part, number + 1]):
                _set(words, blocks, shifts, load64(address), marks[part])
                slot, address = slot + 1, address + 8
                if slot == per_page:
                    slot, address = 0, address + PAGE_BYTES - 8 * per_page


@numba.njit(cache=True, nogil=True)
def _known(words: NDArray[np.uint64], ids: NDArray[np.uint64], out: NDArray[np.int64]) -> int:
    """Writes the positions of ids that may be known; returns how many."""
    blocks = np.uint64(words.size // _WORDS)
    n = 0
    for i in range(ids.size):
        out[n] = i
        n += int(_all_set(words, _first_word(ids[i], blocks), mix(ids[i] ^ _SALT), 0, _COMMON))
    return n


class Marked(NamedTuple):
    """The ids of a segment."""

    mark: int
    ids: SortedIds


def mark_of(name: str) -> int:
    """The mark of a file: an odd number, by which hashes are multiplied."""
    return int.from_bytes(sha256(name.encode()).digest()[:8], "little") | 1


class FilterFile(NamedTuple):
    """Where a filter was written to, so that a restart need not go through all ids."""

    name: str
    size: int  # bytes
    used: int  # ids


class IdFilter:
    """Ids that may be known, as many as it was made for; none is taken out."""

    def __init__(self, capacity: int) -> None:
        self.capacity = max(capacity, _LEAST)
        self.used = 0
        self.marks: set[int] = set()  # of the segments whose ids it knows
        self.file: FilterFile | None = None
        blocks = -(-self.capacity * _BITS // (64 * _WORDS))
        self.words = np.zeros(_WORDS * (-(-blocks // _THREADS) * _THREADS), np.uint64)

    @staticmethod
    def of(segments: Iterable[Marked]) -> IdFilter:
        """A new one of segments, with room for a third more."""
        some = list(segments)
        out = IdFilter(sum(one.ids.size for one in some) * 4 // 3)
        out.add_all(some)
        return out

    def add_all(self, segments: Collection[Marked]) -> None:
        """As `add`, of several, by several threads; nobody may ask in the meantime."""
        if not segments:
            return
        marks, parts = zip(*segments, strict=True)
        edges = np.arange(1, _RANGES, dtype=np.uint64) * np.uint64(2**64 // _RANGES)
        places = np.array([part.places for part in parts], np.int64)
        cuts = np.zeros((len(parts), _RANGES + 1), np.int64)
        for one, part in zip(cuts, places, strict=True):
            cut(part, edges, one[1:-1])
            one[-1] = part[1]
        some = _Parts(places, np.array(marks, np.uint64), cuts)
        each = _RANGES // _THREADS  # whole blocks: a thread writes to no word of another

        def add(first: int) -> None:
            _add_ranges(self.words, some, (first, first + each), _SHIFTS)

        with ThreadPoolExecutor(_THREADS) as threads:
            list(threads.map(add, range(0, _RANGES, each)))
        self.used += int(cuts[:, -1].sum())
        self.marks.update(marks)

    def add(self, mark: int, ids: NDArray[np.uint64]) -> None:
        """Knows these of a segment from now on; others may ask in the meantime."""
        _add(self.words, ids, np.uint64(mark), _SHIFTS)
        self.used += ids.size
        self.marks.add(mark)

    # -- in a file -----------------------------------------------------------------------------------------------

    @property
    def due(self) -> bool:
        """Whether a restart would have more than an eighth of the ids to add to what the file has."""
        in_file = self.file.used if self.file is not None else 0
        return self.used >= _WORTH_A_FILE and self.used - in_file > self.used // 8

    def content(self) -> dict[str, Any]:
        """What a file of it holds, for `of_file`: arrays one right behind the other."""
        words = [self.words[at : at + _PART] for at in range(0, self.words.size, _PART)]
        return {
            "form": _FORM,
            "capacity": self.capacity,
            "used": self.used,
            "marks": sorted(self.marks),
            "words": words,
        }

    @staticmethod
    def of_file(tree: Mapping[str, Any], words: NDArray[np.uint64]) -> IdFilter | None:
        """What `content` gave, `words` all in one; None: it is of another form."""
        if tree["form"] != _FORM:
            return None
        out = IdFilter(0)
        out.capacity, out.used, out.marks, out.words = tree["capacity"], tree["used"], set(tree["marks"]), words
        return out

    def known(self, ids: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Positions of those that may be known, ascending: every one that is, and a few others."""
        out = np.empty(ids.size, np.int64)
        return out[: _known(self.words, ids, out)]

    @property
    def nbytes(self) -> int:
        """Bytes of the bits."""
        return self.words.nbytes
