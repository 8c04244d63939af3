"""Estimated propensities, for logs without them: what all estimators have in common, and what rows of the joiner keep.

A label that matures on time gets a propensity from what was known at the start of its impression's hour: labels that
matured on time before the first one of that hour, and candidates of the hours before it. So it depends only on the
partition's own events, in any order within the allowed lateness. The row keeps the number, so a later retraction
subtracts exactly what was added.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from streameval.events.batch import Impressions
from streameval.events.durations import HOUR
from streameval.events.fields import IMPRESSION, Field, Need

LOGGED = "propensity"  # the field of events


def field_of_estimate(source: str) -> str:
    """Returns the name under which rows keep an estimator's propensities."""
    return f"{LOGGED}_{source}"


def estimated(source: str) -> Field:
    """Returns the field that rows of the joiner keep for an estimator; no event has it."""
    need = Need("exposure.propensity", source)
    name = field_of_estimate(source)
    return Field(name, "number", (IMPRESSION,), "estimated here", low=0.0, high=1.0, above=True, needs=(need,))


class Maturing(NamedTuple):
    """n impressions whose labels are final, in time order."""

    hour: NDArray[np.int64]  # hours of their panes, since the epoch
    item: NDArray[np.uint64]  # 0: none
    user: NDArray[np.uint64]
    slices: NDArray[np.int64]
    label: NDArray[np.int8]
    fresh: NDArray[np.bool_]  # on time

    def fresh_hours(self) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Yields (hour, rows) of the impressions on time that have an item."""
        on = np.flatnonzero(self.fresh)
        hour = self.hour[on]
        cuts = np.flatnonzero(np.diff(hour, prepend=hour[:1] - 1, append=hour[-1:] + 1)).tolist()
        for start, end in pairwise(cuts):
            rows = on[start:end]
            yield int(hour[start]), rows[self.item[rows] != 0]


def hours_of(ts: NDArray[np.int64], pane: int) -> NDArray[np.int64]:
    """Returns the hour in which a time's pane begins; both in ms."""
    return ts // pane * pane // HOUR


class Propensities(Protocol):
    """An estimator of propensities, for one partition."""

    def of(self, rows: Maturing) -> NDArray[np.float64]:
        """Returns the propensity of every impression, float64[n] in (0, 1]; NaN if not known. Counts the impressions on
        time.
        """

    def relabelled(
        self, hour: NDArray[np.int64], label: NDArray[np.int8], given: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Returns the propensities by new labels, for impressions whose labels have changed since `of` returned
        `given`.
        """

    def considered(self, candidates: Impressions) -> None:
        """Adds candidates that were not shown, and are not late."""

    def state(self) -> dict[str, Any]:
        """Returns everything, for `restore`."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned."""
