"""Which rows belong to one request, and which requests are over.

Short kernels keep the interpreter lock, here and in the modules beside this one: where the counting thread waits for
it, it costs more to release it and to take it back than they take. NumPy would release it at every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.sketches.directory import mix


class ByRequest(NamedTuple):
    """Rows by request."""

    number: NDArray[np.int64]  # [rows] number of the request
    size: NDArray[np.int64]  # [requests] number of rows
    first: NDArray[np.int64]  # ms
    last: NDArray[np.int64]


@numba.njit(cache=True)
def given(ids: NDArray[np.uint64]) -> int:
    """Returns how many ids are not 0."""
    n = 0
    for one in ids:
        n += one != 0
    return n


@numba.njit(cache=True)
def stretch(wanted: NDArray[np.bool_]) -> tuple[int, int]:
    """Returns where the wanted rows begin and end, if they are adjacent; (0, 0) if there are none, otherwise (0, -1)."""
    first, end, many = 0, 0, 0
    for i in range(wanted.size):
        if wanted[i]:
            first, end, many = i if many == 0 else first, i + 1, many + 1
    return (first, end) if end - first == many else (0, -1)


@numba.njit(cache=True)
def apart_at(ts: NDArray[np.int64], end: int) -> int:
    """Returns how many rows come before the first one at or after `end`; all of them if any later row is before
    `end`.
    """
    first, apart = 0, True
    for i in range(ts.size):
        first += ts[i] < end
    for i in range(first):
        apart &= ts[i] < end
    return first if apart else ts.size


@numba.njit(cache=True)
def grouped(
    request: NDArray[np.uint64], ts: NDArray[np.int64]
) -> tuple[ByRequest, NDArray[np.int64], NDArray[np.uint64]]:
    """Returns (rows by request, in order of appearance; a hash table of request numbers, their ids, for `meet`); no id
    is 0.
    """
    n, found, slots = request.size, 0, 16
    runs = 0
    for i in range(n):
        runs += i == 0 or request[i] != request[i - 1]
    while slots < 2 * runs:
        slots *= 2
    table, mask = np.full(slots, -1, np.int64), np.uint64(slots - 1)
    number, ids = np.empty(n, np.int64), np.empty(runs, np.uint64)
    size, first, last = np.zeros(runs, np.int64), np.empty(runs, np.int64), np.empty(runs, np.int64)
    i = 0
    while i < n:  # rows of one request are mostly adjacent
        own = request[i]
        at = mix(own) & mask
        while table[at] >= 0 and ids[table[at]] != own:
            at = (at + np.uint64(1)) & mask
        if table[at] < 0:
            table[at] = found
            ids[found], first[found], last[found] = own, ts[i], ts[i]
            found += 1
        one, begin, low, high = table[at], i, ts[i], ts[i]
        while i < n and request[i] == own:
            number[i], low, high = one, min(low, ts[i]), max(high, ts[i])
            i += 1
        size[one] += i - begin
        first[one], last[one] = min(first[one], low), max(last[one], high)
    return ByRequest(number, size[:found], first[:found], last[:found]), table, ids


@numba.njit(cache=True)
def meet(
    request: NDArray[np.uint64],
    ts: NDArray[np.int64],
    table: NDArray[np.int64],
    ids: NDArray[np.uint64],
    groups: ByRequest,
) -> None:
    """Adds further rows to the known requests."""
    mask, one = np.uint64(table.size - 1), np.int64(-1)
    for i in range(request.size):
        if i == 0 or request[i] != request[i - 1]:
            at = mix(request[i]) & mask
            while table[at] >= 0 and ids[table[at]] != request[i]:
                at = (at + np.uint64(1)) & mask
            one = table[at]
        if one >= 0:
            groups.size[one] += 1
            groups.first[one], groups.last[one] = min(groups.first[one], ts[i]), max(groups.last[one], ts[i])


def regrouped(request: NDArray[np.uint64], ts: NDArray[np.int64], gap: int) -> ByRequest:
    """Returns rows by request; an id that recurs after more than a gap (ms) is another request."""
    order = np.lexsort((ts, request))
    begins = np.ones(order.size, np.bool_)
    begins[1:] = (np.diff(request[order]) != 0) | (np.diff(ts[order]) > gap)
    number = np.empty(order.size, np.int64)
    number[order] = np.cumsum(begins) - 1
    ends = np.append(np.flatnonzero(begins)[1:], order.size) - 1
    return ByRequest(number, np.diff(ends, prepend=-1), ts[order[begins]], ts[order[ends]])


class Complete(NamedTuple):
    """The requests that are over, by pane, then as they were."""

    request: NDArray[np.int64]  # [rows] number of the request; -1: it is not over, or has too many rows
    waits: NDArray[np.bool_]  # [rows] whether the request is not over
    pane: NDArray[np.int64]  # [requests over], ascending
    crowded: int  # requests with too many rows


@numba.njit(cache=True)
def plain(rows: ByRequest, gap: int, most: int) -> bool:
    """Whether no request is longer than a gap (ms), and none has too many rows."""
    good = True
    for one in range(rows.size.size):
        good &= (rows.last[one] - rows.first[one] <= gap) & (rows.size[one] <= most)
    return good


@numba.njit(cache=True)
def completed(rows: ByRequest, end: int, most: int, pane: int) -> Complete:
    """Returns which requests ended before `end`, with at most `most` rows; `pane`: length in ms."""
    number, size, first, last = rows
    panes, rank, n, crowded, ascending = np.empty(size.size, np.int64), np.full(size.size, -1, np.int64), 0, 0, True
    for one in range(size.size):
        crowded += size[one] > most
        if last[one] < end and size[one] <= most:
            panes[n], rank[one] = first[one] // pane, n
            ascending &= n == 0 or panes[n - 1] <= panes[n]
            n += 1
    panes = panes[:n]
    if not ascending:
        order = np.argsort(panes, kind="mergesort")
        place = np.empty(n, np.int64)
        place[order] = np.arange(n)
        panes = panes[order]
        for one in range(size.size):
            rank[one] = place[rank[one]] if rank[one] >= 0 else -1
    request, waits = np.empty(number.size, np.int64), np.empty(number.size, np.bool_)
    for i in range(number.size):
        one = number[i]
        request[i], waits[i] = rank[one], last[one] >= end and size[one] <= most
    return Complete(request, waits, panes, crowded)


@numba.njit(cache=True)
def numbered(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns (the distinct ones of ascending values, the number of each value among them)."""
    distinct, number, n = np.empty(values.size, np.int64), np.empty(values.size, np.int64), 0
    for i in range(values.size):
        n += i == 0 or values[i] != values[i - 1]
        distinct[n - 1], number[i] = values[i], n - 1
    return distinct[:n].copy(), number


def joined(columns: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Returns columns of one type one behind the other."""
    out, at = np.empty(sum(column.size for column in columns), columns[0].dtype), 0
    for column in columns:
        _copy(column, out, at)
        at += column.size
    return out


@numba.njit(cache=True)
def _copy(column: NDArray[Any], out: NDArray[Any], at: int) -> None:
    out[at : at + column.size] = column
