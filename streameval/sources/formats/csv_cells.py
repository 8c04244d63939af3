"""Kernels over the cells of CSV text, a column at a time: they read the certain cases, and leave other cells to Arrow.

`text` is the address of the bytes, which are followed by `words64.PADDING`; `spans` (int32[2, n]) contain the start and
end of a column's n cells. Every kernel writes the indexes of cells that it cannot read to `unsure` (int64[n]) and
returns their number.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.events.hashing import hash_at
from streameval.events.words64 import is_same, load8, load64, store8
from streameval.sources.formats.decimals import HARD, number
from streameval.sources.formats.feature_columns import one_hot
from streameval.sources.formats.iso_times import iso_ms
from streameval.sources.formats.json_text import FALSE, QUOTE, SMALL_T, SPACE, TRUE
from streameval.sources.formats.pool import Pool, intern, pool_places
from streameval.sources.formats.scan_events import integer_of

_SMALL = np.uint64(0x2020202020202020)  # makes letters lower-case: Python writes True, R and Excel write TRUE
# white space beyond ASCII in UTF-8: NEL and NBSP; the others have three bytes
_NEL, _NBSP, _OGHAM, _QUADS, _SEPARATORS, _IDEOGRAPHIC = 0x85C2, 0xA0C2, 0x809AE1, 0x80E2, 0x81E2, 0x8080E3


@numba.njit(inline="always")
def _unquoted(i: int, end: int) -> tuple[int, int]:
    """Returns (start, end) of the text of a cell that begins with a quote at i; removes its quotes in place."""
    i += 1
    begin = to = i
    inside = True
    while i < end:
        c = load8(i)
        if inside and c == QUOTE:
            if i + 1 < end and load8(i + 1) == QUOTE:
                i += 1
            else:
                inside = False
                i += 1
                continue
        if to != i:
            store8(to, c)
        to += 1
        i += 1
    return begin, to


@numba.njit(cache=True, nogil=True)
def find_cells(
    text: int,
    bounds: NDArray[np.int64],
    stops: NDArray[np.int32],
    quoted: NDArray[np.bool_],
    columns: NDArray[np.int64],
    out: NDArray[np.int32],
) -> None:
    """Fills in out[k, :, row]: start and end of the cell in the k-th of `columns`. For the other arrays see
    `csv.Rows`.
    """
    for row in range(len(bounds)):
        start = bounds[row, 0]
        for k in range(columns.size):
            column = columns[k]
            begin = start + (stops[row, column - 1] + 1 if column > 0 else 0)
            end = start + stops[row, column]
            if quoted[row] and begin < end and load8(text + begin) == QUOTE:
                begin, end = _unquoted(text + begin, text + end)
                begin, end = begin - text, end - text
            out[k, 0, row], out[k, 1, row] = begin, end


@numba.njit(inline="always")
def _may_be_blank(i: int, end: int) -> bool:
    """Whether there is nothing but possible white space, as Unicode defines it."""
    while i < end:
        c = load8(i)
        if c <= SPACE:
            i += 1
            continue
        if c < 128:
            return False
        two, three = load64(i) & np.uint64(0xFFFF), load64(i) & np.uint64(0xFFFFFF)
        if two in (_NEL, _NBSP):
            i += 2
        elif two in (_QUADS, _SEPARATORS) or three in (_OGHAM, _IDEOGRAPHIC):
            i += 3
        else:
            return False
    return True


@numba.njit(cache=True, nogil=True)
def hash_ids(
    text: int, spans: NDArray[np.int32], trimmed: bool, out: NDArray[np.uint64], unsure: NDArray[np.int64]
) -> int:
    """Fills in out[n]: the hashes, 0 for an empty cell. `trimmed`: a cell of white space counts as empty."""
    left = 0
    for row in range(out.size):
        begin, end = text + spans[0, row], text + spans[1, row]
        out[row] = hash_at(begin, end) if begin < end else np.uint64(0)
        if trimmed and begin < end and _may_be_blank(begin, end):
            unsure[left] = row
            left += 1
    return left


@numba.njit(cache=True, nogil=True)
def code_words(
    text: int, spans: NDArray[np.int32], column: int, pool: Pool, out: NDArray[np.int64], unsure: NDArray[np.int64]
) -> int:
    """Fills in out[n]: the codes of the words in a column of the pool, -1 for cells that are empty or left."""
    cells, words, columns = pool
    places = pool_places(cells, words, columns)
    left = last_size = 0
    last, last_code = text, np.int64(-1)
    for row in range(out.size):
        begin, end = text + spans[0, row], text + spans[1, row]
        out[row] = -1
        if begin == end:
            continue
        if end - begin == last_size and is_same(begin, last, last_size):  # like the previous cell, as most are
            out[row] = last_code
            continue
        if not _may_be_blank(begin, end):
            out[row] = last_code = intern(text, begin, end, column, places)
            last, last_size = begin, end - begin
        if out[row] < 0:
            unsure[left] = row
            left += 1
    return left


@numba.njit(inline="always")
def _is_word(i: int, end: int, word: np.uint64, size: int) -> bool:
    """Whether the cell is this word, in upper-case or lower-case letters."""
    return end - i == size and (load64(i) | _SMALL) << np.uint64(64 - 8 * size) == word << np.uint64(64 - 8 * size)


@numba.njit(cache=True, nogil=True)
def read_numbers(
    text: int, spans: NDArray[np.int32], labels: bool, out: NDArray[np.float64], unsure: NDArray[np.int64]
) -> int:
    """Fills in out[n]: the numbers, NaN for an empty cell. `labels`: true is 1 and false is 0, and nothing else is
    valid.
    """
    left = 0
    for row in range(out.size):
        begin, end = text + spans[0, row], text + spans[1, row]
        out[row] = np.nan
        if begin == end:
            continue
        if labels and _is_word(begin, end, TRUE, 4):
            out[row] = 1.0
        elif labels and _is_word(begin, end, FALSE, 5):
            out[row] = 0.0
        else:
            outcome, i, x = number(begin, end)
            if outcome != HARD and i == end and not (labels and x not in (0.0, 1.0)):
                out[row] = x
            else:
                unsure[left] = row
                left += 1
    return left


@numba.njit(cache=True, nogil=True)
def read_times(
    text: int, spans: NDArray[np.int32], out: NDArray[np.int64], has: NDArray[np.bool_], unsure: NDArray[np.int64]
) -> int:
    """Fills in out[n]: ms since the epoch, where `has` is set; others are 0."""
    left = 0
    for row in range(out.size):
        begin, end = text + spans[0, row], text + spans[1, row]
        out[row], has[row] = 0, False
        if begin == end:
            continue
        i, ms = integer_of(begin, end)
        good = i == end
        if not good:
            good, ms = iso_ms(begin, end)
        if good:
            out[row], has[row] = ms, True
        else:
            unsure[left] = row
            left += 1
    return left


@numba.njit(cache=True, nogil=True)
def read_features(
    text: int,
    spans: NDArray[np.int32],
    names: NDArray[np.int64],
    how: NDArray[np.int8],
    skip_empty: bool,
    entry: NDArray[np.uint64],
    value: NDArray[np.float64],
    indptr: NDArray[np.int64],
    scratch: NDArray[np.uint8],
) -> int:
    """Reads hashed features of `spans` (int32[columns, 2, n]), row by row; returns their number, or -1 if a number
    cannot be read for certain.

    `names` [columns, 2]: addresses of the start and end of each name; `how` [columns]: 0 a word, 1 a number, 2 true or
    false; `skip_empty`: an empty cell is not a feature. entry, value [columns * n]; indptr [n + 1]; `scratch`: a buffer for a name and a cell.
    """
    used = 0
    indptr[0] = 0
    room = scratch.ctypes.data
    for row in range(indptr.size - 1):
        for k in range(len(names)):
            begin, end = text + spans[k, 0, row], text + spans[k, 1, row]
            if begin == end and (skip_empty or how[k] > 0):
                continue
            if how[k] == 2:
                entry[used], value[used] = hash_at(names[k, 0], names[k, 1]), 1.0 if load8(begin) == SMALL_T else 0.0
            elif how[k] == 1:
                outcome, i, x = number(begin, end)
                if outcome == HARD or i != end:
                    return -1
                entry[used], value[used] = hash_at(names[k, 0], names[k, 1]), x
            else:
                entry[used], value[used] = one_hot(names[k, 0], names[k, 1], begin, end, room), 1.0
            used += 1
        indptr[row + 1] = used
    return used


@numba.njit(cache=True, nogil=True)
def copy_cells(
    text: int, spans: NDArray[np.int32], rows: NDArray[np.int64], ends: NDArray[np.int32], out: NDArray[np.uint8]
) -> None:
    """Copies the cells of some rows, one after the other; ends[k + 1]: where the k-th one ends."""
    at = 0
    for k in range(rows.size):
        for i in range(text + spans[0, rows[k]], text + spans[1, rows[k]]):
            out[at] = load8(i)
            at += 1
        ends[k + 1] = at
