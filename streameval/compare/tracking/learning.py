"""When an online model has learned enough to be evaluated: not before a window of time in which it became no better.

A window lasts `compare.learning_window`, and longer until `LABELS` more labels have come for each partition's model, so each
begins after the model has learned from at least so many since the one before began. How good the model is in it: its log loss
less that of the version that serves, on the same impressions, as days and hours move both. The model is learning until a
window in which that is no lower than in the one before, against the same version: the one that served most. Estimates
are compared as they are: a model that stands still leaves learning at the second window or the third, one that improves does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streameval.events.batch import Series

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


def _plain(sums: _Sums) -> list[list[Any]]:
    return [[*series, *of] for series, of in sorted(sums.items(), key=lambda item: item[0])]


def _sums(plain: list[list[Any]]) -> _Sums:
    return {Series(*names): [n, difference] for *names, n, difference in plain}
