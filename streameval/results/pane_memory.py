"""Lines of the panes in memory, for a monitor without a history: the same sums, the same bounds.

Panes are sums by partition and row, so a step is the sum of its panes. The users behind GAUC are not held by pane here.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streameval.events.batch import Series
from streameval.metrics.metric import Metric, OfTally, OfView
from streameval.metrics.registry import by_name
from streameval.metrics.view import NOT_KEPT_FOR_RANGES, NOT_KEPT_FOR_SLICES, Undefined, View
from streameval.results.lines import (
    MAX_ROWS,
    Interval,
    Line,
    NotKept,
    Point,
    QuestionSlots,
    Slice,
    Steps,
    TooMuch,
    error_of,
    make_point,
    whole_steps,
)
from streameval.results.snapshot import PaneSketches, Snapshot
from streameval.sketches.layout import IMPRESSIONS, Layout
from streameval.sketches.sparse import SparseVector

NEEDS_HISTORY = Undefined("needs_store_path")  # why there is no GAUC


@dataclass(frozen=True, slots=True)
class _Row:
    """One series' row in the vectors of many."""

    number: int
    layout: Layout

    def impressions(self, vector: SparseVector) -> int:
        at = np.searchsorted(vector.cells, self.number * self.layout.size + IMPRESSIONS)
        found = at < vector.cells.size and vector.cells[at] == self.number * self.layout.size + IMPRESSIONS
        return int(vector.values[at]) if found else 0

    def summed(self, vectors: Sequence[SparseVector]) -> NDArray[np.int64]:
        dense = np.zeros(self.layout.size, np.int64)
        begin = self.number * self.layout.size
        for vector in vectors:
            low, high = np.searchsorted(vector.cells, (begin, begin + self.layout.size))
            dense[vector.cells[low:high] - begin] += vector.values[low:high]
        return dense


