"""Shared by kernels that read JSON: where a string ends, what is white space, how a value is skipped.

A position is an address (see `words64`), `end` the one after the last byte of the text.
"""

from __future__ import annotations

import numba
import numpy as np

from streameval.events.words64 import bytes_below, bytes_beyond_ascii, equal_bytes, load8, load64, trailing_zeros
from streameval.sources.formats.decimals import READ, number

_TAB, _LF, _CR, SPACE = 9, 10, 13, 32
QUOTE, COMMA, MINUS, ZERO, NINE, COLON = 34, 44, 45, 48, 57, 58
OPEN_LIST, _ESCAPE, CLOSE_LIST, OPEN, CLOSE = 91, 92, 93, 123, 125
SMALL_N, SMALL_T = 110, 116  # first letters of null and true
_DEEPEST = 60  # levels of nested objects and lists that are skipped
TRUE, FALSE, NULL = (np.uint64(int.from_bytes(word, "little")) for word in (b"true", b"false", b"null"))


@numba.njit(inline="always")
def after_space(i: int, end: int) -> int:
    """Returns the first position from i on that is not white space."""
    while (
        i < end and load8(i) <= SPACE and (load8(i) == SPACE or load8(i) == _LF or load8(i) == _TAB or load8(i) == _CR)
    ):
        i += 1
    return i


@numba.njit(cache=True, nogil=True)
def string_end(i: int, end: int, ascii_only: bool) -> int:
    """Returns the position of the closing quote of the string whose first character is at i; -1: not a plain string.

    It reads eight bytes at a time, so the text must end with `words64.PADDING`.
    """
    while i < end:
        word = load64(i)
        found = equal_bytes(word, QUOTE) | equal_bytes(word, _ESCAPE) | bytes_below(word, SPACE)
        if ascii_only:
            found |= bytes_beyond_ascii(word)
        if found:
            i += trailing_zeros(found) >> 3
            return i if i < end and load8(i) == QUOTE else -1
        i += 8
    return -1


@numba.njit(cache=True, nogil=True)
def named_value(i: int, end: int, ascii_only: bool) -> tuple[int, int]:
    """For the member of an object whose name begins at i, returns (start of the value, end of the name); -1: there is
    none, or its name is not plain.
    """
    if i >= end or load8(i) != QUOTE:
        return -1, i
    close = string_end(i + 1, end, ascii_only)
    if close < 0:
        return -1, i
    i = after_space(close + 1, end)
    if i >= end or load8(i) != COLON:
        return -1, i
    i = after_space(i + 1, end)
    return (i if i < end else -1), close


@numba.njit(inline="always")
def is_word(i: int, end: int, word: np.uint64) -> bool:
    """Whether `TRUE`, `FALSE` or `NULL` is at i."""
    size = 5 if word == FALSE else 4
    return i + size <= end and load64(i) << np.uint64(64 - 8 * size) == word << np.uint64(64 - 8 * size)


@numba.njit(cache=True, nogil=True)
def _scalar_end(i: int, end: int, ascii_only: bool) -> int:
    """Returns the position after the value at i, which is not an object or list; -1: there is none that is plain."""
    c = load8(i)
    if c == QUOTE:
        close = string_end(i + 1, end, ascii_only)
        return close + 1 if close >= 0 else -1
    if c == MINUS or ZERO <= c <= NINE:
        outcome, i, _ = number(i, end)
        return i if outcome == READ else -1
    if is_word(i, end, TRUE) or is_word(i, end, NULL):
        return i + 4
    return i + 5 if is_word(i, end, FALSE) else -1


@numba.njit(cache=True, nogil=True)
def value_end(i: int, end: int, ascii_only: bool) -> int:
    """Returns the position after the value that begins at i, whatever it is; -1: there is none, or none that is
    plain.
    """
    depth = 0
    objects = np.uint64(0)  # open objects and lists, innermost in the lowest bit: 1 for an object
    while True:
        if i >= end:
            return -1
        c = load8(i)
        opened = c in (OPEN, OPEN_LIST)
        if opened:
            if depth == _DEEPEST:
                return -1
            depth += 1
            objects = (objects << np.uint64(1)) | np.uint64(c == OPEN)
            i = after_space(i + 1, end)
        else:
            i = _scalar_end(i, end, ascii_only)
            if i < 0:
                return -1
        first = opened  # at i, what was just opened may be closed without a comma
        while depth:
            i = i if first else after_space(i, end)
            if i >= end:
                return -1
            is_object = objects & np.uint64(1)
            if load8(i) == (CLOSE if is_object else CLOSE_LIST):
                depth -= 1
                objects >>= np.uint64(1)
                i += 1
                first = False
                continue
            if not first:
                if load8(i) != COMMA:
                    return -1
                i = after_space(i + 1, end)
            if is_object:
                i, _ = named_value(i, end, ascii_only)
                if i < 0:
                    return -1
            break
        if depth == 0:
            return i
