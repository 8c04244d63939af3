"""Candidates in the order of their requests, and the columns that auctions read.

Only the first row of a request and equal rank scores depend on the order of its rows, so most requests are not sorted.
Every column is moved into place.
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

_MOST = 64  # candidates; requests of more are sorted
_WORDS = 16  # of 64 bits, in which the items of a request leave their marks: if no two have the same, no two are equal
_WORD, _IN_WORD = np.uint64(60), np.uint64(63)  # the first bits of an item are its word, the last ones its bit
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
    came twice, the first one counts; a candidate that was shown after all, or came twice, counts once. The first row of a
    request is the one shown at the lowest position, then of the lowest item.
    """
    indptr, order, at = _counted(request, many)
    if _distinct(ids[:shown]) and _arrange(indptr, order, at, item, position, shown):
        return order, at, indptr
    return in_order(request, ids, item, position, shown, many)


def in_order(
    request: NDArray[np.int64],
    ids: NDArray[np.uint64],
    item: NDArray[np.uint64],
    position: NDArray[np.float64],
    shown: int,
    many: int,
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """As `arranged`, with all rows of a request in order: those shown, by position, item and id, then the others by item."""
    own = np.flatnonzero(request >= 0)
    of, was_shown = request[own].astype(np.uint64), own < shown
    among = np.flatnonzero(~_again(ids[own], pair_keys(of, item[own]), was_shown))
    own, of, was_shown = own[among], of[among], was_shown[among]
    at = np.where(was_shown, np.where(np.isnan(position[own]), -1.0, position[own]), np.inf)
    on = np.lexsort((ids[own], item[own], at, of))
    return own[on], at[on], np.searchsorted(of[on], np.arange(many + 1, dtype=np.uint64)).astype(np.int64)


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
    item: NDArray[np.uint64],
    position: NDArray[np.float64],
    shown: int,
) -> bool:
    """Writes positions, and moves the first row of every request to the front. Returns False if one has too many, or a
    candidate twice. Unsigned indices are not checked for counting from the end.
    """
    marks = np.empty(_WORDS, np.uint64)
    for r in range(indptr.size - 1):
        begin, end = np.uint64(indptr[r]), np.uint64(indptr[r + 1])
        if end - begin > _MOST:
            return False
        marks[:], alike = 0, np.uint64(0)
        first, lowest, lowest_item, i = begin, np.inf, ~np.uint64(0), begin
        while i < end and (order[i] < shown or lowest == np.inf):  # rows come in their order: first those shown
            row = np.uint64(order[i])
            own = np.inf if order[i] >= shown else -1.0 if np.isnan(position[row]) else position[row]
            if (own < lowest) | ((own == lowest) & (item[row] < lowest_item)):
                first, lowest, lowest_item = i, own, item[row]
            at[i] = own
            i += np.uint64(1)
        at[i:end] = np.inf
        for k in range(begin, end):
            of_item = item[np.uint64(order[k])]
            word, bit = of_item >> _WORD, np.uint64(1) << (of_item & _IN_WORD)
            alike |= marks[word] & bit
            marks[word] |= bit
        if alike and _has_twice(order, at, item, begin, end):
            return False
        order[begin], order[first] = order[first], order[begin]
        at[begin], at[first] = at[first], at[begin]
    return True


@numba.njit(inline="always")
def _has_twice(
    order: NDArray[np.int64], at: NDArray[np.float64], item: NDArray[np.uint64], begin: np.uint64, end: np.uint64
) -> bool:
    """Whether two rows of a request have the same item, unless they were shown at different positions."""
    twice = False
    for i in range(begin, end):
        for j in range(begin, i):
            alike = (at[i] == at[j]) | (at[i] == np.inf) | (at[j] == np.inf)
            twice |= (item[np.uint64(order[i])] == item[np.uint64(order[j])]) & alike
    return twice


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

    @classmethod
    def of(cls, order: NDArray[np.int64], indptr: NDArray[np.int64], rows: int) -> Arranged:
        """Returns the places of rows in their order."""
        return cls(order, _places(order, rows), indptr)

    @property
    def request(self) -> NDArray[np.int64]:
        """The request of every place."""
        return np.repeat(np.arange(self.indptr.size - 1), np.diff(self.indptr))

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
def _places(order: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
    to = np.empty(rows, np.int64)
    if order.size < rows:
        to[:] = -1
    for i in range(order.size):
        to[order[i]] = i
    return to


def auctions_of(
    parts: Sequence[Impressions],
    arranged: Arranged,
    bid: NDArray[np.float64],
    pair: NDArray[np.int32],
    position: NDArray[np.float64],
    item: NDArray[np.uint64],
    likely: NDArray[np.int64] = _NO_CODES,
) -> tuple[Auctions, NDArray[np.int64], NDArray[np.int32]]:
    """Returns (rows as auctions, the series codes of their scores, the series of the first row of each request); `bid`,
    `pair`, `position` and `item`: by place.

    `likely`: the codes expected.
    """
    to = arranged.places(parts)
    codes, score = likely, scores_of(parts, to, likely, pair.size)
    if score is None:
        codes = codes_of(parts, to)
        score = scores_of(parts, to, codes, pair.size)
        assert score is not None
    requests, begin = arranged.indptr.size - 1, 0
    block, own = np.empty(requests, np.int8), np.empty(requests, np.int32)
    for part in parts:
        _write_first(part.user, part.series, begin, arranged.order, arranged.indptr, block, own)
        begin += len(part)
    return Auctions(arranged.indptr, block, bid, pair, score, position, item), codes, own


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
    begin: int,
    order: NDArray[np.int64],
    indptr: NDArray[np.int64],
    block: NDArray[np.int8],
    of_series: NDArray[np.int32],
) -> None:
    """Writes the block of the user, and the series, of each request's first row, if it is one of those from `begin` on."""
    for r in range(indptr.size - 1):
        if indptr[r] < indptr[r + 1] and begin <= order[indptr[r]] < begin + user.size:
            row = order[indptr[r]] - begin
            block[r], of_series[r] = block_of(user[row]), series[row]
