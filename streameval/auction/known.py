"""What the labels in an hour's tables say about a pair, and about every position.

They are a single list of counts by pair, position and group of users, summed over all the hours, so a pair has few
entries, whatever the number of hours. Counts are integers, so the list does not depend on the order in which hours were
added or subtracted.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.auction.entries import Hour
from streameval.auction.history import PairCounts
from streameval.auction.rerun import USER_GROUPS

POSITION_BITS = 10  # of an entry's key, below the pair
GROUP_BITS = USER_GROUPS.bit_length() - 1  # of an entry's key, below the position
PLACE_BITS = POSITION_BITS + GROUP_BITS
_LEAST_REST = 0.1  # smallest share of a pair's history left without a group of users; smaller shares count as this


@numba.njit(cache=True, nogil=True)
def counts_of(entries: Hour, slots: int) -> tuple[PairCounts, NDArray[np.int64]]:
    """Returns (counts by position of the pairs that tell something about the curve: those with clicks that were shown
    at several positions; impressions and clicks of all by group, [slots, USER_GROUPS, 2]).

    Without branches: whether an entry is of the pair and position before it is unpredictable.
    """
    keys, shown, clicked = entries
    of_groups, room, zero, one = np.zeros(slots * USER_GROUPS * 2, np.int64), keys.size, np.uint64(0), np.uint64(1)
    indptr, position = np.empty(room + 1, np.int64), np.empty(room, np.int64)
    impressions, clicks = np.empty(room, np.int64), np.empty(room, np.int64)
    telling = begin = n = zero
    before, some, some_clicks, of_pair = ~zero, np.int64(0), np.int64(0), np.int64(0)
    indptr[0] = 0
    for e in range(np.uint64(keys.size)):
        at, place = keys[e] >> np.uint64(GROUP_BITS), keys[e] & np.uint64((1 << PLACE_BITS) - 1)
        of_groups[place + place] += shown[e]
        of_groups[place + place + one] += clicked[e]
        same, is_new = at == before, at >> np.uint64(POSITION_BITS) != before >> np.uint64(POSITION_BITS)
        telling += np.uint64(is_new & (of_pair > 0) & (n > begin + one))
        begin = (n if (of_pair > 0) & (n > begin + one) else begin) if is_new else begin
        n = (begin if is_new else n) + (zero if same else one)
        of_pair = np.int64(clicked[e]) + (np.int64(0) if is_new else of_pair)
        some = np.int64(shown[e]) + (some if same else np.int64(0))
        some_clicks = np.int64(clicked[e]) + (some_clicks if same else np.int64(0))
        position[n - one], impressions[n - one] = at & np.uint64((1 << POSITION_BITS) - 1), some
        clicks[n - one], indptr[telling], before = some_clicks, begin, at
    if (of_pair > 0) & (n > begin + one):
        telling, begin = telling + one, n
    indptr[telling] = begin
    counts = PairCounts(indptr[: telling + one], position[:begin], impressions[:begin], clicks[:begin])
    return counts, of_groups.reshape((slots, USER_GROUPS, 2))


@numba.njit(cache=True)
def known_of(
    pair: NDArray[np.uint64],
    entries: Hour,
    curve: NDArray[np.float64],
    row: NDArray[np.int32],
    rate: NDArray[np.float32],
    owed: NDArray[np.float32],
    first: int,
) -> int:
    """Writes what is known about n pairs, which ascend, to rows from `first` on, and each pair's row to `row`; 0: it
    has no history.

    `rate`: `rerun.ClickTables.rate`; `owed` [rows, USER_GROUPS]: the residuals of `rerun.run_through`. Returns where
    the rows end. Without a branch where a position ends: it is unpredictable.
    """
    keys, shown, clicked = entries
    clicks, chance, near, n = np.zeros(USER_GROUPS), np.zeros(USER_GROUPS), 0, first
    for i in range(pair.size):
        near = _from(keys, pair[i] << np.uint64(PLACE_BITS), near)
        row[i] = 0
        if near == keys.size or keys[near] >> np.uint64(PLACE_BITS) != pair[i]:
            continue
        clicks[:], chance[:], every, every_click = 0.0, 0.0, 0.0, np.int64(0)
        before, before_curve, here = keys[near] >> np.uint64(GROUP_BITS), 0.0, np.int64(0)
        while near < keys.size and keys[np.uint64(near)] >> np.uint64(PLACE_BITS) == pair[i]:
            at = np.uint64(near)
            place, group = keys[at] >> np.uint64(GROUP_BITS), keys[at] & np.uint64(USER_GROUPS - 1)
            of_curve, same = curve[place & np.uint64((1 << POSITION_BITS) - 1)], place == before
            every += 0.0 if same else here * before_curve
            here = np.int64(shown[at]) + (here if same else np.int64(0))
            clicks[group] += clicked[at]
            chance[group] += shown[at] * of_curve
            every_click += np.int64(clicked[at])
            before, before_curve = place, of_curve
            near += 1
        every += here * before_curve
        known = every_click / every if every > 0.0 else 0.0
        rate[n] = known if every > 0.0 else np.nan
        for g in range(USER_GROUPS):
            rest = max(every - chance[g], _LEAST_REST * every) if every > 0.0 else 1.0
            owed[n, g] = (clicks[g] - known * chance[g]) / rest
        row[i] = n
        n += 1
    return n


@numba.njit(inline="always")
def _from(keys: NDArray[np.uint64], key: np.uint64, at: int) -> int:
    """Returns the index of the first key, from `at` on, that is not below `key`; the search gallops, because it is
    usually near.
    """
    step = 8
    while at + step < keys.size and keys[at + step] < key:
        at += step
        step *= 2
    beyond = min(at + step, keys.size)
    while at < beyond:
        middle = (at + beyond) // 2
        if keys[middle] < key:
            at = middle + 1
        else:
            beyond = middle
    return at
