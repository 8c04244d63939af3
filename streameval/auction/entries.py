"""Impressions and clicks by 64-bit keys, ascending: the basis of the history of pairs.

Lists are merged, not concatenated and sorted: new labels with those of their hour, and the hours of a table, from which
an hour is subtracted again when it leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

_END = ~np.uint64(0)  # a key that no entry has: its position is beyond all slots
_MOST = np.iinfo(np.uint16).max  # impressions in an entry of an hour; more are split into several entries


class Hour(NamedTuple):
    """Labels that became final in one hour, or in several, in few bytes: counts that are too large for one entry are
    split into several.
    """

    keys: NDArray[np.uint64]
    impressions: NDArray[np.uint16]
    clicks: NDArray[np.uint16]

    def counts(self) -> Counts:
        """Returns the counts with every key once."""
        return _once(*self)


class Counts(NamedTuple):
    """Counts of any labels; every key occurs once."""

    keys: NDArray[np.uint64]
    impressions: NDArray[np.int64]
    clicks: NDArray[np.int64]


NO_HOUR = Hour(np.empty(0, np.uint64), np.empty(0, np.uint16), np.empty(0, np.uint16))


def counted(keys: NDArray[np.uint64], label: NDArray[np.int8]) -> Counts:
    """Counts labels, 0 or 1, in any order. Overwrites the keys: touching fresh memory takes longer than sorting them."""
    clicked = keys[label != 0]
    clicked.sort()
    keys.sort()
    return _told(keys, clicked)


def packed(counts: Counts) -> Hour:
    """Returns the counts as an hour."""
    keys, impressions, clicks = counts
    if impressions.max(initial=0) > _MOST:
        many = -(-impressions // _MOST)
        before = (np.arange(int(many.sum())) - np.repeat(np.cumsum(many) - many, many)) * _MOST
        keys = np.repeat(keys, many)
        impressions, clicks = (np.clip(np.repeat(column, many) - before, 0, _MOST) for column in (impressions, clicks))
    return Hour(keys, impressions.astype(np.uint16), clicks.astype(np.uint16))


def together(hours: Sequence[Hour]) -> Hour:
    """Returns the sum of several hours."""
    left = [*hours] or [NO_HOUR]
    while len(left) > 1:  # neighbours in pairs, so that nothing is moved more than log2(n) times
        pairs = [moved_on(a, b, NO_HOUR) for a, b in zip(left[::2], left[1::2], strict=False)]
        left = pairs + left[2 * len(pairs) :]
    return left[0]


@numba.njit(cache=True, nogil=True)
def moved_on(whole: Hour, enters: Hour, leaves: Hour) -> Hour:
    """Returns `whole` with `enters` added and `leaves` subtracted, which must be contained in them.

    Without a branch where keys are compared: it is unpredictable which of them is the lowest. Columns are not
    copied to be cut to their length: touching fresh memory takes longer than the merge.
    """
    room = whole.keys.size + enters.keys.size + 1
    out = Hour(np.empty(room, np.uint64), np.empty(room, np.uint16), np.empty(room, np.uint16))
    n = i = j = k = np.uint64(0)
    last, shown, clicked = _END, np.int64(0), np.int64(0)
    while True:
        of_whole, a_shown, a_clicked = _at(whole, i)
        of_enters, b_shown, b_clicked = _at(enters, j)
        of_leaves, c_shown, c_clicked = _at(leaves, k)
        key = min(of_whole, of_enters)
        if key != last:  # a full entry is followed by another one of its key
            n = _write(out, n, last, shown, clicked)
            last, shown, clicked = key, np.int64(0), np.int64(0)
        if key == _END:
            break
        a, b, c = np.int64(of_whole == key), np.int64(of_enters == key), np.int64(of_leaves == key)
        shown += a * a_shown + b * b_shown - c * c_shown
        clicked += a * a_clicked + b * b_clicked - c * c_clicked
        i, j, k = i + np.uint64(a), j + np.uint64(b), k + np.uint64(c)
    return Hour(out.keys[:n], out.impressions[:n], out.clicks[:n])


@numba.njit(inline="always")
def _at(hour: Hour, i: np.uint64) -> tuple[np.uint64, np.int64, np.int64]:
    """Returns (key, impressions, clicks) of an entry, or _END where there is none."""
    if i < np.uint64(hour.keys.size):
        return hour.keys[i], np.int64(hour.impressions[i]), np.int64(hour.clicks[i])
    return _END, np.int64(0), np.int64(0)


@numba.njit(inline="always")
def _write(out: Hour, n: np.uint64, key: np.uint64, shown: int, clicked: int) -> np.uint64:
    """Writes entries from n on: several if the counts are too large for one, none if nothing is left; returns
    the end.
    """
    while shown > _MOST:
        out.keys[n], out.impressions[n], out.clicks[n] = key, _MOST, min(clicked, _MOST)
        shown -= _MOST
        clicked -= min(clicked, _MOST)
        n += np.uint64(1)
    out.keys[n], out.impressions[n], out.clicks[n] = key, shown, clicked
    return n + np.uint64(shown > 0)


@numba.njit(cache=True, nogil=True)
def _told(every: NDArray[np.uint64], clicked: NDArray[np.uint64]) -> Counts:
    """Counts ascending keys: those of all labels, and those of the clicks among them. Writes over the former."""
    keys, impressions = every, np.empty(every.size, np.int64)
    n, last, some = np.int64(0), ~every[0] if every.size else np.uint64(0), np.int64(0)
    for key in every:
        some = np.int64(1) + (some if key == last else np.int64(0))
        n += key != last
        keys[n - 1], impressions[n - 1], last = key, some, key
    clicks, at = np.zeros(n, np.int64), 0
    for key in clicked:
        while keys[at] != key:
            at += 1
        clicks[at] += 1
    return Counts(keys[:n], impressions[:n], clicks)


@numba.njit(cache=True, nogil=True)
def _once(every: NDArray[np.uint64], of_impressions: NDArray[np.uint16], of_clicks: NDArray[np.uint16]) -> Counts:
    """Sums entries with ascending keys, which may be repeated."""
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
