"""The requests of a log with all their candidates and labels: from batches as they were read, and labels as they were joined."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.auction.rerun import Auctions
from streameval.events.batch import NO_IMPRESSIONS, Batch, Impressions, Shadow
from streameval.events.columns import concat_impressions, field_of, take_impressions
from streameval.sketches.blocks import blocks_of
from streameval.sketches.directory import mix

_UNKNOWN = -1  # label


@dataclass(frozen=True, slots=True)
class Book:
    """The requests that can be run again, by their ids, and what was shown in them: entry e of those from `pair` on."""

    auctions: Auctions
    versions: tuple[int, ...]  # series codes of `auctions.score`
    served: NDArray[np.int32]  # [requests] the version that served, by its number in `versions`; -1: nothing was shown
    pairs: int
    pair: NDArray[np.int32]
    request: NDArray[np.int64]  # number
    position: NDArray[np.int64]
    clicked: NDArray[np.int8]
    skipped: dict[str, int]  # requests by reason; "no_request" counts impressions and candidates


class AuctionLog:
    """Everything that was read, and every label as it is now."""

    def __init__(self) -> None:
        self._shown: list[Impressions] = []
        self._others: list[Impressions] = []
        self._labels: list[tuple[NDArray[np.uint64], NDArray[np.int8]]] = []

    def take(self, batch: Batch) -> None:
        """A batch as it was read."""
        for some, parts in ((batch.impressions, self._shown), (batch.candidates, self._others)):
            if len(some):
                parts.append(replace(some, features=None, names=None, policies=None))

    def label(self, ids: NDArray[np.uint64], labels: NDArray[np.int8]) -> None:
        """Labels that became known, or changed: 0 or 1 by id of impression."""
        self._labels.append((ids, labels))

    def book(self, slots: int) -> Book:
        """Everything by request; `slots`: positions that there are. It does not depend on the order of the log."""
        parts = [*self._shown, *self._others]
        shown = np.arange(sum(map(len, parts))) < sum(map(len, self._shown))
        rows = concat_impressions(parts or [NO_IMPRESSIONS])
        on, position = arranged(rows, shown)
        rows, was_shown = take_impressions(rows, on, on.astype(np.int32)), shown[on]
        label = np.where(was_shown, self._labels_of(rows.id), np.int8(_UNKNOWN))
        return _booked(rows, was_shown, position, label, slots)

    def _labels_of(self, ids: NDArray[np.uint64]) -> NDArray[np.int8]:
        known = np.concatenate([np.empty(0, np.uint64), *(ids for ids, _ in self._labels)])[::-1]
        labels = np.concatenate([np.empty(0, np.int8), *(labels for _, labels in self._labels)])[::-1]
        distinct, last = np.unique(known, return_index=True)
        out = np.full(ids.size, _UNKNOWN, np.int8)
        if distinct.size:
            at = np.minimum(np.searchsorted(distinct, ids), distinct.size - 1)
            found = distinct[at] == ids
            out[found] = labels[last[at[found]]]
        return out


@numba.njit(cache=True, nogil=True)
def pair_keys(first: NDArray[np.uint64], second: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """One 64-bit key for each pair of hashes."""
    out = np.empty(first.size, np.uint64)
    for i in range(first.size):
        out[i] = mix(mix(first[i]) ^ second[i])
    return out


def query_of(rows: Impressions) -> NDArray[np.uint64]:
    """The queries, uint64[n]; 0: the empty one."""
    return np.zeros(len(rows), np.uint64) if rows.query is None else rows.query


def arranged(rows: Impressions, shown: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """(which rows stand where, by request; their positions: infinite: not shown, -1: not known).

    Of an impression that came twice the first counts; a candidate that
    was shown after all, or came twice, counts once. Rows of one request come as they were shown, then the others by item: so
    stand those of equal rank score.
    """
    among = np.flatnonzero(~_again(rows.id, pair_keys(rows.request, rows.item), shown))
    position = _positions(field_of(rows, "position"), shown, among)
    order = _by_request(rows.request[among], position, rows.item[among], rows.id[among])
    return among[order], position[order]


@numba.njit(cache=True, nogil=True)
def _positions(
    position: NDArray[np.float64], shown: NDArray[np.bool_], among: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Positions of some rows: infinite where they were not shown, -1 where that is not known."""
    out = np.empty(among.size)
    for i in range(among.size):
        at = position[among[i]]
        out[i] = np.inf if not shown[among[i]] else -1.0 if np.isnan(at) else at
    return out


