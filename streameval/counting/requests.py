"""Requests: the impressions of one ranked list, which close together and then give one AUC.

A request has one `request_id`, lasts for a limited span of event time, its *life*, and has at most `MOST_IMPRESSIONS` impressions. The
impression beyond that begins the next request of the same id: otherwise a session's id, or a placeholder, would be a list
without end whose first impressions are forgotten before the last arrive. Which impressions belong together is a function of
their log, and all of a request's rows are in the joiner's table while any of them can change.

A request's rows are chained backwards through the joiner's table (`previous`, distances), so a request costs 31 bytes
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

from streameval.join.rows import Table
from streameval.sketches.directory import mix

MOST_IMPRESSIONS = 10_000  # impressions of a request; the next one begins another
_NONE = np.int32(-1)
_COLUMNS = ("keys", "head", "last", "span", "size", "latest", "closed")


class _Entries(NamedTuple):
    """Requests by number, and an index of them (`places`, an open hash table whose size is a power of two)."""

    keys: NDArray[np.uint64]  # the id, or for the id's second and later requests one derived from it
    head: NDArray[np.int32]  # newest row
    last: NDArray[np.int64]  # time of the latest impression, ms
    span: NDArray[np.uint32]  # ms back to the earliest
    size: NDArray[np.uint16]  # impressions
    latest: NDArray[np.int32]  # of an id's first request: its latest one; of others: themselves
    closed: NDArray[np.bool_]
    places: NDArray[np.int32]

    @classmethod
    def empty(cls, capacity: int) -> _Entries:
        return cls(
            np.empty(capacity, np.uint64),
            np.full(capacity, _NONE),
            np.empty(capacity, np.int64),
            np.empty(capacity, np.uint32),
            np.empty(capacity, np.uint16),
            np.empty(capacity, np.int32),
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
def _tell_apart(
    entries: _Entries, n: int, request: NDArray[np.uint64], ts: NDArray[np.int64], life: int, entry: NDArray[np.int32]
) -> int:
    """Finds the requests of impressions in the order of their log; returns the number of entries in use.

    `request` has ids, and then the requests' keys; `entry` gets their entries, -1 without a request.
    """
    keys, head, last, span, size, latest, closed, index = entries
    for i in range(request.size):
        entry[i] = _NONE
        if request[i] == 0:
            continue
        t = ts[i]
        h = _lookup(index, keys, request[i])
        e = index[h]
        if e != _NONE:
            first, e = e, latest[e]
            request[i] = keys[e]
            if max(last[e], t) - min(last[e] - np.int64(span[e]), t) > life or size[e] >= MOST_IMPRESSIONS:
                request[i] = max(mix(keys[e] ^ mix(np.uint64(t))), np.uint64(1))
                h = _lookup(index, keys, request[i])
                e = index[h]
                latest[first] = e if e != _NONE else n
        if e == _NONE:
            e = np.int32(n)
            n += 1
            index[h] = e
            keys[e], head[e], last[e], span[e], size[e], latest[e], closed[e] = request[i], _NONE, t, 0, 0, e, False
        earliest = min(last[e] - np.int64(span[e]), t)
        last[e] = max(last[e], t)
        span[e] = last[e] - earliest
        size[e] += 1
        entry[i] = e
    return n


@numba.njit(cache=True, nogil=True)
def _link(entries: _Entries, entry: NDArray[np.int32], previous: NDArray[np.int32], start: int, front: int) -> None:
    """Chains rows from `start` on to their requests; rows of the joiner's table from `front` on are live."""
    head, closed = entries.head, entries.closed
    for i in range(entry.size):
        e, row = entry[i], start + i
        if e != _NONE:
            if head[e] >= front:
                previous[row] = row - head[e]
            head[e] = row
            closed[e] = False


