"""Impressions and clicks by 64-bit keys, ascending: what the history of pairs is made of.

Lists are merged, not sorted together: an hour comes to hold its labels in order. Tables are of a day of such hours: their pairs are
those of the tables before and of the newest hour, and every hour is added to them, some pairs at a time, in one pass over both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

_MOST = np.iinfo(np.uint16).max  # impressions of an entry of an hour; more are several
_CHUNK = 1 << 15  # pairs and positions that are added up at a time: half a megabyte stays near the processor


class Hour(NamedTuple):
    """Of labels that became final in one hour, in as few bytes as can be: of more than an entry can hold there are several."""

    keys: NDArray[np.uint64]
    impressions: NDArray[np.uint16]
    clicks: NDArray[np.uint16]

    def counts(self) -> Counts:
        """The same, each key once."""
        return _once(*self)


class Counts(NamedTuple):
    """Of any labels; each key once."""

    keys: NDArray[np.uint64]
    impressions: NDArray[np.int64]
    clicks: NDArray[np.int64]


NO_COUNTS = Counts(np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.int64))
NO_HOUR = Hour(np.empty(0, np.uint64), np.empty(0, np.uint16), np.empty(0, np.uint16))


def counted(keys: NDArray[np.uint64], label: NDArray[np.int8]) -> Counts:
    """Of labels, 0 or 1, in any order."""
    return _told(np.sort(keys), np.sort(keys[label != 0]))


def summed(parts: Sequence[Counts]) -> Counts:
    """Everything together, each key once."""
    left = [*parts] or [NO_COUNTS]
    while len(left) > 1:  # neighbours in pairs, so that nothing is moved more than log2(n) times
        pairs = [_merged(a, b) for a, b in zip(left[::2], left[1::2], strict=False)]
        left = pairs + left[2 * len(pairs) :]
    return left[0]


def packed(counts: Counts) -> Hour:
    """As an hour."""
    keys, impressions, clicks = counts
    if impressions.max(initial=0) > _MOST:
        many = -(-impressions // _MOST)
        before = (np.arange(int(many.sum())) - np.repeat(np.cumsum(many) - many, many)) * _MOST
        keys = np.repeat(keys, many)
        impressions, clicks = (np.clip(np.repeat(column, many) - before, 0, _MOST) for column in (impressions, clicks))
    return Hour(keys, impressions.astype(np.uint16), clicks.astype(np.uint16))


class PairSums(NamedTuple):
    """Of hours, by pair and position, and by position and group of users."""

    pairs: NDArray[np.uint64]  # ascending
    indptr: NDArray[np.int64]  # [pairs + 1], where the entries of each pair begin and the last ones end
    position: NDArray[np.int64]  # of entries, ascending within a pair
    impressions: NDArray[np.int64]
    clicks: NDArray[np.int64]
    of_groups: NDArray[np.int64]  # [slots, groups, 2] impressions and clicks


def summed_by_pair(hours: Sequence[Hour], pairs: NDArray[np.uint64], slots: int, bits: tuple[int, int]) -> PairSums:
    """Sums of hours; `pairs`: all that are in any of them, ascending, and maybe others, which are left out.

    `bits` of keys below the pair: of the position, and below it of the group.
    """
    of_groups = np.zeros((slots, 1 << bits[1], 2), np.int64)
    step = max(1, _CHUNK // slots)
    sums, begin = np.empty((min(step, pairs.size), slots, 2), np.int64), [0] * len(hours)
    columns: list[list[NDArray[Any]]] = [[], [], [], [], []]
    for first in range(0, pairs.size, step):
        some = pairs[first : first + step]
        own = sums[: some.size]
        own[:] = 0
        for i, hour in enumerate(hours):
            begin[i] = _add_hour(some, hour.keys, hour.impressions, hour.clicks, begin[i], bits, own, of_groups)
        for column, more in zip(columns, _shown(some, own), strict=True):
            column.append(more)
    if not pairs.size:
        columns = [[column] for column in _shown(pairs, sums)]
    kept, sizes, position, impressions, clicks = (np.concatenate(column) for column in columns)
    return PairSums(kept, np.append(0, np.cumsum(sizes)), position, impressions, clicks, of_groups)


@numba.njit(cache=True, nogil=True)
def with_pairs(pairs: NDArray[np.uint64], keys: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    """Ascending pairs, and those of entries by ascending keys, which have so many bits below the pair; each once."""
    out, low = np.empty(pairs.size + keys.size, np.uint64), np.uint64(bits)
    n = i = j = 0
    while i < pairs.size or j < keys.size:
        if j == keys.size or (i < pairs.size and pairs[i] <= keys[j] >> low):
            one = pairs[i]
            i += 1
        else:
            one = keys[j] >> low
        while j < keys.size and keys[j] >> low == one:
            j += 1
        out[n] = one
        n += 1
    return out[:n].copy()


@numba.njit(cache=True, nogil=True)
def _add_hour(
    pairs: NDArray[np.uint64],
    keys: NDArray[np.uint64],
    impressions: NDArray[np.uint16],
    clicks: NDArray[np.uint16],
    begin: int,
    bits: tuple[int, int],
    sums: NDArray[np.int64],
    of_groups: NDArray[np.int64],
) -> int:
    """Adds the entries of some pairs, of which the first is the one at `begin`, to [pairs, slots, 2]; returns where they end."""
    position_bits, group_bits = np.uint64(bits[0]), np.uint64(bits[1])
    positions, groups = (np.uint64(1) << position_bits) - np.uint64(1), (np.uint64(1) << group_bits) - np.uint64(1)
    at, e = 0, begin
    while e < keys.size:
        place = keys[e] >> group_bits
        pair = place >> position_bits
        while at < pairs.size and pairs[at] < pair:
            at += 1
        if at == pairs.size:
            break
        position, group = np.int64(place & positions), np.int64(keys[e] & groups)
        sums[at, position, 0] += impressions[e]
        sums[at, position, 1] += clicks[e]
        of_groups[position, group, 0] += impressions[e]
        of_groups[position, group, 1] += clicks[e]
        e += 1
    return e


@numba.njit(cache=True, nogil=True)
def _shown(
    pairs: NDArray[np.uint64], sums: NDArray[np.int64]
) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(pairs that were shown, how many positions each, these, their impressions, their clicks) of [pairs, slots, 2]."""
    many, room, slots = 0, 0, sums.shape[1]
    for i in range(pairs.size):
        before = room
        for k in range(slots):
            room += sums[i, k, 0] > 0
        many += room > before
    kept, sizes, position = np.empty(many, np.uint64), np.zeros(many, np.int64), np.empty(room, np.int64)
    impressions, clicks = np.empty(room, np.int64), np.empty(room, np.int64)
    at = n = 0
    for i in range(pairs.size):
        before = n
        for k in range(slots):
            if sums[i, k, 0] > 0:
                position[n], impressions[n], clicks[n] = k, sums[i, k, 0], sums[i, k, 1]
                n += 1
        if n > before:
            kept[at], sizes[at] = pairs[i], n - before
            at += 1
    return kept, sizes, position, impressions, clicks


