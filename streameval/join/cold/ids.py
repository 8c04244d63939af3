"""The ids of a segment in order, with the row of each, in pages of the disk: a lookup reads one page.

A page holds ids followed by their rows. The first id of every page is also in memory, and tells which page an id is in.
Files of earlier versions have ids and rows apart, which costs two pages; they are read as pages without rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.events.words64 import load64

PAGE_BYTES = 4096
_WORDS = PAGE_BYTES // 8
PAGE_IDS = 340  # of a page: 8 bytes each, and 4 for the row
_ROWS = 2 * PAGE_IDS  # where a page's rows begin, in 4 bytes
_APART = _WORDS  # ids of a page without rows


class SortedIds(NamedTuple):
    """Ids, ascending; the rows of equal ones ascend."""

    size: int  # how many
    per_page: int
    words: NDArray[np.uint64]  # the pages, one right behind the other
    rows: NDArray[np.uint32]  # where rows are: the same pages, or apart
    fence: NDArray[np.uint64]  # the first id of each page, in memory

    @staticmethod
    def of_pages(size: int, pages: NDArray[np.uint64], fence: NDArray[np.uint64]) -> SortedIds:
        """What `in_pages` gave."""
        words = pages.reshape(-1)
        return SortedIds(size, PAGE_IDS, words, words.view(np.uint32), fence)

    @staticmethod
    def apart(ids: NDArray[np.uint64], rows: NDArray[np.uint32], fence: NDArray[np.uint64] | None = None) -> SortedIds:
        """Of ids and rows that are arrays of their own."""
        return SortedIds(ids.size, _APART, ids, rows, ids[::_APART].copy() if fence is None else fence)

    @property
    def places(self) -> list[int]:
        """For kernels: addresses of the pages and of the fence, and how many there are of what."""
        return [self.words.ctypes.data, self.size, self.per_page, self.fence.ctypes.data, self.fence.size]

    def rows_of(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of ids at these places in the order."""
        if self.per_page == PAGE_IDS:
            places = places // PAGE_IDS * (PAGE_BYTES // 4) + _ROWS + places % PAGE_IDS
        return self.rows[places].astype(np.int64)

    def arrays_of_page(self, page: int) -> list[tuple[NDArray[np.uint64] | NDArray[np.uint32], int, int]]:
        """What is to be read of a page: [begin, end) of arrays."""
        words: tuple[NDArray[np.uint64], int, int] = (self.words, page * _WORDS, (page + 1) * _WORDS)
        return [words] if self.per_page == PAGE_IDS else [words, (self.rows, page * _APART, (page + 1) * _APART)]


def in_pages(ids: NDArray[np.uint64], rows: NDArray[np.uint32]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """(uint64 [pages, words], the fence) of ascending ids and their rows."""
    whole, rest = divmod(ids.size, PAGE_IDS)
    pages = np.zeros((whole + (rest > 0), _WORDS), np.uint64)
    halves = pages.view(np.uint32)
    upto = whole * PAGE_IDS
    pages[:whole, :PAGE_IDS] = ids[:upto].reshape(-1, PAGE_IDS)
    halves[:whole, _ROWS : _ROWS + PAGE_IDS] = rows[:upto].reshape(-1, PAGE_IDS)
    pages[whole:, :rest] = ids[upto:]
    halves[whole:, _ROWS : _ROWS + rest] = rows[upto:]
    return pages, ids[::PAGE_IDS].copy()


@numba.njit(inline="always")
def first_not_less(ids: int, low: int, high: int, wanted: np.uint64) -> int:
    """The place of the first of the ascending ids at an address that is not less than one; it is from `low` to `high`."""
    while low < high:
        middle = (low + high) // 2
        if load64(ids + 8 * middle) < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@numba.njit(inline="always")
def page_of(fence: int, pages: int, wanted: np.uint64) -> int:
    """The page in which the first id that is not less than one would be; the fence is at an address."""
    return max(first_not_less(fence, 0, pages, wanted) - 1, 0)


@numba.njit(inline="always")
def id_at(words: int, per_page: int, place: int) -> np.uint64:
    """The id at a place of the order; `words`: the address of the pages."""
    return load64(words + place // per_page * PAGE_BYTES + 8 * (place % per_page))


@numba.njit(inline="always")
def first_in_page(words: int, per_page: int, size: int, page: int, wanted: np.uint64) -> int:
    """The place of the first id that is not less than one, of those of a page, or behind them."""
    begin = page * per_page
    return begin + first_not_less(words + page * PAGE_BYTES, 0, min(per_page, size - begin), wanted)


@numba.njit(cache=True, nogil=True)
def cut(places: NDArray[np.int64], edges: NDArray[np.uint64], out: NDArray[np.int64]) -> None:
    """Writes the place of the first id that is not less than each of these; `places`: see `SortedIds.places`."""
    words, size, per_page, fence, pages = places
    for i in range(edges.size):
        out[i] = first_in_page(words, per_page, size, page_of(fence, pages, edges[i]), edges[i]) if size else 0
