"""Sorted ids with their row numbers, in pages of the disk, so that a lookup reads one page.

A page holds ids followed by their rows. The first ids of all pages are also in memory, and tell which page an id is in.
Files of earlier versions store ids and rows separately, which costs two pages; they are read as pages without rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.events.words64 import load32, load64

PAGE_BYTES = 4096
ID_BYTES, _ROW_BYTES = 8, 4
_PAGE_WORDS = PAGE_BYTES // ID_BYTES
PAGE_IDS = 340  # per page, with their rows
_ROWS = PAGE_IDS * ID_BYTES // _ROW_BYTES  # where a page's rows begin, in rows
_APART = _PAGE_WORDS  # ids per page without rows
_PIECE = PAGE_IDS << 12  # ids merged at a time
PAGES, FIRST_ROW, SIZE, PER_PAGE = range(4)  # columns of `SortedIds.places`


class SortedIds(NamedTuple):
    """Ids in ascending order; rows of equal ids ascend, too."""

    size: int  # how many
    per_page: int
    words: NDArray[np.uint64]  # the pages
    rows: NDArray[np.uint32]  # the same pages, or an array of rows
    fence: NDArray[np.uint64]  # the first id of each page; empty if rows are separate: no lookups

    @staticmethod
    def of_pages(size: int, pages: NDArray[np.uint64], fence: NDArray[np.uint64]) -> SortedIds:
        """From what `in_pages` returned."""
        words = pages.reshape(-1)
        return SortedIds(size, PAGE_IDS, words, words.view(np.uint32), fence)

    @staticmethod
    def apart(ids: NDArray[np.uint64], rows: NDArray[np.uint32]) -> SortedIds:
        """From separate arrays of ids and rows."""
        return SortedIds(ids.size, _APART, ids, rows, ids[:0])

    @property
    def places(self) -> list[int]:
        """For kernels: the addresses of the first id and of its row, the number of ids, and ids per page."""
        first_row = self.rows.ctypes.data + (_ROW_BYTES * _ROWS if self.per_page == PAGE_IDS else 0)
        return [self.words.ctypes.data, first_row, self.size, self.per_page]


def in_pages(ids: NDArray[np.uint64], rows: NDArray[np.uint32]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """(pages, uint64 [pages, words]; their first ids) from ascending ids and their rows."""
    whole, rest = divmod(ids.size, PAGE_IDS)
    pages = np.zeros((whole + (rest > 0), _PAGE_WORDS), np.uint64)
    halves = pages.view(np.uint32)
    upto = whole * PAGE_IDS
    pages[:whole, :PAGE_IDS] = ids[:upto].reshape(-1, PAGE_IDS)
    halves[:whole, _ROWS : _ROWS + PAGE_IDS] = rows[:upto].reshape(-1, PAGE_IDS)
    pages[whole:, :rest] = ids[upto:]
    halves[whole:, _ROWS : _ROWS + rest] = rows[upto:]
    return pages, ids[::PAGE_IDS].copy()


@numba.njit(inline="always")
def first_not_less(ids: int, low: int, high: int, wanted: np.uint64) -> int:
    """The position, from `low` to `high`, of the first id that is not less than `wanted`; `ids`: an address."""
    while low < high:
        middle = (low + high) // 2
        if load64(ids + ID_BYTES * middle) < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@numba.njit(inline="always")
def page_of(fence: int, pages: int, wanted: np.uint64) -> int:
    """The page that would hold the first id not less than `wanted`; `fence`: an address."""
    return max(first_not_less(fence, 0, pages, wanted) - 1, 0)


@numba.njit(inline="always")
def id_at(words: int, per_page: int, place: int) -> np.uint64:
    """The id at a position; `words`: the address of the pages."""
    return load64(words + place // per_page * PAGE_BYTES + ID_BYTES * (place % per_page))


@numba.njit(inline="always")
def row_at(first_row: int, per_page: int, place: int) -> int:
    """The row of the id at a position."""
    apart = (
        _ROW_BYTES * place if per_page == _APART else place // per_page * PAGE_BYTES + _ROW_BYTES * (place % per_page)
    )
    return load32(first_row + apart)


@numba.njit(inline="always")
def first_in_page(words: int, size: int, page: int, wanted: np.uint64) -> int:
    """The position of the first id of a page that is not less than `wanted`, or the end of the page."""
    begin = page * PAGE_IDS
    return begin + first_not_less(words + page * PAGE_BYTES, 0, min(PAGE_IDS, size - begin), wanted)


class IdPart(NamedTuple):
    """An input of a merge."""

    ids: SortedIds
    rows: int  # added to row numbers


def merged(parts: Sequence[IdPart]) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.uint32]]]:
    """(ids, rows) of all parts in order, in pieces of whole pages, except for the last; equal ids in the order of the parts."""
    places = np.array([[*part.ids.places, part.rows] for part in parts], np.int64).reshape(-1, 5)
    at = np.zeros(len(parts), np.int64)
    left = sum(part.ids.size for part in parts)
    while left:
        ids, rows = np.empty(min(left, _PIECE), np.uint64), np.empty(min(left, _PIECE), np.uint32)
        _merge(places, at, ids, rows)
        yield ids, rows
        left -= ids.size


@numba.njit(cache=True, nogil=True)
def _merge(places: NDArray[np.int64], at: NDArray[np.int64], ids: NDArray[np.uint64], rows: NDArray[np.uint32]) -> None:
    """Fills `ids` and `rows` with the next ids; `at`: how many of each part are done."""
    heads = np.empty(at.size, np.uint64)
    left = np.empty(at.size, np.int64)  # the parts that are not finished, in order
    n = 0
    for part in range(at.size):
        if at[part] < places[part, SIZE]:
            heads[n], left[n] = id_at(places[part, PAGES], places[part, PER_PAGE], at[part]), part
            n += 1
    for i in range(ids.size):
        least = 0
        for k in range(1, n):
            if heads[k] < heads[least]:
                least = k
        part = left[least]
        words, first_row, size, per_page, shift = places[part]
        place = at[part]
        ids[i], rows[i] = heads[least], row_at(first_row, per_page, place) + shift
        at[part] = place + 1
        if place + 1 < size:
            heads[least] = id_at(words, per_page, place + 1)
        else:
            n -= 1
            for k in range(least, n):
                heads[k], left[k] = heads[k + 1], left[k + 1]
