"""The terms of one ranked list with a click in the ranking metrics, ties at their expectation.

The order of items with equal keys is arbitrary, so every term is its mean over all orders of the ties, in closed form
(McSherry and Najork 2008, Computing information retrieval performance measures efficiently in the presence of tied scores).
In a run of t tied items of which c are clicks, behind a others with C clicks:

- the gain at a rank is the run's mean gain, and the number of clicks c / t;
- the ranks a + 1 to a + m have no click with probability (t-c)/t * (t-c-1)/(t-1) * ... (m factors);
- the first click of the run is its i-th item with probability c/t for i = 1, then times (t-c-i+1)/(t-i) for every next i;
- a click at a + i has on average C + (i-1) (c-1) / (t-1) clicks above it.

Items that were not clicked add nothing, so only the items above each click, and tied with it, are counted: clicks are few.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

# terms of a list for every cut K; then those without a cut
NDCG, AP, HITS, RECALL, HIT = range(5)
TERMS_A_CUT = 5


def terms_of(cuts: int) -> int:
    """The number of terms of a list with this many cuts; the last two are the reciprocal rank and the average precision."""
    return TERMS_A_CUT * cuts + 2


def discounts(most: int) -> NDArray[np.float64]:
    """[r]: the sum of 1 / log2(rank + 1) over the first r ranks, r = 0 to `most` (Jarvelin and Kekalainen 2002)."""
    return np.concatenate((np.zeros(1), np.cumsum(1 / np.log2(np.arange(2, most + 2)))))


class ClickRoom(NamedTuple):
    """The c clicks of a list. A kernel calls `find_clicks`, then `stand_clicks` and `list_terms` for every ranking of the list."""

    which: NDArray[np.int64]  # places in the list
    gain: NDArray[np.float64]  # by click
    best: NDArray[np.float64]  # gains above 0 in descending order
    ideal: NDArray[np.float64]  # by cut: DCG of the best order, in units of the best gain
    # the clicks in order of rank, tied ones in order of gain:
    above: NDArray[np.int64]  # items above the click
    level: NDArray[np.int64]  # items tied with it, itself included
    gained: NDArray[np.float64]  # its gain, in units of the best gain


@numba.njit(cache=True, nogil=True)
def click_room(most: int, cuts: int) -> ClickRoom:
    """Room for lists of at most `most` items, and `cuts` cuts."""
    which, above, level = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    gain, best, gained = np.empty(most), np.empty(most), np.empty(most)
    return ClickRoom(which, gain, best, np.empty(cuts), above, level, gained)


@numba.njit(cache=True, nogil=True)
def find_clicks(
    label: NDArray[np.int8],
    gain: NDArray[np.float64],
    a: int,
    n: int,
    cuts: NDArray[np.int64],
    discount: NDArray[np.float64],
    room: ClickRoom,
) -> tuple[int, float]:
    """(clicks among the n items from row `a` on, the best gain of a click; 0 if none is positive). Gains are not negative.

    `cuts`: every K; `discount`: from `discounts`, up to at least the largest K.
    """
    which, of, best, ideal, _, _, _ = room
    c, positive = 0, 0
    for i in range(n):
        if label[a + i]:
            g = gain[a + i]
            which[c], of[c] = i, g
            c += 1
            if g > 0.0:
                best[positive] = g
                positive += 1
    _sort_down(best, positive)
    for j in range(cuts.size):
        total = 0.0
        for i in range(min(positive, cuts[j])):
            total += best[i] / best[0] * (discount[i + 1] - discount[i])
        ideal[j] = total if positive else 1.0
    return c, best[0] if positive else 0.0


@numba.njit(cache=True, nogil=True)
def _sort_down(values: NDArray[np.float64], n: int) -> None:
    step = 1
    while step < n // 3:
        step = 3 * step + 1
    while step > 0:  # Shellsort: values are nearly always few, but many must not take quadratic time
        for i in range(step, n):
            value = values[i]
            j = i
            while j >= step and values[j - step] < value:
                values[j] = values[j - step]
                j -= step
            values[j] = value
        step //= 3


_MANY = 1 << 14  # comparisons; beyond, keys are sorted


@numba.njit(cache=True, nogil=True)
def _stand_sorted(
    key: NDArray[np.float64], which: NDArray[np.int64], above: NDArray[np.int64], level: NDArray[np.int64]
) -> None:
    ordered = np.sort(key)
    for i in range(which.size):
        own = key[which[i]]
        end = np.searchsorted(ordered, own, side="right")
        above[i], level[i] = key.size - end, end - np.searchsorted(ordered, own)


@numba.njit(inline="always")
def stand_clicks(key: NDArray[np.float64], start: int, n: int, c: int, best: float, room: ClickRoom) -> None:
    """Ranks c clicks among n items, whose keys begin at key[start], the highest key first.

    `best`: from `find_clicks`. The clicks are put in one well-defined order, so that sums over them are reproducible.
    """
    which, gain, _, _, above, level, gained = room
    unit = best if best > 0.0 else 1.0  # NDCG does not depend on the unit, and sums of very large gains would overflow
    if c * n > _MANY:
        _stand_sorted(key[start : start + n], which[:c], above, level)
    else:
        for i in range(c):
            own = key[start + which[i]]
            more, same = 0, 0
            for j in range(start, start + n):
                more += key[j] > own
                same += key[j] == own
            above[i], level[i] = more, same
    for i in range(c):
        gained[i] = gain[i] / unit
    step = 1
    while step < c // 3:
        step = 3 * step + 1
    while step > 0:
        for i in range(step, c):
            a, e, g = above[i], level[i], gained[i]
            j = i
            while j >= step and (above[j - step] > a or (above[j - step] == a and gained[j - step] > g)):
                above[j], level[j], gained[j] = above[j - step], level[j - step], gained[j - step]
                j -= step
            above[j], level[j], gained[j] = a, e, g
        step //= 3


@numba.njit(inline="always")
def _miss(tied: int, clicks: int, ranks: int) -> float:
    """The probability that none of the first `ranks` items of a run of tied items is a click."""
    miss = 1.0
    for i in range(min(ranks, tied - clicks + 1)):
        miss *= float(tied - clicks - i) / float(tied - i)
    return miss


@numba.njit(inline="always")
def _reciprocal(above: int, tied: int, clicks: int) -> float:
    """The mean of 1 / rank of the first click of a run of tied items below `above` others."""
    mean = 0.0
    chance = float(clicks) / float(tied)
    for i in range(tied - clicks + 1):
        mean += chance / float(above + i + 1)
        chance *= float(tied - clicks - i) / float(max(tied - i - 1, 1))
    return mean


@numba.njit(inline="always")
def _precisions(above: int, clicks_above: int, tied: int, clicks: int, ranks: int) -> float:
    """The mean, over orders, of the sum of precision at the clicks among the first `ranks` of a run of tied items."""
    total = 0.0
    between = float(clicks - 1) / float(max(tied - 1, 1))
    for i in range(ranks):
        total += (clicks_above + 1.0 + i * between) / float(above + i + 1)
    return total * float(clicks) / float(tied)


@numba.njit(inline="always")
def list_terms(
    room: ClickRoom, c: int, cuts: NDArray[np.int64], discount: NDArray[np.float64], out: NDArray[np.float64]
) -> None:
    """Writes the terms of a list with c clicks, at least one, ranked by `stand_clicks`.

    `cuts` and `discount`: as for `find_clicks`. For cut j, out[5j] is NDCG, followed by average precision, clicks within K, recall
    and whether there is a click within K (`NDCG` to `HIT`). NDCG is 0 where it is undefined because no gain is positive.
    """
    _, _, _, ideal, aboves, levels, gained = room
    m = cuts.size
    whole = TERMS_A_CUT * m
    for at in range(whole + 2):
        out[at] = 0.0
    i = 0  # clicks above
    while i < c:
        above, tied, gains = aboves[i], levels[i], gained[i]
        end = i + 1
        while end < c and aboves[end] == above:
            gains += gained[end]
            end += 1
        clicks = end - i
        if tied == 1:  # nearly always
            precision = (i + 1.0) / float(above + 1)
            for j in range(m):
                if above < cuts[j]:
                    at = TERMS_A_CUT * j
                    out[at + NDCG] += gains * (discount[above + 1] - discount[above])
                    out[at + AP] += precision
                    out[at + HITS] += 1.0
                    out[at + HIT] = 1.0
            out[whole + 1] += precision
            if i == 0:
                out[whole] = 1.0 / float(above + 1)
        else:
            for j in range(m):
                ranks = min(above + tied, cuts[j]) - above
                if ranks > 0:
                    at = TERMS_A_CUT * j
                    out[at + NDCG] += gains / tied * (discount[above + ranks] - discount[above])
                    out[at + AP] += _precisions(above, i, tied, clicks, ranks)
                    out[at + HITS] += float(clicks * ranks) / float(tied)
                    if i == 0:
                        out[at + HIT] = 1.0 - _miss(tied, clicks, ranks)
            out[whole + 1] += _precisions(above, i, tied, clicks, tied)
            if i == 0:
                out[whole] = _reciprocal(above, tied, clicks)
        i = end
    for j in range(m):
        at = TERMS_A_CUT * j
        out[at + NDCG] /= ideal[j]
        out[at + AP] /= c
        out[at + RECALL] = out[at + HITS] / c
    out[whole + 1] /= c
