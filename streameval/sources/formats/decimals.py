"""Numbers in text, correctly rounded, in a kernel: JSON's grammar, and the algorithm of Eisel and Lemire.

Lemire, Number Parsing at a Gigabyte per Second, Software: Practice and Experience 51(8), 2021; that a product of 128
bits is always enough for what is read here: Mushtak and Lemire, Fast Number Parsing Without Fallback, 2023. A number w
* 10**q of at most 19 digits is w times a power of five, truncated to 128 bits, whose upper bits are the mantissa.
Longer numbers, subnormal ones and those beyond the largest double are left to the caller.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.events.words64 import leading_zeros, load8, load64

READ, HARD = 1, 2

_FEWEST, _MOST = -300, 300  # powers of ten that are read; others practically do not occur
_MOST_DIGITS = 19  # every number with this many digits fits into 64 bits
_MINUS, _PLUS, _DOT, _ZERO, _NINE, _E, _SMALL_E = 45, 43, 46, 48, 57, 69, 101
_LOW = np.uint64(0xFFFFFFFF)
_HIGH_HALVES = np.uint64(0xF0F0F0F0F0F0F0F0)  # of eight bytes
_SIXES = np.uint64(0x0606060606060606)
_EIGHT_DIGITS = np.uint64(0x3333333333333333)
_BELOW = np.uint64(9)
_NOT_EXACT = np.uint64(
    (1 << 9) - 1
)  # the bits of a product's upper half below the mantissa, its guard and its rounding bit
_MANTISSA_BITS, _BIAS, _INFINITE = 52, 1023, 0x7FF  # of a double: bits, the exponent of 1, that of infinity
_MANTISSA = np.uint64((1 << _MANTISSA_BITS) - 1)
_EXACT_FEWEST, _EXACT_MOST = -4, 23  # powers of ten with which a product can be halfway between two doubles
_LOG2_10, _LOG2_BITS = 152170 + 65536, 16  # log2(10) in units of 2**-16


def _powers_of_five() -> NDArray[np.uint64]:
    """Returns the upper and lower 64 of the first 128 bits of 5**q, one row for each q."""
    out = np.empty((_MOST - _FEWEST + 1, 2), np.uint64)
    for q in range(_FEWEST, _MOST + 1):
        power = 5 ** abs(q)
        if q >= 0:
            bits = power << 128 >> power.bit_length()
        else:  # rounded up, as the proof requires
            below = power.bit_length() if power & (power - 1) else power.bit_length() - 1
            shift = below + 127 if q >= -27 else 2 * below + 128
            bits = (1 << shift) // power + 1
            bits >>= max(0, bits.bit_length() - 128)
        out[q - _FEWEST] = bits >> 64, bits & ((1 << 64) - 1)
    return out


_POWERS = _powers_of_five()


@numba.njit(inline="always")
def _product(a: np.uint64, b: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Returns the upper and lower 64 bits of a * b."""
    by = np.uint64(32)
    a_low, a_high, b_low, b_high = a & _LOW, a >> by, b & _LOW, b >> by
    low = a_low * b_low
    first = a_high * b_low + (low >> by)
    second = a_low * b_high + (first & _LOW)
    return a_high * b_high + (first >> by) + (second >> by), (second << by) | (low & _LOW)


@numba.njit(cache=True, nogil=True)
def nearest(w: np.uint64, q: int) -> float:
    """Returns the double nearest to w * 10**q, ties to even; NaN if this cannot determine it."""
    if w == 0:
        return 0.0
    if q < _FEWEST or q > _MOST:
        return np.nan
    zeros = leading_zeros(w)
    w <<= np.uint64(zeros)
    high, low = _product(w, _POWERS[q - _FEWEST, 0])
    if high & _NOT_EXACT == _NOT_EXACT:
        more, _ = _product(w, _POWERS[q - _FEWEST, 1])
        low += more
        high += np.uint64(low < more)
    upper = high >> np.uint64(63)
    mantissa = high >> (upper + _BELOW)
    exponent = (_LOG2_10 * q >> _LOG2_BITS) + 63 + np.int64(upper) - zeros + _BIAS
    if exponent <= 0:  # subnormal
        return np.nan
    halfway = low <= 1 and _EXACT_FEWEST <= q <= _EXACT_MOST and mantissa & np.uint64(3) == 1
    if halfway and mantissa << (upper + _BELOW) == high:
        mantissa &= ~np.uint64(1)
    mantissa = (mantissa + (mantissa & np.uint64(1))) >> np.uint64(1)
    if mantissa >> np.uint64(_MANTISSA_BITS + 1):
        mantissa >>= np.uint64(1)
        exponent += 1
    if exponent >= _INFINITE:  # infinite
        return np.nan
    bits = (mantissa & _MANTISSA) | (np.uint64(exponent) << np.uint64(_MANTISSA_BITS))
    return float(np.int64(bits).view(np.float64))


