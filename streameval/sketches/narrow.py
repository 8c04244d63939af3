"""Integers as variable-length bytes (LEB128): seven bits a byte, the lowest first; the eighth bit says that another byte follows.

Signs alternate (zigzag: 0, -1, 1, -2, ...), so numbers near 0 on either side take one byte.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

_MORE = np.uint64(0x80)
_SEVEN = np.uint64(7)
_SIGN = 63  # the bit of the sign


@numba.njit(inline="always")
def _alternating(number: np.int64) -> np.uint64:
    return np.uint64(number << 1) ^ np.uint64(number >> _SIGN)


@numba.njit(cache=True, nogil=True)
def _bytes_of(numbers: NDArray[np.int64]) -> int:
    n = numbers.size
    for number in numbers:
        left = _alternating(number) >> _SEVEN
        while left:
            left >>= _SEVEN
            n += 1
    return n


@numba.njit(cache=True, nogil=True)
def _narrow(numbers: NDArray[np.int64], out: NDArray[np.uint8]) -> None:
    at = 0
    for number in numbers:
        left = _alternating(number)
        while left >= _MORE:
            out[at] = np.uint8(left | _MORE)
            left >>= _SEVEN
            at += 1
        out[at] = np.uint8(left)
        at += 1


@numba.njit(cache=True, nogil=True)
def _widen(narrowed: NDArray[np.uint8], out: NDArray[np.int64]) -> None:
    at = 0
    for i in range(out.size):
        byte = np.uint64(narrowed[at])
        at += 1
        number, shift = byte & ~_MORE, _SEVEN
        while byte >= _MORE:
            byte = np.uint64(narrowed[at])
            at += 1
            number |= (byte & ~_MORE) << shift
            shift += _SEVEN
        out[i] = np.int64(number >> np.uint64(1)) ^ -np.int64(number & np.uint64(1))


def narrow(numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
    """The bytes of all numbers, concatenated."""
    out = np.empty(_bytes_of(numbers), np.uint8)
    _narrow(numbers, out)
    return out


def widen(narrowed: NDArray[np.uint8], count: int) -> NDArray[np.int64]:
    """Decodes `count` numbers from all of their bytes."""
    if np.count_nonzero(narrowed < _MORE) != count or (narrowed.size and narrowed[-1] >= _MORE):
        raise ValueError(f"{narrowed.size} bytes that are not those of {count} numbers")
    out = np.empty(count, np.int64)
    _widen(narrowed, out)
    return out
