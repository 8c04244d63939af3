"""The reading side of the history: any past range, as exact as it was live.

Every query opens the file again, read-only, and reads in one transaction, so it sees one state of it, whatever is
written in the meantime, and never blocks a writer. A query is bounded: in rows and bytes read, in users ranked, and in
how many are answered at a time.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from streameval.events.batch import Series
from streameval.events.durations import DAY, HOUR
from streameval.metrics.registry import by_name
from streameval.metrics.tables import ScoreCounts
from streameval.metrics.view import NOT_KEPT_FOR_RANGES, NOT_KEPT_FOR_SLICES, Ranked, Undefined, View
from streameval.results.lines import (
    MAX_ROWS,
    Interval,
    Line,
    Point,
    QuestionSlots,
    Slice,
    Steps,
    TooMuch,
    make_point,
    whole_steps,
)
from streameval.results.result import Result, SeriesView, Span, make_result, make_results
from streameval.settings.units import format_duration
from streameval.sketches.layout import has_result
from streameval.store.history import points as history_points
from streameval.store.history import user_samples
from streameval.store.history.added import sample_over, vector_over
from streameval.store.history.begun import lacking
from streameval.store.history.costs import pair_costs, slot_costs, step_costs
from streameval.store.history.cover import Coverage, cover, slots
from streameval.store.history.format import NO_SLICE, HistoryFormat, open_to_read, store_errors
from streameval.store.history.names import name_order, series_by_id, slices_by_id
from streameval.store.history.user_samples import UserSample

MAX_BYTES = 256_000_000  # of compressed vectors and samples

_NOT_READ: Ranked | Undefined = Undefined("not_read")  # ranks that the metric does not need
_NO_SCORES = ScoreCounts(np.empty(0), np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class RangeResults:
    """Results of one range, overall ones first; `matched` counts them before the limit."""

    coverage: Coverage
    matched: int
    results: tuple[Result, ...]


class HistoryReader:
    """Answers queries about one file. Thread-safe."""

    def __init__(
        self, path: Path, form: HistoryFormat, quantiles: int, max_rows: int = MAX_ROWS, max_bytes: int = MAX_BYTES
    ) -> None:
        """`quantiles`: equal-count buckets in results. Raises StoreError when the file cannot be read."""
        self.path = path
        self._form = form
        self._quantiles = quantiles
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._turns = QuestionSlots()
        open_to_read(path, form).close()

    def series_names(self) -> list[Series]:
        """Every series with rows, by name."""
        with self._reading() as db:
            return sorted(series_by_id(db).values(), key=name_order)

    def slice_names(self) -> dict[str, set[str]]:
        """The values of every dimension with rows."""
        out: defaultdict[str, set[str]] = defaultdict(set)
        with self._reading() as db:
            for dimension, value in db.execute("SELECT dimension, value FROM slices"):
                out[dimension].add(value)
        return dict(out)

    def range(
        self,
        series: Sequence[Series],
        start: int | None,
        end: int | None,
        slices: Sequence[Slice] | None = None,
        limit: int = 1000,
        scores: bool = True,
    ) -> RangeResults:
        """Results over [start, end) ms, from the first or to the last data stored if None; `slices` None: all.

        Their `window` is "range", with the ends actually used. `scores` False leaves their histograms empty:
        those of thousands of slices are a lot of memory. Raises TooMuch, Busy, StoreError.
        """
        with self._reading() as db:
            coverage, parts = cover(db, self._form.lengths, start, end)
            there = pair_costs(db, coverage, series, None if slices is None else [*slices, None])
            only_slices = slices is not None and None not in slices
            wanted = [pair for pair in there if not (only_slices and pair[1] == NO_SLICE)]
            chosen = set(wanted[:limit])
            # a slice's errors follow from the whole, which comes before it
            read = {
                pair: cost for pair, cost in there.items() if pair in chosen | {(one, NO_SLICE) for one, _ in chosen}
            }
            self._afford(coverage, sum(n for n, _ in read.values()), sum(size for _, size in read.values()))
            seen, matured = sum(part.seen for part in parts), sum(part.matured for part in parts)
            newest = max((part.newest for part in parts if part.newest is not None), default=None)
            span = Span("range", coverage.start, coverage.end, matured / seen if seen else None, newest)
            series_ids, slice_ids = series_by_id(db), slices_by_id(db)
            results = []
            wholes: dict[Series, Result] = {}
            for pair in read:
                name, where = series_ids[pair[0]], slice_ids[pair[1]]
                result = self._result(db, span, pair, name, where, None if where is None else wholes.get(name))
                if where is None:
                    wholes[name] = result
                if pair in chosen:
                    results.append(result if scores else replace(result, scores=_NO_SCORES))
        return RangeResults(coverage, len(wanted), tuple(results))

    def series(
        self,
        metric: str,
        series: Sequence[Series],
        start: int | None,
        end: int | None,
        limit: int = 2000,
        skip: Mapping[Series, Set[int]] | None = None,
    ) -> dict[Series, Line]:
        """A metric of whole series over the parts that begin up to `end` and end after `start` (ms).

        A part is a point, whatever partitions it has: where one has only the hour, the hour is the point. Of every
        series the newest `limit`; `skip`: starts of panes (not of hours, days) that are not wanted. Of parts whose points are
        not computed yet users' blocks and scores are read as well, for standard errors, as in `steps`. Raises TooMuch, Busy,
        StoreError.
        """
        wanted = set(series)
        with self._reading() as db:
            coverage, parts = cover(db, self._form.lengths, start, None if end is None else end + 1)
            within = slots(parts, self._form.lengths)
            split = {slot for place, slot in within.items() if place != slot}
            whole = set(within.values()) - split
            known = history_points.readable(db, self._form)
            lines, rows, size, without_scores = {}, 0, 0, 0
            for number, name in sorted(series_by_id(db).items(), key=lambda item: name_order(item[1])):
                if name not in wanted:
                    continue
                skipped = {(0, pane) for pane in (skip or {}).get(name, ())}
                done = {}
                if known:
                    done = history_points.stored(db, self._form, number, metric, coverage.start, coverage.end)
                done = {slot: point for slot, point in done.items() if slot in whole and slot not in skipped}
                left = {slot for slot in within.values() if slot not in done and slot not in skipped}
                mine = slot_costs(db, number, metric, self._form.lengths, within, left)
                kept = sorted([*done, *mine], key=lambda slot: slot[1])[-limit:]
                compute = [slot for slot in kept if slot in mine]
                rows += sum(mine[slot][0] for slot in compute)
                size += sum(mine[slot][1] for slot in compute)
                without_scores += sum(mine[slot][2] for slot in compute)
                ready = [done[slot] for slot in kept if slot in done]
                lines[number] = (name, ready, compute, len(done) + len(mine) > len(kept))
            scores = by_name(metric).reads_scores or (rows <= self._max_rows and size <= self._max_bytes)
            self._afford(coverage, rows, size if scores else without_scores)
            out = {}
            for number, (name, ready, compute, truncated) in lines.items():
                places = ((start, start + self._form.lengths[level]) for level, start in compute)
                added = [self._step(db, number, NO_SLICE, metric, at, scores) for at in places]
                if ready or compute:
                    points = [*ready, *(point for point in added if point is not None)]
                    out[name] = Line(tuple(sorted(points, key=lambda point: point.start)), truncated)
            return out

    @property
    def pane(self) -> int:
        """Length of a pane, ms."""
        return self._form.pane

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
        """As `series`, in a slice, or in steps of `step` ms from the epoch, each the exact sum of its parts.

        Without a step a part is a point. For standard errors users' blocks and scores are read as well; where that
        would be too much and the metric itself does not need them, there are none. Raises TooMuch, Busy, StoreError.
        """
        wanted = set(series)
        first, last = whole_steps(start, end, step)
        with self._reading() as db:
            coverage, steps = self._steps_of(db, first, last, step)
            where_id = next((number for number, name in slices_by_id(db).items() if name == where), None)
            chosen: list[tuple[int, Series, list[Interval], bool]] = []
            rows = size = without_scores = 0
            for number, name in sorted(series_by_id(db).items(), key=lambda item: name_order(item[1])):
                if name in wanted and where_id is not None:
                    costs = step_costs(db, coverage, number, where_id, metric, steps)
                    kept = sorted(costs)[-limit:]
                    chosen.append((number, name, kept, len(costs) > len(kept)))
                    rows += sum(costs[at][0] for at in kept)
                    size += sum(costs[at][1] for at in kept)
                    without_scores += sum(costs[at][2] for at in kept)
            scores = by_name(metric).reads_scores or (rows <= self._max_rows and size <= self._max_bytes)
            self._afford(coverage, rows, size if scores else without_scores)
            out = {}
            for number, name, kept, truncated in chosen:
                points = [self._step(db, number, where_id or NO_SLICE, metric, at, scores) for at in kept]
                if points:
                    out[name] = Line(tuple(point for point in points if point is not None), truncated)
            return out

    # -- which parts ---------------------------------------------------------------------------------------------

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._turns.one(), store_errors(self.path), closing(open_to_read(self.path, self._form)) as db:
            db.execute("BEGIN")
            yield db

    def _afford(self, coverage: Coverage, rows: int, size: int) -> None:
        """Raises TooMuch for more than a query may read."""
        over = max(rows / self._max_rows, size / self._max_bytes)
        if over <= 1:
            return
        there = 0 if coverage.first is None or coverage.last is None else coverage.last - coverage.first
        longest = int(there * 0.9 / over)
        unit = next((one for one in (DAY, HOUR) if longest >= 3 * one), self._form.lengths[0])
        fits = longest // unit * unit
        shorter = f"ask for at most {format_duration(fits)} at a time, or " if fits else ""
        raise TooMuch(
            f"the range holds {rows} rows and {size} bytes, a query may read {self._max_rows} and "
            f"{self._max_bytes}; {shorter}name one model, version and slice"
        )

    # -- ranges --------------------------------------------------------------------------------------------------

    def _result(
        self,
        db: sqlite3.Connection,
        span: Span,
        pair: tuple[int, int],
        series: Series,
        where: Slice,
        whole: Result | None,
    ) -> Result:
        layout = self._form.overall if where is None else self._form.slice
        within = (span.start or 0, span.end or 0)
        dense = vector_over(db, layout, *pair, within)
        if where is not None:
            view = View.of(dense, layout, NOT_KEPT_FOR_SLICES)
            return make_result(series, span, where, view, self._quantiles, whole)
        sample = sample_over(db, pair[0], *within)
        ranked, error = self._ranked(sample)
        view = View.of(dense, layout, ranked, lacking=lacking(db, self._form, within[0]))
        [result] = make_results(span, [SeriesView(series, view, 0.5**sample.k, error)], self._quantiles)
        return result

    def _ranked(self, sample: UserSample) -> tuple[Ranked | Undefined, float | None]:
        """GAUC's terms, and the error due to sampling users."""
        ranked, error = user_samples.rank(sample, self._form.weighting)
        return (ranked if self._form.keeps_users else NOT_KEPT_FOR_RANGES), error

    # -- steps ---------------------------------------------------------------------------------------------------

    def _steps_of(
        self, db: sqlite3.Connection, first: int | None, last: int | None, step: int | None
    ) -> tuple[Coverage, Steps]:
        """The steps that hold the parts beginning in [first, last], and what they cover.

        An hour that crosses a border makes one of two steps: where that reaches beyond what was asked for, its other parts are read too.
        """
        lengths = self._form.lengths
        while True:
            coverage, parts = cover(db, lengths, first, None if last is None else last + 1)
            steps = Steps(((at, at + lengths[level]) for level, at in slots(parts, lengths).values()), step)
            low, high = (steps.intervals[0][0], steps.intervals[-1][1]) if steps.intervals else (first or 0, last or 0)
            if (first is None or low >= coverage.start) and (last is None or high <= coverage.end):
                return coverage, steps
            first, last = None if first is None else min(first, low), None if last is None else max(last, high - 1)

    def _step(
        self, db: sqlite3.Connection, series: int, where: int, metric: str, at: Interval, scores: bool
    ) -> Point | None:
        """One point; None when nothing was counted after all."""
        layout, whole = self._form.slice if where else self._form.overall, None
        dense = vector_over(db, layout, series, where, at, scores)
        if not has_result(dense, layout):
            return None
        if where:
            if scores:
                of_all = vector_over(db, self._form.overall, series, NO_SLICE, at)
                whole = View.of(of_all, self._form.overall, _NOT_READ)
            return make_point(at, metric, View.of(dense, layout, NOT_KEPT_FOR_SLICES), whole=whole)
        ranked, error = _NOT_READ, None
        if by_name(metric).needs == "users":
            ranked, error = self._ranked(sample_over(db, series, *at))
        view = View.of(dense, layout, ranked, lacking=lacking(db, self._form, at[0]))
        return make_point(at, metric, view, sampling_error=error)
