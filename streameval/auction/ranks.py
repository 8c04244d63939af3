"""The best candidates of requests, by rank score = bid * pClick^squash.

Where a candidate belongs is unpredictable, so a sort by comparisons spends most of its time on wrong branches. In a short
request every candidate counts those in front of it instead, in a loop of fixed length: a few vector instructions.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

RANKED_AT_A_TIME = 256  # requests to rank before they are replayed: what is found stays in the cache
_SHORT = 16  # candidates


class RankedAds(NamedTuple):
    """The best candidates of some requests, one request behind the other: there is room for all the positions and for a
    short request.
    """

    many: NDArray[np.int64]  # [requests] how many are ranked; -1: a candidate has no score
    best: NDArray[np.int64]  # [requests, room] candidates, the highest rank score first
    rank: NDArray[np.float64]  # [requests, room] their rank scores


@numba.njit(cache=True, nogil=True)
def room_for(requests: int, slots: int) -> RankedAds:
    """Returns room for `ranked`."""
    room = max(slots, _SHORT)
    return RankedAds(np.empty(requests, np.int64), np.empty((requests, room), np.int64), np.empty((requests, room)))


@numba.njit(cache=True, nogil=True)
def squashed(score: NDArray[np.float64], squash: float) -> NDArray[np.float64]:
    """Returns pClick^squash; NaN: no score."""
    if squash == 1.0:
        return score
    out = np.empty(score.size)
    for i in range(score.size):
        out[i] = np.nan if np.isnan(score[i]) else score[i] ** squash
    return out


@numba.njit(cache=True, nogil=True)
def ranked(
    bid: NDArray[np.float64], score: NDArray[np.float64], indptr: NDArray[np.int64], slots: int, out: RankedAds
) -> None:
    """Ranks the candidates of some requests, as many of each as there are positions; of equal ones the first stays in
    front. Unsigned indices are not checked for counting from the end.
    """
    room, one, most = np.uint64(out.rank.shape[1]), np.uint64(1), np.uint64(slots)
    many, best, rank = out.many, out.best.ravel(), out.rank.ravel()
    value, place = np.empty(_SHORT), np.empty(_SHORT, np.int64)
    for r in range(indptr.size - 1):
        start, n, to = np.uint64(indptr[r]), np.uint64(indptr[r + 1] - indptr[r]), np.uint64(r) * room
        missing = False
        if n <= np.uint64(_SHORT):
            for k in range(n):
                p = score[start + k]
                missing |= np.isnan(p)
                value[k] = bid[start + k] * p
            for k in range(n, np.uint64(_SHORT)):
                value[k] = -np.inf
            for i in range(_SHORT):
                own, before = value[i], np.int64(0)
                for j in range(_SHORT):
                    before += np.int64(value[j] > own) + np.int64((value[j] == own) & (j < i))
                place[i] = before
            for k in range(n):
                at = to + np.uint64(place[k])
                best[at], rank[at] = start + k, value[k]
        else:
            found = np.uint64(0)
            for k in range(start, start + n):
                p = score[k]
                missing |= np.isnan(p)
                own = bid[k] * p
                if found < most:
                    found += one
                elif not rank[to + most - one] < own:
                    continue
                at = to + found - one
                while at > to and rank[at - one] < own:
                    best[at], rank[at] = best[at - one], rank[at - one]
                    at -= one
                best[at], rank[at] = k, own
        many[r] = -1 if missing else min(indptr[r + 1] - indptr[r], slots)
