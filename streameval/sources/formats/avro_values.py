"""Values of Avro's binary encoding, read at an address; an end of -1 means that a value cannot be read."""

from __future__ import annotations

import numba
import numpy as np

from streameval.events.hashing import hash_at
from streameval.events.words64 import load8, load_double, load_float, store64
from streameval.sources.formats.avro_kernel import (
    BOOLEAN,
    BYTES,
    DOUBLE,
    ENUM,
    FLOAT,
    INT,
    LONG,
    NULL_VALUE,
    is_text,
    varint,
)

_DIGIT_0 = 48


@numba.njit(inline="always")
def text_at(i: int, end: int) -> tuple[int, int]:
    """Returns (start of a text, its end); -1: it cannot be read."""
    size, i = varint(i, end)
    if i < 0 or not 0 <= size <= end - i or not is_text(i, i + size):
        return -1, -1
    return i, i + size


@numba.njit(cache=True, nogil=True)
def plain_at(i: int, end: int, wire: int) -> tuple[int, int, float]:
    """Returns (end of a plain value other than text, its integer, its number); -1: it cannot be read. Positions are
    addresses.

    The number of an enum is that of its symbol.
    """
    if wire == BYTES:
        size, i = varint(i, end)
        return (i + size if i >= 0 and 0 <= size <= end - i else -1), 0, 0.0
    if wire in (LONG, INT, ENUM):
        n, i = varint(i, end)
        if i < 0 or (wire == INT and not -2147483648 <= n <= 2147483647):
            return -1, 0, 0.0
        return i, n, float(n)
    if wire == DOUBLE:
        return (i + 8, 0, load_double(i)) if end - i >= 8 else (-1, 0, 0.0)
    if wire == FLOAT:
        return (i + 4, 0, load_float(i)) if end - i >= 4 else (-1, 0, 0.0)
    if wire == BOOLEAN:
        if i >= end or load8(i) > 1:
            return -1, 0, 0.0
        return i + 1, load8(i), float(load8(i))
    return (i if wire == NULL_VALUE else -1), 0, 0.0


@numba.njit(inline="always")
def branch_at(i: int, end: int, first: int, count: int) -> tuple[int, int]:
    """Returns (start of the value, its branch) for a union of `count` branches, or a single type if that is 0; -1: none
    of them.
    """
    if count == 0:
        return i, first
    number, i = varint(i, end)
    return (i, first + number) if i >= 0 and 0 <= number < count else (-1, first)


@numba.njit(cache=True, nogil=True)
def block_at(i: int, end: int) -> tuple[int, int]:
    """Returns (number of entries of a map that follow, 0: it has ended; where they begin, -1: unreadable)."""
    count, i = varint(i, end)
    if i >= 0 and count < 0:  # with the block's size in bytes
        count = -count
        _, i = varint(i, end)
    if i < 0 or not 0 <= count <= end - i:
        return 0, -1
    return count, i


@numba.njit(cache=True, nogil=True)
def hash_of_integer(n: int, scratch: int) -> np.uint64:
    """Returns the hash of the text of an integer >= 0; `scratch`: a buffer for it."""
    power, size = 1, 1
    while n // power >= 10:
        power *= 10
        size += 1
    for k in range(size):
        store64(scratch + k, np.uint64(_DIGIT_0 + n // power % 10))
        power //= 10
    return hash_at(scratch, scratch + size)
