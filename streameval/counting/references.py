"""Placement curves, which turn the AUC into a sum over impressions, so that it has a variance by user.

The curves of a series are F0(s), the share of non-clicks that score below s, and S1(s), the share of clicks that score
above s (ties by half). With A = F0(s) for a click and B = S1(s) - AUC for a non-click, mean(A) + mean(B) is the AUC,
and what a user adds to the two sums is the user's contribution to the AUC (the structural components of DeLong et al.
1988; for clusters Obuchowski 1997). A pane's impressions are placed by curves from before it, whenever they are
counted, so sums only grow and can be retracted exactly. The error of a curve enters the estimate only in second order,
and B is centred, so sums with different curves (of other hours, of other partitions) add up.

A partition computes the curves of a series from its own labels, as they were when they matured on time, so they depend
only on its events: first, from a few hundred impressions on, they are those that the scores imply if they are
calibrated; then they come from labels; then, every hour, from the labels of the last day, because scores drift: with
the curves of the first hours, an AUC difference is off by more than its standard error within a day
(docs/detection.md).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.events.durations import HOUR
from streameval.sketches.accumulate import CURVE_BITS
from streameval.sketches.blocks import SCALE
from streameval.sketches.grid import bin_count, bin_edges

_DAY_HOURS = 24
_BINS = bin_count(CURVE_BITS)  # error of the AUC below 5e-5, of differences less (docs/metrics.md)
PROMISED = 256  # impressions from which the first curves are computed, as implied by the scores
# Labels of each kind needed for curves: the AUC of impressions placed by them is then off by 6e-4 and 4e-5, one
# standard deviation.
_ENOUGH = (100, 1_000)

_EDGES = bin_edges(CURVE_BITS)
_MIDDLE = (_EDGES[:-1] + _EDGES[1:]) / 2
_NEVER = -(1 << 62)
_Counts = NDArray[np.int64]  # [series, 2, BINS]: labels by bin


class Curves:
    """The curves that place a pane's impressions.

    `curve[s, 1]` is F0 and `curve[s, 0]` is S1 less the AUC, of series s by bin, in units of 1 / `blocks.SCALE`: the
    first index after the series is the label. They are 0 where `ready[s]` is not set.
    """

    def __init__(self, curve: NDArray[np.int32], ready: NDArray[np.bool_]) -> None:
        self.curve = curve
        self.ready = ready

    def grown(self, series: int) -> Curves:
        """Returns the curves with room for series 0 .. series - 1."""
        more = series - self.ready.size
        if more <= 0:
            return self
        return Curves(
            np.concatenate((self.curve, np.zeros((more, 2, _BINS), np.int32))),
            np.concatenate((self.ready, np.zeros(more, np.bool_))),
        )

    def copy(self) -> Curves:
        """Returns a copy that may be changed."""
        return Curves(self.curve.copy(), self.ready.copy())


class References:
    """The curves of one partition's series, by pane."""

    def __init__(self, pane: int, horizon: int) -> None:
        """`pane`, and `horizon` of corrections, in ms."""
        self._pane = pane
        self._keep = -(-horizon // pane) + 1  # panes whose curves are kept
        self._from: list[int] = [_NEVER]  # first pane of each set of curves
        self._curves: list[Curves] = [Curves(np.zeros((0, 2, _BINS), np.int32), np.zeros(0, np.bool_))]
        self._none = Curves(np.zeros((0, 2, _BINS), np.int32), np.zeros(0, np.bool_))
        self._now = _NEVER  # the pane being counted
        self.counting: _Counts = np.zeros((0, 2, _BINS), np.int64)  # its labels on time, for `add_scores` to add to
        self._total: _Counts = self.counting.copy()
        self._hours: dict[int, _Counts] = {}  # of the last day
        self._stage = np.zeros(0, np.int8)  # 0: no curves, 1: implied, 2: by `_ENOUGH[0]` labels, 3: by `_ENOUGH[1]`

    def reserve(self, series: int) -> None:
        """Makes room for series 0 .. series - 1."""
        more = series - self._stage.size
        if more > 0:
            self._stage = np.concatenate((self._stage, np.zeros(more, np.int8)))
            self.counting, self._total = _grown(self.counting, series), _grown(self._total, series)
            self._hours = {hour: _grown(counts, series) for hour, counts in self._hours.items()}
            self._curves = [curves.grown(series) for curves in self._curves]

    def begin(self, pane: int) -> None:
        """Begins counting labels on time of this pane; all labels of earlier panes have been counted."""
        if pane <= self._now:
            return
        before, self._now = self._now, pane
        if before == _NEVER:
            return
        self._total += self.counting
        hour, now = (number * self._pane // HOUR for number in (before, pane))
        if hour not in self._hours:
            self._hours[hour] = np.zeros_like(self._total)
        self._hours[hour] += self.counting
        self.counting[:] = 0
        made = self._made(hour < now, now)
        if made is not None:
            self._from.append(pane)
            self._curves.append(made)
        self._drop_old(pane)

    def alike(self, panes: Sequence[int], labels: NDArray[np.int64]) -> bool:
        """Whether panes, of which the first has begun, have the same curves however their labels are divided among them.

        `labels`: at most so many of each series, int64[series, 2]. Then they may be counted as one, and `reach` follows.
        """
        first, last = panes[0], panes[-1]
        if first * self._pane // HOUR != last * self._pane // HOUR:
            return False
        if bisect_right(self._from, first) != bisect_right(self._from, last):
            return False
        counted = (self._total + self.counting).sum(axis=2)
        counted[: len(labels)] += labels
        return not (_stages(counted) > self._stage).any()

    def reach(self, pane: int) -> None:
        """The panes up to this one are counted as one with the last that has begun."""
        if pane > self._now:
            self._now = pane
            self._drop_old(pane)

    def at(self, pane: int) -> Curves:
        """Returns the curves of a pane."""
        return self._curves[max(bisect_right(self._from, pane) - 1, 0)]

    @property
    def series(self) -> int:
        """Series that there is room for."""
        return self._stage.size

    @property
    def none(self) -> Curves:
        """Curves that place nothing."""
        if self._none.ready.size < self._stage.size:
            self._none = self._none.grown(self._stage.size)
        return self._none

    def clear(self, series: int) -> None:
        """Forgets a series."""
        if series < self._stage.size:
            self._stage[series] = 0
            for counts in (self.counting, self._total, *self._hours.values()):
                counts[series] = 0
            for curves in self._curves:
                curves.curve[series], curves.ready[series] = 0, False

    @property
    def nbytes(self) -> int:
        """Size of the curves and counts in bytes."""
        counts = sum(c.nbytes for c in (self.counting, self._total, *self._hours.values()))
        return counts + sum(curves.curve.nbytes for curves in self._curves)

    def state(self) -> dict[str, Any]:
        """Returns everything, for `restore`; series by their codes."""
        return {
            "now": self._now,
            "counting": self.counting.copy(),
            "total": self._total.copy(),
            "hours": [[hour, counts.copy()] for hour, counts in sorted(self._hours.items())],
            "stage": self._stage.copy(),
            "curves": [
                [first, curves.curve, curves.ready] for first, curves in zip(self._from, self._curves, strict=True)
            ],
        }

    def restore(self, state: Mapping[str, Any], codes: NDArray[np.int32]) -> None:
        """Restores what `state` returned. `codes[c]` is this process's code of series c."""
        n = len(state["stage"])
        place = codes[:n]
        self.reserve(int(place.max(initial=-1)) + 1)
        size = self._stage.size

        def moved(column: NDArray[Any]) -> NDArray[Any]:
            out = np.zeros((size, *column.shape[1:]), column.dtype)
            used = column.reshape(len(column), -1).any(axis=1) if len(column) else np.zeros(0, np.bool_)
            out[place[: len(column)][used]] = column[used]
            return out

        self._now = state["now"]
        self.counting, self._total = moved(state["counting"]), moved(state["total"])
        self._hours = {hour: moved(counts) for hour, counts in state["hours"]}
        self._stage = moved(state["stage"])
        self._from = [first for first, _, _ in state["curves"]]
        self._curves = [Curves(moved(curve), moved(ready)) for _, curve, ready in state["curves"]]

    def _drop_old(self, pane: int) -> None:
        old = bisect_right(self._from, pane - self._keep) - 1
        del self._from[: max(old, 0)], self._curves[: max(old, 0)]

    def _made(self, new_hour: bool, hour: int) -> Curves | None:
        """Returns new curves from now on; None if they stay the same."""
        stage = _stages(self._total.sum(axis=2))
        again = stage > self._stage
        day = self._total
        if new_hour:
            for old in [h for h in self._hours if h < hour - _DAY_HOURS]:
                del self._hours[old]
            day = sum(self._hours.values(), np.zeros_like(self._total))
            again |= (stage == 3) & (day.sum(axis=2).min(axis=1) >= _ENOUGH[1])
        if not again.any():
            return None
        self._stage = np.maximum(self._stage, stage).astype(np.int8)
        out = self._curves[-1].copy()
        for series in np.flatnonzero(again).tolist():
            counts = day[series] if day[series].sum(axis=1).min() >= _ENOUGH[1] else self._total[series]
            out.curve[series], out.ready[series] = _curve(counts, promised=bool(stage[series] == 1)), True
        return out


def _stages(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """What curves the labels of series are enough for, int64[series, 2]."""
    least, n = labels.min(axis=1), labels.sum(axis=1)
    return np.where(least >= _ENOUGH[1], 3, np.where(least >= _ENOUGH[0], 2, np.where(n >= PROMISED, 1, 0)))


def _curve(counts: NDArray[np.int64], promised: bool) -> NDArray[np.int32]:
    """Returns the curves of labels by bin, int64[2, BINS]; `promised`: as implied by the scores, whatever the
    labels.
    """
    no, yes = counts.astype(np.float64)
    if promised:
        both = no + yes
        no, yes = both * (1 - _MIDDLE), both * _MIDDLE
    others, clicks = max(no.sum(), 1e-300), max(yes.sum(), 1e-300)
    below = (np.cumsum(no) - no / 2) / others
    above = (clicks - np.cumsum(yes) + yes / 2) / clicks
    auc = float(below @ yes) / clicks
    out = np.empty((2, _BINS), np.int32)
    out[1], out[0] = np.rint(below * SCALE), np.rint((above - auc) * SCALE)
    return out


def _grown(counts: _Counts, series: int) -> _Counts:
    return np.concatenate((counts, np.zeros((series - len(counts), 2, _BINS), np.int64)))
