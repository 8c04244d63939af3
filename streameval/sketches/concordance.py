"""Concordant pairs of a sorted list of scores: of a click and a non-click, the click's score the higher one."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray


@numba.njit(inline="always")
def concordant_pairs(sorted_entries: NDArray[np.uint32] | NDArray[np.uint64], n: int) -> tuple[int, int]:
    """(twice the concordant pairs, clicks) of n sorted score << 1 | label entries; a tie counts 1 of 2."""
    pairs = np.int64(0)
    below = np.int64(0)  # non-clicks with a smaller key
    clicks = np.int64(0)
    tied = np.int64(0)  # non-clicks with this key; they sort before its clicks
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

    Pairs are counted in float64: exact up to 2**53, beyond which they are rounded by their order, which is that of the entries.
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
