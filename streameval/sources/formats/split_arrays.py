"""Messages that are arrays of events, as rows: the position of each element, found by a kernel.

A message that is not an array is one row. One whose elements cannot be separated for certain is left to the slow reader
as a whole.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.events.words64 import address_of, load8
from streameval.sources.formats.json_text import CLOSE_LIST, COMMA, OPEN_LIST, after_space, value_end


class EventRows(NamedTuple):
    """Rows, in the order of their messages."""

    bounds: NDArray[np.int64]  # [rows, 2]: start and end in the text
    message: NDArray[np.int64]  # [rows]
    hard: NDArray[np.bool_]  # [rows]: from messages that the kernels cannot read
    element: NDArray[np.bool_]  # [rows]: from an array


def split(
    data: NDArray[np.uint8], bounds: NDArray[np.int64], hard: NDArray[np.bool_], ascii_only: bool, most: int
) -> EventRows:
    """Returns the rows of n messages [n, 2], the last one followed by `words64.PADDING`. `most`: elements that an array
    may have.
    """
    n = len(bounds)
    if not _any_array(data, bounds, hard):
        return EventRows(bounds, np.arange(n), hard, np.zeros(n, np.bool_))
    room = n + data.size // 2  # the shortest element is a digit and a comma; pages never written to take no memory
    out, message = np.empty((room, 2), np.int64), np.empty(room, np.int64)
    left, element = np.empty(room, np.bool_), np.empty(room, np.bool_)
    rows = _split(data, bounds, hard, ascii_only, most, out=out, message=message, left=left, element=element)
    return EventRows(out[:rows].copy(), message[:rows].copy(), left[:rows].copy(), element[:rows].copy())


@numba.njit(cache=True, nogil=True)
def _any_array(data: NDArray[np.uint8], bounds: NDArray[np.int64], hard: NDArray[np.bool_]) -> bool:
    text = address_of(data)
    for k in range(len(bounds)):
        end = text + bounds[k, 1]
        i = after_space(text + bounds[k, 0], end)
        if i < end and load8(i) == OPEN_LIST and not hard[k]:
            return True
    return False


@numba.njit(cache=True, nogil=True)
def _split(
    data: NDArray[np.uint8],
    bounds: NDArray[np.int64],
    hard: NDArray[np.bool_],
    ascii_only: bool,
    most: int,
    out: NDArray[np.int64],
    message: NDArray[np.int64],
    left: NDArray[np.bool_],
    element: NDArray[np.bool_],
) -> int:
    """Fills the columns of `EventRows`; returns the number of rows."""
    text = address_of(data)
    rows = 0
    for k in range(len(bounds)):
        end = text + bounds[k, 1]
        i = after_space(text + bounds[k, 0], end)
        is_array = not hard[k] and i < end and load8(i) == OPEN_LIST
        found = rows
        whole = False  # whether the array was read completely
        if is_array:
            i = after_space(i + 1, end)
            if i < end and load8(i) == CLOSE_LIST:
                whole = after_space(i + 1, end) == end
            else:
                more = i < end
                while more:
                    more = False
                    begin = i
                    i = value_end(i, end, ascii_only)
                    if i < 0 or found - rows == most:
                        break
                    out[found, 0], out[found, 1] = begin - text, i - text
                    message[found], left[found], element[found] = k, False, True
                    found += 1
                    i = after_space(i, end)
                    if i < end and load8(i) == COMMA:
                        i = after_space(i + 1, end)
                        more = i < end
                    elif i < end and load8(i) == CLOSE_LIST:
                        whole = after_space(i + 1, end) == end
        if whole:
            rows = found
        else:
            out[rows, 0], out[rows, 1] = bounds[k, 0], bounds[k, 1]
            message[rows], left[rows], element[rows] = k, hard[k] or is_array, False
            rows += 1
    return rows
