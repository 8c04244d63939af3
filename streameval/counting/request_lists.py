"""Closed requests as ranked lists: where each one begins, its pane and its user, and the scores of versions that scored
it completely.

A list counts only for a version that scored all of its impressions: an ideal order of only some of them would flatter
it. The columns are computed once, for all metrics of lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.events.columns import Scored


class RequestLists(NamedTuple):
    """n requests: request r has the rows begin[r] to begin[r + 1] - 1."""

    begin: NDArray[np.int64]  # [n + 1]
    pane: NDArray[np.int64]  # of its first impression
    user: NDArray[np.uint64]  # one of its users, whatever the order; there is nearly always only one


class Rankings(NamedTuple):
    """The series that scored a list completely, by list: entries first[r] to first[r + 1] - 1 belong to list r, each
    with n scores.

    Scores are ordered by row, from key[start[e]] on; only for lists with a click.
    """

    first: NDArray[np.int64]  # [lists + 1]
    series: NDArray[np.int32]  # [entries]
    start: NDArray[np.int64]  # [entries]; -1: the list has no click
    key: NDArray[np.float64]
    server: NDArray[np.int32]  # [lists] the single series that gave all the first scores; -1: there is none


@dataclass(frozen=True, slots=True)
class RankedLists:
    """Lists of requests, with their labels and scores."""

    lists: RequestLists
    rankings: Rankings

    @staticmethod
    def of(lists: RequestLists, label: NDArray[np.int8], scored: Scored) -> RankedLists:
        """Ranks lists by these labels and scores."""
        return RankedLists(lists, rankings_of(lists, label, scored))

    def by_pane(self) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Yields (pane, its lists)."""
        pane = self.lists.pane
        order = np.argsort(pane, kind="stable")
        cuts = np.flatnonzero(np.diff(pane[order], prepend=pane[order[0]] - 1))
        for some in np.split(order, cuts[1:]):
            yield int(pane[some[0]]), some


def lists_of(ts: NDArray[np.int64], user: NDArray[np.uint64], request: NDArray[np.int32], pane: int) -> RequestLists:
    """Returns the lists of rows whose requests are ascending; `pane` in ms."""
    n = ts.size
    begin, at, who = np.empty(n + 1, np.int64), np.empty(n, np.int64), np.empty(n, np.uint64)
    found = _lists(ts, user, request, pane, begin, at, who)
    return RequestLists(begin[: found + 1], at[:found], who[:found])


@numba.njit(cache=True, nogil=True)
def _lists(
    ts: NDArray[np.int64],
    user: NDArray[np.uint64],
    request: NDArray[np.int32],
    pane: int,
    begin: NDArray[np.int64],
    at: NDArray[np.int64],
    who: NDArray[np.uint64],
) -> int:
    n = 0
    i = 0
    while i < ts.size:
        begin[n] = i
        first, one, of = ts[i], user[i], request[i]
        i += 1
        while i < ts.size and request[i] == of:
            first, one = min(first, ts[i]), max(one, user[i])
            i += 1
        at[n], who[n] = first // pane, one
        n += 1
    begin[n] = i
    return n


def rankings_of(lists: RequestLists, label: NDArray[np.int8], scored: Scored) -> Rankings:
    """Returns the series that scored each list completely."""
    n, k = lists.pane.size, scored.series.size
    out = Rankings(
        np.empty(n + 1, np.int64), np.empty(k, np.int32), np.empty(k, np.int64), np.empty(k), np.empty(n, np.int32)
    )
    bounds, codes = np.array(scored.bounds, np.int64), int(scored.series.max(initial=-1)) + 1
    n = _rankings(lists.begin, label, bounds, scored.row, scored.series, scored.p, codes=codes, out=out)
    return out._replace(series=out.series[:n], start=out.start[:n])


@numba.njit(cache=True, nogil=True)
def _rankings(
    begin: NDArray[np.int64],
    label: NDArray[np.int8],
    bounds: NDArray[np.int64],
    row: NDArray[np.int32],
    series: NDArray[np.int32],
    p: NDArray[np.float64],
    codes: int,
    out: Rankings,
) -> int:
    first, series_of, start, key, server = out
    at, end = bounds[:-1].copy(), bounds[:-1].copy()  # by giver: its scores of a list
    entries, keys = 0, 0
    # by series: its scores of the list, the row of the newest one, and where they go
    seen, last, where = np.zeros(codes, np.int64), np.full(codes, -1, np.int64), np.empty(codes, np.int64)
    mine = np.empty(codes, np.int32)
    for r in range(begin.size - 1):
        a, b = begin[r], begin[r + 1]
        n = b - a
        first[r], server[r] = entries, -1
        clicked = False
        for i in range(a, b):
            clicked = clicked or label[i] != 0
        found = 0  # series
        for g in range(at.size):
            at[g] = end[g]
            while end[g] < bounds[g + 1] and row[end[g]] < b:
                j = end[g]
                s = series[j]
                if seen[s] == 0:
                    mine[found] = s
                    found += 1
                seen[s] += n + 1 if last[s] == row[j] else 1  # a row scored twice: the list is not complete
                last[s] = row[j]
                end[g] += 1
            if g == 0 and found == 1 and end[0] - at[0] == n:
                server[r] = mine[0]
        for i in range(found):
            s = mine[i]
            where[s] = -1
            if seen[s] == n:
                series_of[entries], start[entries] = s, -1
                if clicked:
                    start[entries] = where[s] = keys
                    keys += n
                entries += 1
            seen[s] = 0
        if clicked and entries > first[r]:
            for g in range(at.size):
                for j in range(at[g], end[g]):
                    if where[series[j]] >= 0:
                        key[where[series[j]] + row[j] - a] = p[j]
    first[begin.size - 1] = entries
    return entries
