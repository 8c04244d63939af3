"""What kernels that read JSON have in common: where a string ends, what is white space, how a value is passed over."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.sources.formats.decimals import READ, number

_TAB, _LF, _CR, SPACE = 9, 10, 13, 32
QUOTE, COMMA, MINUS, ZERO, NINE, COLON = 34, 44, 45, 48, 57, 58
OPEN_LIST, _ESCAPE, CLOSE_LIST, OPEN, CLOSE = 91, 92, 93, 123, 125
_DEEPEST = 60  # objects and lists in one another that are passed over
TRUE, FALSE, NULL = (np.frombuffer(word, np.uint8) for word in (b"true", b"false", b"null"))


@numba.njit(inline="always")
def after_space(data: NDArray[np.uint8], i: int, end: int) -> int:
    """The first place from i on that is no white space."""
    while i < end and data[i] <= SPACE and (data[i] == SPACE or data[i] == _LF or data[i] == _TAB or data[i] == _CR):
        i += 1
    return i


@numba.njit(cache=True, nogil=True)
def string_end(data: NDArray[np.uint8], i: int, end: int, ascii_only: bool) -> int:
    """Where the closing quote of the string is whose first character is at i; -1: not a plain string."""
    while i < end:
        c = data[i]
        if c == QUOTE:
            return i
        if c == _ESCAPE or c < SPACE or (ascii_only and c >= 128):
            return -1
        i += 1
    return -1


@numba.njit(cache=True, nogil=True)
def is_word(data: NDArray[np.uint8], i: int, end: int, word: NDArray[np.uint8]) -> bool:
    """Whether a word stands at i."""
    if i + word.size > end:
        return False
    for k in range(word.size):  # noqa: SIM110  (a kernel is a plain loop)
        if data[i + k] != word[k]:
            return False
    return True


@numba.njit(cache=True, nogil=True)
def _scalar_end(data: NDArray[np.uint8], i: int, end: int, ascii_only: bool) -> int:
    """The place behind the value at i, which is no object and no list; -1: none that is plain."""
    c = data[i]
    if c == QUOTE:
        close = string_end(data, i + 1, end, ascii_only)
        return close + 1 if close >= 0 else -1
    if c == MINUS or ZERO <= c <= NINE:
        outcome, i, _ = number(data, i, end)
        return i if outcome == READ else -1
    if is_word(data, i, end, TRUE) or is_word(data, i, end, NULL):
        return i + 4
    return i + 5 if is_word(data, i, end, FALSE) else -1


@numba.njit(cache=True, nogil=True)
def value_end(data: NDArray[np.uint8], i: int, end: int, ascii_only: bool) -> int:
    """The place behind the value that begins at i, whatever it is; -1: none, or none that is plain."""
    depth = 0
    objects = np.uint64(0)  # of the open ones, innermost in the lowest bit: 1 for an object
    while True:
        if i >= end:
            return -1
        c = data[i]
        opened = c in (OPEN, OPEN_LIST)
        if opened:
            if depth == _DEEPEST:
                return -1
            depth += 1
            objects = (objects << np.uint64(1)) | np.uint64(c == OPEN)
            i = after_space(data, i + 1, end)
        else:
            i = _scalar_end(data, i, end, ascii_only)
            if i < 0:
                return -1
        first = opened  # what stands at i may close what was just opened, without a comma
        while depth:
            i = i if first else after_space(data, i, end)
            if i >= end:
                return -1
            is_object = objects & np.uint64(1)
            if data[i] == (CLOSE if is_object else CLOSE_LIST):
                depth -= 1
                objects >>= np.uint64(1)
                i += 1
                first = False
                continue
            if not first:
                if data[i] != COMMA:
                    return -1
                i = after_space(data, i + 1, end)
            if is_object:
                i = member_value(data, i, end, ascii_only)
                if i < 0:
                    return -1
            break
        if depth == 0:
            return i


@numba.njit(cache=True, nogil=True)
def member_value(data: NDArray[np.uint8], i: int, end: int, ascii_only: bool) -> int:
    """Where the value begins of the member of an object whose name begins at i; -1: there is none, or its name is not plain."""
    if i >= end or data[i] != QUOTE:
        return -1
    close = string_end(data, i + 1, end, ascii_only)
    if close < 0:
        return -1
    i = after_space(data, close + 1, end)
    if i >= end or data[i] != COLON:
        return -1
    return after_space(data, i + 1, end)
