"""Requests: the impressions of one ranked list, which close together and then give one AUC.

A request's rows are chained backwards through the joiner's table (`previous`, distances), so a request costs 21 bytes
here and 4 per row there. It closes when the watermark is `request_gap` past its last impression's maturity; if an
impression arrives later, or a label is corrected later, the closed request's term is subtracted and the new one added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.join.policy import CLICKED
from streameval.join.rows import Table
from streameval.sketches.directory import mix

_NONE = np.int32(-1)


_COLUMNS = ("keys", "head", "last", "closed")


class _Entries(NamedTuple):
    """Requests by number, and an index of them (`places`, an open hash table whose size is a power of two)."""

    keys: NDArray[np.uint64]
    head: NDArray[np.int32]  # newest row
    last: NDArray[np.int64]  # time of the latest impression, ms
    closed: NDArray[np.bool_]
    places: NDArray[np.int32]

    @classmethod
    def empty(cls, capacity: int) -> _Entries:
        return cls(
            np.empty(capacity, np.uint64),
            np.empty(capacity, np.int32),
            np.empty(capacity, np.int64),
            np.zeros(capacity, np.bool_),
            np.full(1 << int(np.ceil(np.log2(capacity * 1.5))), _NONE, np.int32),
        )


@numba.njit(inline="always")
def _lookup(index: NDArray[np.int32], keys: NDArray[np.uint64], wanted: np.uint64) -> int:
    """Returns the place of `wanted` in the index, or where to insert it."""
    mask = np.uint64(index.size - 1)
    h = mix(wanted) & mask
    while index[h] != _NONE and keys[index[h]] != wanted:
        h = (h + np.uint64(1)) & mask
    return int(h)


@numba.njit(cache=True, nogil=True)
def _find(
    index: NDArray[np.int32], keys: NDArray[np.uint64], wanted: NDArray[np.uint64], out: NDArray[np.int32]
) -> None:
    for i in range(wanted.size):
        out[i] = index[_lookup(index, keys, wanted[i])] if wanted[i] != 0 else _NONE


@numba.njit(cache=True, nogil=True)
def _link(
    entries: _Entries,
    n: int,
    request: NDArray[np.uint64],
    ts: NDArray[np.int64],
    previous: NDArray[np.int32],
    rows: tuple[int, int],
    front: int,
) -> int:
    """Chains rows [start, end) of the joiner's table, whose rows from `front` on are live; returns the number of
    entries in use.
    """
    keys, head, last, closed, index = entries
    for row in range(rows[0], rows[1]):
        if request[row] == 0:
            continue
        h = _lookup(index, keys, request[row])
        e = index[h]
        if e == _NONE:
            e = np.int32(n)
            n += 1
            index[h] = e
            keys[e] = request[row]
            last[e] = ts[row]
        elif head[e] >= front:
            previous[row] = row - head[e]
        head[e] = row
        last[e] = max(last[e], ts[row])
        closed[e] = False
    return n


@numba.njit(cache=True, nogil=True)
def _members(
    entry: NDArray[np.int32],
    head: NDArray[np.int32],
    previous: NDArray[np.int32],
    state: NDArray[np.uint8],
    front: int,
    both: bool,
    rows: NDArray[np.int64],
    group: NDArray[np.int32],
) -> int:
    """Fills in rows of requests, each with the index of its request; with `both`, only of requests with both labels.

    Without `both`, only of requests all of whose rows are still in the table.
    """
    k = 0
    for g in range(entry.size):
        begin = k
        clicks = 0
        whole = False
        row = int(head[entry[g]])
        while row >= front:
            if k < rows.size:
                rows[k] = row
                group[k] = g
            k += 1
            clicks += int(state[row] & CLICKED)
            if previous[row] == 0:
                whole = True
                break
            row -= int(previous[row])
        if (clicks == 0 or clicks == k - begin) if both else not whole:
            k = begin
    return k


@numba.njit(cache=True, nogil=True)
def _reindex(index: NDArray[np.int32], keys: NDArray[np.uint64], n: int) -> None:
    for e in range(n):
        index[_lookup(index, keys, keys[e])] = e


def _pack(closing: Mapping[int, Sequence[NDArray[np.uint64]]]) -> dict[str, NDArray[np.generic]]:
    """Returns closing times as columns."""
    buckets = sorted(closing)
    keys = [np.concatenate(closing[bucket]) for bucket in buckets]
    return {
        "bucket": np.array(buckets, np.int64),
        "length": np.array([part.size for part in keys], np.int64),
        "keys": np.concatenate([np.empty(0, np.uint64), *keys]),
    }


class Requests:
    """The open and the closed requests whose rows are still in the joiner's table."""

    def __init__(self, close_after: int, bucket: int) -> None:
        """`close_after`: attribution window + request gap, ms; `bucket`: resolution of closing times, ms."""
        self._close_after = close_after
        self._bucket = bucket
        self._n = 0
        self._entries = _Entries.empty(256)
        self._closing: dict[int, list[NDArray[np.uint64]]] = {}
        self._next_bucket: int | None = None

    def __len__(self) -> int:
        return self._n

    @property
    def nbytes(self) -> int:
        """Size of the tables in bytes."""
        own = sum(column.nbytes for column in self._entries)
        return own + sum(part.nbytes for parts in self._closing.values() for part in parts)

    def closed(self, request: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Returns the entries of the requests that are closed, each once."""
        found = np.empty(request.size, np.int32)
        _find(self._entries.places, self._entries.keys, request, found)
        found = np.unique(found[found >= 0])
        return found[self._entries.closed[found]]

    def link(self, table: Table, rows: NDArray[np.int64], front: int) -> None:
        """Chains new rows (consecutive) to their requests, which are open from now on."""
        if not rows.size or not table.request[rows[0] : rows[-1] + 1].any():
            return
        self._reserve(rows.size, front)
        start, end = int(rows[0]), int(rows[-1]) + 1
        self._n = _link(self._entries, self._n, table.request, table.ts, table.previous, (start, end), front)
        request, when = table.request[start:end], (table.ts[start:end] + self._close_after) // self._bucket + 1
        for bucket in np.unique(when).tolist():
            named = request[(when == bucket) & (request != 0)]
            self._closing.setdefault(bucket, []).append(np.unique(named))
            if self._next_bucket is None or bucket < self._next_bucket:
                self._next_bucket = bucket

    def close(self, watermark: int) -> NDArray[np.int32]:
        """Returns the entries that close now, and marks them as closed."""
        upto = watermark // self._bucket
        if self._next_bucket is None or self._next_bucket > upto:
            return np.empty(0, np.int32)
        due = [bucket for bucket in self._closing if bucket <= upto]
        named = np.unique(np.concatenate([part for bucket in due for part in self._closing.pop(bucket)]))
        self._next_bucket = min(self._closing, default=None)
        found = np.empty(named.size, np.int32)
        _find(self._entries.places, self._entries.keys, named, found)
        found = found[found >= 0]
        # by the bucket of the last impression, not by its time, so that the times of earlier calls do not matter
        due_at = (self._entries.last[found] + self._close_after) // self._bucket + 1
        found = found[~self._entries.closed[found] & (due_at <= upto)]
        self._entries.closed[found] = True
        return found

    def members(
        self, entry: NDArray[np.int32], table: Table, front: int, both: bool = True
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Returns (rows, index in `entry` of each row's request); with `both`, only requests with both labels, without
        it only those all of whose rows are still in the table.
        """
        guess = 64 * max(1, entry.size) if entry.size < 1000 else 16 * entry.size
        while True:
            rows, group = np.empty(guess, np.int64), np.empty(guess, np.int32)
            k = _members(entry, self._entries.head, table.previous, table.state, front, both, rows, group)
            if k <= guess:
                return rows[:k], group[:k]
            guess = k

    def state(self, front: int, base: int) -> dict[str, Any]:
        """Returns everything about requests with rows from `front` on, for `restore`; row numbers count from `base`."""
        keep = np.flatnonzero(self._entries.head[: self._n] >= front)
        closing = {bucket: tuple(parts) for bucket, parts in self._closing.items()}
        return {
            "keys": self._entries.keys[keep],
            "head": self._entries.head[keep] - np.int32(base),
            "last": self._entries.last[keep],
            "closed": self._entries.closed[keep],
            "closing": partial(_pack, closing),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned, into a table without requests."""
        n = len(state["keys"])
        self._reserve(n, 0)
        self._n = n
        for name in _COLUMNS:
            getattr(self._entries, name)[:n] = state[name]
        self._entries.places[:] = _NONE
        _reindex(self._entries.places, self._entries.keys, self._n)
        closing = state["closing"]
        ends = np.cumsum(closing["length"])
        for bucket, start, end in zip(closing["bucket"].tolist(), ends - closing["length"], ends, strict=True):
            self._closing[bucket] = [closing["keys"][start:end].copy()]
        self._next_bucket = min(self._closing, default=None)

    def shift(self, by: int) -> None:
        """Handles a renumbering of the joiner's rows, all smaller by `by`; drops requests whose newest row is gone."""
        self._entries.head[: self._n] -= np.int32(by)
        self._keep(np.flatnonzero(self._entries.head[: self._n] >= 0))

    def _reserve(self, rows: int, front: int) -> None:
        if self._n + rows <= self._entries.keys.size:
            return
        self._keep(np.flatnonzero(self._entries.head[: self._n] >= front))
        if self._n + rows > self._entries.keys.size:
            old, self._entries = self._entries, _Entries.empty(max(self._n + rows, self._n + self._n // 2))
            for name in _COLUMNS:
                getattr(self._entries, name)[: self._n] = getattr(old, name)[: self._n]
            _reindex(self._entries.places, self._entries.keys, self._n)

    def _keep(self, keep: NDArray[np.int64]) -> None:
        if keep.size == self._n:
            return
        for name in _COLUMNS:
            column = getattr(self._entries, name)
            column[: keep.size] = column[keep]
        self._n = keep.size
        self._entries.places[:] = _NONE
        _reindex(self._entries.places, self._entries.keys, self._n)
