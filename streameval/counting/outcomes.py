"""Propensities by outcome, where the log has none: naive Bayes from mature labels and a slice that was shown at random.

The table of an hour is computed from the labels that were mature, on time, before the first one of that hour, so that
it depends only on the partition's events; it is kept until the hour's labels can no longer change, because a label that
changes gets another propensity.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streameval.counting.estimates import Maturing
from streameval.events.batch import Impressions
from streameval.events.durations import HOUR
from streameval.exposure.naive_bayes import by_outcome

_LEAST = 10  # labels of each kind, in either sample, needed for a table
_NEVER = -(1 << 62)
_UNKNOWN = np.full(2, np.nan)


class RandomSlice(NamedTuple):
    """The slice whose impressions were shown at random: `value` is its code in dimension number `dimension`."""

    dimension: int
    value: int
    radix: int

    def holds(self, slices: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Returns which combined slice values belong to it, see `Catalog.combine`."""
        return np.asarray(slices // self.radix**self.dimension % self.radix == self.value)


class OutcomePropensities:
    """The tables of one partition: P(shown | label), up to a factor that makes the larger one 1."""

    def __init__(self, randomised: RandomSlice, horizon: int) -> None:
        """`horizon` of corrections in ms."""
        self._randomised = randomised
        self._keep = -(-horizon // HOUR) + 1  # hours
        self._now = _NEVER  # the hour being counted
        self._counts = np.zeros((2, 2), np.int64)  # labels on time: [chosen, shown at random][label]
        self._from: list[int] = [_NEVER]  # first hour of each table
        self._tables: list[NDArray[np.float64]] = [_UNKNOWN]

    def of(self, rows: Maturing) -> NDArray[np.float64]:
        """Returns the propensity of every impression; NaN if not known, or if it was shown at random. Counts the fresh
        ones.
        """
        out = np.full(rows.label.size, np.nan)
        at_random = self._randomised.holds(rows.slices)
        cuts = np.flatnonzero(np.diff(rows.hour, prepend=rows.hour[:1] - 1, append=rows.hour[-1:] + 1)).tolist()
        for start, end in pairwise(cuts):
            part, hour = slice(start, end), int(rows.hour[start])
            on_time = rows.fresh[part]
            if on_time.any():
                self._begin(hour)
            out[part] = np.where(at_random[part], np.nan, self._table_of(hour)[rows.label[part]])
            kind = 2 * at_random[part][on_time] + rows.due[part][on_time]
            self._counts += np.bincount(kind, minlength=4).reshape(2, 2)
        return out

    def relabelled(
        self, hour: NDArray[np.int64], label: NDArray[np.int8], given: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Returns the propensities that impressions had been given, by their new labels."""
        tables = {one: self._table_of(one) for one in np.unique(hour).tolist()}
        new = np.array([tables[one][of] for one, of in zip(hour.tolist(), label.tolist(), strict=True)], np.float64)
        return np.where(np.isnan(given), np.nan, new)

    def considered(self, candidates: Impressions) -> None:
        """Does nothing: what was not shown has no outcome."""

    def state(self) -> dict[str, Any]:
        """Returns everything, for `restore`."""
        tables = np.array(self._tables).reshape(-1, 2)
        return {"now": self._now, "counts": self._counts.copy(), "from": list(self._from), "tables": tables}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned."""
        self._now, self._counts = state["now"], state["counts"].copy()
        self._from, self._tables = list(state["from"]), list(state["tables"].reshape(-1, 2).copy())

    def _table_of(self, hour: int) -> NDArray[np.float64]:
        return self._tables[max(bisect_right(self._from, hour) - 1, 0)]

    def _begin(self, hour: int) -> None:
        if hour <= self._now:
            return
        self._now = hour
        table = _table(self._counts)
        if not np.array_equal(table, self._tables[-1], equal_nan=True):
            self._from.append(hour)
            self._tables.append(table)
        old = bisect_right(self._from, hour - self._keep) - 1
        del self._from[: max(old, 0)], self._tables[: max(old, 0)]


def _table(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Returns propensities by label. The total number of pairs is unknown, so it is chosen such that the larger
    propensity is 1.
    """
    if counts.min() < _LEAST:
        return _UNKNOWN
    shown, randomised = counts
    pairs = -(-shown * int(randomised.sum()) // randomised)
    return by_outcome(shown, randomised, int(pairs.max())).propensity
