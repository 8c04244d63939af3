"""The requests of a log with all their candidates and labels: from batches as they were read, and labels as they were
joined.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.auction.arrange import Arranged, auctions_of, in_order, pair_keys
from streameval.auction.rerun import Auctions
from streameval.events.batch import NO_IMPRESSIONS, Batch, Impressions
from streameval.events.columns import concat_impressions, field_of, take_impressions

_UNKNOWN = -1  # label


@dataclass(frozen=True, slots=True)
class Book:
    """The requests that can be replayed, by id, and what was shown in them: entry e of the columns from `pair` on."""

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
    """Everything that was read, and the current value of every label."""

    def __init__(self) -> None:
        self._shown: list[Impressions] = []
        self._others: list[Impressions] = []
        self._labels: list[tuple[NDArray[np.uint64], NDArray[np.int8]]] = []

    def take(self, batch: Batch) -> None:
        """Adds a batch as it was read."""
        for some, parts in ((batch.impressions, self._shown), (batch.candidates, self._others)):
            if len(some):
                parts.append(replace(some, features=None, names=None, policies=None))

    def label(self, ids: NDArray[np.uint64], labels: NDArray[np.int8]) -> None:
        """Adds labels that became known, or changed: 0 or 1 by id of impression."""
        self._labels.append((ids, labels))

    def book(self, slots: int) -> Book:
        """Returns everything by request; `slots`: number of positions. It does not depend on the order of the log."""
        parts = [*self._shown, *self._others]
        shown = np.arange(sum(map(len, parts))) < sum(map(len, self._shown))
        rows = concat_impressions(parts or [NO_IMPRESSIONS])
        known, number = np.unique(rows.request, return_inverse=True)
        nowhere = rows.request == 0
        skipped = np.unique(rows.id[nowhere & shown]).size + int(np.count_nonzero(nowhere & ~shown))
        number = np.where(nowhere, -1, number)  # they are no request together
        position = field_of(rows, "position")
        on, position, _ = in_order(number, rows.id, rows.item, position, int(np.count_nonzero(shown)), known.size)
        rows, was_shown = take_impressions(rows, on, on.astype(np.int32)), shown[on]
        label = np.where(was_shown, self._labels_of(rows.id), np.int8(_UNKNOWN))
        return _booked(rows, was_shown, position, label, slots, skipped)

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


def query_of(rows: Impressions) -> NDArray[np.uint64]:
    """Returns the queries, uint64[n]; 0: the empty one."""
    return np.zeros(len(rows), np.uint64) if rows.query is None else rows.query


def unfit(
    request: NDArray[np.uint64],
    item: NDArray[np.uint64],
    bid: NDArray[np.float64],
    position: NDArray[np.float64],
    slots: int,
) -> dict[str, NDArray[np.bool_]]:
    """Returns which rows make their request impossible to replay, bool[n] by reason; `position`: as in `arranged`."""
    return {
        "no_request": request == 0,
        "no_item": item == 0,
        "no_bid": np.isnan(bid),
        "no_position": position < 0,
        "position_beyond_slots": np.isfinite(position) & (position >= slots),
    }


@numba.njit(cache=True)
def all_fit(
    indptr: NDArray[np.int64],
    item: NDArray[np.uint64],
    bid: NDArray[np.float64],
    position: NDArray[np.float64],
    slots: int,
) -> bool:
    """Whether no row of some requests is `unfit`, and every request has any."""
    bad = 0
    for r in range(indptr.size - 1):
        bad += indptr[r] == indptr[r + 1]
    for i in range(item.size):
        at = position[i]
        bad += (item[i] == 0) | np.isnan(bid[i]) | (at < 0.0) | ((at >= slots) & (at < np.inf))
    return bad == 0


def left_out(
    number: NDArray[np.int64], wrong: dict[str, NDArray[np.bool_]]
) -> tuple[NDArray[np.bool_], dict[str, int]]:
    """Returns (requests to leave out, bool by number; their number by reason, where the first one counts); `number`: by
    row.
    """
    gone = np.zeros(number.max(initial=-1) + 1, bool)
    counts = {}
    for reason, rows in wrong.items():
        hit = np.zeros(gone.size, bool)
        hit[number[rows]] = True
        counts[reason] = int(np.count_nonzero(hit & ~gone))
        gone |= hit
    return gone, counts


def _booked(
    rows: Impressions,
    shown: NDArray[np.bool_],
    position: NDArray[np.float64],
    label: NDArray[np.int8],
    slots: int,
    nowhere: int,
) -> Book:
    bid = field_of(rows, "bid")
    wrong = {**unfit(rows.request, rows.item, bid, position, slots), "no_label": shown & (label == _UNKNOWN)}
    number = np.unique(rows.request, return_inverse=True)[1].astype(np.int64)
    gone, skipped = left_out(number, wrong)
    skipped["no_request"] = nowhere  # of how many requests is not known
    kept = np.flatnonzero(~gone[number])
    rows, shown, position, label = (
        take_impressions(rows, kept, kept.astype(np.int32)),
        shown[kept],
        position[kept],
        label[kept],
    )
    keys, inverse = np.unique(pair_keys(query_of(rows), rows.item), return_inverse=True)
    pair = inverse.astype(np.int32)
    indptr = np.append(np.flatnonzero(np.diff(rows.request, prepend=~rows.request[:1])), kept.size)
    stand = Arranged.of(np.arange(kept.size), indptr, kept.size)
    auctions, versions, _ = auctions_of([rows], stand, bid[kept], pair, position, rows.item)
    number = stand.request
    on = np.flatnonzero(shown)
    top = indptr[:-1].copy()  # of each request: where nothing was shown, any candidate has the version that chose so
    top[number[on[::-1]]] = on[::-1]
    known = {code: v for v, code in enumerate(versions.tolist())}
    served = np.array([known.get(code, -1) for code in rows.series[top].tolist()], np.int32)
    return Book(
        auctions=auctions,
        versions=tuple(versions.tolist()),
        served=served,
        pairs=keys.size,
        pair=pair[on],
        request=number[on],
        position=position[on].astype(np.int64),
        clicked=label[on],
        skipped=skipped,
    )
