"""The reading side of the history: any past range, as exact as it was live.

Every question opens the file anew, read-only, and reads in one transaction, so it sees one state of it, whatever is
written meanwhile, and nobody waits for it. A question is bounded: in rows and bytes read, in users ranked, and in how
many are answered at a time.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streameval.evaluate import make_result
from streameval.events import Series
from streameval.metrics import ranking
from streameval.metrics.registry import METRICS
from streameval.metrics.view import Ranked, Undefined, View
from streameval.report import Result, ScoreCounts
from streameval.sketches.codec import CodecError, decode
from streameval.sketches.layout import IMPRESSIONS, Layout, Moments, read_blocks, read_buckets, read_histogram
from streameval.store import user_samples
from streameval.store.history_cover import RANGE, Coverage, Slot, cover, slots
from streameval.store.history_format import OVERALL, HistoryFormat, open_to_read, store_errors
from streameval.store.user_samples import UserSample
from streameval.units import format_duration

MAX_ROWS = 200_000  # vectors that one question may read
MAX_BYTES = 256_000_000  # of compressed vectors and samples
RANKED = 1 << 21  # entries of users that are ranked at a time: 100 MB; beyond, fewer users are taken
AT_A_TIME = 4
WAIT_SECONDS = 2.0

NOT_KEPT = "not_kept_for_ranges"  # why there is no GAUC weighted by value
_OF_USERS = ("gauc", "gauc_users", "gauc_impressions")
_OF_SCORES = ("auc", "auc_error")
_FUNCTIONS = {metric.name: metric.function for metric in METRICS}
_NOBODY = Ranked(0, 0, 0, 0)
_NO_SCORES = ScoreCounts(np.empty(0), np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64))

Slice = tuple[str, str] | None  # (dimension, value); None: overall


class TooMuch(ValueError):  # noqa: N818  # a question, not a defect
    """More than one question may read; the message says what would be right."""


class Busy(RuntimeError):  # noqa: N818
    """As many questions as may be are being answered."""


@dataclass(frozen=True, slots=True)
class RangeResults:
    """Results of one range, overall ones first; `matched` counts them before the limit."""

    coverage: Coverage
    matched: int
    results: tuple[Result, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """A metric of one series in one pane, hour or day. `value` None: undefined, `reason` says why."""

    start: int  # ms
    length: int  # ms
    value: float | None
    reason: str | None
    impressions: int
    clicks: int
    corrected: int
    error: float | None  # auc: half-width of the certain interval; gauc: standard error, 0 if exact


@dataclass(frozen=True, slots=True)
class Line:
    """The points of one series, oldest first; `truncated`: older ones were left out."""

    points: tuple[Point, ...]
    truncated: bool


class HistoryReader:
    """Answers questions about one file. Thread-safe."""

    def __init__(
        self, path: Path, form: HistoryFormat, quantiles: int, max_rows: int = MAX_ROWS, max_bytes: int = MAX_BYTES
    ) -> None:
        """`quantiles`: equal-count buckets in results. Raises StoreError when the file cannot be read."""
        self.path = path
        self._form = form
        self._quantiles = quantiles
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._free = threading.BoundedSemaphore(AT_A_TIME)
        open_to_read(path, form).close()

    def series_names(self) -> list[Series]:
        """Every series with rows, by name."""
        with self._reading() as db:
            return sorted(_series(db).values(), key=_name)

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
        """Results over [start, end) ms, from or up to everything that is there if None; `slices` None: all.

        Their `window` is "range", with the ends that were really taken. `scores` False leaves their histograms empty:
        those of thousands of slices are a lot of memory. Raises TooMuch, Busy, StoreError.
        """
        with self._reading() as db:
            coverage, parts = cover(db, self._form.lengths, start, end)
            wanted = self._pairs(db, coverage, series, slices)
            chosen = dict(list(wanted.items())[:limit])
            self._afford(coverage, sum(n for n, _ in chosen.values()), sum(size for _, size in chosen.values()))
            seen, matured = sum(part.seen for part in parts), sum(part.matured for part in parts)
            newest = max((part.newest for part in parts if part.newest is not None), default=None)
            share = matured / seen if seen else None
            series_ids, slice_ids = _series(db), _slices(db)
            results = []
            design: dict[Series, Mapping[str, float]] = {}  # slices come after the whole, and take it from there
            for pair in chosen:
                name, where = series_ids[pair[0]], slice_ids[pair[1]]
                result = self._result(db, coverage, pair, name, where, share, newest, design.get(name))
                if where is None:
                    design[name] = result.design_effects
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
        series the newest `limit`; `skip`: starts of panes (not of hours, days) that are not wanted. Raises TooMuch,
        Busy, StoreError.
        """
        wanted = set(series)
        with self._reading() as db:
            coverage, parts = cover(db, self._form.lengths, start, None if end is None else end + 1)
            within = slots(parts, self._form.lengths)
            lines, rows, size = {}, 0, 0
            for number, name in sorted(_series(db).items(), key=lambda item: _name(item[1])):
                if name in wanted:
                    mine = self._own_slots(db, coverage, number, metric, within, (skip or {}).get(name, frozenset()))
                    kept = sorted(mine, key=lambda slot: slot[1])[-limit:]
                    rows += sum(mine[slot][0] for slot in kept)
                    size += sum(mine[slot][1] for slot in kept)
                    lines[number] = (name, kept, len(mine) > len(kept))
            self._afford(coverage, rows, size)
            return {
                name: Line(tuple(self._points(db, coverage, number, metric, within, kept)), truncated)
                for number, (name, kept, truncated) in lines.items()
                if kept
            }

    # -- which parts ---------------------------------------------------------------------------------------------

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        if not self._free.acquire(timeout=WAIT_SECONDS):
            raise Busy(f"{AT_A_TIME} questions about the past are being answered; ask again in a moment")
        try:
            with store_errors(self.path), closing(open_to_read(self.path, self._form)) as db:
                db.execute("BEGIN")
                yield db
        finally:
            self._free.release()

    def _pairs(
        self, db: sqlite3.Connection, coverage: Coverage, series: Sequence[Series], slices: Sequence[Slice] | None
    ) -> dict[tuple[int, int], tuple[int, int]]:
        """(rows, bytes) of every (series, slice) id with impressions in the range, in the order of their names."""
        series_ids, slice_ids = _series(db), _slices(db)
        some = None if slices is None else set(slices)
        only = " AND slice = 0" if some == {None} else ""
        within = (coverage.start, coverage.end)
        samples = dict(
            db.execute(f"SELECT series, sum(length(entries)) FROM samples WHERE {RANGE} GROUP BY series", within)
        )
        names = {}
        for one, where, impressions, rows, size in db.execute(
            "SELECT series, slice, sum(impressions), count(*), sum(bytes) FROM vectors INDEXED BY vectors_by_time "
            f"WHERE {RANGE}{only} GROUP BY series, slice",
            within,
        ):
            if impressions and series_ids[one] in series and (some is None or slice_ids[where] in some):
                more = samples.get(one, 0) if where == OVERALL else 0
                names[one, where] = (rows, size + more)
        return dict(
            sorted(
                names.items(),
                key=lambda item: (item[0][1] != OVERALL, _name(series_ids[item[0][0]]), slice_ids[item[0][1]] or ()),
            )
        )

    def _afford(self, coverage: Coverage, rows: int, size: int) -> None:
        """Raises TooMuch for more than a question may read."""
        over = max(rows / self._max_rows, size / self._max_bytes)
        if over <= 1:
            return
        there = 0 if coverage.first is None or coverage.last is None else coverage.last - coverage.first
        pane = self._form.lengths[0]
        fits = int(there * 0.9 / over) // pane * pane
        shorter = f"ask for at most {format_duration(fits)} at a time, or " if fits else ""
        raise TooMuch(
            f"the range holds {rows} rows and {size} bytes, a question may read {self._max_rows} and "
            f"{self._max_bytes}; {shorter}name one model, version and slice"
        )

    # -- ranges --------------------------------------------------------------------------------------------------

    def _result(
        self,
        db: sqlite3.Connection,
        coverage: Coverage,
        pair: tuple[int, int],
        series: Series,
        where: Slice,
        share: float | None,
        newest: int | None,
        design: Mapping[str, float] | None,
    ) -> Result:
        layout = self._form.overall if where is None else self._form.slice
        dense = np.zeros(layout.size, np.int64)
        within = (coverage.start, coverage.end)
        query = f"SELECT start, partition, sums, scores FROM vectors WHERE series = ? AND slice = ? AND {RANGE}"
        for row in db.execute(query, (*pair, *within)):
            _add(dense, *row)
        ranked, sampled, error = None, 1.0, None
        if where is None:
            sample = _sample(db, pair[0], *within)
            (ranked, error), sampled = user_samples.rank(sample, self._form.weighting), 0.5**sample.k
        result = make_result(
            series, "range", where, _view(dense, layout, ranked), layout, self._quantiles, share, newest,
            None if where is None else design,
        )  # fmt: skip
        if where is None and self._form.weighting == "value":
            result = replace(
                result,
                metrics={**result.metrics, **dict.fromkeys(_OF_USERS)},
                reasons={**result.reasons, **dict.fromkeys(_OF_USERS, NOT_KEPT)},
            )
        return replace(
            result,
            window_start=coverage.start,
            window_end=coverage.end,
            users_sampled=sampled,
            gauc_sampling_error=error,
        )

    # -- points --------------------------------------------------------------------------------------------------

    def _own_slots(
        self,
        db: sqlite3.Connection,
        coverage: Coverage,
        series: int,
        metric: str,
        within: dict[Slot, Slot],
        skip: Set[int],
    ) -> dict[Slot, tuple[int, int]]:
        """(rows, bytes to read) by slot of one series."""
        size = "bytes" if metric in _OF_SCORES else "length(sums)"
        mine = (series, coverage.start, coverage.end)
        out: defaultdict[Slot, list[int]] = defaultdict(lambda: [0, 0])
        query = f"SELECT level, start, {size} FROM vectors WHERE series = ? AND slice = {OVERALL} AND {RANGE}"
        for level, start, cost in db.execute(query, mine):
            slot = within[level, start]
            if slot[0] or slot[1] not in skip:
                out[slot][0] += 1
                out[slot][1] += cost
        if metric in _OF_USERS:
            query = f"SELECT level, start, length(entries) FROM samples WHERE series = ? AND {RANGE}"
            for level, start, cost in db.execute(query, mine):
                if within[level, start] in out:
                    out[within[level, start]][1] += cost
        return {slot: (rows, cost) for slot, (rows, cost) in out.items()}

    def _points(
        self,
        db: sqlite3.Connection,
        coverage: Coverage,
        series: int,
        metric: str,
        within: dict[Slot, Slot],
        kept: list[Slot],
    ) -> Iterator[Point]:
        wanted = set(kept)
        scores = ", scores" if metric in _OF_SCORES else ""
        since = min((start for _, start in kept), default=coverage.end)
        query = (
            f"SELECT level, start, partition, sums{scores} FROM vectors WHERE series = ? AND slice = {OVERALL} AND {RANGE} "
            "ORDER BY start"
        )
        rows = db.execute(query, (series, since, coverage.end))
        layout = self._form.overall
        for slot, group in groupby(rows, key=lambda row: within[row[0], row[1]]):
            if slot not in wanted:
                continue
            dense = np.zeros(layout.size if scores else layout.blocks, np.int64)
            for _, *row in group:
                _add(dense, *row)
            if not dense[IMPRESSIONS]:  # only a request that began here, of impressions elsewhere
                continue
            ranked, error = _NOBODY, None
            length = self._form.lengths[slot[0]]
            if metric in _OF_USERS:
                sample = _sample(db, series, slot[1], slot[1] + length)
                ranked, error = user_samples.rank(sample, self._form.weighting)
            yield self._point(slot[1], length, metric, _view(dense, layout, ranked), error)

    def _point(self, start: int, length: int, metric: str, view: View, error: float | None) -> Point:
        found = _FUNCTIONS[metric](view)
        if metric in _OF_USERS and self._form.weighting == "value":
            found = Undefined(NOT_KEPT)
        value, reason = (None, found.reason) if isinstance(found, Undefined) else (float(found), None)
        if metric == "auc" and value is not None:
            certified = ranking.auc_error(view)
            error = None if isinstance(certified, Undefined) else certified
        elif metric == "gauc" and value is not None:
            error = error or 0.0
        else:
            error = None
        m = view.moments
        return Point(start, length, value, reason, m.impressions, m.clicks, m.corrected, error)


