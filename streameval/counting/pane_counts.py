"""A batch's events counted by pane, in one pass: a batch is in few panes, and mostly in order of time."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

_NEAR = 32  # entries in which an event's pane is looked for before it gets another one


def pane_counts(ts: NDArray[np.int64], length: int) -> list[tuple[int, int]]:
    """Returns (pane, events), for panes of `length` ms; a pane may come more than once."""
    return [(pane, n) for pane, _, n, _ in pair_counts(ts, length, ts, length)]


def pair_counts(
    first: NDArray[np.int64], first_length: int, second: NDArray[np.int64], second_length: int
) -> list[tuple[int, int, int, int]]:
    """Returns (first // first_length, second // second_length, how often, the least `second`); a pair may come more than
    once.
    """
    if not first.size:
        return []
    out = np.empty((first.size, 4), np.int64)
    found: list[tuple[int, int, int, int]] = out[: _count(first, first_length, second, second_length, out)].tolist()
    return found


@numba.njit(cache=True, nogil=True)
def _count(
    first: NDArray[np.int64],
    first_length: int,
    second: NDArray[np.int64],
    second_length: int,
    out: NDArray[np.int64],
) -> int:
    n, at = 0, -1
    a = b = a_start = b_start = np.int64(0)
    for i in range(first.size):
        same = at >= 0
        if not (same and a_start <= first[i] < a_start + first_length):  # a division only for another pane
            a, same = first[i] // first_length, False
            a_start = a * first_length
        if not (same and b_start <= second[i] < b_start + second_length):
            b, same = second[i] // second_length, False
            b_start = b * second_length
        if not same:
            at = entry(out, n, a, b)
            if at == n:
                out[n] = a, b, 0, second[i]
                n += 1
        out[at, 2] += 1
        out[at, 3] = min(out[at, 3], second[i])
    return n


@numba.njit(inline="always")
def entry(out: NDArray[np.int64], n: int, a: int, b: int) -> int:
    """Returns where the pair (a, b) is among the last of n entries; n: nowhere."""
    for at in range(n - 1, max(n - 1 - _NEAR, -1), -1):
        if out[at, 0] == a and out[at, 1] == b:
            return at
    return n