class PaneMemory:
    """The panes of one snapshot. Thread-safe."""

    def __init__(self, snapshot: Snapshot, turns: QuestionSlots, max_rows: int = MAX_ROWS) -> None:
        """`turns`: of everybody who asks about panes in memory."""
        self.pane = snapshot.pane
        self._panes = snapshot.panes
        self._kept = snapshot.sketches
        self._turns = turns
        self._max_rows = max_rows

    def series_names(self) -> list[Series]:
        """Every series with panes."""
        return list(self._panes)

    def slice_names(self) -> dict[str, set[str]]:
        """The values of every dimension with panes. Raises NotKept."""
        values: defaultdict[str, set[str]] = defaultdict(set)
        for _, dimension, value in self._sketches().slice_rows:
            values[dimension].add(value)
        return values

    def starts(self, series: Series) -> list[int]:
        """Where its panes begin, ms."""
        found: list[int] = self._panes[series].start.tolist()
        return found

    def series(
        self, metric: str, series: Sequence[Series], start: int | None, end: int | None, limit: int
    ) -> dict[Series, Line]:
        """See `PaneSource.series`; the panes that begin from `start` to `end`."""
        out = {}
        for one in series:
            columns = self._panes[one]
            first = 0 if start is None else int(np.searchsorted(columns.start, start, "left"))
            last = len(columns.start) if end is None else int(np.searchsorted(columns.start, end, "right"))
            kept = max(first, last - limit)
            out[one] = Line(tuple(self._points(one, metric, slice(kept, last))), kept > first)
        return out

    def steps(
        self,
        metric: str,
        series: Sequence[Series],
        start: int | None,
        end: int | None,
        step: int | None = None,
        where: Slice = None,
        limit: int = 2000,
    ) -> dict[Series, Line]:
        """See `PaneSource.steps`. Raises TooMuch, Busy, NotKept."""
        with self._turns.one():
            return self._steps(metric, series, whole_steps(start, end, step), step, where, limit)

    # -- inside --------------------------------------------------------------------------------------------------

    def _sketches(self) -> PaneSketches:
        if self._kept is None:
            raise NotKept("step, slice: no panes are kept to merge; set store.path and restart")
        return self._kept

    def _points(self, series: Series, metric: str, rows: slice) -> list[Point]:
        row, columns = by_name(metric), self._panes[series]
        nothing = np.full(len(columns.start), math.nan)
        df_of = columns.user_dfs.get(metric, columns.gauc_df if row.of_users else columns.df)
        number, bound = (columns.metrics.get(name, nothing) for name in (metric, row.bound))
        stderr, df = columns.stderrs.get(metric, nothing), nothing if df_of is None else df_of
        counts = (columns.impressions, columns.clicks, columns.corrected)
        picked = (columns.start, number, *counts, bound, stderr, df)
        points = []
        for start, number, n, clicks, corrected, bound, stderr, df in zip(
            *(column[rows].tolist() for column in picked), strict=True
        ):
            value = number if math.isfinite(number) else None
            known = value is not None and math.isfinite(stderr)
            points.append(
                Point(
                    start=start,
                    length=self.pane,
                    value=value,
                    reason=_reason(row, n, clicks) if value is None else None,
                    impressions=n,
                    clicks=clicks,
                    corrected=corrected,
                    error=error_of(row, value, bound if math.isfinite(bound) else None, None),
                    stderr=stderr if known else None,
                    stderr_df=_df(row, df) if known else None,
                )
            )
        return points

    def _steps(
        self,
        metric: str,
        series: Sequence[Series],
        ends: tuple[int | None, int | None],
        step: int | None,
        where: Slice,
        limit: int,
    ) -> dict[Series, Line]:
        kept, pane = self._sketches(), self.pane
        overall = kept.options.overall
        layout = overall if where is None else kept.options.slice
        held = kept.overall if where is None else kept.slices
        first, last = ends
        low, high = (-(1 << 62) if first is None else first), (1 << 62 if last is None else last)
        panes = [n for n in sorted(held) if low <= n * pane <= high]
        steps = Steps(((n * pane, (n + 1) * pane) for n in panes), step)
        rows = 0
        chosen = []
        for name in series:
            code = kept.series.index(name) if name in kept.series else -1
            row = _Row(code if where is None else kept.slice_rows.get((code, *where), -1), layout)
            if code < 0 or row.number < 0:
                continue
            mine: defaultdict[Interval, list[int]] = defaultdict(list)
            for number in panes:
                if any(row.impressions(vector) for vector in held[number]):
                    mine[steps.of(number * pane)].append(number)
            newest = sorted(mine)[-limit:]
            rows += sum(len(held[number]) for at in newest for number in mine[at]) * (1 if where is None else 2)
            chosen.append((name, row, _Row(code, overall), [(at, mine[at]) for at in newest], len(mine) > len(newest)))
        if rows > self._max_rows:
            raise TooMuch(
                f"the range holds {rows} rows, a query may read {self._max_rows}; ask for a shorter one, or name one model and version"
            )
        return {
            name: Line(tuple(self._step(metric, where, row, whole, *one) for one in parts), truncated)
            for name, row, whole, parts, truncated in chosen
            if parts
        }

    def _step(self, metric: str, where: Slice, row: _Row, whole: _Row, at: Interval, panes: list[int]) -> Point:
        kept = self._sketches()
        if where is None:
            dense = row.summed([v for n in panes for v in kept.overall[n]])
            return make_point(at, metric, View.of(dense, row.layout, NEEDS_HISTORY))
        dense = row.summed([v for n in panes for v in kept.slices[n]])
        of_all = whole.summed(
            [v for n in range(at[0] // self.pane, at[1] // self.pane) for v in kept.overall.get(n, ())]
        )
        view = View.of(dense, row.layout, NOT_KEPT_FOR_SLICES)
        return make_point(at, metric, view, whole=View.of(of_all, whole.layout, NEEDS_HISTORY))


def _df(metric: Metric, df: float) -> float | None:
    found = df if math.isfinite(df) else None
    return found if metric.of_users else metric.df(found)


def _reason(metric: Metric, impressions: int, clicks: int) -> str:
    if impressions == 0:
        return "no_impressions"
    if clicks == 0:
        return "no_clicks"
    if isinstance(metric.influence, OfTally):
        return "no_request"
    if isinstance(metric.influence, OfView):
        return NOT_KEPT_FOR_RANGES.reason
    return "no_non_clicks" if clicks == impressions else "no_eligible_group"
