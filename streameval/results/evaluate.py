"""From the partitions' sketches to results: the one place where panes, windows and partitions are combined.

Partitions hold disjoint users, so their vectors and GAUC terms add up; the AUC of the whole is taken from the merged
scores. Windows end where every partition's labels are complete, on a pane's boundary.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streameval.counting.growing_auc import Aucs
from streameval.counting.panestats import PANE_MATURED, PANE_NEWEST, PANE_SEEN, PaneStats
from streameval.counting.scoreboard import Scoreboard
from streameval.counting.slice_rows import SliceRows
from streameval.events.batch import Catalog, Series
from streameval.join.policy import FOREVER
from streameval.metrics.view import Ranked, UserMeans, View
from streameval.results.auctions import WindowAuctions, auctions_by_model
from streameval.results.result import Result, Span, make_result
from streameval.results.reuse import Reuse
from streameval.results.slices import SliceResults, SliceSums
from streameval.settings.measures import Auction
from streameval.settings.units import format_duration
from streameval.sketches.layout import Layout, Moments, Options, has_result
from streameval.sketches.weightings import TERM_SCALE

ALL = "all"
_MOST_KEPT = 1 << 26  # bytes of the sums of a window that are kept between looks


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
        self._reuse = Reuse()
        self._aucs = Aucs()
        self._windows_summed: dict[int, tuple[list[int], NDArray[np.int64]]] = {}  # as of which changes

    @property
    def nbytes(self) -> dict[str, int]:
        """Bytes of what is kept between looks, by table."""
        return {"users": self._aucs.nbytes, "panes": sum(sums.nbytes for _, sums in self._windows_summed.values())}

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
            frames.append(Frame(format_duration(length * self._pane), index, end - length, end))
        return frames

    def results(self, parts: Sequence[PartTotals], unreliable: dict[str, str]) -> list[Result]:
        """Every result: overall ones, then slices, each by window, series and slice value.

        `unreliable` gives the reason by window name.
        """
        boards = [part.board for part in parts]
        out: list[Result] = []
        self._reuse.begin()
        self._aucs.begin()
        frames = self.frames(parts)
        spans = [self._span(parts, frame, unreliable.get(frame.name)) for frame in frames]
        for frame, span in zip(frames, spans, strict=True):
            vector = self._summed(boards, frame)
            found = [
                self._overall_result(boards, frame, span, code, series, row)
                for code, series in enumerate(self._catalog.series)
                if (row := _row_of(vector, code, self._overall)) is not None
            ]
            # by name, not by code: codes come in order of arrival, and the report must not depend on that
            out += sorted(found, key=lambda result: result.series)
        overall = tuple(out)
        if self._catalog.dimensions:
            self._slices.begin([SliceSums(board.slices.total, board.slices.changes) for board in boards])
            for frame, span in zip(frames, spans, strict=True):
                wholes = {result.series: result for result in overall if result.window == frame.name}
                out += self._slices.of_window(span, [_slices(board, frame) for board in boards], wholes)
        return out

    def auctions(self, parts: Sequence[PartTotals], settings: Auction) -> tuple[WindowAuctions, ...]:
        """Replayed auctions, by window and model: what is read of the sums is copied."""
        out = []
        for frame in self.frames(parts) if settings.points else []:
            vector = self._summed([part.board for part in parts], frame)
            known = {
                series: row
                for code, series in enumerate(self._catalog.series)
                if (row := _row_of(vector, code, self._overall)) is not None
            }
            start, end = (None, None) if frame.index is None else (frame.start * self._pane, frame.end * self._pane)
            for versions, sums, through in auctions_by_model(known, self._overall, settings):
                out.append(WindowAuctions(frame.name, start, end, settings, versions, sums, through))
        return tuple(out)

    def predicted(self, part: PartTotals) -> tuple[int, float]:
        """(impressions, summed pClick) of the versions that served in one partition, over all of the run."""
        vector = self._sum([part.board.overall.total])
        impressions, pclick = 0, 0.0
        for code, series in enumerate(self._catalog.series):
            row = _row_of(vector, code, self._overall)
            if row is not None and series.source == "logged" and not series.objective:
                sums = Moments.read(row)
                impressions, pclick = impressions + sums.impressions, pclick + sums.pclick
        return impressions, pclick

    # -- inside --------------------------------------------------------------------------------------------------

    def _summed(self, boards: Sequence[Scoreboard], frame: Frame) -> NDArray[np.int64]:
        """The sums of all partitions, without slices; read-only. Those of windows do not change between two panes."""
        if frame.index is None:
            return self._sum([board.overall.total for board in boards])
        windows = [board.overall_windows[frame.index] for board in boards]
        vectors = [window.move_to(frame.end) for window in windows]
        if len(vectors) == 1:
            return vectors[0]
        now, known = [window.change for window in windows], self._windows_summed.get(frame.index)
        if known is None or known[0] != now:
            known = now, self._sum(vectors)
            if known[1].nbytes <= _MOST_KEPT:
                self._windows_summed[frame.index] = known
        return known[1]

    @staticmethod
    def _sum(vectors: list[NDArray[np.int64]]) -> NDArray[np.int64]:
        if len(vectors) == 1:
            return vectors[0]
        first, *others = sorted(vectors, key=np.size, reverse=True) or [np.zeros(0, np.int64)]
        out = first.copy()
        for vector in others:
            out[: vector.size] += vector
        return out

    def _overall_result(
        self, boards: Sequence[Scoreboard], frame: Frame, span: Span, code: int, series: Series, row: NDArray[np.int64]
    ) -> Result:
        found = [board.users.ranked(code, frame.index, frame.end) for board in boards]
        ranked, spread = Ranked.sum(terms for terms, _ in found), sum(more or 0.0 for _, more in found)
        sampled = min((board.users.sampled for board in boards), default=1.0)
        error = None
        if sampled < 1.0 and ranked.weight:
            error = (spread * (1.0 - sampled)) ** 0.5 / (ranked.weight / TERM_SCALE)
        means: defaultdict[str, UserMeans] = defaultdict(UserMeans)
        for board in boards:
            for name, of in board.users.list_means(code, frame.index, frame.end).items():
                means[name] += of
        auc = self._exact_auc(boards, frame, code)

        def make() -> Result:
            view = View.of(row, self._overall, ranked, auc, means)
            return make_result(series, span, None, view, self._quantiles, users_sampled=sampled, sampling_error=error)

        beside = (ranked, auc, means, sampled, error)
        return self._reuse.result((series, span.name), row, beside, span, make)

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


def _slices(board: Scoreboard, frame: Frame) -> SliceSums:
    if frame.index is None:
        return SliceSums(board.slices.total, board.slices.changes)
    window = board.slice_windows[frame.index]
    return SliceSums(window.move_to(frame.end), window.changes)


def _row_of(vector: NDArray[np.int64], number: int, layout: Layout) -> NDArray[np.int64] | None:
    """One of them, a view."""
    row = vector[number * layout.size : (number + 1) * layout.size]
    return row if row.size == layout.size and has_result(row, layout) else None
