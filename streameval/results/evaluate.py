"""From the partitions' sketches to results: the one place where panes, windows and partitions are combined.

Partitions hold disjoint users, so their vectors and GAUC terms add up; the AUC of the whole is taken from the merged
scores. Windows end where every partition's labels are complete, on a pane's boundary.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streameval.counting.growing_auc import Aucs
from streameval.counting.panestats import PANE_MATURED, PANE_NEWEST, PANE_SEEN, PaneStats
from streameval.counting.row_sums import RowSums, summed
from streameval.counting.scoreboard import Scoreboard
from streameval.counting.slice_rows import SliceRows
from streameval.events.batch import Catalog, Series
from streameval.join.policy import FOREVER
from streameval.metrics.view import Ranked, UserMeans, View
from streameval.results.auctions import WindowAuctions, auctions_by_model
from streameval.results.result import Result, SeriesView, Span, make_results
from streameval.results.results import Results
from streameval.results.reuse import Reuse
from streameval.results.slices import SliceResults
from streameval.settings.measures import Auction
from streameval.settings.units import format_duration
from streameval.sketches.fixed import read_real
from streameval.sketches.layout import IMPRESSIONS, SUM_PCLICK, Layout, Options, cells_of_result
from streameval.sketches.weightings import TERM_SCALE

ALL = "all"


@dataclass(frozen=True, slots=True)
class Frame:
    """One window: its name, its index among the sliding ones (None: the whole run), and the panes [start, end)."""

    name: str
    index: int | None
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PartTotals:
    """What one partition has counted. `complete_until` (ms): every impression before it has its final label; None: no event."""

    board: Scoreboard
    panes: PaneStats
    complete_until: int | None
    idle: bool  # nothing comes, so it does not hold the windows back


class _Inputs(NamedTuple):
    """What a result over all slices follows from: where this is equal, so is every number."""

    changes: tuple[int, ...]  # when the sums last changed, by partition
    ranked: Ranked
    auc: float | None
    means: Mapping[str, UserMeans]
    users_sampled: float
    sampling_error: float | None

    def view(self, series: Series, vector: NDArray[np.int64], layout: Layout) -> SeriesView:
        """With the sums themselves."""
        view = View.of(vector, layout, self.ranked, self.auc, self.means)
        return SeriesView(series, view, self.users_sampled, self.sampling_error)


class Evaluator:
    """Makes the results of all partitions of this process."""

    def __init__(
        self,
        catalog: Catalog,
        slice_rows: SliceRows,
        options: Options,
        quantiles: int,
        pane: int,
        windows: Sequence[int],
    ) -> None:
        """`pane` in ms, `windows` in panes."""
        self._catalog = catalog
        self._overall = options.overall
        self._slices = SliceResults(catalog, slice_rows, options.slice, quantiles)
        self._quantiles = quantiles
        self._pane = pane
        self._windows = list(windows)
        self.windows = (ALL, *(format_duration(length * pane) for length in windows))  # their names
        self._reuse = Reuse()
        self._aucs = Aucs()

    @property
    def nbytes(self) -> dict[str, int]:
        """Bytes of what is kept between looks, by table."""
        return {"users": self._aucs.nbytes}

    def end(self, parts: Sequence[PartTotals]) -> int:
        """The pane at which sliding windows end: there the labels of every partition are complete."""
        speaking = [part for part in parts if part.panes.total[PANE_SEEN] and not part.idle]
        known = [part.complete_until for part in speaking or parts]
        complete = min((c for c in known if c is not None), default=None)
        newest = max((max(part.panes.by_pane, default=0) for part in parts), default=0)
        if complete is None:
            return 0
        return newest + 1 if complete >= FOREVER else min(complete // self._pane, newest + 1)

    def frames(self, parts: Sequence[PartTotals]) -> list[Frame]:
        """The windows as they stand."""
        end = self.end(parts)
        frames = [Frame(ALL, None, 0, end)]
        for index, length in enumerate(self._windows):
            frames.append(Frame(self.windows[index + 1], index, end - length, end))
        return frames

    def results(self, parts: Sequence[PartTotals], unreliable: dict[str, str]) -> Results:
        """Every result, by window, series and slice value.

        `unreliable` gives the reason by window name.
        """
        boards = [part.board for part in parts]
        out: list[Result] = []
        self._reuse.begin()
        self._aucs.begin()
        frames = self.frames(parts)
        spans = [self._span(parts, frame, unreliable.get(frame.name)) for frame in frames]
        for frame, span in zip(frames, spans, strict=True):
            # by name, not by code: codes come in order of arrival, and the report must not depend on that
            out += sorted(self._of_window(boards, frame, span), key=lambda result: result.series)
        sliced = []
        if self._catalog.dimensions:
            self._slices.begin([board.slices.total for board in boards])
            for frame, span in zip(frames, spans, strict=True):
                wholes = {result.series: result for result in out if result.window == frame.name}
                sliced.append(self._slices.of_window(span, _slices(boards, frame), wholes))
        return Results(out, sliced)

    def auctions(self, parts: Sequence[PartTotals], settings: Auction) -> tuple[WindowAuctions, ...]:
        """Replayed auctions, by window and model: what is read of the sums is copied."""
        out = []
        for frame in self.frames(parts) if settings.points else []:
            counted = _overall([part.board for part in parts], frame)
            known = {series: summed(counted, code) for code, series in self._counted(counted)}
            start, end = (None, None) if frame.index is None else (frame.start * self._pane, frame.end * self._pane)
            for versions, sums, through in auctions_by_model(known, self._overall, settings):
                out.append(WindowAuctions(frame.name, start, end, settings, versions, sums, through))
        return tuple(out)

    def predicted(self, part: PartTotals) -> tuple[int, float]:
        """(impressions, summed pClick) of the versions that served in one partition, over all of the run."""
        total = part.board.overall.total
        columns = (total.column(cell).tolist() for cell in (IMPRESSIONS, SUM_PCLICK, SUM_PCLICK + 1))
        impressions, pclick = 0, 0.0
        for series, n, low, high in zip(self._catalog.series, *columns, strict=False):
            if series.source == "logged" and not series.objective:
                impressions, pclick = impressions + n, pclick + read_real(low, high)
        return impressions, pclick

    # -- inside --------------------------------------------------------------------------------------------------

    def _counted(self, sums: Sequence[RowSums]) -> list[tuple[int, Series]]:
        """The series, and their codes, of which these sums have anything to show."""
        has_any = np.zeros(max((one.rows for one in sums), default=0), np.bool_)
        for cell in cells_of_result(self._overall):
            total = np.zeros(has_any.size, np.int64)
            for one in sums:
                total[: one.rows] += one.column(cell)
            has_any |= total != 0
        codes = np.flatnonzero(has_any[: len(self._catalog.series)]).tolist()
        return [(code, self._catalog.series[code]) for code in codes]

    def _of_window(self, boards: Sequence[Scoreboard], frame: Frame, span: Span) -> list[Result]:
        """The results over all slices, in any order: those whose inputs have changed are made together."""
        sums, found, new = _overall(boards, frame), [], []
        for code, series in self._counted(sums):
            inputs = self._inputs(boards, sums, frame, code)
            known = self._reuse.known((series, span.name), inputs, span)
            if known is None:
                new.append((inputs, inputs.view(series, summed(sums, code), self._overall)))
            else:
                found.append(known)
        made = make_results(span, [view for _, view in new], self._quantiles)
        for (inputs, view), result in zip(new, made, strict=True):
            self._reuse.keep((view.series, span.name), inputs, span, result)
            found.append(result)
        return found

    def _inputs(self, boards: Sequence[Scoreboard], sums: Sequence[RowSums], frame: Frame, code: int) -> _Inputs:
        terms = [board.users.ranked(code, frame.index, frame.end) for board in boards]
        ranked, spread = Ranked.sum(own for own, _ in terms), sum(more or 0.0 for _, more in terms)
        sampled = min((board.users.sampled for board in boards), default=1.0)
        error = None
        if sampled < 1.0 and ranked.weight:
            error = (spread * (1.0 - sampled)) ** 0.5 / (ranked.weight / TERM_SCALE)
        means: defaultdict[str, UserMeans] = defaultdict(UserMeans)
        for board in boards:
            for name, of in board.users.list_means(code, frame.index, frame.end).items():
                means[name] += of
        changes = tuple(int(one.last[code]) for one in sums if code < one.rows)
        return _Inputs(changes, ranked, self._exact_auc(boards, frame, code), means, sampled, error)

    def _exact_auc(self, boards: Sequence[Scoreboard], frame: Frame, code: int) -> float | None:
        kept = [scores for board in boards if (scores := board.users.scores(code)) is not None]
        if not kept:
            return None
        if frame.index is None:
            return self._aucs.of_run(code, kept)
        return self._aucs.of_window(code, kept, (frame.start, frame.end))

    def _span(self, parts: Sequence[PartTotals], frame: Frame, unreliable: str | None) -> Span:
        rows = [part.panes.total for part in parts]
        if frame.index is not None:
            rows = [row for part in parts for _, row in part.panes.between(frame.start, frame.end)]
        seen, matured = sum(row[PANE_SEEN] for row in rows), sum(row[PANE_MATURED] for row in rows)
        newest = max((row[PANE_NEWEST] for row in rows if row[PANE_MATURED]), default=None)
        share = matured / seen if seen else None
        if frame.index is None:
            return Span(frame.name, None, None, share, newest, unreliable)
        return Span(frame.name, frame.start * self._pane, frame.end * self._pane, share, newest, unreliable)


def _overall(boards: Sequence[Scoreboard], frame: Frame) -> list[RowSums]:
    """Every partition's sums in a window, by series."""
    if frame.index is None:
        return [board.overall.total for board in boards]
    return [board.overall_windows[frame.index].move_to(frame.end) for board in boards]


def _slices(boards: Sequence[Scoreboard], frame: Frame) -> list[RowSums]:
    """The same by row of the slices."""
    if frame.index is None:
        return [board.slices.total for board in boards]
    return [board.slice_windows[frame.index].move_to(frame.end) for board in boards]
