"""Which impressions are beyond a user's first so many of a UTC day: what one partition counts of its users, for the day that runs.

Labels mature in order of event time, so which ones come first does not depend on batches. A user whose impressions are spread over
partitions counts in each of them by itself.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.sketches.directory import mix

DAY = 86_400_000
MOST_USERS = 1 << 22  # of a day; the impressions of further ones are all beyond
_FEWEST = 1 << 6  # cells; the table is at most half full, and few so that a warm-up compiles what makes it grow


@numba.njit(cache=True, nogil=True)
def _count(
    start: int,
    until: int,
    cap: int,
    user: NDArray[np.uint64],
    ts: NDArray[np.int64],
    logged_at: NDArray[np.int32],
    users: NDArray[np.uint64],
    counts: NDArray[np.uint8],
    used: NDArray[np.int64],
    limit: int,
    closed: bool,
    out: NDArray[np.bool_],
) -> int:
    """Counts impressions from `start` on, before time `until` (ms); returns where it stopped.

    `used[0]` cells have a user. At `limit` it stops before a new one, or (`closed`) passes it by as beyond.
    """
    mask = np.uint64(counts.size - 1)
    for i in range(start, user.size):
        if ts[i] >= until:
            return i
        if logged_at[i] < 0:
            continue
        h = mix(user[i]) & mask
        while counts[h] and users[h] != user[i]:
            h = (h + np.uint64(1)) & mask
        if not counts[h]:
            if used[0] >= limit:
                if not closed:
                    return i
                out[i] = True
                continue
            users[h] = user[i]
            used[0] += 1
        if counts[h] < cap:
            counts[h] += np.uint8(1)
        else:
            out[i] = True
    return int(user.size)


@numba.njit(cache=True, nogil=True)
def _enter(
    some: NDArray[np.uint64], number: NDArray[np.uint8], users: NDArray[np.uint64], counts: NDArray[np.uint8]
) -> None:
    """Puts users that are not there into a table that has room for them."""
    mask = np.uint64(counts.size - 1)
    for i in range(some.size):
        h = mix(some[i]) & mask
        while counts[h]:
            h = (h + np.uint64(1)) & mask
        users[h], counts[h] = some[i], number[i]


class UserCap:
    """The impressions of every user on one day."""

    def __init__(self, cap: int) -> None:
        """`cap`: 1 to 255."""
        self._cap = cap
        self._day = -(1 << 40)
        self._used = np.zeros(1, np.int64)
        self._empty(_FEWEST)

    def beyond(
        self, user: NDArray[np.uint64], ts: NDArray[np.int64], logged_at: NDArray[np.int32]
    ) -> NDArray[np.bool_]:
        """Which of n impressions, in order of time, are beyond the cap; those with `logged_at` -1 are not counted, and never are."""
        out = np.zeros(user.size, np.bool_)
        i = 0
        while i < user.size:
            day = int(ts[i]) // DAY
            if day > self._day:
                self._day = day
                self._used[0] = 0
                self._empty(_FEWEST)
            limit = min(self._counts.size // 2, MOST_USERS)
            tables = self._users, self._counts, self._used, limit, limit == MOST_USERS, out
            i = _count(i, (self._day + 1) * DAY, self._cap, user, ts, logged_at, *tables)
            if i < user.size and int(ts[i]) // DAY <= self._day:
                self._grow(self._counts.size * 2)
        return out

    @property
    def nbytes(self) -> int:
        """Bytes of the table."""
        return self._users.nbytes + self._counts.nbytes

    def state(self) -> dict[str, Any]:
        """Everything, for `restore`."""
        some = self._counts > 0
        return {"day": self._day, "users": self._users[some], "counts": self._counts[some]}

    def restore(self, state: dict[str, Any]) -> None:
        """Takes over what `state` gave."""
        self._day = state["day"]
        self._used[0] = state["users"].size
        size = _FEWEST
        while size // 2 < state["users"].size:
            size *= 2
        self._empty(size)
        _enter(state["users"], np.minimum(state["counts"], np.uint8(self._cap)), self._users, self._counts)

    def _empty(self, size: int) -> None:
        self._users, self._counts = np.zeros(size, np.uint64), np.zeros(size, np.uint8)

    def _grow(self, size: int) -> None:
        users, counts = self._users, self._counts
        self._empty(size)
        some = counts > 0
        _enter(users[some], counts[some], self._users, self._counts)