def _by_request(
    request: NDArray[np.uint64], position: NDArray[np.float64], item: NDArray[np.uint64], ids: NDArray[np.uint64]
) -> NDArray[np.int64]:
    """The rows by request, then position, item and id. Requests are short: sorted by insertion, a key at a time."""
    many = int(request.max(initial=0)) + 1
    numbered = many <= 4 * request.size  # and no hashes
    order = _counted_order(request, many) if numbered else np.argsort(request, kind="stable")
    if _sort_within(order, request, position, item, ids):
        return order
    return np.lexsort((ids, item, position, request))


@numba.njit(cache=True, nogil=True)
def _counted_order(request: NDArray[np.uint64], many: int) -> NDArray[np.int64]:
    """The rows by request, numbers below `many`, in order within it."""
    end = np.zeros(many + 1, np.int64)
    for one in request:
        end[one + np.uint64(1)] += 1
    for one in range(many):
        end[one + 1] += end[one]
    order = np.empty(request.size, np.int64)
    for i in range(request.size):
        order[end[request[i]]] = i
        end[request[i]] += 1
    return order


_SHORT = 64  # candidates, up to which insertion is the fastest


@numba.njit(cache=True, nogil=True)
def _sort_within(
    order: NDArray[np.int64],
    request: NDArray[np.uint64],
    position: NDArray[np.float64],
    item: NDArray[np.uint64],
    ids: NDArray[np.uint64],
) -> bool:
    """Sorts rows in order of their requests by what follows; False: one has too many."""
    start = 0
    for i in range(order.size):
        row = order[i]
        if request[row] != request[order[start]]:
            start = i
        if i - start >= _SHORT:
            return False
        at = i
        while at > start:
            before = order[at - 1]
            if position[before] < position[row]:
                break
            if position[before] == position[row]:
                if item[before] < item[row]:
                    break
                if item[before] == item[row] and ids[before] <= ids[row]:
                    break
            order[at] = before
            at -= 1
        order[at] = row
    return True