@numba.njit(cache=True, nogil=True)
def _told(every: NDArray[np.uint64], clicked: NDArray[np.uint64]) -> Counts:
    """Of the keys of all labels, and of the clicks among them; both ascend."""
    keys, impressions = np.empty(every.size, np.uint64), np.zeros(every.size, np.int64)
    n = 0
    for key in every:
        n += n == 0 or keys[n - 1] != key
        keys[n - 1] = key
        impressions[n - 1] += 1
    clicks, at = np.zeros(n, np.int64), 0
    for key in clicked:
        while keys[at] != key:
            at += 1
        clicks[at] += 1
    return Counts(keys[:n].copy(), impressions[:n].copy(), clicks)


@numba.njit(cache=True, nogil=True)
def _once(every: NDArray[np.uint64], of_impressions: NDArray[np.uint16], of_clicks: NDArray[np.uint16]) -> Counts:
    """Of entries by ascending keys, which may come again."""
    keys = np.empty(every.size, np.uint64)
    impressions, clicks = np.zeros(every.size, np.int64), np.zeros(every.size, np.int64)
    n = 0
    for i in range(every.size):
        key = every[i]
        n += n == 0 or keys[n - 1] != key
        keys[n - 1] = key
        impressions[n - 1] += of_impressions[i]
        clicks[n - 1] += of_clicks[i]
    return Counts(keys[:n].copy(), impressions[:n].copy(), clicks[:n].copy())


@numba.njit(cache=True, nogil=True)
def _merged(a: Counts, b: Counts) -> Counts:
    """Both. Without a branch where keys are compared: which of them is the lower one, nobody can predict."""
    size = a.keys.size + b.keys.size
    keys, impressions, clicks = np.empty(size, np.uint64), np.empty(size, np.int64), np.empty(size, np.int64)
    n = i = j = np.int64(0)
    while i < a.keys.size and j < b.keys.size:
        one, other = a.keys[i], b.keys[j]
        of_a, of_b = np.int64(one <= other), np.int64(other <= one)
        keys[n] = min(one, other)
        impressions[n] = of_a * a.impressions[i] + of_b * b.impressions[j]
        clicks[n] = of_a * a.clicks[i] + of_b * b.clicks[j]
        n, i, j = n + 1, i + of_a, j + of_b
    for rest, first in ((a, i), (b, j)):
        for at in range(first, rest.keys.size):
            keys[n], impressions[n], clicks[n] = rest.keys[at], rest.impressions[at], rest.clicks[at]
            n += 1
    return Counts(keys[:n].copy(), impressions[:n].copy(), clicks[:n].copy())
