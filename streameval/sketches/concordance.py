"""Concordant pairs in a sorted list of scores: pairs of a click and a non-click where the click has the higher score."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray


@numba.njit(inline="always")
def concordant_pairs(sorted_entries: NDArray[np.uint32] | NDArray[np.uint64], n: int) -> tuple[int, int]:
    """(twice the concordant pairs, clicks) of n sorted score << 1 | label entries; a tie counts 1 instead of 2."""
    pairs = np.int64(0)
    below = np.int64(0)  # non-clicks with a smaller key
    clicks = np.int64(0)
    tied = np.int64(0)  # non-clicks with this key, which sort before its clicks
    key = np.int64(-1)
    for i in range(n):
        k = np.int64(sorted_entries[i] >> np.uint32(1))
        if k != key:
            below += tied
            tied = np.int64(0)
            key = k
        if sorted_entries[i] & np.uint32(1):
            pairs += 2 * below + tied
            clicks += 1
        else:
            tied += 1
    return int(pairs), int(clicks)


@numba.njit(inline="always")
def weighted_pairs(
    sorted_entries: NDArray[np.uint32], copies: NDArray[np.uint32], n: int
) -> tuple[float, int, int, int]:
    """`concordant_pairs` of n entries that stand for `copies` each: (twice the pairs, clicks, copies of all, of the clicks).

    Pairs are counted in float64: exact up to 2**53; beyond, rounding depends on the order of the entries only.
    """
    pairs, below, tied = 0.0, 0.0, 0.0
    clicks, many, many_clicks = np.int64(0), np.int64(0), np.int64(0)
    key = np.int64(-1)
    for i in range(n):
        k, w = np.int64(sorted_entries[i] >> np.uint32(1)), np.int64(copies[i])
        if k != key:
            below += tied
            tied = 0.0
            key = k
        many += w
        if sorted_entries[i] & np.uint32(1):
            pairs += w * (2.0 * below + tied)
            clicks += 1
            many_clicks += w
        else:
            tied += w
    return pairs, int(clicks), int(many), int(many_clicks)


_BLOCK = np.int64(64)


@numba.njit(cache=True, nogil=True)
def clicks_by_block(sorted_entries: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The number of clicks before every 64th of sorted score << 1 | label entries, and finally their total."""
    n = np.int64(sorted_entries.size)
    out = np.empty(n // _BLOCK + 2, np.int64)
    clicks = np.int64(0)
    for i in range(n):
        if i % _BLOCK == 0:
            out[i // _BLOCK] = clicks
        clicks += np.int64(sorted_entries[i] & np.uint64(1))
    if n % _BLOCK == 0:
        out[n // _BLOCK] = clicks
    out[-1] = clicks
    return out


@numba.njit(inline="always")
def _first(sorted_entries: NDArray[np.uint64], entry: np.uint64) -> int:
    """How many entries are less than `entry`."""
    low, high = np.int64(0), np.int64(sorted_entries.size)
    while low < high:
        middle = (low + high) >> np.int64(1)
        if sorted_entries[middle] < entry:
            low = middle + 1
        else:
            high = middle
    return int(low)


@numba.njit(inline="always")
def _clicks_before(sorted_entries: NDArray[np.uint64], by_block: NDArray[np.int64], place: int) -> int:
    block = place // _BLOCK
    clicks = by_block[block]
    for i in range(block * _BLOCK, place):
        clicks += np.int64(sorted_entries[i] & np.uint64(1))
    return int(clicks)


@numba.njit(cache=True, nogil=True)
def pairs_between(sorted_entries: NDArray[np.uint64], by_block: NDArray[np.int64], others: NDArray[np.uint64]) -> int:
    """Twice the concordant pairs between n sorted entries and m others; a tie counts 1. `by_block`: `clicks_by_block`."""
    one = np.uint64(1)
    pairs, all_clicks = np.int64(0), by_block[-1]
    for entry in others:
        least = entry & ~one  # of this score; its non-clicks come before its clicks
        below = _first(sorted_entries, least)
        clicks_below = _clicks_before(sorted_entries, by_block, below)
        if entry & one:
            tied = _first(sorted_entries, least | one) - below
            pairs += 2 * (below - clicks_below) + tied
        else:
            above = all_clicks - _clicks_before(sorted_entries, by_block, _first(sorted_entries, least + one + one))
            pairs += 2 * above + (all_clicks - clicks_below - above)
    return int(pairs)


@numba.njit(cache=True, nogil=True)
def pairs_within(sorted_entries: NDArray[np.uint64]) -> tuple[int, int]:
    """`concordant_pairs` of all the entries."""
    return concordant_pairs(sorted_entries, sorted_entries.size)
