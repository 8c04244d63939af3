"""Clicks whose impression has not arrived yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.events.fields import Field
from streameval.join.policy import FOREVER
from streameval.join.rows import split_fields
from streameval.sketches.directory import mix


class HeldColumns(NamedTuple):
    """Waiting clicks [0, end), with room for more."""

    id: NDArray[np.uint64]
    ts: NDArray[np.int64]
    key: NDArray[np.int64]  # see `kernel`
    fields: NDArray[np.float64]  # [fields, clicks]; NaN: absent
    taken: NDArray[np.bool_]  # its impression has arrived
    places: NDArray[np.int32]  # the index of ids
    end: int


@numba.njit(inline="always")
def enter_held(index: NDArray[np.int32], wanted: np.uint64, at: int) -> None:
    """Enters the held click `at` under its id; a place holds the click's position + 1, or 0 if it is free."""
    mask = np.uint64(index.size - 1)
    h = mix(wanted) & mask
    while index[h] != 0:
        h = (h + np.uint64(1)) & mask
    index[h] = at + 1


@numba.njit(cache=True, nogil=True)
def _enter_all(index: NDArray[np.int32], ids: NDArray[np.uint64], end: int) -> None:
    for at in range(end):
        enter_held(index, ids[at], at)


class HeldClicks:
    """Columns of clicks in order of arrival (with spare capacity), and an index of their ids."""

    def __init__(self, fields: Sequence[Field]) -> None:
        """`fields`: the fields of clicks that rows keep."""
        self._names = [field.name for field in fields]
        self.id = np.empty(256, np.uint64)
        self.ts = np.empty(256, np.int64)
        self.key = np.empty(256, np.int64)  # see `kernel`
        self.fields = np.empty((len(self._names), 256), np.float64)  # NaN: absent
        self.taken = np.zeros(256, np.bool_)  # its impression has arrived
        self.index = np.zeros(1024, np.int32)
        self.end = 0
        self._oldest = FOREVER

    @property
    def nbytes(self) -> int:
        """Bytes of the columns and the index."""
        return sum(a.nbytes for a in (self.id, self.ts, self.key, self.fields, self.taken, self.index))

    @property
    def columns(self) -> HeldColumns:
        """For kernels, which may append."""
        return HeldColumns(self.id, self.ts, self.key, self.fields, self.taken, self.index, self.end)

    def reserve(self, more: int, most: int) -> NDArray[np.int64]:
        """Makes room for `more` clicks. If there are more than `most`, the oldest are given up; returns their times."""
        if self.end + more <= self.id.size and (self.end + more) * 3 <= self.index.size * 2:
            return np.empty(0, np.int64)
        keep = np.flatnonzero(~self.taken[: self.end])
        surplus = max(keep.size - most, 0)
        gone = np.empty(0, np.int64)
        if surplus:
            by_time = keep[np.argsort(self.ts[keep], kind="stable")]
            gone, keep = self.ts[by_time[:surplus]], np.sort(by_time[surplus:])
        capacity = self.id.size
        while (keep.size + more) * 4 > capacity * 3:
            capacity *= 2
        for name in ("id", "ts", "key", "fields", "taken"):
            old = getattr(self, name)
            new = np.zeros((*old.shape[:-1], capacity), old.dtype)
            new[..., : self.end] = old[..., : self.end]
            setattr(self, name, new)
        self.index = np.zeros(max(2 * capacity, self.index.size), np.int32)
        self._keep(keep)
        return gone

    def grown_to(self, end: int) -> None:
        """The kernel has appended clicks up to `end`."""
        if end > self.end:
            self._oldest = min(self._oldest, int(self.ts[self.end : end].min()))
            self.end = end

    def expire(self, before: int, key: int = FOREVER) -> NDArray[np.int64]:
        """Gives up clicks with a time of at most `before` and a key less than `key`; returns the times of those that found
        no impression.
        """
        if self._oldest > before:
            return np.empty(0, np.int64)
        alive = ~self.taken[: self.end]
        gone = alive & (self.ts[: self.end] <= before) & (self.key[: self.end] < key)
        times = self.ts[: self.end][gone]
        self._keep(np.flatnonzero(alive & ~gone))
        return times

    def waiting_between(self, start: int, end: int) -> int:
        """How many clicks with a time in [start, end) still have no impression."""
        ts = self.ts[: self.end]
        return int(np.count_nonzero(~self.taken[: self.end] & (ts >= start) & (ts < end)))

    def state(self) -> dict[str, Any]:
        """Copies of the clicks that still wait, for `restore`."""
        keep = np.flatnonzero(~self.taken[: self.end])
        fields = dict(zip(self._names, self.fields[:, keep], strict=True))
        return {"id": self.id[keep], "ts": self.ts[keep], "key": self.key[keep], "fields": fields}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned, into a table without clicks."""
        n = len(state["id"])
        self.reserve(n, n)
        for name in ("id", "ts", "key"):
            getattr(self, name)[:n] = state[name]
        _, saved = split_fields(state)
        for number, name in enumerate(self._names):
            self.fields[number, :n] = saved.get(name, np.nan)
        self._keep(np.arange(n))

    def _keep(self, keep: NDArray[np.int64]) -> None:
        n = keep.size
        for column in (self.id, self.ts, self.key, *self.fields):
            column[:n] = column[keep]
        self.taken[:n] = False
        self.end = n
        self._oldest = int(self.ts[:n].min()) if n else FOREVER
        self.index[:] = 0
        _enter_all(self.index, self.id, n)