@numba.njit(cache=True, nogil=True)
def _members(
    entry: NDArray[np.int32],
    head: NDArray[np.int32],
    previous: NDArray[np.int32],
    front: int,
    rows: NDArray[np.int64],
    group: NDArray[np.int32],
) -> int:
    """Fills in rows of requests, each with the index of its request; only of requests all of whose rows are still in the
    table.
    """
    k = 0
    for g in range(entry.size):
        begin = k
        whole = False
        row = int(head[entry[g]])
        while row >= front:
            if k < rows.size:
                rows[k] = row
                group[k] = g
            k += 1
            if previous[row] == 0:
                whole = True
                break
            row -= int(previous[row])
        if not whole:
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

    def __init__(self, close_after: int, bucket: int, life: int) -> None:
        """In ms: `close_after`: attribution window + request gap; `bucket`: resolution of closing times; `life`: how far
        apart impressions of one request may be.
        """
        self._close_after = close_after
        self._bucket = bucket
        self._life = life
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
        """Returns the entries of the requests with these keys that are closed, each once."""
        found = np.empty(request.size, np.int32)
        _find(self._entries.places, self._entries.keys, request, found)
        return self.closed_of(found)

    def closed_of(self, entry: NDArray[np.int32]) -> NDArray[np.int32]:
        """Returns those of some entries that are closed, each once; -1: no entry."""
        known = entry[entry >= 0]
        found = np.unique(known) if known.size else known
        return found[self._entries.closed[found]]

    def find(self, table: Table, rows: NDArray[np.int64], front: int) -> NDArray[np.int32]:
        """Returns the entries of new rows (consecutive), -1 without a request, and writes the requests' keys to the table."""
        some = slice(int(rows[0]), int(rows[-1]) + 1) if rows.size else slice(0)
        entry = np.full(rows.size, _NONE)
        if table.request[some].any():
            self._reserve(rows.size, front)
            self._n = _tell_apart(self._entries, self._n, table.request[some], table.ts[some], self._life, entry)
        return entry

    def link(self, table: Table, rows: NDArray[np.int64], entry: NDArray[np.int32], front: int) -> None:
        """Chains new rows to their requests, which `find` returned, and which are open from now on."""
        if not (entry != _NONE).any():
            return
        _link(self._entries, entry, table.previous, int(rows[0]), front)
        # by the latest impression, which need not be one of these: one that was closed early, while an input was silent,
        # would never close again
        some = np.unique(entry[entry != _NONE])
        when = (self._entries.last[some] + self._close_after) // self._bucket + 1
        for bucket in np.unique(when).tolist():
            self._closing.setdefault(bucket, []).append(self._entries.keys[some[when == bucket]])
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

    def newest(self, entry: NDArray[np.int32]) -> NDArray[np.int64]:
        """Returns the newest row of the request of each entry; -1: it is no longer known."""
        return self._entries.head[entry].astype(np.int64)

    def members(
        self, entry: NDArray[np.int32], table: Table, front: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Returns (rows, index in `entry` of each row's request); only requests all of whose rows are still in the table."""
        guess = 64 * max(1, entry.size) if entry.size < 1000 else 16 * entry.size
        while True:
            rows, group = np.empty(guess, np.int64), np.empty(guess, np.int32)
            k = _members(entry, self._entries.head, table.previous, front, rows, group)
            if k <= guess:
                return rows[:k], group[:k]
            guess = k

    def state(self, front: int, base: int) -> dict[str, Any]:
        """Returns everything about requests with rows from `front` on, for `restore`; row numbers count from `base`."""
        keep = self._with_rows(front)
        closing = {bucket: tuple(parts) for bucket, parts in self._closing.items()}
        return {
            "keys": self._entries.keys[keep],
            "head": np.maximum(self._entries.head[keep] - np.int32(base), _NONE),
            "last": self._entries.last[keep],
            "span": self._entries.span[keep],
            "size": self._entries.size[keep],
            "latest": np.searchsorted(keep, self._entries.latest[keep]).astype(np.int32),
            "closed": self._entries.closed[keep],
            "closing": partial(_pack, closing),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned, into a table without requests."""
        n = len(state["keys"])
        self._reserve(n, 0)
        self._n = n
        alone = {"span": 0, "size": 1, "latest": np.arange(n)}  # missing from older checkpoints: an id was one request
        for name in _COLUMNS:
            getattr(self._entries, name)[:n] = state.get(name, alone.get(name))
        self._entries.places[:] = _NONE
        _reindex(self._entries.places, self._entries.keys, self._n)
        closing = state["closing"]
        ends = np.cumsum(closing["length"])
        for bucket, start, end in zip(closing["bucket"].tolist(), ends - closing["length"], ends, strict=True):
            self._closing[bucket] = [closing["keys"][start:end].copy()]
        self._next_bucket = min(self._closing, default=None)

    def shift(self, by: int) -> None:
        """Handles a renumbering of the joiner's rows, all smaller by `by`; drops requests whose newest row is gone."""
        head = self._entries.head[: self._n]
        np.maximum(head - np.int32(by), _NONE, out=head)
        self._keep(self._with_rows(0))

    def _with_rows(self, front: int) -> NDArray[np.int64]:
        """The entries with rows from `front` on, and those of the ids whose latest request has one."""
        n = self._n
        return np.flatnonzero(self._entries.head[self._entries.latest[:n]] >= front)

    def _reserve(self, rows: int, front: int) -> None:
        if self._n + rows <= self._entries.keys.size:
            return
        self._keep(self._with_rows(front))
        if self._n + rows > self._entries.keys.size:
            old, self._entries = self._entries, _Entries.empty(max(self._n + rows, self._n + self._n // 2))
            for name in _COLUMNS:
                getattr(self._entries, name)[: self._n] = getattr(old, name)[: self._n]
            _reindex(self._entries.places, self._entries.keys, self._n)

    def _keep(self, keep: NDArray[np.int64]) -> None:
        if keep.size == self._n:
            return
        self._entries.latest[: self._n] = np.searchsorted(keep, self._entries.latest[: self._n])
        for name in _COLUMNS:
            column = getattr(self._entries, name)
            column[: keep.size] = column[keep]
        self._n = keep.size
        self._entries.places[:] = _NONE
        _reindex(self._entries.places, self._entries.keys, self._n)
