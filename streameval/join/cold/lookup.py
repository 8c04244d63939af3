"""Which rows on disk have some ids: one call for all segments, of which there may be hundreds.

Ids are hashes, so where one lies in order is guessed by its size: within a few places at the third guess. From there
it is looked for in steps that double, so ids that are no hashes are found as well, in more steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.events.words64 import load64
from streameval.join.cold.filter import IdFilter, some_segments
from streameval.join.cold.ground import will_need
from streameval.join.cold.segment import Segment

_GUESSES = 3
_STEP = 4  # places, the first
ONE_BY_ONE = 16  # ids, or rows, whose pages are asked for one by one; of more the system reads some for others
_NEAR = 512  # places around the first guess
_ALL_IDS = 2.0**64


class Lookup:
    """The ids of some segments; whoever gives one other ids makes a new one."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = list(segments)
        self._ids = [segment.ids for segment in segments]  # stay where they are as long as this does
        places = [[ids.ctypes.data, ids.size] for ids in self._ids]
        self._places = np.array(places, np.int64).reshape(len(places), 2)
        self._marks = np.array([segment.file.mark for segment in segments], np.uint64)

    def find(self, wanted: NDArray[np.uint64], known: IdFilter) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(positions in `wanted`, rows) of every row that has one of the ids; `known` knows all segments."""
        if wanted.size <= ONE_BY_ONE:
            self._will_need(wanted, known)
        room = wanted.size + 64
        while True:
            found = np.empty((3, room), np.int64)
            n = _find(self._places, self._marks, known.words, wanted, found)
            if n <= room:
                break
            room = n
        where, number, row = found[:, :n]
        for one in np.unique(number).tolist():
            segment, here = self._segments[one], number == one
            row[here] = segment.at[row[here]].astype(np.int64) + segment.first
        return where, row

    def _will_need(self, wanted: NDArray[np.uint64], known: IdFilter) -> None:
        """Has the system read at once what will be looked into."""
        guessed = np.empty((wanted.size * self._marks.size, 2), np.int64)
        for number, place in guessed[: _guess(self._places, self._marks, known.words, wanted, guessed)].tolist():
            for column in (self._ids[number], self._segments[number].at):
                will_need(column, place - _NEAR, place + _NEAR)


@numba.njit(inline="always")
def _first_not_less(ids: int, size: int, wanted: np.uint64) -> int:
    """The place of the first of the ascending ids at an address that is not less than one."""
    low, high = 0, size
    least, most, size_of = 0.0, _ALL_IDS, np.float64(wanted)
    below = True
    for _ in range(_GUESSES):
        if low == high:
            break
        part = (size_of - least) / (most - least) if most > least else 0.5
        guess = min(low + int(part * (high - low)), high - 1)
        known = load64(ids + 8 * guess)
        below = known < wanted
        if below:
            low, least = guess + 1, np.float64(known)
        else:
            high, most = guess, np.float64(known)
    step = _STEP
    if below:
        while low + step < high and load64(ids + 8 * (low + step)) < wanted:
            low += step + 1
            step *= 2
        high = min(high, low + step)
    else:
        while high - step > low and load64(ids + 8 * (high - step)) >= wanted:
            high -= step
            step *= 2
        low = max(low, high - step)
    while low < high:
        middle = (low + high) // 2
        if load64(ids + 8 * middle) < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@numba.njit(cache=True, nogil=True)
def _guess(
    places: NDArray[np.int64],
    marks: NDArray[np.uint64],
    known: NDArray[np.uint64],
    wanted: NDArray[np.uint64],
    out: NDArray[np.int64],
) -> int:
    """Writes [number of the segment, about where in its ids] of all that will be looked into; returns how many."""
    n = 0
    some = np.empty(marks.size, np.int64)
    for one in wanted:
        for number in some[: some_segments(known, one, marks, some)]:
            out[n, 0], out[n, 1] = number, int(np.float64(one) / _ALL_IDS * places[number, 1])
            n += 1
    return n


@numba.njit(cache=True, nogil=True)
def _find(
    places: NDArray[np.int64],
    marks: NDArray[np.uint64],
    known: NDArray[np.uint64],
    wanted: NDArray[np.uint64],
    found: NDArray[np.int64],
) -> int:
    """Writes [position in `wanted`, number of the segment, place in its ids] of all, as far as there is room; returns how many."""
    n = 0
    some = np.empty(marks.size, np.int64)
    for i in range(wanted.size):
        for number in some[: some_segments(known, wanted[i], marks, some)]:
            ids, size = places[number]
            at = _first_not_less(ids, size, wanted[i])
            while at < size and load64(ids + 8 * at) == wanted[i]:
                if n < found.shape[1]:
                    found[0, n], found[1, n], found[2, n] = i, number, at
                n += 1
                at += 1
    return n
