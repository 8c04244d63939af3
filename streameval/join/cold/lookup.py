"""Finds the rows in segments that have given ids, in all indexes at once.

An id costs one page of each index whose filter does not rule it out (see `ids`); all these pages are requested together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.join.cold.ground import ask_for
from streameval.join.cold.ids import FIRST_ROW, PAGE_BYTES, PAGE_IDS, PAGES, SIZE, first_in_page, id_at, page_of, row_at
from streameval.join.cold.index import FENCE, FENCE_SIZE, FILTER, SHARDS, SLOTS, Index
from streameval.join.cold.ribbon import may_have
from streameval.join.cold.segment import Segment

_AT_ONCE = 4096  # pages requested before the first is read


class Lookup:
    """Looks ids up in some indexes; replaced when an index changes or a segment is lost."""

    def __init__(self, indexes: Sequence[Index], lost: Sequence[Segment] = ()) -> None:
        """`lost`: segments whose rows are to be ignored."""
        self._indexes, self._lost = list(indexes), lost
        self._kept = [(index.ids, index.ribbon) for index in indexes]  # keeps the addresses below valid
        self._places = np.array([index.places for index in indexes], np.int64).reshape(len(self._indexes), SLOTS + 1)

    def find(self, wanted: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """(positions in `wanted`, rows, numbers of the indexes) of every row that has one of the ids."""
        order = np.argsort(wanted)  # going through each filter in order takes a third of the time
        ids = wanted[order]
        pages = _full(ids.size, lambda out: _pages(self._places, ids, out))
        parts = range(0, len(pages), _AT_ONCE)
        found = [np.empty((0, 3), np.int64), *(self._look_into(pages[at : at + _AT_ONCE], ids) for at in parts)]
        where, number, row = np.concatenate(found).T
        row += np.array([index.first for index in self._indexes])[number]
        there = np.ones(row.size, np.bool_)
        for segment in self._lost:
            there &= (row < segment.first) | (row >= segment.end)
        return order[where[there]], row[there], number[there]

    def _look_into(self, pages: NDArray[np.int64], ids: NDArray[np.uint64]) -> NDArray[np.int64]:
        """[n, 3]: (position in `ids`, number of the index, row) of all ids found in these pages, which `_pages` returned."""
        ask_for(self._places[pages[:, 1], PAGES] + pages[:, 2] * PAGE_BYTES)
        return _full(len(pages), lambda out: _find(self._places, ids, pages, out))


def _full(guess: int, write: Callable[[NDArray[np.int64]], int]) -> NDArray[np.int64]:
    """[n, 3]: what a kernel writes; it returns how many entries there are, even if there was no room for all."""
    room = guess + 64
    while True:
        out = np.empty((room, 3), np.int64)
        n = write(out)
        if n <= room:
            return out[:n]
        room = n


@numba.njit(cache=True, nogil=True)
def _pages(places: NDArray[np.int64], wanted: NDArray[np.uint64], out: NDArray[np.int64]) -> int:
    """Writes (position in `wanted`, number of the index, page) of all pages to read, as far as there is room; returns how many."""
    n = 0
    for number in range(len(places)):
        fence, pages, words = places[number, FENCE], places[number, FENCE_SIZE], places[number, FILTER]
        shards, slots = places[number, SHARDS], places[number, SLOTS]
        for i in range(wanted.size):
            if may_have(words, shards, slots, wanted[i]):
                if n < len(out):
                    out[n, 0], out[n, 1], out[n, 2] = i, number, page_of(fence, pages, wanted[i])
                n += 1
    return n


@numba.njit(cache=True, nogil=True)
def _find(
    places: NDArray[np.int64], wanted: NDArray[np.uint64], pages: NDArray[np.int64], found: NDArray[np.int64]
) -> int:
    """Writes (position in `wanted`, number of the index, row) of all ids found, as far as there is room; returns how many."""
    n = 0
    for i, number, page in pages:
        words, first_row, size = places[number, PAGES], places[number, FIRST_ROW], places[number, SIZE]
        at = first_in_page(words, size, page, wanted[i])
        while at < size and id_at(words, PAGE_IDS, at) == wanted[i]:
            if n < len(found):
                found[n, 0], found[n, 1], found[n, 2] = i, number, row_at(first_row, PAGE_IDS, at)
            n += 1
            at += 1
    return n
