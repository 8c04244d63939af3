"""Impressions + clicks -> labelled impressions, in event time. Columnar, bounded, never reads a clock.

Two inputs are two logs, and the outcome of an event is a function of them alone (see `kernel`). So labels mature when
*both* have passed the end of the window: `Progress.firm`. The watermark is further ahead while one input is silent and
the other is not: impressions up to it can be shown to readers with their current labels (`show`), until they mature.

An impression matures when `firm` passes its time + attribution window. It takes 57 bytes here (61 with very many slice
combinations; 1 once its file is mapped, see `cold.written`), 6 to 16 in the id index, 16 for every online model's score, and
the memory of its features until it matures.
Rows are in arrival order in parallel arrays (`Table`); `Runs` have what varies in length, and return mature rows in
(time, arrival) order. `kernel` decides the outcome of every event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.events.batch import Batch
from streameval.events.codes import Codes
from streameval.events.columns import Scored, field_of
from streameval.join import kernel
from streameval.join.cold.cold_rows import ColdRows
from streameval.join.cold.segment import RowsFile
from streameval.join.cold.written import WrittenRows
from streameval.join.fates import NO_FATES, Flips, Judged, fates_of, flips_of
from streameval.join.held import HeldClicks
from streameval.join.index import IdIndex
from streameval.join.maturity import Maturity
from streameval.join.pending import PendingImpressions
from streameval.join.policy import DELAY_EDGES, FOREVER, MATURED, NEVER, JoinPolicy
from streameval.join.progress import Progress
from streameval.join.rows import Table, run_of
from streameval.join.runs import Runs
from streameval.join.scores import scores_of
from streameval.join.times import RowTimes

_NO_TIMES = np.empty(0, np.int64)
_NO_NUMBERS = np.empty(0, np.int32)


class Joiner:
    """The impressions and clicks of one partition: pending, or mature and still correctable."""

    def __init__(
        self,
        policy: JoinPolicy,
        models: tuple[str, ...] = (),
        shared: bool = True,
        on_move: Callable[[int], None] | None = None,
    ) -> None:
        """`models`: what the scores of online models are kept under; `on_move` is called with s when every row number has become smaller by s."""
        self.policy = policy
        self._on_move = on_move
        self._rules = kernel.rules_of(policy)
        self.progress = Progress(policy, 1 if shared else 2)
        self.counts: Counter[str] = Counter()
        self.delays = np.zeros(len(DELAY_EDGES) + 1, np.int64)  # the last cell is the sum, ms
        self.cold = ColdRows(policy.segment_rows)
        self.written = WrittenRows(policy.segment_rows)
        self.table = Table.allocate(1024, policy, models, self.cold.any)
        self._index = IdIndex()
        self._start = 0  # rows before it have been dropped
        self._end = 0
        self._touched = 0  # rows of the table that have ever been written to
        self.runs = Runs()  # of the live rows
        self._labels = Maturity(policy, self.runs, self.progress, self.counts)
        self._times = RowTimes()
        self._held = HeldClicks(policy.of_clicks)
        self.judged = Judged()
        self._conflicts = _NO_NUMBERS  # see take_conflicts
        self.fates = NO_FATES  # of the last batch
        self.accepted: NDArray[np.int32] = _NO_NUMBERS  # of the last batch that had new impressions
        self._shown = False  # whether a checkpoint may still read the table's columns: rows must not move within them

    # -- events --------------------------------------------------------------------------------------------------

    def add(self, batch: Batch) -> tuple[NDArray[np.int64], Flips]:
        """Joins a batch. Returns the rows of its new impressions, and mature labels that its clicks changed."""
        imp, clk = batch.impressions, batch.clicks
        self._reserve(len(imp), len(clk))
        start, index, held = self._end, self._index, self._held
        n = self._rules.rule.size
        names = [field.given_as or field.name for field in self.policy.of_clicks]
        given = np.array([field_of(clk, name) for name in names]).reshape(n, len(clk))
        out = kernel.room_for(len(imp), len(clk), held.end, n, self.delays)
        index.fetch(imp.id)
        merged = self.progress.inputs == 2 and bool(self.cold.segments)
        key = np.maximum.accumulate(np.maximum(clk.ts, self.progress.newest[-1])) if merged else None
        cold = self.cold.fetch(self.table, self._start, imp.id, clk.id, key)
        self._end, held_end, flips = kernel.join_batch(
            kernel.ImpressionColumns(imp.order, imp.id, imp.ts, imp.label),
            kernel.ClickColumns(clk.order, clk.id, clk.ts, given),
            self.progress.newest,
            self._rules,
            self._columns(n),
            kernel.KnownIds(index.columns, cold),
            held.columns,
            out,
        )
        held.grown_to(held_end)
        self._touched = max(self._touched, self._end)
        rows = np.arange(start, self._end, dtype=np.int64)
        index.used += rows.size
        self.progress.heard(self.table.state[start : self._end], len(clk))
        if rows.size:
            self.accepted = accepted = out.accepted[: rows.size]
            self.table.fill(start, imp, accepted, self.policy)
            self.runs.add(run_of(imp, accepted, start, self.table.ts), self.table.ts)
            self._times.add(start, self.table.ts[start : self._end])
        self._count(batch, out.counters, rows.size)
        again = slice(out.counters[kernel.DUPLICATE_IMPRESSIONS])
        repeated = out.repeated[again]
        refused = self._tell_conflicts(batch, repeated, out.repeated_row[again])
        found = slice(out.counters[kernel.FOUND])
        self.fates = fates_of(batch, out, repeated[refused], out.repeated_key[again][refused], self.table)
        self.judged.add(out.found_ts[found], out.lost_ts[: out.counters[kernel.LOST]])
        self.cold.note(out.flip_row[:flips])
        return rows, flips_of(out, flips)

    def _columns(self, fields: int) -> kernel.RowColumns:
        """The table as the kernel reads it, with the fields of clicks."""
        t = self.table
        return kernel.RowColumns(t.id, t.ts, t.behind, t.state, t.fields[:fields], self._start, self._end)

    def mature(self, watermark: int) -> NDArray[np.int64]:
        """Matures and returns the rows whose attribution window ends at or before the watermark.

        In order of time, then of arrival.
        """
        return self._labels.take_due(self.table, watermark)

    def show(self) -> NDArray[np.int64]:
        """Marks and returns rows that the watermark has passed, but `firm` has not, and that are not shown yet; in order of time.

        They count as matured for readers, with their current labels; `mature` returns them again.
        """
        return self._labels.show(self.table, self._end)

    def hide(self, rows: NDArray[np.int64]) -> None:
        """Undoes `show` for rows that have not matured; it may return them again."""
        self._labels.hide(self.table, rows)

    def forget(self) -> None:
        """Drops rows and held clicks that are older than the correction horizon."""
        horizon, progress = self.policy.correction_horizon, self.progress
        if progress.inputs == 1:
            self._give_up(self._held.expire(progress.firm - horizon))
        else:  # future impressions have at least the key of the newest one, so they come after these clicks
            newest = int(progress.newest[0])
            self._give_up(self._held.expire(newest - self.policy.allowed_lateness - horizon, newest))
            self._give_up(self._held.expire(progress.given_up - horizon))
        before = self._start
        self._start = self._with_lost(
            kernel.first_kept(
                self.table.ts, self.table.state, self._start, self._end, progress.passed - horizon - self.policy.hold
            )
        )
        surplus = self.in_memory - self.policy.max_pending
        if surplus > 0:
            upto = self.cold.end(self._start) + surplus
            forced = int(kernel.first_kept(self.table.ts, self.table.state, self._start, upto, FOREVER))
            self.counts["forgotten_early"] += forced - self._start
            self._start = forced
        self._labels.mature -= self._start - before
        self.runs.forget_before(self._start)
        self._times.forget_before(self._start)
        self.cold.forget_before(self.table, self._start)

    def pressure_watermark(self) -> int:
        """The watermark at which enough pending impressions mature to meet the limit; NEVER while it is met."""
        return self._labels.pressure_watermark(self.table, self.outside_segments, self.known)

    def finish(self) -> None:
        """The stream has ended: the watermark advances to infinity, and clicks still held are unmatched."""
        self.progress.finish()
        self._give_up(self._held.expire(FOREVER))

    # -- reading -------------------------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """Impressions whose label is neither mature nor shown."""
        return self.known - self._labels.mature - self._labels.shown

    def newest_pending(self, most: int, online_series: list[int]) -> PendingImpressions:
        """Up to `most` of the newest impressions whose label is not mature (among the newest `4 * most`)."""
        first = max(self.cold.end(self._start), self._end - 4 * most)
        rows = np.flatnonzero(self.table.state[first : self._end] & MATURED == 0) + first
        rows = rows[max(0, rows.size - most) :]
        return PendingImpressions.of(self.table, rows, self.progress.newest_label, self.scored(rows, online_series))

    def shown_since(self, ts: int) -> NDArray[np.int64]:
        """Rows in memory with a time of at least `ts`, ms."""
        first = self.cold.end(self._start)
        return np.flatnonzero(self.table.ts[first : self._end] >= ts) + first

    @property
    def waiting(self) -> int:
        """The first row whose label is pending: all before it are mature."""
        first = self.runs.first_waiting
        return self._end if first is None else first

    @property
    def pending_rows(self) -> slice:
        """The rows from `waiting` on."""
        return slice(self.waiting, self._end)

    @property
    def known(self) -> int:
        """Impressions that clicks can still find: pending, or mature and inside the correction horizon."""
        return self._end - self._start

    @property
    def in_memory(self) -> int:
        """Known impressions that are in no segment."""
        return self._end - self.cold.end(self._start)

    @property
    def outside_segments(self) -> slice:
        """The rows that are in no segment; their immutable columns may be in files nevertheless."""
        return slice(self.cold.end(self._start), self._end)

    @property
    def held(self) -> int:
        """Clicks that wait for their impression."""
        return self._held.waiting_between(NEVER, FOREVER)

    def series_in_use(self) -> set[int]:
        """The series of all rows, logged or shadow."""
        here = np.bincount(self.table.series[self.cold.end(self._start) : self._end])
        return set(np.flatnonzero(here).tolist()) | self.runs.shadow_series() | self.cold.series()

    @property
    def front(self) -> int:
        """The first known row."""
        return self._start

    def rows_between(self, low: int, high: int) -> NDArray[np.int64]:
        """[n, 2]: ranges of rows that contain all known rows with times in [low, high), in ms, and others; to be read now."""
        spans = self._times.between(low, high, self._start, self._end)
        self.cold.check(spans[:, 0], spans[:, 1])
        return spans

    def check_requests(self, rows: NDArray[np.int64]) -> None:
        """Has files compared before rows are read, and those that precede them in their requests; see `cold.unchecked`."""
        while self.cold.unchecked and rows.size:
            rows = rows[rows >= self._start]
            self.cold.check(rows, rows + 1)
            back = self.table.previous[rows]
            rows = (rows - back)[back != 0]

    def overdue_clicks(self, since: int = NEVER) -> int:
        """Held clicks from `since` on that are older than the watermark: their impression should have arrived by now."""
        return self._held.waiting_between(since, self.progress.watermark)

    def take_conflicts(self) -> NDArray[np.int32]:
        """The rejected impressions of the last batch, by number: their id belongs to another version."""
        refused, self._conflicts = self._conflicts, _NO_NUMBERS
        return refused

    def scored(self, rows: NDArray[np.int64], online_series: list[int], grace: int = 0) -> Scored:
        """Every score of the rows, see `scores`."""
        scored = scores_of(self.table, self.runs, rows, online_series, grace)
        if self.policy.recalibrate is not None:
            self.policy.recalibrate(scored)
        return scored

    @property
    def nbytes(self) -> int:
        """Bytes of the rows, the indexes and the held clicks, without features, pages never written to, and files."""
        row = sum(column.itemsize for column in self.table.columns().values())
        rows = self._touched - sum(segment.file.rows for segment in self.cold.segments)
        rows_bytes = row * rows - self.written.mapped_bytes(self.table, self.outside_segments)
        return rows_bytes + self.cold.nbytes + self._index.nbytes + self._held.nbytes

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def state(self, scores_change: bool) -> dict[str, Any]:
        """Everything, for `restore`: copies of mutable data, views of immutable data.

        `scores_change`: online scores of these rows may still be written (`score_at = "label"`).
        """
        self._shown = True
        table, first, base = self.table, self.cold.end(self._start), self.cold.base(self._start)
        here = slice(first, self._end)
        online = {name: column[here] for name, column in table.online().items()}
        return {
            **self.progress.state(),
            "counts": dict(self.counts),
            "delays": self.delays.copy(),
            "mature": self._labels.mature,
            "cold": self.cold.state(table, self._start),
            **self.written.state(table, here),
            "online": {name: column.copy() for name, column in online.items()} if scores_change else online,
            "held": self._held.state(),
            "runs": self.runs.state(first, base),
        }

    def state_written(self) -> None:
        """What `state` returned is no longer read."""
        self._shown = False

    def restore(
        self,
        state: Mapping[str, Any],
        codes: Codes,
        files: Sequence[RowsFile] = (),
        models: tuple[str, ...] | None = None,
    ) -> None:
        """Restores what `state` returned, into a joiner without rows; `files`: those of the rows that were on disk; `models`: from
        now on.

        Raises OSError when a file cannot be mapped.
        """
        self.counts.clear()
        self.counts.update(state["counts"])
        self.delays[:] = state["delays"]
        flags = state["rows"]["state"]
        first = sum(file.rows for file in files)
        end = self._touched = self._end = first + flags.size
        here = slice(first, end)
        files_too, names = self.cold.any or first > 0, self.table.models if models is None else models
        self.table = table = Table.allocate(max(1024, end + end // 4), self.policy, names, files_too)
        self.written.restore(state, table, codes, here)
        table.restore_online(state["online"], here)
        self._index.fill(table.id, first, end)
        waiting = flags[flags & MATURED == 0]
        self._labels.restore(state["mature"], waiting)
        self.progress.restore(state, waiting)
        self._held.restore(state["held"])
        self.runs.restore(state["runs"], codes, table.ts)
        if files:
            self.cold.restore(state["cold"], files, codes, table, self.runs, self._times)
            self._start = state["cold"]["front"]
        self._times.add(first, table.ts[here])

    # -- internal ------------------------------------------------------------------------------------------------

    def _give_up(self, clicks: NDArray[np.int64]) -> None:
        self.counts["unmatched_clicks"] += clicks.size
        self.judged.add(_NO_TIMES, clicks)

    def _with_lost(self, first: int) -> int:
        """The first row to keep: lost ones have no time, so they go with the next one, as their file may be put back."""
        for segment in reversed(self.cold.segments):
            if segment.file.lost and segment.end == first:
                first = max(segment.first, self._start)
        return int(first)

    def _tell_conflicts(self, batch: Batch, repeated: NDArray[np.int32], rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Among impressions with a known id: one of another model or version is not a duplicate, and must not be
        dropped silently."""
        others = batch.impressions.series[repeated] != self.table.series[rows]
        if others.any():
            self._conflicts = repeated[others]
            self.counts["duplicate_impressions"] -= self._conflicts.size
            self.counts["conflicting_impressions"] += self._conflicts.size
        return others

    def _count(self, batch: Batch, counters: NDArray[np.int64], added: int) -> None:
        self.counts["impressions"] += added
        self.counts["clicks"] += len(batch.clicks)
        for name, cell in kernel.COUNTED.items():
            self.counts[name] += int(counters[cell])

    def _reserve(self, impressions: int, clicks: int) -> None:
        capacity = self.table.id.size
        if self._end + impressions > capacity:
            live, here = self._end - self.cold.front(self._start), not self._shown and not self.cold.any
            if here and self._start > self._end // 4 and live + impressions <= capacity:
                self._move(self.table)
            else:  # pages never written to take no memory
                self._move(
                    Table.allocate(max(live + impressions, 2 * live), self.policy, self.table.models, self.cold.any)
                )
        self._index.reserve(impressions, self.table.id, self.cold.end(self._start), self._end)
        self._give_up(self._held.reserve(clicks, self.policy.max_pending))

    def _move(self, to: Table) -> None:
        """Moves the rows to the front of a table (possibly the same) and renumbers them: from 0, if none are on disk."""
        shift, first = self.cold.front(self._start), self.cold.end(self._start)
        to.given[:] = self.table.given
        self.written.move(self.table, to, slice(first, self._end), shift)
        self.cold.move(self.table, to, shift)
        self._start, self._end = self._start - shift, self._end - shift
        if to is not self.table:
            self.table, self._touched, self._shown = to, self._end, False
        self.runs.move(shift)
        self._times.move(shift)
        self._index.shift += shift
        if self._on_move is not None:
            self._on_move(shift)
