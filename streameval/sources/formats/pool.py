"""Words of several columns numbered by their bytes, for kernels: each column has its own numbers, from 0 on.

A thread keeps its hash table from one batch to the next (see `rooms`), with the cells cleared that were used.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.events.hashing import hash_at
from streameval.events.words64 import address_of, is_same, load64, store64
from streameval.sources.formats.texts import Words

_MOST = 1 << 20  # cells
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_COLUMN, _START, _END, _CODE, _CELL = range(5)
_KNOWN, _LAST = range(2)
_CELL_BYTES, _WORD_BYTES, _COLUMN_BYTES = 16, 40, 16  # of a row


class Pool(NamedTuple):
    """A hash table with open addressing, and the words that it points to."""

    cells: NDArray[np.uint64]  # [a power of two, 2]: hash (0: empty) and word
    words: NDArray[np.int64]  # [most, 5]: for each word its column, start and end, code, and cell
    columns: NDArray[np.int64]  # [1 + columns, 2]: number of words, and the last one; the first row: of all columns

    @staticmethod
    def of(columns: int, rows: int) -> Pool:
        """Returns a pool for `columns` columns of `rows` rows; what does not fit is not numbered. It is this thread's
        until it asks for another.
        """
        size = 64
        while size < min(2 * columns * rows, _MOST):
            size *= 2
        known = np.zeros((columns + 1, 2), np.int64)
        known[:, _LAST] = -1
        kept = _kept.pool
        if kept is None or len(kept.cells) < size:
            kept = Pool(np.zeros((size, 2), np.uint64), np.empty((size // 2, 5), np.int64), known)
        else:
            kept.cells[kept.words[: int(kept.columns[0, _KNOWN]), _CELL]] = 0
        _kept.pool = Pool(kept.cells, kept.words, known)
        return _kept.pool

    def column(self, codes: NDArray[np.int64], column: int, text: bytes | bytearray) -> Words:
        """Returns a column from its codes (-1: none) and the text that was read."""
        known = self.words[: int(self.columns[0, _KNOWN])]
        mine = known[known[:, _COLUMN] == column, _START:_CODE]
        return Words(codes.astype(np.int32), [text[a:b].decode() for a, b in mine.tolist()])


class _Kept(threading.local):
    pool: Pool | None = None


_kept = _Kept()
PoolPlaces = tuple[int, int, int, int]


@numba.njit(inline="always")
def pool_places(cells: NDArray[np.uint64], words: NDArray[np.int64], columns: NDArray[np.int64]) -> PoolPlaces:
    """Returns a pool's arrays as `intern` takes them: (address of the cells, their number, that of the words, that of the
    columns). The arrays have to be used again later.
    """
    return address_of(cells), len(cells), address_of(words), address_of(columns)


@numba.njit(inline="always")
def _get(at: int, k: int) -> int:
    """Returns the k-th number of a row."""
    return np.int64(load64(at + 8 * k))  # type: ignore[return-value]  # an int to Numba


@numba.njit(inline="always")
def _put(at: int, k: int, number: int) -> None:
    store64(at + 8 * k, np.uint64(number))


@numba.njit(inline="always")
def _is_same(text: int, start: int, end: int, word: int) -> bool:
    """Whether the word in the row at an address is that between two other ones."""
    first = _get(word, _START)
    return _get(word, _END) - first == end - start and is_same(text + first, start, end - start)


@numba.njit(cache=True, nogil=True)
def intern(text: int, start: int, end: int, column: int, pool: PoolPlaces) -> int:
    """Returns the number of a column's word between two addresses, in the text at `text`; -1: there is no room for a
    new one.
    """
    cells, size, words, columns = pool
    of_all, mine = columns, columns + _COLUMN_BYTES * (column + 1)
    last = _get(mine, _LAST)
    if last >= 0 and _is_same(text, start, end, words + _WORD_BYTES * last):
        return _get(words + _WORD_BYTES * last, _CODE)
    mask = np.uint64(size - 1)
    key = hash_at(start, end) + np.uint64(column) * _SPREAD
    if key == 0:
        key = np.uint64(1)
    at = (key ^ (key >> np.uint64(32))) & mask
    while True:
        cell = cells + _CELL_BYTES * int(at)
        there = load64(cell)
        if there == 0:
            break
        if there == key:
            word = _get(cell, 1)
            row = words + _WORD_BYTES * word
            if _get(row, _COLUMN) == column and _is_same(text, start, end, row):
                _put(mine, _LAST, word)
                return _get(row, _CODE)
        at = (at + np.uint64(1)) & mask
    known = _get(of_all, _KNOWN)
    if known == size // 2:
        return -1
    code = _get(mine, _KNOWN)
    store64(cell, key)
    _put(cell, 1, known)
    row = words + _WORD_BYTES * known
    _put(row, _COLUMN, column)
    _put(row, _START, start - text)
    _put(row, _END, end - text)
    _put(row, _CODE, code)
    _put(row, _CELL, int(at))
    _put(mine, _KNOWN, code + 1)
    _put(mine, _LAST, known)
    _put(of_all, _KNOWN, known + 1)
    return code
