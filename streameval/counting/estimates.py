"""Estimated propensities, for logs without them: what all estimators have in common, and what rows of the joiner keep.

A label that matures on time gets a propensity, by what was known at the start of the hour of its impression: of labels
that matured on time before that hour's first one, and of candidates of the hours before it. That is a function of the
partition's own events, in any order within the lateness. The row keeps the number, so whatever is removed again later
is what was put in.
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
    """By which name rows keep the propensities of an estimator."""
    return f"{LOGGED}_{source}"


def estimated(source: str) -> Field:
    """What rows of the joiner keep of them; no event has it."""
    need = Need("exposure.propensity", source)
    name = field_of_estimate(source)
    return Field(name, "number", (IMPRESSION,), "estimated here", low=0.0, high=1.0, above=True, needs=(need,))


class Maturing(NamedTuple):
    """n impressions whose labels are final, in order of time."""

    hour: NDArray[np.int64]  # since the epoch, of their panes
    item: NDArray[np.uint64]  # 0: none
    user: NDArray[np.uint64]
    slices: NDArray[np.int64]
    label: NDArray[np.int8]
    # the label when it was due: without a click that came too late, even if it came in the same batch
    due: NDArray[np.int8]
    fresh: NDArray[np.bool_]  # on time

    def fresh_hours(self) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Those on time that have an item, by hour."""
        on = np.flatnonzero(self.fresh)
        hour = self.hour[on]
        cuts = np.flatnonzero(np.diff(hour, prepend=hour[:1] - 1, append=hour[-1:] + 1)).tolist()
        for start, end in pairwise(cuts):
            rows = on[start:end]
            yield int(hour[start]), rows[self.item[rows] != 0]


def hours_of(ts: NDArray[np.int64], pane: int) -> NDArray[np.int64]:
    """The hour that the pane of a time begins in; both in ms."""
    return ts // pane * pane // HOUR


class Propensities(Protocol):
    """One way to estimate them, for one partition."""

    def of(self, rows: Maturing) -> NDArray[np.float64]:
        """The propensity of every impression, float64[n] in (0, 1]; NaN: not known. Counts those that are on time."""

    def relabelled(
        self, hour: NDArray[np.int64], label: NDArray[np.int8], given: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """What `of` gave impressions whose labels have changed since, by their new labels."""
        return given  # where labels do not matter

    def considered(self, candidates: Impressions) -> None:
        """Candidates that were not shown, and are not late."""

    def state(self) -> dict[str, Any]:
        """Everything, for `restore`."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned."""
