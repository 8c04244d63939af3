"""The cells of JSON lines by a kernel: every line is an object, and its members are cells of columns of their names.

What is not plain (an escape, a repeated name, text that is not UTF-8, a number of more than 18 digits, anything that is no
object) is left, line by line, to the caller.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.events.words64 import is_same, load8
from streameval.sources.formats.cell_spans import IS_INTEGER, IS_LARGE, IS_OTHER, IS_REAL, IS_TEXT, IS_TRUTH
from streameval.sources.formats.decimals import READ, number
from streameval.sources.formats.event_layout import BEGINS, ENDS
from streameval.sources.formats.json_text import (
    CLOSE,
    COLON,
    COMMA,
    FALSE,
    MINUS,
    NINE,
    NULL,
    OPEN,
    OPEN_LIST,
    QUOTE,
    SMALL_T,
    TRUE,
    ZERO,
    after_space,
    is_word,
    named_value,
    string_end,
    value_end,
)

MOST_COLUMNS = 256  # columns of a batch, of which memory is only used for those that occur
ROW, MEMBER = 2, 3  # beside BEGINS and ENDS of a name
_MOST_DIGITS = 18  # of integers that are read
_EXACT_DIGITS = 15  # of those that are doubles


@numba.njit(inline="always")
def _which(begin: int, end: int, text: int, names: NDArray[np.int64], used: int) -> int:
    """Returns which of the names is between two addresses; -1: none."""
    for k in range(used):
        first = names[k, BEGINS]
        if names[k, ENDS] - first == end - begin and is_same(begin, text + first, end - begin):
            return k
    return -1


@numba.njit(cache=True, nogil=True)
def _number_kind(i: int, end: int) -> tuple[int, int]:
    """Returns (end of the number that begins at i, what it is); -1: not plain."""
    outcome, close, _ = number(i, end)
    if outcome != READ:
        return -1, 0
    first = i + 1 if load8(i) == MINUS else i
    for k in range(first, close):
        if not ZERO <= load8(k) <= NINE:
            return close, IS_REAL
    if close - first > _MOST_DIGITS or (first > i and load8(first) == ZERO):  # -0 is 0
        return -1, 0
    return close, IS_LARGE if close - first > _EXACT_DIGITS else IS_INTEGER


@numba.njit(cache=True, nogil=True)
def find_members(
    text: int,
    bounds: NDArray[np.int64],
    ascii_only: bool,
    names: NDArray[np.int64],
    kinds: NDArray[np.int64],
    spans: NDArray[np.int32],
    hard: NDArray[np.bool_],
) -> int:
    """Returns the number of names; -1: there are more than there is room for.

    `text`: the address of the lines, `bounds`: start and end of each, `ascii_only`: they are not valid UTF-8. Fills in
    names [most, 4]: start and end in the text, and the row and the place in it where it was first; kinds [most], as in
    `cell_spans`; spans [most, 2, n], zeros before; and the lines that it leaves as `hard` [n].
    """
    most = len(names)
    guesses, in_row = np.full(most, -1), np.full(most, -1)
    found, bits = np.empty(most, np.int64), np.empty(most, np.int64)
    used = 0
    for row in range(len(bounds)):
        end = text + bounds[row, 1]
        i = after_space(text + bounds[row, 0], end)
        known, members = used, 0
        good = more = False
        if i < end and load8(i) == OPEN:
            i = after_space(i + 1, end)
            more = i < end and load8(i) != CLOSE
            good = i < end and not more
            i += good
        while more:
            more = False
            # usually the member that was here in the previous line
            column = guesses[members] if members < most else -1
            if 0 <= column < used:
                size = names[column, ENDS] - names[column, BEGINS]
                name, close = i + 1, i + 1 + size
                if (
                    close + 1 < end
                    and load8(i) == QUOTE
                    and load8(close) == QUOTE
                    and is_same(name, text + names[column, BEGINS], size)
                ):
                    i = after_space(close + 1, end)
                    if i >= end or load8(i) != COLON:
                        break
                    i = after_space(i + 1, end)
                else:
                    column = -1
            if column < 0 or column >= used:
                name = i + 1
                i, close = named_value(i, end, ascii_only)
                if i < 0:
                    break
                column = _which(name, close, text, names, used)
                if column < 0:
                    if used == most:
                        return -1
                    column = used
                    names[column, BEGINS], names[column, ENDS] = name - text, close - text
                    names[column, ROW], names[column, MEMBER] = row, members
                    used += 1
                if members < most:
                    guesses[members] = column
            if i >= end or in_row[column] == row:  # the last one would win
                break
            in_row[column] = row
            c = load8(i)
            begin = close = np.int64(0)
            kind = 0
            if c == QUOTE:
                begin = i + 1
                close = string_end(begin, end, ascii_only)
                i, kind = close + 1, IS_TEXT
            elif c == MINUS or ZERO <= c <= NINE:
                begin = i
                close, kind = _number_kind(i, end)
                i = close
            elif is_word(i, end, TRUE) or is_word(i, end, FALSE):
                begin, kind = i, IS_TRUTH
                close = i = i + (4 if c == SMALL_T else 5)
            elif is_word(i, end, NULL):
                i += 4
            elif c in (OPEN, OPEN_LIST):
                i, kind = value_end(i, end, ascii_only), IS_OTHER
                if i < 0:
                    break
            else:
                break
            if close < 0:
                break
            found[members], bits[members] = column, kind
            members += 1
            if close > 0:
                spans[column, 0, row], spans[column, 1, row] = begin - text, close - text
            i = after_space(i, end)
            if i < end and load8(i) == COMMA:
                i = after_space(i + 1, end)
                more = True
            elif i < end and load8(i) == CLOSE:
                i += 1
                good = True
        if good and after_space(i, end) == end:
            for k in range(members):
                kinds[found[k]] |= bits[k]
            continue
        hard[row] = True
        used = known
        for k in range(members):
            spans[found[k], :, row] = 0
    return used
