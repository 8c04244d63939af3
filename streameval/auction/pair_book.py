"""The labels of a history by pair, from which the tables of an hour are built.

All entries of a pair are stored together, hour after hour. So a pair is looked up once, not in every hour, and another
hour is added to all pairs in one pass, which also drops expired entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.auction.entries import Hour
from streameval.auction.history import PairCounts
from streameval.auction.rerun import USER_GROUPS

POSITION_BITS = 10  # of an entry's key, below the pair
GROUP_BITS = USER_GROUPS.bit_length() - 1  # of it, below the position
PLACE_BITS = POSITION_BITS + GROUP_BITS
PAIR_BYTES, ENTRY_BYTES = 12, 8
MOST_HOURS = 1 << 15  # of a book
_HOUR, _PLACE, _SHOWN = 48, 32, 16  # bits below them in an entry; below the impressions are the clicks
_MOST = (1 << 16) - 1
_LEAST_REST = 0.1  # of a pair's history that leaving out a group of users leaves; less counts as that


class PairBook(NamedTuple):
    """Pair i has the entries first[i] to first[i + 1] - 1, ascending by hour, position and group of users."""

    begin: int  # the hour that those of entries are counted from
    pairs: NDArray[np.uint64]  # ascending
    first: NDArray[np.uint32]  # [pairs + 1]
    entry: NDArray[np.uint64]  # hour, position and group, impressions, clicks

    @property
    def nbytes(self) -> int:
        """Bytes."""
        return self.pairs.size * PAIR_BYTES + self.entry.size * ENTRY_BYTES


NO_BOOK = PairBook(0, np.empty(0, np.uint64), np.zeros(1, np.uint32), np.empty(0, np.uint64))


class OfPairs(NamedTuple):
    """Of pairs that have a history."""

    own: NDArray[np.bool_]  # which of those asked for
    rate: NDArray[np.float32]  # `rerun.ClickTables.rate`
    owed: NDArray[np.float64]  # [pairs, USER_GROUPS], `rerun.Residuals.of_pair`


def with_hours(book: PairBook, hours: Sequence[tuple[int, Hour]], begin: int) -> PairBook:
    """With further hours, ascending, and without those before `begin`."""
    parts = [one for one in (book, *(_of_hour(number, *hour) for number, hour in hours)) if one.pairs.size]
    while len(parts) > 1:  # neighbours in pairs, so that nothing is moved more than log2(n) times
        pairs = zip_longest(parts[::2], parts[1::2])
        parts = [one if other is None else _merged(one, other, begin) for one, other in pairs]
    whole = parts[0] if parts else NO_BOOK
    return whole if whole.begin == begin else _merged(whole, NO_BOOK, begin)


def below(book: PairBook, pair: int) -> PairBook:
    """Of the pairs below one."""
    n = int(np.searchsorted(book.pairs, np.uint64(pair)))
    return PairBook(book.begin, book.pairs[:n].copy(), book.first[: n + 1].copy(), book.entry[: book.first[n]].copy())


def hours_of(book: PairBook) -> dict[int, Hour]:
    """The hours that a book was made of."""
    ends, columns = _by_hour(book)
    first = np.append(0, ends[:-1])
    return {
        book.begin + hour: Hour(*(column[first[hour] : ends[hour]] for column in columns))
        for hour in np.flatnonzero(ends > first).tolist()
    }


def entries_by_hour(book: PairBook) -> dict[int, int]:
    """How many entries hours have."""
    hours, many = np.unique(book.entry >> np.uint64(_HOUR), return_counts=True)
    return {book.begin + hour: n for hour, n in zip(hours.astype(np.int64).tolist(), many.tolist(), strict=True)}


@numba.njit(cache=True, nogil=True)
def _of_hour(
    number: int, keys: NDArray[np.uint64], impressions: NDArray[np.uint16], clicks: NDArray[np.uint16]
) -> PairBook:
    """Of one hour."""
    pairs, first, entry = np.empty(keys.size, np.uint64), np.empty(keys.size + 1, np.uint32), np.empty_like(keys)
    bits, places, n = np.uint64(PLACE_BITS), np.uint64((1 << PLACE_BITS) - 1), 0
    for e in range(keys.size):
        pair = keys[e] >> bits
        if n == 0 or pairs[n - 1] != pair:
            pairs[n], first[n] = pair, e
            n += 1
        counts = (np.uint64(impressions[e]) << np.uint64(_SHOWN)) | np.uint64(clicks[e])
        entry[e] = ((keys[e] & places) << np.uint64(_PLACE)) | counts
    first[n] = keys.size
    return PairBook(number, pairs[:n].copy(), first[: n + 1].copy(), entry)


@numba.njit(cache=True, nogil=True)
def _merged(a: PairBook, b: PairBook, begin: int) -> PairBook:
    """Both, without the hours before `begin`; those of one pair mostly follow in b upon those in a."""
    room = a.pairs.size + b.pairs.size
    pairs, first = np.empty(room, np.uint64), np.empty(room + 1, np.uint32)
    entry = np.empty(_since(a, begin) + _since(b, begin), np.uint64)
    later = (np.uint64(a.begin - begin) << np.uint64(_HOUR)), (np.uint64(b.begin - begin) << np.uint64(_HOUR))
    over = np.uint64(max(0, begin - a.begin)), np.uint64(max(0, begin - b.begin))
    place, n, m, i, j = np.uint64(_PLACE), np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    while i < a.pairs.size or j < b.pairs.size:
        of_a = j == b.pairs.size or (i < a.pairs.size and a.pairs[i] <= b.pairs[j])
        one = a.pairs[i] if of_a else b.pairs[j]
        e = e_end = f = f_end = np.int64(0)
        if of_a:
            e, e_end = np.int64(a.first[i]), np.int64(a.first[i + 1])
            i += 1
            while e < e_end and a.entry[e] >> np.uint64(_HOUR) < over[0]:
                e += 1
        if j < b.pairs.size and b.pairs[j] == one:
            f, f_end = np.int64(b.first[j]), np.int64(b.first[j + 1])
            j += 1
            while f < f_end and b.entry[f] >> np.uint64(_HOUR) < over[1]:
                f += 1
        start = m
        if e < e_end and f < f_end and (a.entry[e_end - 1] + later[0]) >> place >= (b.entry[f] + later[1]) >> place:
            m = _together(a.entry[e:e_end], b.entry[f:f_end], later, entry, m)
        else:
            for k in range(e_end - e):
                entry[m + k] = a.entry[e + k] + later[0]
            m += e_end - e
            for k in range(f_end - f):
                entry[m + k] = b.entry[f + k] + later[1]
            m += f_end - f
        if m > start:
            pairs[n], first[n] = one, start
            n += 1
    first[n] = m
    return PairBook(begin, pairs[:n].copy(), first[: n + 1].copy(), entry[:m])


@numba.njit(cache=True, nogil=True)
def _since(book: PairBook, begin: int) -> int:
    """How many entries are of hours from `begin` on."""
    many, over = book.entry.size, np.uint64(max(0, begin - book.begin))
    for i in range(book.pairs.size if over > 0 else 0):
        for e in range(book.first[i], book.first[i + 1]):
            if book.entry[e] >> np.uint64(_HOUR) >= over:
                break
            many -= 1
    return many


@numba.njit(cache=True, nogil=True)
def _together(
    a: NDArray[np.uint64], b: NDArray[np.uint64], later: tuple[np.uint64, np.uint64], out: NDArray[np.uint64], m: int
) -> int:
    """Entries of one pair from m on, in order; returns where they end. Of one hour and place there is one, if it has room for both."""
    i, j, start = 0, 0, m
    place, shown, most = np.uint64(_PLACE), np.uint64(_SHOWN), np.uint64(_MOST)
    while i < a.size or j < b.size:
        if j == b.size or (i < a.size and (a[i] + later[0]) >> place <= (b[j] + later[1]) >> place):
            new = a[i] + later[0]
            i += 1
        else:
            new = b[j] + later[1]
            j += 1
        if (
            m > start
            and out[m - 1] >> place == new >> place
            and ((out[m - 1] >> shown & most) + (new >> shown & most) <= most)
        ):
            out[m - 1] += new & np.uint64((1 << _PLACE) - 1)
        else:
            out[m] = new
            m += 1
    return m


@numba.njit(inline="always")
def _between(book: PairBook, pair: int, low: int, high: int) -> tuple[np.uint64, np.uint64]:
    """Where the entries of a pair begin that are of the hours `low` to `high`, and where they end."""
    first_hour, last_hour = np.uint64(max(0, low - book.begin)), np.uint64(max(0, high + 1 - book.begin))
    first, end, one = np.uint64(book.first[pair]), np.uint64(book.first[pair + 1]), np.uint64(1)
    while first < end and book.entry[first] >> np.uint64(_HOUR) < first_hour:
        first += one
    while first < end and book.entry[end - one] >> np.uint64(_HOUR) >= last_hour:
        end -= one
    return first, end


@numba.njit(cache=True, nogil=True)
def counts_of(book: PairBook, low: int, high: int, slots: int) -> tuple[PairCounts, NDArray[np.int64]]:
    """Of the hours `low` to `high`: (by pair and position; impressions and clicks [slots, USER_GROUPS, 2])."""
    of_groups, own = np.zeros((slots * USER_GROUPS, 2), np.int64), np.zeros((slots, 2), np.int64)
    room, n = min(book.entry.size, book.pairs.size * slots) + slots, np.uint64(0)
    indptr, position = np.zeros(book.pairs.size + 1, np.int64), np.empty(room, np.int64)
    impressions, clicks = np.empty(room, np.int64), np.empty(room, np.int64)
    for i in range(book.pairs.size):
        first, end = _between(book, i, low, high)
        many = np.uint64(0)
        for e in range(first, end):
            place, shown, clicked = _read(book.entry[e])
            k = place >> np.uint64(GROUP_BITS)
            own[k, 0] += np.int64(shown)
            own[k, 1] += np.int64(clicked)
            of_groups[place, 0] += np.int64(shown)
            of_groups[place, 1] += np.int64(clicked)
            many = k + np.uint64(1) if k >= many else many
        for k in range(many):  # without a branch: of most positions, nobody can predict whether a pair was there
            position[n], impressions[n], clicks[n] = k, own[k, 0], own[k, 1]
            n += np.uint64(own[k, 0] > 0)
            own[k, 0], own[k, 1] = 0, 0
        indptr[i + 1] = n
    counts = PairCounts(indptr, position[:n].copy(), impressions[:n].copy(), clicks[:n].copy())
    return counts, of_groups.reshape((slots, USER_GROUPS, 2))


@numba.njit(inline="always")
def _read(entry: np.uint64) -> tuple[np.uint64, np.uint64, np.uint64]:
    """(position and group, impressions, clicks), unsigned: an index that is not is asked whether it counts from the end."""
    place = (entry >> np.uint64(_PLACE)) & np.uint64((1 << PLACE_BITS) - 1)
    return place, (entry >> np.uint64(_SHOWN)) & np.uint64(_MOST), entry & np.uint64(_MOST)


@numba.njit(cache=True, nogil=True)
def known_of(pair: NDArray[np.uint64], book: PairBook, low: int, high: int, curve: NDArray[np.float64]) -> OfPairs:
    """What the hours `low` to `high` say of n pairs, which ascend."""
    own, rate, owed = np.zeros(pair.size, np.bool_), np.empty(pair.size, np.float32), np.empty((pair.size, USER_GROUPS))
    shown_at, clicks, chance = np.zeros(curve.size, np.int64), np.empty(USER_GROUPS), np.empty(USER_GROUPS)
    at, n = 0, 0
    for i in range(pair.size):
        step = 8
        while at + step < book.pairs.size and book.pairs[at + step] < pair[i]:  # the next one is near
            at += step
            step *= 2
        beyond = min(at + step, book.pairs.size)
        while at < beyond:
            middle = (at + beyond) // 2
            if book.pairs[middle] < pair[i]:
                at = middle + 1
            else:
                beyond = middle
        if at == book.pairs.size:
            break
        if book.pairs[at] != pair[i]:
            continue
        first, end = _between(book, at, low, high)
        if first == end:
            continue
        clicks[:], chance[:] = 0.0, 0.0
        many, every_click = np.uint64(0), np.uint64(0)
        for e in range(first, end):
            place, shown, clicked = _read(book.entry[e])
            k, group = place >> np.uint64(GROUP_BITS), place & np.uint64(USER_GROUPS - 1)
            clicks[group] += np.float64(clicked)
            chance[group] += np.float64(shown) * curve[k]
            shown_at[k] += np.int64(shown)
            every_click += clicked
            many = k + np.uint64(1) if k >= many else many
        every = 0.0
        for k in range(many):
            every += np.float64(shown_at[k]) * curve[k]
            shown_at[k] = 0
        rate[n] = np.float64(every_click) / every if every > 0.0 else np.nan
        _owe(clicks, chance, np.float64(every_click), owed[n])
        own[i] = True
        n += 1
    return OfPairs(own, rate[:n], owed[:n])


@numba.njit(inline="always")
def _owe(
    clicks: NDArray[np.float64], chance: NDArray[np.float64], every_click: float, owed: NDArray[np.float64]
) -> None:
    """Writes `rerun.Residuals.of_pair` of a pair, [USER_GROUPS], of its clicks, and its impressions by the curve."""
    every = 0.0
    for four in range(0, 8, 4):  # as NumPy adds up 16
        left, right = chance[four] + chance[8 + four], chance[2 + four] + chance[10 + four]
        left, right = left + (chance[1 + four] + chance[9 + four]), right + (chance[3 + four] + chance[11 + four])
        every += left + right
    rate = every_click / every if every > 0.0 else 0.0
    for g in range(USER_GROUPS):
        rest = every * max(1.0 - chance[g] / every, _LEAST_REST) if every > 0.0 else 1.0
        owed[g] = (clicks[g] - rate * chance[g]) / rest if every > 0.0 else 0.0


@numba.njit(cache=True, nogil=True)
def _by_hour(
    book: PairBook,
) -> tuple[NDArray[np.int64], tuple[NDArray[np.uint64], NDArray[np.uint16], NDArray[np.uint16]]]:
    """(where the entries of every hour end; keys, impressions and clicks, by hour)."""
    size = book.entry.size
    many = np.zeros(MOST_HOURS + 2, np.int64)
    for one in book.entry:
        many[np.int64(one >> np.uint64(_HOUR)) + 1] += 1
    ends, keys = np.cumsum(many)[:-1], np.empty(size, np.uint64)  # of the hours before, until they are there
    impressions, clicks = np.empty(size, np.uint16), np.empty(size, np.uint16)
    for i in range(book.pairs.size):
        for e in range(book.first[i], book.first[i + 1]):
            hour = book.entry[e] >> np.uint64(_HOUR)
            place, shown, clicked = _read(book.entry[e])
            to = np.uint64(ends[hour])
            ends[hour] += 1
            impressions[to], clicks[to] = shown, clicked
            keys[to] = (book.pairs[i] << np.uint64(PLACE_BITS)) | place
    return ends, (keys, impressions, clicks)
