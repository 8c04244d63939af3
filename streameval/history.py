"""The metrics of every complete pane, in memory as far back as panes are kept: what /api/v1/series serves."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from streameval.counting.scoreboard import OVERALL_BITS, SliceRows
from streameval.events import Catalog, Series
from streameval.metrics.errors import standard_errors
from streameval.metrics.registry import METRICS, evaluate
from streameval.metrics.view import Ranked, View
from streameval.monitor import Monitor
from streameval.report import WITH_STDERR, PaneColumns, PaneSketches
from streameval.sketches.layout import Layout, Moments, read_blocks, read_buckets, read_histogram
from streameval.sketches.sparse import SparseVector

AT_ONCE = 512  # panes that are evaluated in one update


class PaneHistory:
    """Every series' metrics by pane; a pane is evaluated when it completes, and again when a late click changes it."""

    def __init__(self, catalog: Catalog, slice_rows: SliceRows, edges: tuple[float, ...], pane: int) -> None:
        self._catalog = catalog
        self._slice_rows = slice_rows
        self._edges = edges
        self._sketches: PaneSketches | None = None
        self._layout = Layout(OVERALL_BITS, edges, by_block=True)
        self._pane = pane
        self._names = [m.name for m in METRICS]
        self._waiting: set[int] = set()  # complete panes that are still to be evaluated
        # pane -> series -> (n, clicks, corrected, metrics, standard errors, their degrees of freedom)
        self._done: dict[int, dict[int, NDArray[np.float64]]] = {}
        self._columns: dict[Series, PaneColumns] = {}

    def update(self, monitors: Sequence[Monitor], end: int, keep: int) -> dict[Series, PaneColumns]:
        """Brings the panes before `end` up to date and forgets those before `keep`.

        The newest `AT_ONCE` first, the others at the next updates: where panes come faster than that, old ones may
        leave memory before their turn, and nobody pays for them.
        """
        for monitor in monitors:
            self._waiting |= {pane for pane in monitor.scoreboard.overall.changed if pane < end}
            monitor.scoreboard.overall.changed = {p for p in monitor.scoreboard.overall.changed if p >= end}
        self._waiting = {pane for pane in self._waiting if pane >= keep}
        changed = sorted(self._waiting)[-AT_ONCE:]
        self._waiting.difference_update(changed)
        stale = [pane for pane in self._done if pane < keep]
        for pane in stale:
            del self._done[pane]
        for pane in changed:
            self._done[pane] = self._evaluate(monitors, pane)
        if changed or stale:
            self._columns = self._collect()
            self._sketches = None
        return self._columns

    def sketches(self, monitors: Sequence[Monitor]) -> PaneSketches:
        """The vectors of the panes that `update` brought up to date."""
        if self._sketches is None:
            # arrays that the panes hold anyway and nobody changes any more: nothing is copied
            overall = {pane: tuple(m.scoreboard.overall.get(pane) for m in monitors) for pane in self._done}
            slices = {pane: tuple(m.scoreboard.slices.get(pane) for m in monitors) for pane in self._done}
            rows = {
                (code, self._catalog.dimensions[dimension], self._catalog.values[dimension][value]): row
                for row, code, dimension, value in self._slice_rows.known()
            }
            names = tuple(self._catalog.series)
            self._sketches = PaneSketches(self._pane, self._edges, names, rows, overall, slices)
        return self._sketches

    def _evaluate(self, monitors: Sequence[Monitor], pane: int) -> dict[int, NDArray[np.float64]]:
        whole = SparseVector.sum([m.scoreboard.overall.get(pane) for m in monitors])
        out: dict[int, NDArray[np.float64]] = {}
        size = self._layout.size
        for code in np.unique(whole.cells // size).tolist():
            low, high = np.searchsorted(whole.cells, (code * size, (code + 1) * size))
            row = np.zeros(size, np.int64)
            row[whole.cells[low:high] - code * size] = whole.values[low:high]
            moments = Moments.read(row)
            if not moments.impressions:
                continue
            negatives, positives = read_histogram(row, self._layout)
            ranked = _together([m.scoreboard.users.pane_ranked(code, pane) for m in monitors])
            view = View(
                moments, read_buckets(row, self._layout), negatives, positives, ranked, None,
                read_blocks(row, self._layout),
            )  # fmt: skip
            values, _ = evaluate(view)
            errors = standard_errors(view, values)
            numbers = [values[name] for name in self._names] + [errors.stderr.get(name) for name in WITH_STDERR]
            numbers += [errors.df, errors.gauc_df]
            counts = (moments.impressions, moments.clicks, moments.corrected)
            out[code] = np.array([*counts, *(math.nan if number is None else number for number in numbers)])
        return out

    def _collect(self) -> dict[Series, PaneColumns]:
        columns: dict[Series, PaneColumns] = {}
        panes = sorted(self._done)
        for code, series in enumerate(self._catalog.series):
            rows = [(pane, self._done[pane][code]) for pane in panes if code in self._done[pane]]
            if not rows:
                continue
            table = np.stack([row for _, row in rows])
            start = np.array([pane for pane, _ in rows], np.int64) * self._pane
            counts = table[:, :3].astype(np.int64)
            metrics = {name: table[:, 3 + i].copy() for i, name in enumerate(self._names)}
            behind = 3 + len(self._names)
            stderrs = {name: table[:, behind + i].copy() for i, name in enumerate(WITH_STDERR)}
            df, gauc_df = table[:, -2].copy(), table[:, -1].copy()
            for array in (start, *metrics.values(), *stderrs.values(), df, gauc_df):
                array.flags.writeable = False
            columns[series] = PaneColumns(
                start, counts[:, 0], counts[:, 1], counts[:, 2], metrics, stderrs, df, gauc_df
            )
        return columns


def _together(parts: Sequence[Ranked | None]) -> Ranked | None:
    """GAUC's terms over the partitions, whose users are disjoint; None when one cannot say."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    both, one, plain = (sum(part.squares[i] for part in known) for i in range(3))
    return Ranked(
        sum(part.weighted_auc for part in known),
        sum(part.weight for part in known),
        sum(part.users for part in known),
        sum(part.impressions for part in known),
        (both, one, plain),
    )
