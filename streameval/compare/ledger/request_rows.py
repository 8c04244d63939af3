"""Requests that versions served, with and without clicks: rows of a window of event time, next to those of users' AUC
(see `gauc_rows`).

A request counts in every window in which it has impressions, once for every version that served any of them, with their
clicks. Its impressions have equal shares of it in the sums by block of items. Windows are computed as a whole, from the
joiner's rows, and corrected like those of users' AUC; above `MOST_CHOSEN` impressions, users are sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.compare.ledger.window_choice import MOST_CHOSEN, WINDOW_SALT, LiveRows, Wanted, is_click, is_sampled
from streameval.join.policy import LATE, MATURED
from streameval.sketches.blocks import BLOCKS, NO_ITEM, SCALE, block_of
from streameval.sketches.directory import mix

# cells by block of users: clicks and requests; by block of items: clicks, and shares of requests in units of 1 / SCALE
Y_CLICKS, Y_REQUESTS = 0, 1
YIELD_CELLS = 2
Y_USERS, Y_ITEMS, Y_SQUARES = (
    0,
    BLOCKS * YIELD_CELLS,
    2 * BLOCKS * YIELD_CELLS,
)  # the last: sum of squares of clicks per request
YIELD_WIDTH = Y_SQUARES + 1

RequestSums = dict[int, dict[tuple[int, int], NDArray[np.int64]]]  # by window and (series that served, -1)


class RequestColumns(NamedTuple):
    """Columns of the joiner's rows, in addition to `LiveRows`."""

    request: NDArray[np.uint64]  # 0: none
    series: NDArray[np.int32]
    pclick: NDArray[np.float64]  # NaN: no version served it
    item: NDArray[np.int8]


def request_rows(
    known: LiveRows, columns: RequestColumns, wanted: Wanted, due: Sequence[int]
) -> tuple[RequestSums, int]:
    """Returns (rows of the windows numbered `due`, how often the sample of users was halved)."""
    halvings = 0
    while (n := _count(known, columns, wanted, halvings)) > MOST_CHOSEN:
        halvings += 1
    out: RequestSums = {}
    if n:
        series, window, sums = _add_up(known, columns, wanted, halvings, n)
        for code, j, row in zip(series.tolist(), window.tolist(), sums, strict=True):
            out.setdefault(due[j], {})[code, -1] = row
    return out, halvings


@numba.njit(inline="always")
def _counts(
    known: LiveRows,
    columns: RequestColumns,
    wanted: Wanted,
    halvings: int,
    i: int,
) -> bool:
    """Whether a row belongs to a request in a wanted window."""
    window, first, place, late = wanted
    w = known.ts[i] // window - first
    if not 0 <= w < place.size or place[w] < 0 or columns.request[i] == 0 or np.isnan(columns.pclick[i]):
        return False
    if not known.state[i] & MATURED or (not late and known.state[i] & LATE):
        return False
    return bool(is_sampled(known.user[i], halvings))


@numba.njit(cache=True, nogil=True)
def _count(known: LiveRows, columns: RequestColumns, wanted: Wanted, halvings: int) -> int:
    n = 0
    for start, end in known.spans:
        for i in range(start, end):
            n += _counts(known, columns, wanted, halvings, i)
    return n


@numba.njit(cache=True, nogil=True)
def _add_up(
    known: LiveRows, columns: RequestColumns, wanted: Wanted, halvings: int, n: int
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]:
    """Returns (series, window's index, sums) of rows; `n`: impressions that count."""
    window, first, place, late = wanted
    room = 16
    while room < 2 * n:
        room *= 2
    mask = np.uint64(room - 1)
    table, number = np.zeros(room, np.uint64), np.empty(room, np.int32)
    size, clicks = np.zeros(n, np.int64), np.zeros(n, np.int64)
    user, row = (
        np.zeros(n, np.uint64),
        np.empty(n, np.int32),
    )  # of a request: one of its users, and the row in which it counts
    at, of = np.empty(n, np.int64), np.empty(n, np.int32)
    codes = 0
    for start, end in known.spans:
        for i in range(start, end):
            codes = max(codes, columns.series[i] + 1)
    row_of = np.full((place.size, codes), -1, np.int32)
    by_series, by_window = np.empty(place.size * codes, np.int32), np.empty(place.size * codes, np.int32)
    rows = requests = k = 0
    for start, end in known.spans:
        for i in range(start, end):
            if not _counts(known, columns, wanted, halvings, i):
                continue
            w = known.ts[i] // window
            series = columns.series[i]
            key = mix(columns.request[i] ^ mix(np.uint64(w) + WINDOW_SALT)) ^ mix(np.uint64(series) + np.uint64(1))
            key = mix(key) | np.uint64(1)
            h = (key >> np.uint64(1)) & mask
            while table[h] != 0 and table[h] != key:
                h = (h + np.uint64(1)) & mask
            if table[h] == 0:
                if row_of[w - first, series] < 0:
                    row_of[w - first, series] = rows
                    by_series[rows], by_window[rows] = series, place[w - first]
                    rows += 1
                table[h], number[h] = key, requests
                row[requests] = row_of[w - first, series]
                requests += 1
            e = number[h]
            size[e] += 1
            clicks[e] += is_click(known.state[i], late)
            user[e] = max(user[e], known.user[i])
            at[k], of[k] = i, e
            k += 1
    sums = np.zeros((rows, YIELD_WIDTH), np.int64)
    for e in range(requests):
        cell = Y_USERS + np.int64(block_of(user[e])) * YIELD_CELLS
        sums[row[e], cell + Y_CLICKS] += clicks[e]
        sums[row[e], cell + Y_REQUESTS] += 1
        sums[row[e], Y_SQUARES] += clicks[e] * clicks[e]
    for j in range(k):
        item = columns.item[at[j]]
        if item != NO_ITEM:
            cell = Y_ITEMS + np.int64(item) * YIELD_CELLS
            sums[row[of[j]], cell + Y_CLICKS] += is_click(known.state[at[j]], late)
            sums[row[of[j]], cell + Y_REQUESTS] += np.int64(np.rint(SCALE / size[of[j]]))
    return by_series[:rows], by_window[:rows], sums
