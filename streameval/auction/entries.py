"""Impressions and clicks by 64-bit keys, ascending: what the history of pairs is made of.

Lists are merged, not sorted together: an hour comes to hold its labels in order, and tables are of a day of such hours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

_MOST = np.iinfo(np.uint16).max  # impressions of an entry of an hour; more are several


class Hour(NamedTuple):
    """Of labels that became final in one hour, in as few bytes as can be: of more than an entry can hold there are several."""

    keys: NDArray[np.uint64]
    impressions: NDArray[np.uint16]
    clicks: NDArray[np.uint16]

    def counts(self) -> Counts:
        """The same; a key may come again."""
        return Counts(self.keys, self.impressions.astype(np.int64), self.clicks.astype(np.int64))


class Counts(NamedTuple):
    """Of any labels."""

    keys: NDArray[np.uint64]
    impressions: NDArray[np.int64]
    clicks: NDArray[np.int64]

    def by(self, keys: NDArray[np.uint64]) -> Counts:
        """By other keys of the same entries, ascending as well."""
        return _merged(Counts(keys, self.impressions, self.clicks), NO_COUNTS)


NO_COUNTS = Counts(np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.int64))
NO_HOUR = Hour(np.empty(0, np.uint64), np.empty(0, np.uint16), np.empty(0, np.uint16))


def counted(keys: NDArray[np.uint64], label: NDArray[np.int8]) -> Counts:
    """Of labels, 0 or 1, in any order."""
    every, clicked = np.sort(keys), np.sort(keys[label != 0])
    one, none = np.ones(every.size, np.int64), np.zeros(every.size, np.int64)
    return _merged(Counts(every, one, none), Counts(clicked, none[: clicked.size], one[: clicked.size]))


def summed(parts: Sequence[Counts]) -> Counts:
    """Everything together, each key once."""
    left = [*parts]
    if len(left) < 2:
        left += [NO_COUNTS] * (2 - len(left))
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


@numba.njit(cache=True, nogil=True)
def _merged(a: Counts, b: Counts) -> Counts:
    """Both, each key once, also where one of them has it several times."""
    size = a.keys.size + b.keys.size
    keys, impressions, clicks = np.empty(size, np.uint64), np.empty(size, np.int64), np.empty(size, np.int64)
    n = i = j = 0
    while i + j < size:
        first = j == b.keys.size or (i < a.keys.size and a.keys[i] <= b.keys[j])
        key = a.keys[i] if first else b.keys[j]
        if n == 0 or keys[n - 1] != key:
            keys[n], impressions[n], clicks[n] = key, 0, 0
            n += 1
        if first:
            impressions[n - 1] += a.impressions[i]
            clicks[n - 1] += a.clicks[i]
            i += 1
        else:
            impressions[n - 1] += b.impressions[j]
            clicks[n - 1] += b.clicks[j]
            j += 1
    return Counts(keys[:n].copy(), impressions[:n].copy(), clicks[:n].copy())
