"""Finds the rows on disk that have given ids: one call for all segments, of which there may be hundreds.

An id costs one page of each segment that it may be in (see `ids`), and all of them can be asked for at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.join.cold.filter import IdFilter, some_segments
from streameval.join.cold.ground import will_need
from streameval.join.cold.ids import first_in_page, id_at, page_of
from streameval.join.cold.segment import Segment

_AT_ONCE = 4096  # pages of ids that are asked for before one is looked into; more are read as they are touched


class Lookup:
    """The ids of some segments; whoever gives one other ids makes a new one."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = list(segments)
        self._ids = [segment.ids for segment in segments]  # stay where they are as long as this does
        self._places = np.array([ids.places for ids in self._ids], np.int64).reshape(len(self._ids), 5)
        self._marks = np.array([segment.file.mark for segment in segments], np.uint64)

    def find(self, wanted: NDArray[np.uint64], known: IdFilter) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(positions in `wanted`, rows) of every row that has one of the ids; `known` knows all segments."""
        likely = (1 + len(self._segments) // 64) * wanted.size
        pages = _full(likely, lambda out: _pages(self._places, self._marks, known.words, wanted, out))
        if len(pages) <= _AT_ONCE:
            for _, number, page in pages.tolist():
                for array, begin, end in self._ids[number].arrays_of_page(page):
                    will_need(array, begin, end)
        where, number, row = _full(wanted.size, lambda out: _find(self._places, wanted, pages, out)).T
        for one in np.unique(number).tolist():
            here = number == one
            row[here] = self._ids[one].rows_of(row[here]) + self._segments[one].first
        return where, row


def _full(guess: int, write: Callable[[NDArray[np.int64]], int]) -> NDArray[np.int64]:
    """[n, 3]: what a kernel writes, that says how many there were, or would have been had there been room."""
    room = guess + 64
    while True:
        out = np.empty((room, 3), np.int64)
        n = write(out)
        if n <= room:
            return out[:n]
        room = n


@numba.njit(cache=True, nogil=True)
def _pages(
    places: NDArray[np.int64],
    marks: NDArray[np.uint64],
    known: NDArray[np.uint64],
    wanted: NDArray[np.uint64],
    out: NDArray[np.int64],
) -> int:
    """Writes [position in `wanted`, number of the segment, page of its ids] of all that are to be looked into; returns how many."""
    n = 0
    some = np.empty(marks.size, np.int64)
    for i in range(wanted.size):
        for number in some[: some_segments(known, wanted[i], marks, some)]:
            if n < len(out):
                _, _, _, fence, pages = places[number]
                out[n, 0], out[n, 1], out[n, 2] = i, number, page_of(fence, pages, wanted[i])
            n += 1
    return n


@numba.njit(cache=True, nogil=True)
def _find(
    places: NDArray[np.int64], wanted: NDArray[np.uint64], pages: NDArray[np.int64], found: NDArray[np.int64]
) -> int:
    """Writes [position in `wanted`, number of the segment, place in its ids] of all in these pages, as far as there is room;
    returns how many."""
    n = 0
    for i, number, page in pages:
        words, size, per_page, _, _ = places[number]
        at = first_in_page(words, per_page, size, page, wanted[i])
        while at < size and id_at(words, per_page, at) == wanted[i]:
            if n < len(found):
                found[n, 0], found[n, 1], found[n, 2] = i, number, at
            n += 1
            at += 1
    return n
