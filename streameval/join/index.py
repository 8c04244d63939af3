"""The index from ids to rows: open addressing, 4 bytes per slot (6 to 16 per id); of several rows with an id the newest is found.

A slot holds tag << bits | number. The number is row + shift, so 0 stays free and the index need not change when rows
move to the front; rows before `front` have been dropped and are ignored. The tag is as much of the id's hash as fits beside
the number: slots of other ids are skipped without reading their ids from memory.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.sketches.directory import mix

_HIGH = np.uint64(32)  # a tag is made of a hash's bits from here on, a place of those below
_BIG = 1 << 20  # places; up to this size the index grows by a factor of 4


class Places(NamedTuple):
    """The index as kernels read it."""

    places: NDArray[np.uint32]
    bits: np.uint64  # of a place that hold its number
    shift: int


class LiveNumbers(NamedTuple):
    """Converts numbers to rows, and tells which rows are live; without arrays, so it can be read in a loop."""

    bits: np.uint64  # see `Places`
    shift: int
    front: int  # the first live row


@numba.njit(inline="always")
def _entry(hashed: np.uint64, bits: np.uint64, number: int) -> np.uint32:
    return np.uint32((((hashed >> _HIGH) >> bits) << bits) | np.uint64(number))


@numba.njit(inline="always")
def find(
    places: NDArray[np.uint32], live: LiveNumbers, ids: NDArray[np.uint64], wanted: np.uint64, hashed: np.uint64
) -> tuple[int, np.uint64]:
    """(the newest live row of an id, -1: none; the free place where the id would be entered); `hashed`: `mix` of the id."""
    bits, shift, front = live
    mask = np.uint64(places.size - 1)
    low = (np.uint64(1) << bits) - np.uint64(1)
    tag = (hashed >> _HIGH) >> bits
    h = hashed & mask
    found = -1
    while places[h] != 0:
        entry = np.uint64(places[h])
        if entry >> bits == tag:
            row = int(entry & low) - shift
            if row >= front and ids[row] == wanted and row > found:
                found = row
        h = (h + np.uint64(1)) & mask
    return found, h


@numba.njit(inline="always")
def find_around(
    places: NDArray[np.uint32],
    live: LiveNumbers,
    ids: NDArray[np.uint64],
    ts: NDArray[np.int64],
    behind: NDArray[np.uint32],
    wanted: np.uint64,
    key: int,
) -> tuple[int, int]:
    """(the newest live row of an id that arrived by `key`, the oldest that arrived after it); -1: none. See `kernel`."""
    hashed = mix(wanted)
    bits, shift, front = live
    mask = np.uint64(places.size - 1)
    low = (np.uint64(1) << bits) - np.uint64(1)
    tag = (hashed >> _HIGH) >> bits
    h = hashed & mask
    before, after = -1, -1
    while places[h] != 0:
        entry = np.uint64(places[h])
        if entry >> bits == tag:
            row = int(entry & low) - shift
            if row >= front and ids[row] == wanted:
                if ts[row] + np.int64(behind[row]) <= key:
                    before = max(before, row)
                elif after < 0 or row < after:
                    after = row
        h = (h + np.uint64(1)) & mask
    return before, after


@numba.njit(inline="always")
def enter(places: NDArray[np.uint32], bits: np.uint64, place: np.uint64, hashed: np.uint64, number: int) -> None:
    """Writes an id's number to the free place that `find` returned."""
    places[place] = _entry(hashed, bits, number)


@numba.njit(cache=True, nogil=True)
def _enter_all(index: Places, ids: NDArray[np.uint64], front: int, end: int) -> None:
    places, bits, shift = index
    mask = np.uint64(places.size - 1)
    for row in range(front, end):
        hashed = mix(ids[row])
        h = hashed & mask
        while places[h] != 0:
            h = (h + np.uint64(1)) & mask
        places[h] = _entry(hashed, bits, row + shift)


@numba.njit(cache=True, nogil=True)
def _fetch(places: NDArray[np.uint32], wanted: NDArray[np.uint64]) -> int:
    mask = np.uint64(places.size - 1)
    found = np.uint64(0)
    for i in range(wanted.size):
        found ^= np.uint64(places[mix(wanted[i]) & mask])
    return int(found & np.uint64(1))


class IdIndex:
    """The places, and the numbers that the kernels need to read them."""

    def __init__(self) -> None:
        self.used = 0  # places in use, including those of dropped rows
        self._allocate(4096, 0)

    @property
    def columns(self) -> Places:
        """For kernels."""
        return Places(self.places, self.bits, self.shift)

    def fetch(self, wanted: NDArray[np.uint64]) -> None:
        """Reads the places that looking up a batch's ids will read: many cache misses at once cost little more than one."""
        _fetch(self.places, wanted)

    def reserve(self, more: int, ids: NDArray[np.uint64], front: int, end: int) -> None:
        """Makes room for `more` ids after the rows [front, end); if the index is rebuilt, it then holds only these rows."""
        if (self.used + more) * 3 <= self.places.size * 2 and self.shift + end + more <= 1 << int(self.bits):
            return
        live, size = end - front, self.places.size
        while (live + more) * 2 > size:
            size *= 2 if size >= _BIG else 4
        self._allocate(size, front)
        self.used = live
        _enter_all(self.columns, ids, front, end)

    def fill(self, ids: NDArray[np.uint64], front: int, end: int) -> None:
        """Enters rows [front, end) into an empty index."""
        self._allocate(self.places.size, front)
        self.reserve(end - front, ids, front, front)
        self.used = end - front
        _enter_all(self.columns, ids, front, end)

    @property
    def nbytes(self) -> int:
        """Bytes of the places."""
        return self.places.nbytes

    def _allocate(self, size: int, front: int) -> None:
        self.places = np.zeros(size, np.uint32)
        self.bits = np.uint64(size.bit_length())  # numbers below 2 * size
        self.shift = 1 - front  # grows as rows move to the front
