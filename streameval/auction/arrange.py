"""Candidates in the order of their requests, and the columns that auctions read.

Requests are short, so they are sorted by insertion, in a single pass that also finds duplicates. Then every column is
moved into place.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.auction.rerun import Auctions
from streameval.auction.scores import codes_of, scores_of
from streameval.events.batch import Impressions
from streameval.sketches.blocks import block_of
from streameval.sketches.directory import mix

_SHORT = 64  # candidates, up to which insertion is fastest
_NO_CODES = np.empty(0, np.int64)


@numba.njit(cache=True)
def pair_keys(first: NDArray[np.uint64], second: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Returns a 64-bit key for each pair of hashes."""
    out = np.empty(first.size, np.uint64)
    for i in range(first.size):
        out[i] = mix(mix(first[i]) ^ second[i])
    return out


def arranged(
    request: NDArray[np.int64],
    ids: NDArray[np.uint64],
    item: NDArray[np.uint64],
    position: NDArray[np.float64],
    shown: int,
    many: int,
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """Returns (rows by place, ordered by request; their positions: infinite if not shown, -1 if not known; where each
    request begins and the last one ends).

    Requests have numbers below `many`, -1: none; the first `shown` rows are those that were shown. If an impression
    came twice, the first one counts; a candidate that was shown after all, or came twice, counts once. The rows of a
    request are those shown, by position, then the others by item, which is also the order of equal rank scores.
    """
    indptr, order, at = _counted(request, many)
    if _distinct(ids[:shown]) and _arrange(indptr, order, at, ids, item, position, shown):
        return order, at, indptr
    own = np.flatnonzero(request >= 0)
    of = request[own].astype(np.uint64)
    on, at = _sorted(of, ids[own], item[own], position[own], own < shown)
    return own[on], at, np.searchsorted(of[on], np.arange(many + 1, dtype=np.uint64)).astype(np.int64)


def _sorted(
    request: NDArray[np.uint64],
    ids: NDArray[np.uint64],
    item: NDArray[np.uint64],
    position: NDArray[np.float64],
    shown: NDArray[np.bool_],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Does the same as `arranged` for any rows. Returns (rows by place, their positions)."""
    among = np.flatnonzero(~_again(ids, pair_keys(request, item), shown))
    position = np.where(shown, np.where(np.isnan(position), -1.0, position), np.inf)[among]
    order = np.lexsort((ids[among], item[among], position, request[among]))
    return among[order], position[order]


@numba.njit(cache=True)
def _counted(request: NDArray[np.int64], many: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Returns (where each request begins and the last one ends, its rows in order, a buffer for their positions)."""
    begin = np.zeros(many + 2, np.int64)
    for one in request:
        begin[one + 2] += one >= 0
    for one in range(many):
        begin[one + 2] += begin[one + 1]
    order = np.empty(begin[many + 1], np.int64)
    for row in range(request.size):
        one = request[row]
        if one >= 0:
            order[begin[one + 1]] = row
            begin[one + 1] += 1
    return begin[: many + 1].copy(), order, np.empty(order.size)


@numba.njit(cache=True)
def _arrange(
    indptr: NDArray[np.int64],
    order: NDArray[np.int64],
    at: NDArray[np.float64],
    ids: NDArray[np.uint64],
    item: NDArray[np.uint64],
    position: NDArray[np.float64],
    shown: int,
) -> bool:
    """Sorts the rows of every request by position, item and id. Returns False if one has too many, or a candidate
    twice.

    Shown rows mostly come in order, so they are inserted; each of the others is compared with all, without a branch.
    Indices are unsigned, because signed ones would be checked for counting from the end.
    """
    place, items, rows = np.empty(_SHORT), np.empty(_SHORT, np.uint64), np.empty(_SHORT, np.int64)
    to = np.empty(_SHORT, np.uint64)
    one = np.uint64(1)
    for r in range(indptr.size - 1):
        begin, n, top = np.uint64(indptr[r]), np.uint64(indptr[r + 1] - indptr[r]), np.uint64(0)
        if n > _SHORT:
            return False
        while top < n and order[begin + top] < shown:  # rows of a request come in their order, so these come first
            row = np.uint64(order[begin + top])
            of_item, own = item[row], -1.0 if np.isnan(position[row]) else position[row]
            here = top
            while here > 0:
                before = place[here - one]
                if before < own:
                    break
                if before == own:
                    if items[here - one] < of_item:
                        break
                    if items[here - one] == of_item and ids[rows[here - one]] <= ids[row]:
                        break
                place[here], items[here], rows[here] = before, items[here - one], rows[here - one]
                here -= one
            place[here], items[here], rows[here] = own, of_item, np.int64(row)
            top += one
        twice = False
        for i in range(top, n):
            of_item, lower = item[np.uint64(order[begin + i])], top
            for j in range(top):
                twice |= items[j] == of_item
            for j in range(top, i):
                twice |= items[j] == of_item
                is_lower = np.uint64(items[j] < of_item)
                lower += is_lower
                to[j] += one - is_lower
            items[i], to[i] = of_item, lower
        if twice:
            return False
        for i in range(top, n):
            rows[to[i]], place[i] = order[begin + i], np.inf
        for i in range(n):
            order[begin + i], at[begin + i] = rows[i], place[i]
    return True


def _again(ids: NDArray[np.uint64], key: NDArray[np.uint64], shown: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Returns which rows are repeated: shown impressions whose id came before, and candidates whose key was shown or
    also has a lower id.
    """
    out = np.zeros(ids.size, np.bool_)
    if ids.size == 0 or (_distinct(ids[shown]) and _distinct(key)):
        return out
    first = np.zeros(ids.size, np.bool_)
    own = np.flatnonzero(shown)
    first[own[np.unique(ids[own], return_index=True)[1]]] = True
    out[own] = ~first[own]
    others = np.flatnonzero(~shown)
    others = others[np.argsort(ids[others], kind="stable")]
    best = others[np.unique(key[others], return_index=True)[1]]
    out[others] = True
    out[best[~np.isin(key[best], key[own])]] = False
    return out


@numba.njit(cache=True)
def _distinct(values: NDArray[np.uint64]) -> bool:
    """Whether no hash occurs twice (nor zero)."""
    size = 16
    while size < 2 * values.size:
        size *= 2
    table, mask, zero = np.zeros(size, np.uint64), np.uint64(size - 1), False
    for i in range(values.size):
        value = values[i]
        if value == 0:
            if zero:
                return False
            zero = True
            continue
        at = mix(value) & mask
        while table[at] != 0:
            if table[at] == value:
                return False
            at = (at + np.uint64(1)) & mask
        table[at] = value
    return True


class Arranged(NamedTuple):
    """The places of rows: row i is at to[i], -1: nowhere; request r has the places indptr[r] to indptr[r + 1] - 1."""

    order: NDArray[np.int64]  # rows, by place
    to: NDArray[np.int64]
    indptr: NDArray[np.int64]
    request: NDArray[np.int64]  # by place

    @classmethod
    def of(cls, order: NDArray[np.int64], indptr: NDArray[np.int64], rows: int) -> Arranged:
        """Returns the places of rows in their order."""
        to, request = np.full(rows, -1), np.empty(order.size, np.int64)
        _put_back(order, indptr, to, request)
        return cls(order, to, indptr, request)

    def only(self, stay: NDArray[np.int64]) -> tuple[Arranged, NDArray[np.int64]]:
        """Returns (only the requests in `stay`, ascending; the places of their rows)."""
        sizes = np.diff(self.indptr)
        stays = np.zeros(sizes.size, np.bool_)
        stays[stay] = True
        on = np.flatnonzero(stays[self.request])
        return Arranged.of(self.order[on], np.append(0, np.cumsum(sizes[stay])), self.to.size), on

    def places(self, parts: Sequence[Impressions]) -> list[NDArray[np.int64]]:
        """Returns the places of the rows of every part."""
        bounds = np.cumsum([0, *map(len, parts)]).tolist()
        return [self.to[low:high] for low, high in pairwise(bounds)]


@numba.njit(cache=True)
def _put_back(
    order: NDArray[np.int64], indptr: NDArray[np.int64], to: NDArray[np.int64], request: NDArray[np.int64]
) -> None:
    for r in range(indptr.size - 1):
        for i in range(indptr[r], indptr[r + 1]):
            to[order[i]], request[i] = i, r


def auctions_of(
    parts: Sequence[Impressions],
    arranged: Arranged,
    bid: NDArray[np.float64],
    pair: NDArray[np.int32],
    likely: NDArray[np.int64] = _NO_CODES,
) -> tuple[Auctions, NDArray[np.int64], NDArray[np.int32]]:
    """Returns (rows as auctions, the series codes of their scores, the series of the first row of each request); `bid`
    and `pair`: by place.

    `likely`: the codes expected.
    """
    to = arranged.places(parts)
    codes, score = likely, scores_of(parts, to, likely, pair.size)
    if score is None:
        codes = codes_of(parts, to)
        score = scores_of(parts, to, codes, pair.size)
        assert score is not None
    requests = arranged.indptr.size - 1
    block, own = np.empty(requests, np.int8), np.empty(requests, np.int32)
    for part, places in zip(parts, to, strict=True):
        _write_first(part.user, part.series, places, arranged.indptr, arranged.request, block, own)
    return Auctions(arranged.indptr, block, bid, pair, score), codes, own


@numba.njit(cache=True)
def servers_of(
    own: NDArray[np.int32], codes: NDArray[np.int64], position: NDArray[np.float64], indptr: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Returns the number in `codes`, ascending, of each request's first series; -1: it has none, or nothing was shown."""
    out = np.full(own.size, -1, np.int64)
    for r in range(own.size):
        for v in range(codes.size):
            if codes[v] == own[r] and np.isfinite(position[indptr[r]]):
                out[r] = v
    return out


@numba.njit(cache=True)
def _write_first(
    user: NDArray[np.uint64],
    series: NDArray[np.int32],
    to: NDArray[np.int64],
    indptr: NDArray[np.int64],
    request: NDArray[np.int64],
    block: NDArray[np.int8],
    of_series: NDArray[np.int32],
) -> None:
    """Writes the block of the user, and the series, of each request's first row."""
    for row in range(to.size):
        at = to[row]
        if at >= 0 and indptr[request[at]] == at:
            block[request[at]], of_series[request[at]] = block_of(user[row]), series[row]
