"""When an online model has learned enough to be evaluated: after the first window of time in which it did not improve.

A window lasts `compare.learning_window`, and longer until each partition's model has had `LABELS` more labels, so by
the start of the next window the model has learned from at least that many. The measure of how good the model is in a
window is its log loss less that of the version that serves, on the same impressions, because both vary with day and
hour. The model is learning until this is no lower in a window than in the one before, against the same version: the one
that served most. The estimates are compared as they are: a model that no longer improves finishes at the second or
third window, one that improves does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from streameval.compare.evidence.paired import effective
from streameval.compare.evidence.ratio import Ints
from streameval.compare.tracking.sums import RowName
from streameval.events.batch import Series
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import BLOCKS, PAIR_CELLS

LABELS = 2_000  # labels in a window, per partition

_Sums = dict[Series, list[int]]  # by server: impressions, and log loss less the server's, in fixed point


class Learning:
    """The learning progress of one online model."""

    def __init__(self, window: int, begun: int) -> None:
        """`window` in ms; `begun`: event time in ms at which it began to score."""
        self.over = False
        self._window, self._begun = window, begun
        self._now: _Sums = {}
        self._before: _Sums | None = None  # the previous window

    def add(self, served: Series, impressions: int, difference: int) -> None:
        """Adds labels of impressions that a version served; `difference` in nats, fixed point."""
        if not self.over:
            sums = self._now.setdefault(served, [0, 0])
            sums[0] += impressions
            sums[1] += difference

    def look(self, at: int, partitions: int) -> bool:
        """Called at the end of a pane, in ms. Returns whether learning has just finished."""
        least = LABELS * max(partitions, 1)
        if self.over or at - self._begun < self._window or sum(n for n, _ in self._now.values()) < least:
            return False
        self.over = self._before is not None and self._no_better(self._before, least // 2)
        self._begun, self._before, self._now = at, None if self.over else self._now, {}
        return self.over

    def state(self) -> dict[str, Any]:
        """Returns everything, as plain values."""
        return {
            "over": self.over,
            "begun": self._begun,
            "now": _plain(self._now),
            "before": None if self._before is None else _plain(self._before),
        }

    @classmethod
    def restore(cls, window: int, state: Mapping[str, Any]) -> Learning:
        """Restores what `state` returned."""
        out = cls(window, state["begun"])
        out.over, out._now = state["over"], _sums(state["now"])
        out._before = None if state["before"] is None else _sums(state["before"])
        return out

    def _no_better(self, before: _Sums, least: int) -> bool:
        """Whether the model did not improve against the version that served most, if both windows have enough of it."""
        served = max(self._now, key=lambda s: (self._now[s][0], s))
        n, difference = self._now[served]
        n_before, difference_before = before.get(served, [0, 0])
        return min(n, n_before) >= least and difference * n_before >= difference_before * n


class LearningModels:
    """The learning progress of every online model."""

    def __init__(self, window: int) -> None:
        """`window`: see `Learning`."""
        self._window = window
        self._models: dict[Series, Learning] = {}

    def of(self, series: Series, begun: int) -> Learning:
        """Returns the progress of a model, which is created if it is not known; `begun`: see `Learning`."""
        return self._models.setdefault(series, Learning(self._window, begun))

    def add(self, gains: Iterable[tuple[int, Mapping[RowName, Ints]]], begun: int, weighed: bool) -> None:
        """Adds the rows of a look; a model that is new began to score at `begun`, in ms."""
        for _, rows in gains:
            for (served, other), row in rows.items():
                if other is not None and other.source == "online":
                    self.of(other, begun).add(served, *labels_of(row, weighed))

    def is_over(self, series: Series) -> bool:
        """Whether a series is an online model that has learned enough."""
        return series in self._models and self._models[series].over

    def look(self, at: int, partitions: int) -> set[Series]:
        """Called at the end of a pane, in ms. Returns the models whose learning has just finished."""
        return {series for series, one in self._models.items() if one.look(at, partitions)}

    def forget(self, which: Callable[[Series], bool]) -> None:
        """Forgets models, which are learning from the next label on."""
        self._models = {series: one for series, one in self._models.items() if not which(series)}

    def state(self) -> list[list[Any]]:
        """Returns everything, as plain values."""
        return [[*series, one.state()] for series, one in self._models.items()]

    def restore(self, state: Sequence[Sequence[Any]]) -> None:
        """Replaces the current progress with what `state` returned."""
        self._models = {Series(*names): Learning.restore(self._window, one) for *names, one in state}


def labels_of(row: Ints, weighed: bool) -> tuple[int, int]:
    """Returns (labels, difference in fixed point) of a pair's row for `Learning.add`.

    Weighted impressions count as their effective number of labels.
    """
    sums = row[: BLOCKS * PAIR_CELLS].reshape(BLOCKS, PAIR_CELLS).sum(axis=0)
    n, difference = int(sums[cells.PAIR_N]), int(sums[cells.D])
    if not weighed or n <= 0:
        return n, difference
    scalars = row[BLOCKS * PAIR_CELLS :][: cells.PAIR_SCALARS]
    excess = scalars[cells.PAIR_CLICKS_EXCESS] + scalars[cells.PAIR_OTHERS_EXCESS]
    labels = int(effective(np.asarray(n), excess))
    return labels, round(difference * labels / n)


def _plain(sums: _Sums) -> list[list[Any]]:
    return [[*series, *of] for series, of in sorted(sums.items(), key=lambda item: item[0])]


def _sums(plain: list[list[Any]]) -> _Sums:
    return {Series(*names): [n, difference] for *names, n, difference in plain}
