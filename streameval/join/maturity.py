"""Which labels of a joiner's rows are mature, which are shown before that, and which are still pending."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from streameval.events.columns import index_of
from streameval.join.policy import MATURED, NEVER, SHOWN, JoinPolicy
from streameval.join.progress import Progress
from streameval.join.rows import Table
from streameval.join.runs import Runs


class Maturity:
    """Matures labels as the watermark advances; see the methods of `Joiner`."""

    def __init__(self, policy: JoinPolicy, runs: Runs, progress: Progress, counts: Counter[str]) -> None:
        """`counts`: where `matured` and `matured_early` are counted."""
        self._policy, self._runs, self._progress, self._counts = policy, runs, progress, counts
        self.mature = 0  # known rows with mature labels
        self.shown = 0  # other rows, whose label is shown

    def take_due(self, table: Table, watermark: int) -> NDArray[np.int64]:
        """See `Joiner.mature`."""
        rows = self._runs.take_due(watermark - self._policy.attribution_window, table.ts)
        if not rows.size:
            return rows
        at = index_of(rows)
        state = table.state[at].copy()
        table.state[at] |= MATURED
        shown = int(np.count_nonzero(state & SHOWN))
        self.mature += rows.size
        self.shown -= shown
        self._counts["matured"] += rows.size - shown
        self._progress.matured(state)
        return rows

    def show(self, table: Table, end: int) -> NDArray[np.int64]:
        """See `Joiner.show`; of rows before `end`."""
        progress, first = self._progress, self._runs.first_waiting
        if progress.watermark <= progress.firm or first is None:
            return np.empty(0, np.int64)
        waiting, limit = slice(first, end), progress.watermark - self._policy.attribution_window
        rows = np.flatnonzero((table.state[waiting] & (MATURED | SHOWN) == 0) & (table.ts[waiting] <= limit)) + first
        rows = rows[np.argsort(table.ts[rows], kind="stable")]
        table.state[rows] |= SHOWN
        self.shown += rows.size
        self._counts["matured"] += rows.size
        return rows

    def hide(self, table: Table, rows: NDArray[np.int64]) -> None:
        """See `Joiner.hide`."""
        table.state[rows] &= ~np.uint8(SHOWN)
        self.shown -= rows.size
        self._counts["matured"] -= rows.size

    def pressure_watermark(self, table: Table, rows: slice, known: int) -> int:
        """See `Joiner.pressure_watermark`; `rows`: the range of pending rows; `known`: the number of known rows."""
        surplus = known - self.mature - self._policy.max_pending
        if surplus <= 0:
            return NEVER
        pending = np.flatnonzero(table.state[rows] & MATURED == 0) + rows.start
        self._counts["matured_early"] += surplus
        return int(np.partition(table.ts[pending], surplus - 1)[surplus - 1]) + self._policy.attribution_window

    def restore(self, mature: int, waiting: NDArray[np.uint8]) -> None:
        """`mature`: the number of mature rows; `waiting`: the states of the others."""
        self.mature, self.shown = mature, int(np.count_nonzero(waiting & SHOWN))
