"""The plain form of an ISO 8601 time in a kernel: `2026-03-01T07:05:00.25Z`."""

from __future__ import annotations

import numba
import numpy as np

from streameval.events.words64 import load8

_ZERO, _NINE, _MINUS, _PLUS, _DOT, _COLON, _T, _Z = 48, 57, 45, 43, 46, 58, 84, 90
_DAYS_BEFORE = np.array([0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334])
_MOST_PLACES = 6  # of a second's fraction; `datetime` has its own rules for more


@numba.njit(inline="always")
def _digits(i: int, n: int) -> int:
    """Returns the number formed by n digits; -1: they are not all digits."""
    out = 0
    for k in range(i, i + n):
        if not _ZERO <= load8(k) <= _NINE:
            return -1
        out = out * 10 + int(load8(k)) - _ZERO
    return out


@numba.njit(inline="always")
def _days_of(year: int, month: int) -> int:
    leap = (year % 4 == 0 and year % 100 != 0) or year % 400 == 0
    if month == 2:
        return 29 if leap else 28
    return 30 if month in (4, 6, 9, 11) else 31


@numba.njit(cache=True, nogil=True)
def iso_ms(i: int, end: int) -> tuple[bool, int]:
    """Returns (whether a plain time is between two addresses, its ms since the epoch); UTC without an offset, like
    `times.parse_time`.

    Plain times have date and time down to seconds, a fraction of up to six digits, and `Z`, an offset of hours and
    minutes, or neither.
    """
    if end - i < 19:
        return False, 0
    year, month, day = _digits(i, 4), _digits(i + 5, 2), _digits(i + 8, 2)
    hour, minute, second = _digits(i + 11, 2), _digits(i + 14, 2), _digits(i + 17, 2)
    marks = load8(i + 4) == _MINUS and load8(i + 7) == _MINUS and load8(i + 10) == _T
    marks &= load8(i + 13) == _COLON and load8(i + 16) == _COLON
    if not marks or year < 1970 or not 1 <= month <= 12 or not 1 <= day <= _days_of(year, month):
        return False, 0
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60):
        return False, 0
    i += 19
    micros = 0
    if i < end and load8(i) == _DOT:
        places = 0
        i += 1
        while i < end and _ZERO <= load8(i) <= _NINE and places <= _MOST_PLACES:
            micros = micros * 10 + int(load8(i)) - _ZERO
            places += 1
            i += 1
        if places == 0 or places > _MOST_PLACES:
            return False, 0
        for _ in range(_MOST_PLACES - places):
            micros *= 10
    offset = 0
    if i < end and load8(i) == _Z:
        i += 1
    elif i + 6 == end and (load8(i) == _PLUS or load8(i) == _MINUS) and load8(i + 3) == _COLON:
        hours, minutes = _digits(i + 1, 2), _digits(i + 4, 2)
        if not (0 <= hours < 24 and 0 <= minutes < 60):
            return False, 0
        offset = (hours * 60 + minutes) * 60_000
        offset = -offset if load8(i) == _MINUS else offset
        i = end
    if i != end:
        return False, 0
    before = year - 1
    leap = (year % 4 == 0 and year % 100 != 0) or year % 400 == 0
    days = before * 365 + before // 4 - before // 100 + before // 400 - 719_162
    days += _DAYS_BEFORE[month - 1] + (1 if leap and month > 2 else 0) + day - 1
    return True, ((days * 24 + hour) * 60 + minute) * 60_000 + second * 1000 + micros // 1000 - offset
