"""Steps and slices of the panes in memory, for a monitor without a history: the same sums, the same bounds.

Panes are sums by partition and row, so a step is the sum of its panes. The users behind GAUC are not held by pane here.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streameval.counting.scoreboard import OVERALL_BITS, SLICE_BITS
from streameval.events import Series
from streameval.metrics.view import Ranked
from streameval.report import PaneSketches
from streameval.sketches.layout import IMPRESSIONS, Layout
from streameval.sketches.sparse import SparseVector
from streameval.store.history_reader import AT_A_TIME, MAX_ROWS, WAIT_SECONDS, Busy, Slice, TooMuch
from streameval.store.history_steps import Interval, Line, Point, Steps, make_point, read_view, whole_steps

NEEDS_HISTORY = "needs_store_path"  # why there is no GAUC
_NOBODY = Ranked(0, 0, 0, 0)


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
    """Answers questions about the panes of a snapshot. Thread-safe."""

    def __init__(self, max_rows: int = MAX_ROWS) -> None:
        self._max_rows = max_rows
        self._free = threading.BoundedSemaphore(AT_A_TIME)

    def steps(
        self,
        sketches: PaneSketches,
        metric: str,
        series: Sequence[Series],
        start: int | None,
        end: int | None,
        step: int | None = None,
        where: Slice = None,
        limit: int = 2000,
    ) -> dict[Series, Line]:
        """See `HistoryReader.steps`. Raises TooMuch, Busy."""
        if not self._free.acquire(timeout=WAIT_SECONDS):
            raise Busy(f"{AT_A_TIME} questions about the past are being answered; ask again in a moment")
        try:
            return self._steps(sketches, metric, series, start, end, step, where, limit)
        finally:
            self._free.release()

    def _steps(
        self, sketches: PaneSketches, metric: str, series: Sequence[Series], start: int | None, end: int | None,
        step: int | None, where: Slice, limit: int,
    ) -> dict[Series, Line]:  # fmt: skip
        overall = Layout(OVERALL_BITS, sketches.edges, by_block=True)
        layout = overall if where is None else Layout(SLICE_BITS, sketches.edges)
        held = sketches.overall if where is None else sketches.slices
        first, last = whole_steps(start, end, step)
        low, high = (-(1 << 62) if first is None else first), (1 << 62 if last is None else last)
        panes = [n for n in sorted(held) if low <= n * sketches.pane <= high]
        steps = Steps(((n * sketches.pane, (n + 1) * sketches.pane) for n in panes), step)
        rows = 0
        chosen = []
        for name in series:
            code = sketches.series.index(name) if name in sketches.series else -1
            row = _Row(code if where is None else sketches.slice_rows.get((code, *where), -1), layout)
            if code < 0 or row.number < 0:
                continue
            mine: defaultdict[Interval, list[int]] = defaultdict(list)
            for number in panes:
                if any(row.impressions(vector) for vector in held[number]):
                    mine[steps.of(number * sketches.pane)].append(number)
            kept = sorted(mine)[-limit:]
            rows += sum(len(held[number]) for at in kept for number in mine[at]) * (1 if where is None else 2)
            chosen.append((name, row, _Row(code, overall), [(at, mine[at]) for at in kept], len(mine) > len(kept)))
        if rows > self._max_rows:
            raise TooMuch(
                f"the range holds {rows} rows, a question may read {self._max_rows}; ask for a shorter one, or name one "
                "model and version"
            )
        return {
            name: Line(tuple(self._point(sketches, metric, where, row, whole, *one) for one in parts), truncated)
            for name, row, whole, parts, truncated in chosen
            if parts
        }

    @staticmethod
    def _point(
        sketches: PaneSketches, metric: str, where: Slice, row: _Row, whole: _Row, at: Interval, panes: list[int]
    ) -> Point:
        if where is None:
            dense = row.summed([v for n in panes for v in sketches.overall[n]])
            return make_point(at, metric, read_view(dense, row.layout, _NOBODY), not_kept=NEEDS_HISTORY)
        dense = row.summed([v for n in panes for v in sketches.slices[n]])
        of_all = whole.summed([v for n in range(at[0] // sketches.pane, at[1] // sketches.pane)
                               for v in sketches.overall.get(n, ())])  # fmt: skip
        view = read_view(dense, row.layout, None)
        return make_point(at, metric, view, whole=read_view(of_all, whole.layout, None))
