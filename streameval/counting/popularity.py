"""Propensities by how often items were shown: counts of labels that matured on time, as of the start of every hour.

A count costs 16 bytes. Up to `_MOST` are kept: beyond that, items are sampled by their id, and those left out have no
propensity. Items that were never shown before the hour have none either.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.counting.estimates import Maturing
from streameval.events.batch import Impressions
from streameval.exposure.popularity import propensities

_MOST = 1 << 20  # items
_AT_ONCE = 1 << 20  # impressions waiting to be counted
_NEVER = -(1 << 62)
_NO_IDS = np.empty(0, np.uint64)


def sampled(ids: NDArray[np.uint64], level: int) -> NDArray[np.bool_]:
    """Returns which ids, hashes, are in a sample of one in 2**level."""
    return np.ones(ids.size, np.bool_) if level == 0 else (ids >> np.uint64(64 - level)) == 0


def places_in(ids: NDArray[np.uint64], wanted: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Returns (the index of each wanted id in `ids`, ascending; whether it is there)."""
    at = np.minimum(np.searchsorted(ids, wanted), max(ids.size - 1, 0))
    return at, ids[at] == wanted if ids.size else np.zeros(wanted.size, np.bool_)


class ItemPopularity:
    """The counts of one partition."""

    def __init__(self) -> None:
        self._hour = _NEVER  # the hour of the table
        self._level = 0
        self._items, self._counts = _NO_IDS, np.empty(0, np.int64)
        self._waiting: list[NDArray[np.uint64]] = []
        self._table: tuple[NDArray[np.uint64], NDArray[np.float64]] = _NO_IDS, np.empty(0)

    def of(self, rows: Maturing) -> NDArray[np.float64]:
        """See `Propensities`."""
        out = np.full(rows.hour.size, np.nan)
        for hour, on in rows.fresh_hours():
            if hour > self._hour:
                self._hour = hour
                self._merge()
                self._table = self._items, propensities(self._counts)  # neither changes in place
            item = rows.item[on]
            at, known = places_in(self._table[0], item)
            out[on[known]] = self._table[1][at[known]]
            self._waiting.append(item)
            if sum(part.size for part in self._waiting) > _AT_ONCE:
                self._merge()
        return out

    def relabelled(
        self,
        hour: NDArray[np.int64],
        label: NDArray[np.int8],
        given: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Returns `given`: items are shown independently of the outcome."""
        return given

    def considered(self, candidates: Impressions) -> None:
        """Does nothing: what was not shown is not counted."""

    def state(self) -> dict[str, Any]:
        """Returns everything, for `restore`."""
        self._merge()
        return {
            "hour": self._hour,
            "level": self._level,
            "items": self._items,
            "counts": self._counts,
            "table_items": self._table[0],
            "table": self._table[1],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned."""
        self._hour, self._level = state["hour"], state["level"]
        self._items, self._counts = state["items"].copy(), state["counts"].copy()
        self._table = state["table_items"].copy(), state["table"].copy()

    def _merge(self) -> None:
        """Counts what is waiting. The level depends only on the items so far, not on when this is called."""
        if not self._waiting:
            return
        new, times = np.unique(np.concatenate(self._waiting), return_counts=True)
        self._waiting = []
        items, place = np.unique(np.concatenate((self._items, new)), return_inverse=True)
        counts = np.zeros(items.size, np.int64)
        np.add.at(counts, place, np.concatenate((self._counts, times)))
        keep = sampled(items, self._level)
        while np.count_nonzero(keep) > _MOST:
            self._level += 1
            keep = sampled(items, self._level)
        self._items, self._counts = items[keep], counts[keep]
