"""When an online model has learned enough to be evaluated: after the first window of time in which it did not improve.

A window lasts `compare.learning_window`, and longer until `LABELS` more labels have come for each partition's model, so each
begins after the model has learned from at least so many since the one before began. How good the model is in it: its log loss
less that of the version that serves, on the same impressions, as days and hours move both. The model is learning until a
window in which that is no lower than in the one before, against the same version: the one that served most. Estimates
are compared as they are: a model that stands still leaves learning at the second window or the third, one that improves does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streameval.compare.evidence.paired import effective
from streameval.compare.evidence.ratio import Ints
from streameval.events.batch import Series
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import BLOCKS, PAIR_CELLS

LABELS = 2_000  # that a window has, of each partition

_Sums = dict[Series, list[int]]  # by who served: impressions, and log loss less that of who served, in fixed point


class Learning:
    """How far one online model has come."""

    def __init__(self, window: int, begun: int) -> None:
        """`window` in ms; `begun`: event time in ms from which it scores."""
        self.over = False
        self._window, self._begun = window, begun
        self._now: _Sums = {}
        self._before: _Sums | None = None  # the window before

    def gain(self, served: Series, impressions: int, difference: int) -> None:
        """Labels of impressions that a version served; `difference` in fixed point, nats."""
        if not self.over:
            sums = self._now.setdefault(served, [0, 0])
            sums[0] += impressions
            sums[1] += difference

    def look(self, at: int, partitions: int) -> bool:
        """At the end of a pane, in ms: whether learning is over from here on, and was not before."""
        least = LABELS * max(partitions, 1)
        if self.over or at - self._begun < self._window or sum(n for n, _ in self._now.values()) < least:
            return False
        self.over = self._before is not None and self._no_better(self._before, least // 2)
        self._begun, self._before, self._now = at, None if self.over else self._now, {}
        return self.over

    def state(self) -> dict[str, Any]:
        """Everything, as plain values."""
        return {
            "over": self.over,
            "begun": self._begun,
            "now": _plain(self._now),
            "before": None if self._before is None else _plain(self._before),
        }

    @classmethod
    def restore(cls, window: int, state: Mapping[str, Any]) -> Learning:
        """From what `state` returned."""
        out = cls(window, state["begun"])
        out.over, out._now = state["over"], _sums(state["now"])
        out._before = None if state["before"] is None else _sums(state["before"])
        return out

    def _no_better(self, before: _Sums, least: int) -> bool:
        """Against the version that served most, if enough is known of it in both windows."""
        served = max(self._now, key=lambda s: (self._now[s][0], s))
        n, difference = self._now[served]
        n_before, difference_before = before.get(served, [0, 0])
        return min(n, n_before) >= least and difference * n_before >= difference_before * n


class LearningModels:
    """How far every online model has come."""

    def __init__(self, window: int) -> None:
        """`window`: see `Learning`."""
        self._window = window
        self._models: dict[Series, Learning] = {}

    def of(self, series: Series, begun: int) -> Learning:
        """The one of a model, which is new if it is not known; `begun`: see `Learning`."""
        return self._models.setdefault(series, Learning(self._window, begun))

    def is_over(self, series: Series) -> bool:
        """Whether it is an online model that has learned enough."""
        return series in self._models and self._models[series].over

    def look(self, at: int, partitions: int) -> set[Series]:
        """At the end of a pane, in ms: the models whose learning is over from here on, and was not before."""
        return {series for series, one in self._models.items() if one.look(at, partitions)}

    def state(self) -> list[list[Any]]:
        """Everything, as plain values."""
        return [[*series, one.state()] for series, one in self._models.items()]

    def restore(self, state: Sequence[Sequence[Any]]) -> None:
        """Takes over what `state` returned, in place of what is here."""
        self._models = {Series(*names): Learning.restore(self._window, one) for *names, one in state}


def labels_of(row: Ints, sums: Ints, weighed: bool) -> tuple[int, int]:
    """(labels, difference in fixed point) of a pair's row, whose blocks `sums` has added up, for `Learning.gain`.

    Impressions that are weighed are as many labels as there is evidence of.
    """
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
