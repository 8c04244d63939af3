"""Which impressions of pairs, scored by a version besides the server, are beyond a user's cap for the UTC day: counted
by partition, for the current day.

Labels mature in order of event time, so which ones come first does not depend on batches. A user whose impressions are
spread over partitions is counted separately in each of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.events.durations import DAY
from streameval.sketches.directory import mix

MOST_USERS = 1 << 22  # per day; the impressions of any more are all beyond the cap
# initial cells; few, so that a warm-up also compiles the code that grows the table. The table is at most half full:
# above that, half the time would be spent on probing
_FEWEST = 1 << 6
_AT_ONCE = 256  # impressions whose users are looked up together
_COUNT = np.uint64(0xFF)  # a cell's low bits hold the count, the others a user's mixed hash; 0: empty


@numba.njit(cache=True, nogil=True)
def in_pairs(others: NDArray[np.int32], logged_at: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Returns which of n impressions the server (`logged_at` int32[n] >= 0) and another version scored; `others`: rows
    of the others' scores.
    """
    out = np.zeros(logged_at.size, np.bool_)
    for row in others:
        out[row] = logged_at[row] >= 0
    return out


@numba.njit(inline="always")
def _home(key: np.uint64, cells: NDArray[np.uint64]) -> np.uint64:
    return (key >> np.uint64(8)) & np.uint64(cells.size - 1)


@numba.njit(inline="always")
def _place(key: np.uint64, cells: NDArray[np.uint64]) -> int:
    """Returns the index of a user's cell, or of the one to use."""
    mask, at = np.uint64(cells.size - 1), _home(key, cells)
    while cells[at] and (cells[at] ^ key) & ~_COUNT:
        at = (at + np.uint64(1)) & mask
    return int(at)


class _Arrivals(NamedTuple):
    """n impressions."""

    user: NDArray[np.uint64]
    ts: NDArray[np.int64]  # ms
    counts: NDArray[np.bool_]  # which of them count
    beyond: NDArray[np.bool_]  # output: which are beyond the cap


class _Cells(NamedTuple):
    """A table of users."""

    cells: NDArray[np.uint64]
    used: NDArray[np.int64]  # [1]: occupied cells
    limit: int  # the largest number of occupied cells


@numba.njit(cache=True, nogil=True)
def _count(start: int, until: int, cap: int, arrivals: _Arrivals, table: _Cells, closed: bool) -> int:
    """Counts impressions from `start` on, before time `until` (ms); returns where it stopped.

    At the table's limit it stops before a new user or, if `closed`, marks the user's impressions as beyond the cap.
    """
    user, ts, counts, beyond = arrivals
    cells, used, limit = table
    keys, fetched = np.empty(_AT_ONCE, np.uint64), np.empty(_AT_ONCE, np.uint64)
    first, known = start, start
    for i in range(start, user.size):
        if i == known:  # cells are fetched before any is compared, so memory latency is paid once
            known = min(i + _AT_ONCE, user.size)
            for j in range(known - i):
                keys[j] = mix(user[i + j])
                fetched[j] = cells[_home(keys[j], cells)]
            first = i
        if ts[i] >= until:
            return i
        if not counts[i]:
            continue
        key, home = keys[i - first], fetched[i - first]
        found = home != 0 and not (home ^ key) & ~_COUNT
        at = _home(key, cells) if found else np.uint64(_place(key, cells))
        if not cells[at]:
            if used[0] >= limit:
                if not closed:
                    return i
                beyond[i] = True
                continue
            cells[at] = key & ~_COUNT
            used[0] += 1
        below = cells[at] & _COUNT < np.uint64(cap)
        cells[at] += np.uint64(below)  # without a branch, which would be unpredictable
        beyond[i] = not below
    return int(user.size)


@numba.njit(cache=True, nogil=True)
def _enter(some: NDArray[np.uint64], cells: NDArray[np.uint64]) -> None:
    """Inserts new users into a table that has room for them."""
    for i in range(some.size):
        cells[_place(some[i], cells)] = some[i]


@numba.njit(cache=True)
def _packed(users: NDArray[np.uint64], counts: NDArray[np.uint8]) -> NDArray[np.uint64]:
    out = np.empty(users.size, np.uint64)
    for i in range(users.size):
        out[i] = (mix(users[i]) & ~_COUNT) | np.uint64(counts[i])
    return out


class UserCap:
    """Counts every user's impressions on one day."""

    def __init__(self, cap: int) -> None:
        """`cap`: 1 to 255."""
        self._cap = cap
        self._day = -(1 << 40)
        self._used = np.zeros(1, np.int64)
        self._empty(_FEWEST)

    def beyond(self, user: NDArray[np.uint64], ts: NDArray[np.int64], counts: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Returns which of n impressions, in time order, are beyond the cap; those not in `counts` never are."""
        arrivals = _Arrivals(user, ts, counts, np.zeros(user.size, np.bool_))
        i = 0
        while i < user.size:
            day = int(ts[i]) // DAY
            if day > self._day:
                self._day = day
                self._used[0] = 0
                self._empty(_FEWEST)
            limit = min(self._cells.size // 2, MOST_USERS)
            table = _Cells(self._cells, self._used, limit)
            i = _count(i, (self._day + 1) * DAY, self._cap, arrivals, table, limit == MOST_USERS)
            if i < user.size and int(ts[i]) // DAY <= self._day:
                self._grow(self._cells.size * 2)
        return arrivals.beyond

    @property
    def nbytes(self) -> int:
        """Size of the table in bytes."""
        return self._cells.nbytes

    def state(self) -> dict[str, Any]:
        """Returns everything, for `restore`."""
        return {"day": self._day, "cells": np.sort(self._cells[self._cells != 0])}

    def restore(self, state: dict[str, Any]) -> None:
        """Restores what `state` returned."""
        self._day = state["day"]
        # an older checkpoint's
        cells = state["cells"] if "cells" in state else _packed(state["users"], state["counts"])
        size = _FEWEST
        while size // 2 < cells.size:
            size *= 2
        self._used[0] = cells.size
        self._empty(size)
        _enter((cells & ~_COUNT) | np.minimum(cells & _COUNT, np.uint64(self._cap)), self._cells)

    def _empty(self, size: int) -> None:
        self._cells = np.zeros(size, np.uint64)

    def _grow(self, size: int) -> None:
        old = self._cells
        self._empty(size)
        _enter(old[old != 0], self._cells)