@numba.njit(inline="always")
def _are_digits(word: np.uint64) -> bool:
    """Whether eight bytes are digits: from 0x30 to 0x39."""
    return (word & _HIGH_HALVES) | (((word + _SIXES) & _HIGH_HALVES) >> np.uint64(4)) == _EIGHT_DIGITS


@numba.njit(inline="always")
def _of_digits(word: np.uint64) -> np.uint64:
    """Returns the number formed by eight digits, the first in the lowest byte: pairs, then fours, then all."""
    word = (word & np.uint64(0x0F0F0F0F0F0F0F0F)) * np.uint64(2561) >> np.uint64(8)
    word = (word & np.uint64(0x00FF00FF00FF00FF)) * np.uint64(6553601) >> np.uint64(16)
    return (word & np.uint64(0x0000FFFF0000FFFF)) * np.uint64(42949672960001) >> np.uint64(32)


@numba.njit(cache=True, nogil=True)
def digits(i: int, end: int, w: np.uint64) -> tuple[int, np.uint64]:
    """Returns (the first position from i on without a digit, w followed by the digits before it), modulo 2**64."""
    while i + 8 <= end and _are_digits(load64(i)):
        w = w * np.uint64(100_000_000) + _of_digits(load64(i))
        i += 8
    while i < end and _ZERO <= load8(i) <= _NINE:
        w = w * np.uint64(10) + np.uint64(load8(i) - _ZERO)
        i += 1
    return i, w


@numba.njit(cache=True, nogil=True)
def number(i: int, end: int) -> tuple[int, int, float]:
    """Returns (READ, its end, its value) for the number at address i; (HARD, i, 0) if there is none, or one left to
    Python.
    """
    negative = load8(i) == _MINUS
    if negative:
        i += 1
    first = i
    i, w = digits(i, end, np.uint64(0))
    whole = i - first
    if whole == 0 or (load8(first) == _ZERO and whole > 1):
        return HARD, i, 0.0
    places = 0
    if i < end and load8(i) == _DOT:
        i += 1
        begin = i
        i, w = digits(i, end, w)
        places = i - begin
        if places == 0:
            return HARD, i, 0.0
    exponent = 0
    scientific = i < end and (load8(i) == _E or load8(i) == _SMALL_E)
    if scientific:
        i += 1
        down = i < end and load8(i) == _MINUS
        if i < end and (down or load8(i) == _PLUS):
            i += 1
        begin = i
        while i < end and _ZERO <= load8(i) <= _NINE:
            if exponent < 10_000:
                exponent = exponent * 10 + int(load8(i) - _ZERO)
            i += 1
        if i == begin:
            return HARD, i, 0.0
        exponent = -exponent if down else exponent
    if whole + places > _MOST_DIGITS:
        # leading zeros are not significant digits: 0.000012345678901234567
        k = first
        while k < i and (load8(k) == _ZERO or load8(k) == _DOT):
            k += 1
        leading = k - first - (1 if k > first + whole else 0)
        if whole + places - leading > _MOST_DIGITS:
            return HARD, i, 0.0
    if w == 0 and negative and places == 0 and not scientific:  # -0, which is an integer and has no sign
        return HARD, i, 0.0
    value = nearest(w, exponent - places)
    if np.isnan(value):
        return HARD, i, 0.0
    return READ, i, -value if negative else value
