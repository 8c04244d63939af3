"""Which impressions of pairs, scored by a version besides the server, are beyond a user's cap for the UTC day: counted
by partition, for the current day.

Labels mature in order of event time, so which ones come first does not depend on batches. A user whose impressions are
spread over partitions is counted separately in each of them.

Counts are by slot of the partition's directory of users, a byte each, which stay in the processor's caches. Users without a
slot, which are those outside its sample, have theirs in a table, and so has everybody after a restart or when the sample
becomes smaller, until they are next seen.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.counting.users import UserSlots
from streameval.events.durations import DAY
from streameval.sketches.directory import Directory, mix

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
    slot: NDArray[np.int32]  # of the user; -1: none
    ts: NDArray[np.int64]  # ms
    counts: NDArray[np.bool_]  # which of them count
    beyond: NDArray[np.bool_]  # output: which are beyond the cap


class _Cells(NamedTuple):
    """Impressions of users."""

    by_slot: NDArray[np.uint8]  # 0: not counted here
    cells: NDArray[np.uint64]  # a table of the others
    users: NDArray[np.int64]  # [1]: their number, in both
    used: NDArray[np.int64]  # [1]: occupied cells


@numba.njit(cache=True, nogil=True)
def _count(start: int, until: int, cap: int, most: int, arrivals: _Arrivals, counted: _Cells) -> int:
    """Counts impressions from `start` on, before time `until` (ms); returns where it stopped.

    It stops before a user for whom the table has no room. With `most` users, any more are beyond the cap.
    """
    user, slot, ts, counts, beyond = arrivals
    by_slot, cells, users, used = counted
    keys, fetched = np.empty(_AT_ONCE, np.uint64), np.empty(_AT_ONCE, np.uint64)
    first, known = start, start
    for i in range(start, user.size):
        if i == known:  # cells are fetched before any is compared, so memory latency is paid once
            known = min(i + _AT_ONCE, user.size)
            for j in range(known - i):
                if slot[i + j] < 0:
                    keys[j] = mix(user[i + j])
                    fetched[j] = cells[_home(keys[j], cells)]
            first = i
        if ts[i] >= until:
            return i
        if not counts[i]:
            continue
        mine = slot[i]
        if mine >= 0:
            own = np.uint32(mine)
            if by_slot[own] == 0:  # first seen here: known to the table, or new
                key = mix(user[i])
                before = cells[_place(key, cells)] & _COUNT
                if not before and users[0] >= most:
                    beyond[i] = True
                    continue
                users[0] += not before
                by_slot[own] = before
            below = by_slot[own] < cap
            by_slot[own] += below  # without a branch, which would be unpredictable
            beyond[i] = not below
            continue
        key, home = keys[i - first], fetched[i - first]
        found = home != 0 and not (home ^ key) & ~_COUNT
        at = _home(key, cells) if found else np.uint64(_place(key, cells))
        if not cells[at] & _COUNT:
            if users[0] >= most:
                beyond[i] = True
                continue
            if not cells[at]:
                if 2 * used[0] >= cells.size:
                    return i
                used[0] += 1
            cells[at] = key & ~_COUNT
            users[0] += 1
        below = cells[at] & _COUNT < np.uint64(cap)
        cells[at] += np.uint64(below)
        beyond[i] = not below
    return int(user.size)


@numba.njit(cache=True, nogil=True)
def _enter(some: NDArray[np.uint64], cells: NDArray[np.uint64]) -> int:
    """Sets users' cells in a table that has room for them; returns how many were empty."""
    new = 0
    for i in range(some.size):
        at = _place(some[i], cells)
        new += cells[at] == 0
        cells[at] = some[i]
    return new


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
        self._users, self._used = np.zeros(1, np.int64), np.zeros(1, np.int64)
        self._cells = np.zeros(_FEWEST, np.uint64)
        self._directory = Directory()
        self._by_slot = np.zeros(0, np.uint8)

    def beyond(
        self,
        user: NDArray[np.uint64],
        ts: NDArray[np.int64],
        counts: NDArray[np.bool_],
        known: UserSlots | None = None,
    ) -> NDArray[np.bool_]:
        """Returns which of n impressions, in time order, are beyond the cap; those not in `counts` never are.

        `known`: the users' slots, if the caller has them.
        """
        slot, directory = known or UserSlots(self._directory.find(user), self._directory)
        if directory is not self._directory:
            self._enter_all(self._with_slots())
            self._directory, self._by_slot = directory, np.zeros(0, np.uint8)
        if len(directory) > self._by_slot.size:  # grows by half at least, so that few users are copied per batch
            old, self._by_slot = self._by_slot, np.zeros(max(len(directory), self._by_slot.size * 3 // 2), np.uint8)
            self._by_slot[: old.size] = old
        arrivals = _Arrivals(user, slot, ts, counts, np.zeros(user.size, np.bool_))
        i = 0
        while i < user.size:
            day = int(ts[i]) // DAY
            if day > self._day:
                self._day = day
                self._users[0] = self._used[0] = 0
                self._cells, self._by_slot[:] = np.zeros(_FEWEST, np.uint64), 0
            counted = _Cells(self._by_slot, self._cells, self._users, self._used)
            i = _count(i, (self._day + 1) * DAY, self._cap, MOST_USERS, arrivals, counted)
            if i < user.size and int(ts[i]) // DAY <= self._day:
                self._enter_all(np.empty(0, np.uint64), room=1)
        return arrivals.beyond

    @property
    def nbytes(self) -> int:
        """Size of the counts in bytes."""
        return self._cells.nbytes + self._by_slot.nbytes

    def state(self) -> dict[str, Any]:
        """Returns everything, for `restore`."""
        whole = UserCap(self._cap)
        whole._enter_all(self._cells[self._cells != 0])
        whole._enter_all(self._with_slots())  # which are newer
        return {"day": self._day, "cells": np.sort(whole._cells[whole._cells != 0])}

    def restore(self, state: dict[str, Any]) -> None:
        """Restores what `state` returned."""
        self._day = state["day"]
        # an older checkpoint's
        cells = state["cells"] if "cells" in state else _packed(state["users"], state["counts"])
        self._users[0] = cells.size
        self._enter_all((cells & ~_COUNT) | np.minimum(cells & _COUNT, np.uint64(self._cap)))

    def _with_slots(self) -> NDArray[np.uint64]:
        """Returns the cells of users that are counted by slot."""
        some = np.flatnonzero(self._by_slot)
        return _packed(self._directory.ids[some], self._by_slot[some])

    def _enter_all(self, some: NDArray[np.uint64], room: int = 0) -> None:
        """Sets users' cells in the table, which grows so that it has room for them and for `room` more."""
        size = self._cells.size
        while size < 2 * (int(self._used[0]) + some.size + room):
            size *= 2
        if size > self._cells.size:
            old, self._cells = self._cells, np.zeros(size, np.uint64)
            _enter(old[old != 0], self._cells)
        self._used[0] += _enter(some, self._cells)
