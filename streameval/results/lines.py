"""Lines over time: panes are grouped into steps, and a metric is computed from the sum of each step's vectors; the
protocol of what answers queries for lines.

Steps are aligned to the epoch. A part (a pane, hour or day) is never cut: one that crosses a step's boundary, or is longer
than a step, makes its steps one point.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from streameval.events.batch import Series
from streameval.metrics.errors import standard_errors
from streameval.metrics.metric import Metric, OfImpressions
from streameval.metrics.registry import by_name, evaluate, means_over_users, names, with_stderr
from streameval.metrics.view import NOT_CONFIGURED, Undefined, View
from streameval.sketches.layout import Options

MAX_ROWS = 200_000  # vectors that one query may read
AT_A_TIME = 4
WAIT_SECONDS = 2.0

Interval = tuple[int, int]  # [start, end) ms
Slice = tuple[str, str] | None  # (dimension, value); None: overall


class TooMuch(ValueError):  # noqa: N818  (a question, not a defect)
    """The query would read too much; the message says what fits."""


class Busy(RuntimeError):  # noqa: N818  (a question, not a defect)
    """As many queries as allowed are running."""


class NotKept(LookupError):  # noqa: N818  (a question, not a defect)
    """What the query would sum is not kept; the message says why."""


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
    # half-width of the certified interval; of a mean over users the error of sampling them, 0 if exact
    error: float | None
    stderr: float | None = None  # of `value`, clustered by user; None: unknown
    stderr_df: float | None = None  # its degrees of freedom; None: between impressions


@dataclass(frozen=True, slots=True)
class Line:
    """The points of one series, oldest first; `truncated`: older ones were left out."""

    points: tuple[Point, ...]
    truncated: bool


class PaneSource(Protocol):
    """A source of panes, which answers queries for lines. Queries are bounded: raises TooMuch, Busy; NotKept, StoreError."""

    @property
    def pane(self) -> int:
        """Length of a pane, ms."""

    def series_names(self) -> list[Series]:
        """Every series with panes."""

    def slice_names(self) -> Mapping[str, set[str]]:
        """The values of every dimension with panes."""

    def series(
        self, metric: str, series: Sequence[Series], start: int | None, end: int | None, limit: int
    ) -> dict[Series, Line]:
        """A metric of whole series, a point for each pane (or hour, day) of the newest `limit` between two times (ms)."""

    def steps(
        self,
        metric: str,
        series: Sequence[Series],
        start: int | None,
        end: int | None,
        step: int | None,
        where: Slice,
        limit: int,
    ) -> dict[Series, Line]:
        """The same in a slice, or in steps of `step` ms from the epoch, each the exact sum of its panes."""


class QuestionSlots:
    """Lets `AT_A_TIME` queries run at a time."""

    def __init__(self) -> None:
        self._free = threading.BoundedSemaphore(AT_A_TIME)

    @contextmanager
    def one(self) -> Iterator[None]:
        """A turn. Raises Busy when none is free within `WAIT_SECONDS`."""
        if not self._free.acquire(timeout=WAIT_SECONDS):
            raise Busy(f"{AT_A_TIME} queries about the past are running; try again in a moment")
        try:
            yield
        finally:
            self._free.release()


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


def number_names(options: Options) -> list[str]:
    """The names of what `numbers` returns; `sampling` is the error due to sampling users."""
    own = [f"{name}_df" for name in means_over_users(options)]
    return [*names(options), *(f"{name}_stderr" for name in with_stderr(options)), "sampling", "df", "gauc_df", *own]


def numbers(view: View, sampling_error: float | None = None) -> tuple[NDArray[np.float64], Mapping[str, str]]:
    """Every metric of one view with its standard error, float64 by `number_names`, NaN: unknown; and why one is undefined."""
    values, reasons = evaluate(view)
    errors = standard_errors(view, values)
    stderrs = (errors.stderr.get(name) for name in with_stderr(view.options))
    own = (errors.user_dfs.get(name) for name in means_over_users(view.options))
    row = [*values.values(), *stderrs, sampling_error, errors.df, errors.gauc_df, *own]
    return np.array([math.nan if number is None else number for number in row]), reasons


class Stored(NamedTuple):
    """What is kept of one metric's `numbers`. NaN: undefined or unknown."""

    value: float
    bound: float
    sampling: float
    stderr: float
    df: float


def stored_point(
    where: Interval, metric: Metric, counts: tuple[int, int, int], stored: Stored, reason: str | None
) -> Point:
    """The point that `make_point` gave where it is not computed again. `counts`: impressions, clicks, corrected."""
    value, bound, sampling, stderr, df = (number if math.isfinite(number) else None for number in stored)
    (start, end), (impressions, clicks, corrected) = where, counts
    if value is None and reason is None:
        reason = NOT_CONFIGURED.reason  # of another K, or another average by user, than those that are computed
    if value is None or stderr is None:
        stderr = df = None
    elif not metric.of_users:
        df = metric.df(df)
    error = error_of(metric, value, bound, sampling)
    return Point(start, end - start, value, reason, impressions, clicks, corrected, error, stderr=stderr, stderr_df=df)


def make_point(
    where: Interval, metric: str, view: View, *, sampling_error: float | None = None, whole: View | None = None
) -> Point:
    """One metric of one view. `whole`: of a slice, for its errors."""
    row, m = by_name(metric), view.moments
    found = row.function(view)
    value, reason = (None, found.reason) if isinstance(found, Undefined) else (float(found), None)
    stderr = df = None
    if (
        row.influence is not None
        and value is not None
        and (view.blocks is not None or whole is not None or row.of_users)
    ):
        # what has a value in a slice has one in the whole
        of_whole = None if whole is None else standard_errors(whole, _needed(row, whole, value))
        errors = standard_errors(view, _needed(row, view, value), of_whole)
        stderr = errors.stderr.get(metric)
        df = None if stderr is None else errors.df_of(metric)
    bound = by_name(row.bound).function(view) if row.bound and value is not None else None
    error = error_of(row, value, None if isinstance(bound, Undefined) else bound, sampling_error)
    start, end = where
    return Point(
        start, end - start, value, reason, m.impressions, m.clicks, m.corrected, error, stderr=stderr, stderr_df=df
    )


def error_of(metric: Metric, value: float | None, bound: float | None, sampling_error: float | None) -> float | None:
    """A point's `error`: of rounding where that is certified, of sampling users where they may be sampled."""
    if value is None or not metric.of_users:
        return None if value is None or not metric.bound else bound
    if metric.name != "gauc" and sampling_error:
        return None  # it is that of GAUC's own weights
    return sampling_error or 0.0


def _needed(metric: Metric, view: View, value: float) -> dict[str, float | int | None]:
    """The values without which there is no standard error of a metric."""
    needed: dict[str, float | int | None] = {metric.name: value}
    if isinstance(metric.influence, OfImpressions):
        other = by_name(metric.influence.widened_as).function(view)
        needed |= {} if isinstance(other, Undefined) else {metric.influence.widened_as: other}
    return needed
