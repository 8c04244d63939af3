"""From the partitions' sketches to results: the one place where panes, windows and partitions are put together.

Partitions hold disjoint users, so their vectors and GAUC terms add up; the AUC of the whole is taken from the merged
scores. Windows end where every partition's labels are complete, on a pane's boundary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from streameval.counting.panestats import CORRECTED, MATURED, NEWEST, SEEN
from streameval.counting.scoreboard import OVERALL_BITS, SLICE_BITS, SliceRows
from streameval.events import Catalog, Series
from streameval.join.policy import FOREVER
from streameval.metrics.auc import ranked_auc
from streameval.metrics.errors import Errors, standard_errors
from streameval.metrics.registry import evaluate
from streameval.metrics.tables import fixed_buckets, quantile_buckets, score_counts
from streameval.metrics.view import Ranked, View
from streameval.monitor import Monitor
from streameval.report import Result, Totals
from streameval.sketches.layout import Layout, Moments, read_blocks, read_buckets, read_histogram
from streameval.sketches.ranks import SCALE
from streameval.units import format_duration

ALL = "all"


@dataclass(frozen=True, slots=True)
class Frame:
    """One window: its name, its index among the sliding ones (None: the whole run), and the panes [start, end)."""

    name: str
    index: int | None
    start: int
    end: int


class Evaluator:
    """Makes the results of all partitions of this process."""

    def __init__(
        self,
        catalog: Catalog,
        slice_rows: SliceRows,
        edges: tuple[float, ...],
        quantiles: int,
        pane: int,
        windows: Sequence[int],
    ) -> None:
        """`pane` in ms, `windows` in panes."""
        self._catalog = catalog
        self._slice_rows = slice_rows
        self._overall = Layout(OVERALL_BITS, edges, by_block=True)
        self._slice = Layout(SLICE_BITS, edges)
        self._quantiles = quantiles
        self._pane = pane
        self._windows = list(windows)

    def frames(self, monitors: Sequence[Monitor]) -> list[Frame]:
        """The windows as they stand: sliding ones end where the labels of every partition are complete."""
        speaking = [m for m in monitors if m.panes.total[SEEN] and not m.joiner.progress.idle]
        known = [m.complete_until() for m in speaking or monitors]
        complete = min((c for c in known if c is not None), default=None)
        newest = max((max(m.panes.by_pane, default=0) for m in monitors), default=0)
        end = 0
        if complete is not None:
            end = newest + 1 if complete >= FOREVER else min(complete // self._pane, newest + 1)
        frames = [Frame(ALL, None, 0, end)]
        for index, length in enumerate(self._windows):
            frames.append(Frame(format_duration(length * self._pane), index, end - length, end))
        return frames

    def results(self, monitors: Sequence[Monitor], unreliable: dict[str, str]) -> list[Result]:
        """Every result: overall ones, then slices, each by window, series and slice value.

        `unreliable` gives the reason by window name.
        """
        out: list[Result] = []
        frames = self.frames(monitors)
        for frame in frames:
            maturity = self._maturity(monitors, frame)
            vector = self._sum([self._dense(m, frame, False) for m in monitors])
            for code, series in enumerate(self._catalog.series):
                row = _row(vector, [code], self._overall)
                if row is not None:
                    out.append(self._overall_result(monitors, frame, code, series, row, maturity, unreliable))
        wholes = {(r.series, r.window): r for r in out}
        if self._catalog.dimensions:
            shown: dict[tuple[int, int, int], list[int]] = {}
            for frame in frames:
                maturity = self._maturity(monitors, frame)
                vector = self._sum([self._dense(m, frame, True) for m in monitors])
                shown = shown or self._shown(vector)  # the first frame is the whole run
                for (code, dimension, value), numbers in shown.items():
                    row = _row(vector, numbers, self._slice)
                    if row is not None:
                        where = (self._catalog.dimensions[dimension], self._catalog.values[dimension][value])
                        view = self._view(row, self._slice, None, None)
                        series = self._catalog.series[code]
                        result = self._result(
                            series, frame, where, self._slice, view, maturity, unreliable,
                            wholes.get((series, frame.name)),
                        )  # fmt: skip
                        out.append(result)
        # by name, not by code: codes come in order of arrival, and the report must not depend on that
        place = {frame.name: i for i, frame in enumerate(frames)}
        out.sort(
            key=lambda r: (
                r.slice is not None,
                place[r.window],
                (r.series.model, r.series.version, r.series.source),
                r.slice or (),
            )
        )
        return out

    # -- inside --------------------------------------------------------------------------------------------------

    def _shown(self, run: NDArray[np.int64]) -> dict[tuple[int, int, int], list[int]]:
        """The slices that are shown, (series, dimension, value code), with their rows; `run`: the rows' sums over the run.

        Of a dimension with more than `max_values` those with most impressions, then by name: what was counted of the
        others is in `__other__`. So it does not matter in which order values came, nor from which partition.
        """
        known = self._slice_rows.known()
        shown: list[set[int]] = []
        for dimension, names in enumerate(self._catalog.values):
            size = dict.fromkeys(range(2, len(names)), 0)
            if len(size) > self._catalog.max_values:
                for number, _, of, value in known:
                    if of == dimension and value in size and number * self._slice.size < run.size:
                        size[value] += int(run[number * self._slice.size])
            order = sorted(size, key=lambda value: (-size[value], names[value]))
            shown.append({0, 1, *order[: self._catalog.max_values]})
        out: dict[tuple[int, int, int], list[int]] = {}
        for number, code, dimension, value in known:
            out.setdefault((code, dimension, value if value in shown[dimension] else 1), []).append(number)
        return out

    def _dense(self, monitor: Monitor, frame: Frame, slices: bool) -> NDArray[np.int64]:
        board = monitor.scoreboard
        if frame.index is None:
            return (board.slices if slices else board.overall).total
        return (board.slice_windows if slices else board.overall_windows)[frame.index].move_to(frame.end)

    @staticmethod
    def _sum(vectors: list[NDArray[np.int64]]) -> NDArray[np.int64]:
        if len(vectors) == 1:
            return vectors[0]
        out = np.zeros(max((v.size for v in vectors), default=0), np.int64)
        for vector in vectors:
            out[: vector.size] += vector
        return out

    def _overall_result(
        self,
        monitors: Sequence[Monitor],
        frame: Frame,
        code: int,
        series: Series,
        row: NDArray[np.int64],
        maturity: tuple[float | None, int, int | None],
        unreliable: dict[str, str],
    ) -> Result:
        weighted = weight = users = impressions = 0
        spread, squares = 0.0, [0, 0, 0]
        sampled = min((m.scoreboard.users.sampled for m in monitors), default=1.0)
        for m in monitors:
            ranked, more = m.scoreboard.users.ranked(code, frame.index, frame.end)
            weighted, weight = weighted + ranked.weighted_auc, weight + ranked.weight
            users, impressions = users + ranked.users, impressions + ranked.impressions
            squares = [a + b for a, b in zip(squares, ranked.squares, strict=True)]
            spread += more or 0.0
        view = self._view(
            row,
            self._overall,
            Ranked(weighted, weight, users, impressions, (squares[0], squares[1], squares[2])),
            self._exact_auc(monitors, frame, code),
        )
        error = None
        if sampled < 1.0 and weight:
            error = (spread * (1.0 - sampled)) ** 0.5 / (weight / SCALE)
        result = self._result(series, frame, None, self._overall, view, maturity, unreliable, None)
        return replace(result, users_sampled=sampled, gauc_sampling_error=error)

    @staticmethod
    def _exact_auc(monitors: Sequence[Monitor], frame: Frame, code: int) -> float | None:
        having = [m.scoreboard.users for m in monitors if code in m.scoreboard.users.series()]
        if len(having) == 1:
            return having[0].exact_auc(code, frame.index, frame.end)
        parts = [users.scores(code, frame.index, frame.end) for users in having]
        if any(p is None for p in parts):
            return None
        whole = [p for p in parts if p is not None]
        return ranked_auc(np.sort(np.concatenate(whole))) if whole else None

    def _view(self, row: NDArray[np.int64], layout: Layout, ranked: Ranked | None, exact: float | None) -> View:
        negatives, positives = read_histogram(row, layout)
        blocks = read_blocks(row, layout) if layout.by_block else None
        return View(Moments.read(row), read_buckets(row, layout), negatives, positives, ranked, exact, blocks)

    def _result(
        self,
        series: Series,
        frame: Frame,
        where: tuple[str, str] | None,
        layout: Layout,
        view: View,
        maturity: tuple[float | None, int, int | None],
        unreliable: dict[str, str],
        whole: Result | None,
    ) -> Result:
        share, _, newest = maturity
        result = make_result(series, frame.name, where, view, layout, self._quantiles, share, newest, whole)
        sliding = frame.index is not None
        why = result.reliable_reason or unreliable.get(frame.name)
        return replace(
            result,
            window_start=frame.start * self._pane if sliding else None,
            window_end=frame.end * self._pane if sliding else None,
            reliable=why is None,
            reliable_reason=why,
        )

    def _maturity(self, monitors: Sequence[Monitor], frame: Frame) -> tuple[float | None, int, int | None]:
        """(share of the window's impressions whose label is mature, corrected, newest mature impression)."""
        seen = matured = corrected = 0
        newest: int | None = None
        for monitor in monitors:
            rows = (
                [monitor.panes.total]
                if frame.index is None
                else [row for _, row in monitor.panes.between(frame.start, frame.end)]
            )
            for row in rows:
                seen, matured, corrected = seen + row[SEEN], matured + row[MATURED], corrected + row[CORRECTED]
                if row[MATURED]:
                    newest = row[NEWEST] if newest is None else max(newest, row[NEWEST])
        return (matured / seen if seen else None), corrected, newest


def make_result(
    series: Series,
    window: str,
    where: tuple[str, str] | None,
    view: View,
    layout: Layout,
    quantiles: int,
    matured_share: float | None,
    newest_label: int | None,
    whole: Result | None = None,
) -> Result:
    """Every metric and table of one view; unreliable only by itself, and without the ends of its window.

    `whole`: that of all slices together, for a slice, whose errors follow from it (see `metrics.errors`).
    """
    m = view.moments
    metrics, reasons = evaluate(view)
    of_whole = None
    if whole is not None:
        of_whole = Errors(whole.stderrs, whole.design_effects, whole.stderr_df, whole.gauc_stderr_df)
    errors = standard_errors(view, metrics, of_whole)
    scores = score_counts(view.negatives, view.positives, layout)
    return Result(
        series=series,
        window=window,
        slice=where,
        totals=Totals(m.impressions, m.clicks, m.pclick, m.log_loss, m.squared, m.absolute),
        metrics=metrics,
        reasons=reasons,
        buckets=fixed_buckets(view.buckets, layout.edges),
        quantiles=quantile_buckets(scores, quantiles),
        scores=scores,
        window_start=None,
        window_end=None,
        matured_share=matured_share,
        corrected=m.corrected,
        newest_label=newest_label,
        violations=m.violations,
        reliable=not m.violations,
        reliable_reason=f"{m.violations} scores may have known their label" if m.violations else None,
        stderrs=errors.stderr,
        design_effects=errors.design,
        stderr_df=errors.df,
        gauc_stderr_df=errors.gauc_df,
    )


def _row(vector: NDArray[np.int64], numbers: Sequence[int], layout: Layout) -> NDArray[np.int64] | None:
    """The sum of rows of a flat vector, a copy; None when nothing was counted in them."""
    places = (slice(number * layout.size, (number + 1) * layout.size) for number in numbers)
    rows = [vector[place] for place in places if place.stop <= vector.size and vector[place.start]]
    return sum(rows[1:], rows[0].copy()) if rows else None
