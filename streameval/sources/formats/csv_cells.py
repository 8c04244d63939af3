"""Kernels over the cells of CSV text, a column at a time: what a cell is for certain, and which cells are left to Arrow.

`text` is the address of the bytes, which have `words64.PADDING` behind them; `spans` (int32[2, n]) say where the n cells of a column begin
and end. Every kernel writes the places of cells that it does not know to `unsure` (int64[n]) and returns how many there are.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.events.hashing import hash_at
from streameval.events.words64 import is_same, load8, load64, store8
from streameval.sources.formats.decimals import HARD, number
from streameval.sources.formats.iso_times import iso_ms
from streameval.sources.formats.json_text import FALSE, QUOTE, SPACE, TRUE
from streameval.sources.formats.pool import Pool, intern
from streameval.sources.formats.scan_events import integer_of
from streameval.sources.formats.scan_features import one_hot

_SMALL = np.uint64(0x20)  # makes a letter of the lowest byte small: Python writes True
# white space beyond ASCII in UTF-8: NEL and NBSP; the others have three bytes
_NEL, _NBSP, _OGHAM, _QUADS, _SEPARATORS, _IDEOGRAPHIC = 0x85C2, 0xA0C2, 0x809AE1, 0x80E2, 0x81E2, 0x8080E3


@numba.njit(inline="always")
def _unquoted(i: int, end: int) -> tuple[int, int]:
    """(where the text begins, where it ends) of a cell that begins with a quote at i, its quotes removed in place."""
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
    """out[k, :, row]: where the cell of the k-th of `columns` begins and ends. For the others see `csv.Rows`."""
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
    """Whether there is nothing but what may be white space, in Unicode's sense."""
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
    """out[n]: the hashes, 0 of an empty cell. `trimmed`: white space alone is as good as empty."""
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
    """out[n]: the codes of the words in a column of the pool, -1 of an empty cell and of one that is left."""
    cells, words, columns = pool
    left = last_size = 0
    last, last_code = text, np.int64(-1)
    for row in range(out.size):
        begin, end = text + spans[0, row], text + spans[1, row]
        out[row] = -1
        if begin == end:
            continue
        if end - begin == last_size and is_same(begin, last, last_size):  # as the cell before, which most are
            out[row] = last_code
            continue
        if not _may_be_blank(begin, end):
            out[row] = last_code = intern(text, begin, end, column, cells, words, columns)
            last, last_size = begin, end - begin
        if out[row] < 0:
            unsure[left] = row
            left += 1
    return left


@numba.njit(inline="always")
def _is_word(i: int, end: int, word: np.uint64, size: int) -> bool:
    """Whether the cell is this word, with a first letter of either size."""
    return end - i == size and (load64(i) | _SMALL) << np.uint64(64 - 8 * size) == word << np.uint64(64 - 8 * size)


@numba.njit(cache=True, nogil=True)
def read_numbers(
    text: int, spans: NDArray[np.int32], labels: bool, out: NDArray[np.float64], unsure: NDArray[np.int64]
) -> int:
    """out[n]: the numbers, NaN of an empty cell. `labels`: true is 1 and false is 0, and there are no others."""
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
    """out[n]: ms since the epoch, where `has` is set; others are 0."""
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
    numeric: NDArray[np.bool_],
    skip_empty: bool,
    entry: NDArray[np.uint64],
    value: NDArray[np.float64],
    indptr: NDArray[np.int64],
    scratch: NDArray[np.uint8],
) -> int:
    """Hashed features of `spans` (int32[columns, 2, n]), row by row; returns how many there are, -1 when a number is none for certain.

    `names` [columns, 2]: addresses where the name of each begins and ends; `numeric`: columns of numbers; `skip_empty`: an empty
    cell is no feature. entry, value [columns * n]; indptr [n + 1]; `scratch`: room for a name and a cell.
    """
    used = 0
    indptr[0] = 0
    room = scratch.ctypes.data
    for row in range(indptr.size - 1):
        for k in range(len(names)):
            begin, end = text + spans[k, 0, row], text + spans[k, 1, row]
            if begin == end and (skip_empty or numeric[k]):
                continue
            if numeric[k]:
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
    """The cells of some rows, one behind the other; ends[k + 1]: where that of the k-th ends."""
    at = 0
    for k in range(rows.size):
        for i in range(text + spans[0, rows[k]], text + spans[1, rows[k]]):
            out[at] = load8(i)
            at += 1
        ends[k + 1] = at
