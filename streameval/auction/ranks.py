"""The best candidates of requests, by rank score = bid * pClick^squash.

Where a candidate belongs is unpredictable, so a sort by comparisons spends most of its time on wrong branches. In a short
request every candidate counts those in front of it instead, in a loop of fixed length: a few vector instructions.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

# requests to rank before they are replayed: what is found stays in the cache, as do the tables' rows, for all versions
RANKED_AT_A_TIME = 128
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
    out = np.empty_like(score)
    given, found = score.ravel(), out.ravel()
    for i in range(score.size):
        found[i] = np.nan if np.isnan(given[i]) else given[i] ** squash
    return out


@numba.njit(inline="always")
def _in_front(position: NDArray[np.float64], item: NDArray[np.uint64], a: np.uint64, b: np.uint64) -> bool:
    """Whether a candidate comes before another one with the same rank score."""
    if position[a] != position[b]:
        return bool(position[a] < position[b])
    return bool(item[a] < item[b]) if item[a] != item[b] else bool(a < b)


@numba.njit(inline="always")
def _lower(
    rank: NDArray[np.float64],
    best: NDArray[np.int64],
    at: np.uint64,
    own: float,
    k: np.uint64,
    position: NDArray[np.float64],
    item: NDArray[np.uint64],
) -> bool:
    """Whether the candidate ranked at a place comes behind candidate k, whose rank score is `own`."""
    return bool(rank[at] < own or (rank[at] == own and _in_front(position, item, k, np.uint64(best[at]))))


@numba.njit(cache=True, nogil=True)
def ranked(
    bid: NDArray[np.float64],
    score: NDArray[np.float64],
    position: NDArray[np.float64],
    item: NDArray[np.uint64],
    indptr: NDArray[np.int64],
    slots: int,
    out: RankedAds,
) -> None:
    """Ranks the candidates of some requests, as many of each as there are positions; equal ones as `rerun.Auctions` says.
    Unsigned indices are not checked for counting from the end.
    """
    room, one, most = np.uint64(out.rank.shape[1]), np.uint64(1), np.uint64(slots)
    many, best, rank = out.many, out.best.ravel(), out.rank.ravel()
    value, place = np.empty(_SHORT), np.empty(_SHORT, np.int64)
    spot, ad, short = np.zeros(_SHORT), np.zeros(_SHORT, np.uint64), min(_SHORT, out.rank.shape[1])
    for r in range(indptr.size - 1):
        start, n, to = np.uint64(indptr[r]), np.uint64(indptr[r + 1] - indptr[r]), np.uint64(r) * room
        missing = False
        if n <= np.uint64(_SHORT):
            for k in range(n):
                p = score[start + k]
                missing |= np.isnan(p)
                value[k] = bid[start + k] * p
            for k in range(n, np.uint64(_SHORT)):
                value[k] = np.nan
            total = np.int64(0)
            for i in range(_SHORT):
                own, before = value[i], np.int64(0)
                for j in range(_SHORT):
                    before += np.int64(value[j] > own)
                place[i] = before
                total += before
            if np.uint64(2 * total) != n * (n - one) and not missing:  # some are equal
                for k in range(n):
                    spot[k], ad[k] = position[start + k], item[start + k]
                for i in range(np.int64(n)):
                    own, own_spot, own_ad, before = value[i], spot[i], ad[i], np.int64(0)
                    for j in range(short):
                        in_front = (ad[j] < own_ad) | ((ad[j] == own_ad) & (j < i))
                        in_front = (spot[j] < own_spot) | ((spot[j] == own_spot) & in_front)
                        before += np.int64((value[j] == own) & in_front)
                    place[i] += before
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
                elif not _lower(rank, best, to + most - one, own, k, position, item):
                    continue
                at = to + found - one
                while at > to and _lower(rank, best, at - one, own, k, position, item):
                    best[at], rank[at] = best[at - one], rank[at - one]
                    at -= one
                best[at], rank[at] = k, own
        many[r] = -1 if missing else min(indptr[r + 1] - indptr[r], slots)
