"""Words of several columns numbered by their bytes, for kernels: each column has its own numbers, from 0 on."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.events.hashing import hash_at
from streameval.events.words64 import is_same
from streameval.sources.formats.texts import Words

_MOST = 1 << 20  # cells
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_COLUMN, _START, _END, _CODE = range(4)
_KNOWN, _LAST = range(2)


class Pool(NamedTuple):
    """A hash table with open addressing, and the words that it points to."""

    cells: NDArray[np.uint64]  # [a power of two, 2]: hash (0: empty) and word
    words: NDArray[np.int64]  # [most, 4]: for each word its column, start and end, code
    columns: NDArray[np.int64]  # [columns + 1, 2]: number of words, and the last one; the last row: of all columns

    @staticmethod
    def of(columns: int, rows: int) -> Pool:
        """Returns a pool for `columns` columns of `rows` rows; what does not fit is not numbered."""
        size = 64
        while size < min(2 * columns * rows, _MOST):
            size *= 2
        known = np.zeros((columns + 1, 2), np.int64)
        known[:, _LAST] = -1
        return Pool(np.zeros((size, 2), np.uint64), np.empty((size // 2, 4), np.int64), known)

    def column(self, codes: NDArray[np.int64], column: int, text: bytes | bytearray) -> Words:
        """Returns a column from its codes (-1: none) and the text that was read."""
        known = self.words[: int(self.columns[-1, _KNOWN])]
        mine = known[known[:, _COLUMN] == column, _START:_CODE]
        return Words(codes.astype(np.int32), [text[a:b].decode() for a, b in mine.tolist()])


@numba.njit(inline="always")
def _is_same(text: int, start: int, end: int, words: NDArray[np.int64], word: int) -> bool:
    first = words[word, _START]
    return words[word, _END] - first == end - start and is_same(text + first, start, end - start)


@numba.njit(cache=True, nogil=True)
def intern(
    text: int,
    start: int,
    end: int,
    column: int,
    cells: NDArray[np.uint64],
    words: NDArray[np.int64],
    columns: NDArray[np.int64],
) -> int:
    """Returns the number of a column's word between two addresses, in the text at `text`; -1: there is no room for a
    new one.
    """
    last = columns[column, _LAST]
    if last >= 0 and _is_same(text, start, end, words, last):
        return int(words[last, _CODE])
    mask = np.uint64(len(cells) - 1)
    key = hash_at(start, end) + np.uint64(column) * _SPREAD
    if key == 0:
        key = np.uint64(1)
    at = (key ^ (key >> np.uint64(32))) & mask
    while cells[at, 0]:
        if cells[at, 0] == key:
            word = np.int64(cells[at, 1])
            if words[word, _COLUMN] == column and _is_same(text, start, end, words, word):
                columns[column, _LAST] = word
                return int(words[word, _CODE])
        at = (at + np.uint64(1)) & mask
    known = columns[-1, _KNOWN]
    if known == len(words):
        return -1
    cells[at, 0], cells[at, 1] = key, np.uint64(known)
    words[known, _COLUMN], words[known, _START], words[known, _END] = column, start - text, end - text
    words[known, _CODE] = columns[column, _KNOWN]
    columns[column, _KNOWN] += 1
    columns[column, _LAST] = known
    columns[-1, _KNOWN] = known + 1
    return int(words[known, _CODE])