def _add(dense: NDArray[np.int64], start: int, partition: int, *blobs: bytes) -> None:
    """Adds a row's vector. Raises CodecError that says which part it is."""
    try:
        for blob in blobs:
            decode(blob).add_to(dense)
    except CodecError as error:
        raise CodecError(f"partition {partition}, from {start} ms: {error}") from error


def _view(dense: NDArray[np.int64], layout: Layout, ranked: Ranked | None) -> View:
    negatives, positives = read_histogram(dense, layout)
    blocks = read_blocks(dense, layout) if layout.by_block and dense.size == layout.size else None
    return View(Moments.read(dense), read_buckets(dense, layout), negatives, positives, ranked, None, blocks)


def _sample(db: sqlite3.Connection, series: int, start: int, end: int) -> UserSample:
    """One sample of all in the range, under the largest k among them."""
    within = (series, start, end)
    k = db.execute(f"SELECT max(k) FROM samples WHERE series = ? AND {RANGE}", within).fetchone()[0] or 0
    held: list[UserSample] = []
    size = 0
    for (blob,) in db.execute(f"SELECT entries FROM samples WHERE series = ? AND {RANGE}", within):
        held.append(user_samples.decode(blob).deeper(k))
        size += held[-1].users.size
        if size > 2 * RANKED:
            held = [user_samples.together(held, RANKED)]
            size, k = held[0].users.size, held[0].k
    return user_samples.together(held, RANKED)


def _series(db: sqlite3.Connection) -> dict[int, Series]:
    return {row[0]: Series(*row[1:]) for row in db.execute("SELECT id, model, version, source FROM series")}


def _slices(db: sqlite3.Connection) -> dict[int, Slice]:
    rows = db.execute("SELECT id, dimension, value FROM slices")
    return {OVERALL: None, **{number: (dimension, value) for number, dimension, value in rows}}


def _name(series: Series) -> tuple[str, str, str]:
    return series.model, series.version, series.source
