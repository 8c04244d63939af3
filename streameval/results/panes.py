"""The metrics of every complete pane, in memory as far back as panes are kept: what /api/v1/series serves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from streameval.counting.scoreboard import Scoreboard
from streameval.counting.slice_rows import SliceRows
from streameval.events.batch import Catalog, Series
from streameval.metrics.registry import means_over_users, names, with_stderr
from streameval.metrics.view import NOT_KEPT_FOR_RANGES, Ranked, View
from streameval.results.lines import number_names, numbers
from streameval.results.snapshot import PaneColumns, PaneSketches
from streameval.sketches.layout import Options, has_result
from streameval.sketches.sparse import SparseVector

AT_ONCE = 512  # panes that are evaluated in one update
MOST_HELD = 4_096  # older panes that stay for sinks: a backlog of low traffic passes by faster than they are written
_MOST_GONE = 10_000  # of which it is known that they have left memory


class PaneHistory:
    """Every series' metrics by pane; a pane is evaluated when it completes, and again when a late click changes it."""

    def __init__(self, catalog: Catalog, slice_rows: SliceRows, options: Options, pane: int) -> None:
        self._catalog = catalog
        self._slice_rows = slice_rows
        self._options = options
        self._sketches: PaneSketches | None = None
        self._layout = options.overall
        self._pane = pane
        self.lacking: Callable[[], int | None] = lambda: None  # ms: sinks lack what begins then or later; None: nothing
        self.gone: tuple[int, ...] = ()  # ms: the newest that left memory while some sink lacked them
        self._waiting: set[int] = set()  # complete panes that are still to be evaluated
        # pane -> series -> ((n, clicks, corrected, metrics, standard errors, their degrees of freedom), reasons)
        self._done: dict[int, dict[int, tuple[NDArray[np.float64], Mapping[str, str]]]] = {}
        self._reasons: dict[frozenset[tuple[str, str]], Mapping[str, str]] = {}  # most panes have the same
        self._columns: dict[Series, PaneColumns] = {}

    def update(self, boards: Sequence[Scoreboard], end: int, keep: int) -> dict[Series, PaneColumns]:
        """Brings the panes before `end` up to date and forgets those before `keep`, but up to `MOST_HELD` that sinks lack.

        The newest `AT_ONCE` first, the others at the next updates: where panes come faster than that, old ones may
        leave memory before their turn, and are never evaluated.
        """
        for board in boards:
            self._waiting |= board.overall.take_changed(end)
        since, begins = keep, self.lacking()
        if begins is not None:  # what is not evaluated yet they lack, too
            since = min([keep, begins // self._pane, *(self._waiting - self._done.keys())])
            keep = max(since, keep - MOST_HELD)
        gone = {pane for pane in (*self._waiting, *self._done) if pane < keep}
        self._waiting -= gone
        if lost := [pane * self._pane for pane in sorted(gone) if pane >= since]:
            self.gone = (*self.gone, *lost)[-_MOST_GONE:]
        changed = sorted(self._waiting)[-AT_ONCE:]
        self._waiting.difference_update(changed)
        stale = gone & self._done.keys()
        for pane in stale:
            del self._done[pane]
        for pane in changed:
            self._done[pane] = self._evaluate(boards, pane)
        if changed or stale:
            self._columns = self._collect()
            self._sketches = None
        return self._columns

    @property
    def waiting_from(self) -> int | None:
        """When the oldest pane begins (ms) that was never evaluated; None: there is none."""
        never = self._waiting - self._done.keys()
        return min(never) * self._pane if never else None

    def needed_from(self, keep: int) -> int:
        """The first pane that scoreboards must keep: those that sinks lack are still to be evaluated."""
        return keep if self.lacking() is None else min([keep, *self._waiting])

    def sketches(self, boards: Sequence[Scoreboard]) -> PaneSketches:
        """The vectors of the panes that `update` brought up to date."""
        if self._sketches is None:
            # arrays that the panes hold anyway and nobody changes any more: nothing is copied
            overall = {pane: tuple(board.overall.get(pane) for board in boards) for pane in self._done}
            slices = {pane: tuple(board.slices.get(pane) for board in boards) for pane in self._done}
            rows = {
                (code, self._catalog.dimensions[dimension], self._catalog.values[dimension][value]): row
                for row, code, dimension, value in self._slice_rows.known()
            }
            series = tuple(self._catalog.series)
            self._sketches = PaneSketches(self._options, series, rows, overall, slices)
        return self._sketches

    def _evaluate(
        self, boards: Sequence[Scoreboard], pane: int
    ) -> dict[int, tuple[NDArray[np.float64], Mapping[str, str]]]:
        whole = SparseVector.sum([board.overall.get(pane) for board in boards])
        out: dict[int, tuple[NDArray[np.float64], Mapping[str, str]]] = {}
        size = self._layout.size
        for code in np.unique(whole.cells // size).tolist():
            low, high = np.searchsorted(whole.cells, (code * size, (code + 1) * size))
            row = np.zeros(size, np.int64)
            row[whole.cells[low:high] - code * size] = whole.values[low:high]
            if not has_result(row, self._layout):
                continue
            parts = [board.users.pane_ranked(code, pane) for board in boards]
            known = [part for part in parts if part is not None]
            ranked = Ranked.sum(known) if len(known) == len(parts) else NOT_KEPT_FOR_RANGES
            view = View.of(row, self._layout, ranked)
            counts = (view.moments.impressions, view.moments.clicks, view.moments.corrected)
            found, reasons = numbers(view)
            reasons = self._reasons.setdefault(frozenset(reasons.items()), reasons)
            out[code] = np.concatenate((counts, found)), reasons
        return out

    def _collect(self) -> dict[Series, PaneColumns]:
        columns: dict[Series, PaneColumns] = {}
        panes = sorted(self._done)
        for code, series in enumerate(self._catalog.series):
            rows = [(pane, self._done[pane][code]) for pane in panes if code in self._done[pane]]
            if not rows:
                continue
            table = np.stack([row for _, (row, _) in rows])
            start = np.array([pane for pane, _ in rows], np.int64) * self._pane
            counts = table[:, :3].astype(np.int64)
            found = {name: table[:, 3 + i].copy() for i, name in enumerate(number_names(self._options))}
            for array in (start, *found.values()):
                array.flags.writeable = False
            metrics = {name: found[name] for name in names(self._options)}
            stderrs = {name: found[f"{name}_stderr"] for name in with_stderr(self._options)}
            columns[series] = PaneColumns(
                start,
                counts[:, 0],
                counts[:, 1],
                counts[:, 2],
                metrics=metrics,
                reasons=[reasons for _, (_, reasons) in rows],
                stderrs=stderrs,
                df=found["df"],
                gauc_df=found["gauc_df"],
                user_dfs={name: found[f"{name}_df"] for name in means_over_users(self._options)},
            )
        return columns
