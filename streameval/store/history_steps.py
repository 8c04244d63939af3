"""Points of a line: parts put into steps, and a metric of what each step's vectors add up to.

Steps are aligned to the epoch. A part is never cut: one that crosses a step's boundary, or is longer than a step, makes
its steps one point.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streameval.metrics import ranking
from streameval.metrics.errors import standard_errors
from streameval.metrics.registry import METRICS
from streameval.metrics.view import Ranked, Undefined, View
from streameval.report import WITH_STDERR
from streameval.sketches.layout import Layout, Moments, read_blocks, read_buckets, read_histogram
from streameval.store.history_points import OF_USERS

OF_SCORES = ("auc", "auc_error")
_FUNCTIONS = {metric.name: metric.function for metric in METRICS}

Interval = tuple[int, int]  # [start, end) ms


@dataclass(frozen=True, slots=True)
class Point:
    """A metric of one series in one pane, hour, day or step. `value` None: undefined, `reason` says why."""

    start: int  # ms
    length: int  # ms
    value: float | None
    reason: str | None
    impressions: int
    clicks: int
    corrected: int
    error: float | None  # auc: half-width of the certain interval; gauc: standard error, 0 if exact
    stderr: float | None = None  # of `value`, users drawn anew; None: unknown
    stderr_df: float | None = None  # its degrees of freedom; None: between impressions


@dataclass(frozen=True, slots=True)
class Line:
    """The points of one series, oldest first; `truncated`: older ones were left out."""

    points: tuple[Point, ...]
    truncated: bool


class Steps:
    """Disjoint intervals, oldest first, that cut none of the parts; `step` (ms) None: the parts themselves."""

    def __init__(self, parts: Iterable[Interval], step: int | None) -> None:
        self.intervals: list[Interval] = []
        for start, end in sorted(parts):
            low, high = (start, end) if step is None else (start // step * step, -(-end // step) * step)
            if self.intervals and low < self.intervals[-1][1]:
                before = self.intervals.pop()
                low, high = before[0], max(before[1], high)
            self.intervals.append((low, high))
        self._starts = [start for start, _ in self.intervals]

    def of(self, start: int) -> Interval:
        """The one in which a part that begins at `start` lies."""
        return self.intervals[bisect_right(self._starts, start) - 1]


def whole_steps(start: int | None, end: int | None, step: int | None) -> tuple[int | None, int | None]:
    """The first and last start of panes (ms), moved so that no step is cut."""
    if step is None:
        return start, end
    return (
        None if start is None else start // step * step,
        None if end is None else end // step * step + step - 1,
    )


def read_view(dense: NDArray[np.int64], layout: Layout, ranked: Ranked | None) -> View:
    """What the metrics look at, of a vector; one that ends before its blocks and histogram will do for sums."""
    negatives, positives = read_histogram(dense, layout)
    blocks = read_blocks(dense, layout) if layout.by_block and dense.size == layout.size else None
    return View(Moments.read(dense), read_buckets(dense, layout), negatives, positives, ranked, None, blocks)


def make_point(
    where: Interval,
    metric: str,
    view: View,
    *,
    not_kept: str | None = None,
    sampling_error: float | None = None,
    whole: View | None = None,
) -> Point:
    """One metric of one view. `not_kept`: why there is no GAUC; `whole`: of a slice, for its errors."""
    found = _FUNCTIONS[metric](view)
    if metric in OF_USERS and not_kept is not None:
        found = Undefined(not_kept)
    value, reason = (None, found.reason) if isinstance(found, Undefined) else (float(found), None)
    error = None
    if metric == "auc" and value is not None:
        certified = ranking.auc_error(view)
        error = None if isinstance(certified, Undefined) else certified
    elif metric == "gauc" and value is not None:
        error = sampling_error or 0.0
    m = view.moments
    stderr = df = None
    if metric in WITH_STDERR and value is not None:
        # what has a value in a slice has one in the whole
        of_whole = None if whole is None else standard_errors(whole, _needed(whole, metric, value))
        if view.blocks is not None or whole is not None or metric == "gauc":
            errors = standard_errors(view, _needed(view, metric, value), of_whole)
            stderr = errors.stderr.get(metric)
            df = None if stderr is None else errors.df_of(metric)
    start, end = where
    return Point(start, end - start, value, reason, m.impressions, m.clicks, m.corrected, error, stderr, df)


def _needed(view: View, metric: str, value: float) -> dict[str, float | int | None]:
    """The values without which there is no standard error of a metric: that of ECE is widened as the calibration's is."""
    m = view.moments
    return {metric: value, "calibration": m.pclick / m.clicks} if metric == "ece" and m.clicks else {metric: value}
