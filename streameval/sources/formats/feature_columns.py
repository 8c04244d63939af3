"""Hashed features as kernels write them: entries, and the names of the previous row, which the next one mostly repeats."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.events.batch import Features
from streameval.events.hashing import hash_at, hash_two
from streameval.events.words64 import PADDING, address_of, copy_bytes, load8, load64, store64, store_double
from streameval.sources.formats.rooms import room

MAX_NAMES = 256  # every name is compared with those before it; longer objects are read in the slow way
_NAME_BYTES = 16  # of a row of names
_EQUALS = 61
_SHORT = 31  # bytes of a name and its text
_FNV_BASIS, _FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)  # of FNV-1a, 64 bits


class FeatureColumns(NamedTuple):
    """The kernel's output of entries, and the names that it remembers."""

    entry: NDArray[np.uint64]  # their hashed names
    value: NDArray[np.float64]  # by entry
    # start and end of the names of the previous row; after the last one: an end before its start
    names: NDArray[np.int64]
    mixed: NDArray[np.uint64]  # [MAX_NAMES]: hashes of a row's names
    scratch: NDArray[np.uint8]  # buffer for a name and a text

    @staticmethod
    def of(size: int, shortest: int) -> FeatureColumns:
        """Returns columns for the entries in `size` bytes of objects, each of at least `shortest`: this thread's until
        it asks for others (see `rooms`).
        """
        most = size // shortest + 1
        names = np.full((MAX_NAMES + 1, 2), (0, -1))  # none
        return FeatureColumns(
            room("entry", most, np.uint64),
            room("value", most, np.float64),
            names,
            room("mixed", MAX_NAMES, np.uint64),
            room("scratch", size + 3 * len(PADDING), np.uint8),
        )

    def features(self, indptr: NDArray[np.int64]) -> Features:
        """Returns the entries as features of rows, copied; `indptr`: see `Features`."""
        total = int(indptr[-1])
        return Features(indptr, self.entry[:total].copy(), self.value[:total].copy())


FeaturePlaces = tuple[int, int, int, int, int]


@numba.njit(inline="always")
def feature_places(
    entry: NDArray[np.uint64],
    value: NDArray[np.float64],
    names: NDArray[np.int64],
    mixed: NDArray[np.uint64],
    scratch: NDArray[np.uint8],
) -> FeaturePlaces:
    """Returns the addresses of `FeatureColumns`, as kernels take them; they are the caller's."""
    return address_of(entry), address_of(value), address_of(names), address_of(mixed), address_of(scratch)


@numba.njit(inline="always")
def keep_entry(places: FeaturePlaces, used: int, hashed: np.uint64, x: float) -> None:
    """Writes an entry."""
    store64(places[0] + 8 * used, hashed)
    store_double(places[1] + 8 * used, x)


@numba.njit(inline="always")
def keep_name(places: FeaturePlaces, n: int, start: int, end: int) -> None:
    """Writes where the n-th name of a row is."""
    store64(places[2] + _NAME_BYTES * n, np.uint64(start))
    store64(places[2] + _NAME_BYTES * n + 8, np.uint64(end))


@numba.njit(inline="always")
def name_before(places: FeaturePlaces, n: int) -> tuple[int, int]:
    """Returns (start, end) of the n-th name of the previous row."""
    at = places[2] + _NAME_BYTES * n
    return np.int64(load64(at)), np.int64(load64(at + 8))  # type: ignore[return-value]  # ints to Numba


@numba.njit(inline="always")
def forget_names(places: FeaturePlaces, n: int) -> None:
    """Says that the previous row had n names."""
    keep_name(places, n, 0, -1)


@numba.njit(cache=True, nogil=True)
def one_hot(name: int, name_end: int, text: int, text_end: int, scratch: int) -> np.uint64:
    """Returns the hash of `name=text`; `scratch`: a buffer for long ones. (Reading what was just written in parts is slow.)"""
    if name_end - name + text_end - text < _SHORT:
        return hash_two(name, name_end, np.uint64(_EQUALS), text, text_end)
    at = copy_bytes(name, name_end, scratch)
    store64(at, np.uint64(_EQUALS))
    return hash_at(scratch, copy_bytes(text, text_end, at + 1))


@numba.njit(inline="always")
def _mix(start: int, end: int) -> np.uint64:
    mixed = _FNV_BASIS
    for k in range(start, end):
        mixed = (mixed ^ np.uint64(load8(k))) * _FNV_PRIME
    return mixed


@numba.njit(cache=True, nogil=True)
def is_there_twice(places: FeaturePlaces, n: int) -> bool:
    """Whether two of a row's first n names are equal (or have equal hashes, which is as rare)."""
    mixed = places[3]
    for k in range(n):
        start, end = name_before(places, k)
        this = _mix(start, end)
        store64(mixed + 8 * k, this)
        for j in range(k):
            if load64(mixed + 8 * j) == this:
                return True
    return False