def _again(ids: NDArray[np.uint64], key: NDArray[np.uint64], shown: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Impressions shown whose id came before, and candidates whose key was shown, or has one of a lower id."""
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


@numba.njit(cache=True, nogil=True)
def _distinct(values: NDArray[np.uint64]) -> bool:
    """Whether no hash comes twice; a zero may stand for itself once."""
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


def unfit(
    rows: Impressions, on: NDArray[np.int64], position: NDArray[np.float64], slots: int
) -> dict[str, NDArray[np.bool_]]:
    """Which of some rows make their request impossible to run again, bool[n] by reason; `position`: theirs."""
    return {
        "no_request": rows.request[on] == 0,
        "no_item": rows.item[on] == 0,
        "no_bid": np.isnan(field_of(rows, "bid")[on]),
        "no_position": position < 0,
        "position_beyond_slots": np.isfinite(position) & (position >= slots),
    }


def left_out(
    number: NDArray[np.int64], wrong: dict[str, NDArray[np.bool_]]
) -> tuple[NDArray[np.bool_], dict[str, int]]:
    """(requests that are left out, bool by number, and how many for each reason, the first counting); `number`: of rows."""
    gone = np.zeros(number.max(initial=-1) + 1, bool)
    counts = {}
    for reason, rows in wrong.items():
        hit = np.zeros(gone.size, bool)
        hit[number[rows]] = True
        counts[reason] = int(np.count_nonzero(hit & ~gone))
        gone |= hit
    return gone, counts


def auctions_of(rows: Impressions, on: NDArray[np.int64], pair: NDArray[np.int32]) -> tuple[Auctions, tuple[int, ...]]:
    """(some rows, as they are arranged, as auctions; the series codes of their scores). `pair`: of those rows."""
    request = rows.request[on]
    first = np.flatnonzero(np.diff(request, prepend=~request[:1]))
    versions, score = _scores(rows, on)
    indptr = np.append(first, on.size).astype(np.int64)
    return Auctions(indptr, blocks_of(rows.user[on[first]]), field_of(rows, "bid")[on], pair, score), versions


def _booked(
    rows: Impressions, shown: NDArray[np.bool_], position: NDArray[np.float64], label: NDArray[np.int8], slots: int
) -> Book:
    every = np.arange(len(rows))
    wrong = {**unfit(rows, every, position, slots), "no_label": shown & (label == _UNKNOWN)}
    number = np.unique(rows.request, return_inverse=True)[1].astype(np.int64)
    gone, skipped = left_out(number, wrong)
    skipped["no_request"] = int(np.count_nonzero(wrong["no_request"]))  # nobody knows of how many requests
    kept = np.flatnonzero(~gone[number])
    rows, shown, position, label = (
        take_impressions(rows, kept, kept.astype(np.int32)),
        shown[kept],
        position[kept],
        label[kept],
    )
    keys, inverse = np.unique(pair_keys(query_of(rows), rows.item), return_inverse=True)
    pair = inverse.astype(np.int32)
    auctions, versions = auctions_of(rows, np.arange(len(rows)), pair)
    number = np.repeat(np.arange(auctions.block.size), np.diff(auctions.indptr))
    on = np.flatnonzero(shown)
    served = np.full(auctions.block.size, -1, np.int32)
    known = {code: v for v, code in enumerate(versions)}
    served[number[on[::-1]]] = [known.get(code, -1) for code in rows.series[on[::-1]].tolist()]  # of the one on top
    return Book(
        auctions=auctions,
        versions=versions,
        served=served,
        pairs=keys.size,
        pair=pair[on],
        request=number[on],
        position=position[on].astype(np.int64),
        clicked=label[on],
        skipped=skipped,
    )


_NO_SHADOW = Shadow(np.zeros(0, np.int64), np.empty(0, np.int32), np.empty(0))


def _scores(rows: Impressions, on: NDArray[np.int64]) -> tuple[tuple[int, ...], NDArray[np.float64]]:
    """(series codes, scores of some rows float64[series, on], NaN: none)."""
    shadow = _NO_SHADOW if rows.shadow is None else rows.shadow
    many = max(rows.series.max(initial=-1), shadow.series.max(initial=-1)) + 1
    number = np.full(many, -1, np.int64)  # by code
    _number_series(shadow, rows.series, rows.pclick, on, number)
    codes = np.flatnonzero(number >= 0)
    number[codes] = np.arange(codes.size)
    score = np.full((codes.size, on.size), np.nan)
    _write_scores(shadow, rows.series, rows.pclick, on, number, score)
    return tuple(codes.tolist()), score


@numba.njit(cache=True, nogil=True)
def _number_series(
    shadow: Shadow,
    own: NDArray[np.int32],
    p: NDArray[np.float64],
    on: NDArray[np.int64],
    number: NDArray[np.int64],
) -> None:
    """Makes 0 of what has scored any of the rows."""
    indptr, series, _ = shadow
    for row in on:
        if not np.isnan(p[row]):
            number[own[row]] = 0
        if indptr.size:
            for k in range(indptr[row], indptr[row + 1]):
                number[series[k]] = 0


@numba.njit(cache=True, nogil=True)
def _write_scores(
    shadow: Shadow,
    own: NDArray[np.int32],
    p: NDArray[np.float64],
    on: NDArray[np.int64],
    number: NDArray[np.int64],
    score: NDArray[np.float64],
) -> None:
    indptr, series, pclick = shadow
    for i in range(on.size):
        row = on[i]
        if indptr.size:
            for k in range(indptr[row], indptr[row + 1]):
                score[number[series[k]], i] = pclick[k]
        if not np.isnan(p[row]):
            score[number[own[row]], i] = p[row]
