"""The records of a Kafka record batch (message format 2, uncompressed) as one text of their values, without a Python
object each, and without the interpreter's lock.

The kernel reads the plain case. Anything else (a tombstone, lengths that do not add up, offsets that do not rise) it
leaves to the client library, batch by batch, which also says what is wrong with it.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.events.words64 import address_of, load8, load64, store8, store64
from streameval.sources.formats.line_text import Lines

_LONGEST = 9  # bytes of a varint that the kernel reads: 63 bits
_SHORTEST = 7  # bytes of a record


def values_of(data: NDArray[np.uint8], count: int, base: int, first: int) -> tuple[Lines, NDArray[np.int64]] | None:
    """Returns the values and offsets of the records with offsets from `first` on; None if the batch is not plain.

    `data`: all `count` records of the batch, and nothing else; `base`: the offset that theirs are relative to.
    """
    if count * _SHORTEST > data.size:
        return None
    out = np.empty(data.size, np.uint8)
    bounds, offsets = np.empty((count, 2), np.int64), np.empty(count, np.int64)
    kept = _values(data, base, first, out, bounds, offsets)
    if kept < 0:
        return None
    used = int(bounds[kept - 1, 1]) if kept else 0
    return Lines(out[:used].tobytes(), bounds[:kept]), offsets[:kept]


@numba.njit(inline="always")
def _varint(data: NDArray[np.uint8], i: int) -> tuple[int, int]:
    """Returns (the zigzag number at i, the position after it); position -1: it is too long, or not all there."""
    raw, shift = np.uint64(0), 0
    while i < data.size and shift < 7 * _LONGEST:
        byte = data[i]
        raw |= np.uint64(byte & 0x7F) << np.uint64(shift)
        i += 1
        if byte < 0x80:
            value = np.int64(raw >> np.uint64(1)) ^ -np.int64(raw & np.uint64(1))
            return value, i  # type: ignore[return-value]  # an int to Numba
        shift += 7
    return 0, -1


@numba.njit(inline="always")
def _copy(begin: int, to: int, size: int) -> None:
    k = 0
    while k + 8 <= size:
        store64(to + k, load64(begin + k))
        k += 8
    while k < size:
        store8(to + k, load8(begin + k))
        k += 1


@numba.njit(cache=True, nogil=True)
def _after_headers(data: NDArray[np.uint8], i: int, end: int) -> int:
    """Returns the position after the headers at i; -1: they are not plain, or go beyond `end`."""
    left, i = _varint(data, i)
    if left < 0:
        return -1
    while left > 0 and 0 <= i < end:
        size, i = _varint(data, i)
        if i < 0 or not 0 <= size <= end - i:
            return -1
        for k in range(i, i + size):
            if data[k] >= 0x80:  # the library reads the names as text, and refuses what is none
                return -1
        size, i = _varint(data, i + size)
        if i < 0 or size > end - i:
            return -1
        i += max(size, 0)  # -1: a header without a value
        left -= 1
    return i if left == 0 else -1


@numba.njit(cache=True, nogil=True)
def _values(
    data: NDArray[np.uint8],
    base: int,
    first: int,
    out: NDArray[np.uint8],
    bounds: NDArray[np.int64],
    offsets: NDArray[np.int64],
) -> int:
    """Fills the columns; returns the number of records kept, -1: not plain."""
    begin, to = address_of(data), address_of(out)
    i = kept = used = 0
    last = np.int64(-1)
    for _ in range(len(offsets)):
        size, i = _varint(data, i)
        if i < 0 or not 0 < size <= data.size - i or data[i] >= 0x80:  # a byte of attributes, to the library a varint
            return -1
        end = i + size
        _, i = _varint(data, i + 1)  # the time
        if i < 0:
            return -1
        delta, i = _varint(data, i)
        if i < 0 or delta <= last:
            return -1
        last = delta
        size, i = _varint(data, i)
        if i < 0 or size > end - i:
            return -1
        size, i = _varint(data, i + max(size, 0))  # -1: without a key
        if i < 0 or not 0 <= size <= end - i:
            return -1
        if base + delta >= first:
            _copy(begin + i, to + used, size)
            bounds[kept, 0], bounds[kept, 1] = used, used + size
            offsets[kept] = base + delta
            used += size
            kept += 1
        i = _after_headers(data, i + size, end)
        if i != end:
            return -1
    return kept if i == data.size else -1
