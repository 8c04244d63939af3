"""Impressions + clicks -> labelled impressions, in event time. Columnar, bounded, never reads a clock.

Two inputs are two logs, and what becomes of an event is a function of them alone (see `kernel`). So labels mature when
*both* have passed the end of the window: `Progress.firm`. The watermark is further ahead while an input is silent and
the other is not: for readers, impressions up to it can be `show`n as they are, until they mature.

An impression matures when `firm` passes its time + attribution window. It costs 57 bytes here (61 with very
many slice combinations), 6 to 16 in the id index, 16 for every online model's score, and what its features take until
it matures. Rows lie in arrival order in parallel arrays (`Table`); what varies in length is kept by `Runs`, which give
out the mature rows in (time, arrival) order. `kernel` decides what becomes of every event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.events.batch import Batch, Codes
from streameval.events.columns import Scored, field_of
from streameval.join import kernel
from streameval.join.held import HeldClicks
from streameval.join.index import IdIndex
from streameval.join.policy import CLICKED, CORRECTED, DELAY_EDGES, FOREVER, MATURED, NEVER, SHOWN, JoinPolicy
from streameval.join.progress import Progress
from streameval.join.rows import UNCHANGING, Table, run_of, split_fields
from streameval.join.runs import Runs
from streameval.join.scores import scores_of
from streameval.join.times import RowTimes

_NO_TIMES = np.empty(0, np.int64)
_NO_NUMBERS = np.empty(0, np.int32)


@dataclass(frozen=True, slots=True)
class Flips:
    """Labels that changed after they had matured: what stood before, by row."""

    rows: NDArray[np.int64]
    was_clicked: NDArray[np.bool_]
    was_fields: NDArray[np.float64]  # [fields of clicks that rows keep, flips]
    was_corrected: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Fates:
    """Of a batch, times and keys (see `kernel`): its clicks; clicks that met their impression, with the key at which both
    had come; impressions that were refused, because their id is another version's.
    """

    clicks: tuple[NDArray[np.int64], NDArray[np.int64]]
    found: tuple[NDArray[np.int64], NDArray[np.int64]]
    refused: tuple[NDArray[np.int64], NDArray[np.int64]]


class Joiner:
    """The impressions and clicks of one partition: pending, or mature and still correctable."""

    def __init__(
        self,
        policy: JoinPolicy,
        online_models: int = 0,
        shared: bool = True,
        on_move: Callable[[int], None] | None = None,
    ) -> None:
        """`on_move` is called with s when every row number has become smaller by s."""
        self.policy = policy
        self._on_move = on_move
        of_clicks = [field for field in policy.keep if field.join is not None]  # they come first in `keep`
        self._rules = kernel.Rules(
            policy.attribution_window,
            policy.allowed_lateness,
            policy.correction_horizon,
            np.array([field.join for field in of_clicks], np.int64),
            np.array([field.absent for field in of_clicks], np.float64),
            np.array(DELAY_EDGES),
        )
        self.progress = Progress(policy, 1 if shared else 2)
        self.counts: Counter[str] = Counter()
        self.delays = np.zeros(len(DELAY_EDGES) + 1, np.int64)  # the last cell is the sum, ms
        self._online = online_models
        self.table = Table.allocate(1024, policy, online_models)
        self._index = IdIndex()
        self._start = 0  # rows before it are forgotten
        self._end = 0
        self._touched = 0  # rows of the table that have been written to
        self._mature = 0
        self._on_show = 0  # rows that are shown, and not mature
        self.runs = Runs()  # of the live rows
        self._times = RowTimes()
        self._held = HeldClicks(of_clicks)
        self._found: list[NDArray[np.int64]] = []  # see take_judged
        self._lost: list[NDArray[np.int64]] = []
        self._conflicts = _NO_NUMBERS  # see take_conflicts
        self.fates = Fates(*((_NO_TIMES, _NO_TIMES) for _ in range(3)))  # of the last batch
        self.accepted: NDArray[np.int32] = _NO_NUMBERS  # of the last batch's impressions, when there were any
        self._shown = False  # somebody may still read the table's columns: rows must not move within them

    # -- events --------------------------------------------------------------------------------------------------

    def add(self, batch: Batch) -> tuple[NDArray[np.int64], Flips]:
        """Takes a batch in. Returns the rows of its new impressions, and the mature labels that its clicks changed."""
        imp, clk = batch.impressions, batch.clicks
        self._reserve(len(imp), len(clk))
        start, index, held = self._end, self._index, self._held
        n = self._rules.rule.size
        names = [field.given_as or field.name for field in self.policy.keep[:n]]
        given = np.array([field_of(clk, name) for name in names]).reshape(n, len(clk))
        out = kernel.room_for(len(imp), len(clk), held.end, n, self.delays)
        index.fetch(imp.id)
        self._end, held_end, flips = kernel.join_batch(
            kernel.ImpressionColumns(imp.order, imp.id, imp.ts, imp.label),
            kernel.ClickColumns(clk.order, clk.id, clk.ts, given),
            self.progress.newest,
            self._rules,
            self._columns(n),
            index.columns,
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
        self.fates = Fates(
            (clk.ts, out.click_key),
            (out.found_ts[found], out.found_key[found]),
            (imp.ts[repeated[refused]], out.repeated_key[again][refused]),
        )
        self._found.append(out.found_ts[found])
        self._lost.append(out.lost_ts[: out.counters[kernel.LOST]])
        was, before = out.flip_state[:flips], out.flip_fields[:, :flips]
        return rows, Flips(out.flip_row[:flips], (was & CLICKED) != 0, before, (was & CORRECTED) != 0)

    def _columns(self, fields: int) -> kernel.RowColumns:
        """The table as the kernel sees it, with the fields of clicks."""
        t = self.table
        return kernel.RowColumns(t.id, t.ts, t.behind, t.state, t.fields[:fields], self._start, self._end)

    def mature(self, watermark: int) -> NDArray[np.int64]:
        """Rows whose attribution window ends at or before the watermark and that were not given out yet.

        In order of time, then of arrival.
        """
        rows = self.runs.take_due(watermark - self.policy.attribution_window, self.table.ts)
        if not rows.size:
            return rows
        state = self.table.state[rows]
        self.table.state[rows] = state | MATURED
        shown = int(np.count_nonzero(state & SHOWN))
        self._mature += rows.size
        self._on_show -= shown
        self.counts["matured"] += rows.size - shown
        self.progress.matured(state)
        return rows

    def show(self) -> NDArray[np.int64]:
        """Rows that the watermark has passed, but not `firm`, and that were not given here before; in order of time.

        They count as matured for readers, as their labels are now; `mature` gives them out again.
        """
        first = self.runs.first_waiting
        if self.progress.watermark <= self.progress.firm or first is None:
            return np.empty(0, np.int64)
        table, waiting = self.table, slice(first, self._end)
        limit = self.progress.watermark - self.policy.attribution_window
        rows = np.flatnonzero((table.state[waiting] & (MATURED | SHOWN) == 0) & (table.ts[waiting] <= limit)) + first
        rows = rows[np.argsort(table.ts[rows], kind="stable")]
        table.state[rows] |= SHOWN
        self._on_show += rows.size
        self.counts["matured"] += rows.size
        return rows

    def hide(self, rows: NDArray[np.int64]) -> None:
        """Rows that `show` gave, and that have not matured, may be given there again."""
        self.table.state[rows] &= ~np.uint8(SHOWN)
        self._on_show -= rows.size
        self.counts["matured"] -= rows.size

    def forget(self) -> None:
        """Lets go of what the correction horizon has passed: rows, and held clicks that nothing claimed."""
        horizon, progress = self.policy.correction_horizon, self.progress
        if progress.inputs == 1:
            self._give_up(self._held.expire(progress.firm - horizon))
        else:  # every impression to come has a key of the newest one at the least, so it comes after these
            newest = int(progress.newest[0])
            self._give_up(self._held.expire(newest - self.policy.allowed_lateness - horizon, newest))
            self._give_up(self._held.expire(progress.given_up - horizon))
        before = self._start
        self._start = int(
            kernel.first_kept(
                self.table.ts, self.table.state, self._start, self._end, progress.passed - horizon - self.policy.hold
            )
        )
        surplus = self._end - self._start - self.policy.max_pending
        if surplus > 0:
            forced = int(
                kernel.first_kept(self.table.ts, self.table.state, self._start, self._start + surplus, FOREVER)
            )
            self.counts["forgotten_early"] += forced - self._start
            self._start = forced
        self._mature -= self._start - before
        self.runs.forget_before(self._start)
        self._times.forget_before(self._start)

    def pressure_watermark(self) -> int:
        """The watermark that brings the pending impressions under the limit: NEVER while they are."""
        surplus = self._end - self._start - self._mature - self.policy.max_pending
        if surplus <= 0:
            return NEVER
        pending = np.flatnonzero(self.table.state[self._start : self._end] & MATURED == 0) + self._start
        self.counts["matured_early"] += surplus
        return int(np.partition(self.table.ts[pending], surplus - 1)[surplus - 1]) + self.policy.attribution_window

    def finish(self) -> None:
        """The stream has ended: the watermark goes to infinity and clicks still held are unmatched."""
        self.progress.finish()
        self._give_up(self._held.expire(FOREVER))

    # -- reading -------------------------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """Impressions whose label is not mature, nor shown."""
        return self._end - self._start - self._mature - self._on_show

    def pending_rows(self, most: int) -> NDArray[np.int64]:
        """The newest rows whose label is not mature, at most so many, in order of arrival (of the newest `4 * most` rows)."""
        first = max(self._start, self._end - 4 * most)
        rows = np.flatnonzero(self.table.state[first : self._end] & MATURED == 0) + first
        return rows[max(0, rows.size - most) :]

    @property
    def known(self) -> int:
        """Impressions that clicks can still find: pending, or mature and inside the correction horizon."""
        return self._end - self._start

    @property
    def held(self) -> int:
        """Clicks that wait for their impression."""
        return self._held.waiting_between(NEVER, FOREVER)

    def series_in_use(self) -> set[int]:
        """The series that rows here have, logged or shadow."""
        return set(np.unique(self.table.series[self._start : self._end]).tolist()) | self.runs.shadow_series()

    @property
    def front(self) -> int:
        """The first row that is still known."""
        return self._start

    def rows_between(self, low: int, high: int) -> NDArray[np.int64]:
        """[n, 2]: from which row up to which all known rows of times [low, high), in ms, are; others are among them."""
        return self._times.between(low, high, self._start, self._end)

    def overdue_clicks(self, since: int = NEVER) -> int:
        """Held clicks from `since` on that are older than the watermark: their impression should have come by now."""
        return self._held.waiting_between(since, self.progress.watermark)

    def take_judged(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The times of the clicks that have found their impression, and of those given up, since the last call."""
        found, lost = (np.concatenate([_NO_TIMES, *parts]) for parts in (self._found, self._lost))
        self._found.clear()
        self._lost.clear()
        return found, lost

    def take_conflicts(self) -> NDArray[np.int32]:
        """Of the last batch's impressions those that were refused, by number: their id is another version's."""
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
        """Bytes of the rows, the indexes and the held clicks, features apart; room never touched takes none."""
        rows = sum(column.itemsize for column in self.table.arrays() if column.size) * self._touched
        return rows + self._index.nbytes + self._held.nbytes

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def state(self, scores_change: bool) -> dict[str, Any]:
        """Everything, for `restore`: copies of what changes, views of what was written once and for all.

        `scores_change`: online scores are still to be written to rows that are here (`score_at = "label"`).
        """
        self._shown = True
        live = slice(self._start, self._end)
        table = self.table
        rows: dict[str, Any] = {name: getattr(table, name)[live] for name in UNCHANGING}
        rows |= {"state": table.state[live].copy(), "mark": table.mark[live], "item_id": table.item_id[live]}
        kept = [(i, field.name) for i, field in enumerate(self.policy.keep) if table.given[i]]
        rows["fields"] = {name: table.kept_field(i, live) for i, name in kept}
        online = [column[live] for column in (*table.score, *table.trained)]
        return {
            **self.progress.state(),
            "counts": dict(self.counts),
            "delays": self.delays.copy(),
            "mature": self._mature,
            "rows": rows,
            "online": [column.copy() for column in online] if scores_change else online,
            "held": self._held.state(),
            "runs": self.runs.state(self._start),
        }

    def state_written(self) -> None:
        """Nobody reads what `state` gave any more."""
        self._shown = False

    def restore(self, state: Mapping[str, Any], codes: Codes) -> None:
        """Takes over what `state` gave, into a joiner without rows."""
        self.counts, self.delays[:] = Counter(state["counts"]), state["delays"]
        self._mature = state["mature"]
        rows, fields = split_fields(state["rows"])
        rows["series"] = codes.series[rows["series"]]
        rows["slices"] = codes.slices(rows["slices"].astype(np.int64))
        n = self._touched = self._end = len(rows["id"])
        self.table = table = Table.allocate(max(1024, n + n // 4), self.policy, self._online)
        table.restore(rows, fields, n)
        for column, saved in zip((*table.score, *table.trained), state["online"], strict=True):
            column[:n] = saved
        self._index.reserve(n, table.id, 0, 0)
        self._index.fill(table.id, n)
        waiting = rows["state"][rows["state"] & MATURED == 0]
        self._on_show = int(np.count_nonzero(waiting & SHOWN))
        self.progress.restore(state, waiting)
        self._held.restore(state["held"])
        self.runs.restore(state["runs"], codes, table.ts)
        self._times.add(0, table.ts[:n])

    # -- inside --------------------------------------------------------------------------------------------------

    def _give_up(self, clicks: NDArray[np.int64]) -> None:
        self.counts["unmatched_clicks"] += clicks.size
        if clicks.size:
            self._lost.append(clicks)

    def _tell_conflicts(self, batch: Batch, repeated: NDArray[np.int32], rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Of impressions whose id is known: who is of another model or version is no copy, and must not go in silence."""
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
            live = self._end - self._start
            if self._start > self._end // 4 and live + impressions <= capacity and not self._shown:
                self._move(self.table)
            else:  # untouched room takes no memory
                self._move(Table.allocate(max(live + impressions, 2 * live), self.policy, self._online))
        self._index.reserve(impressions, self.table.id, self._start, self._end)
        self._give_up(self._held.reserve(clicks, self.policy.max_pending))

    def _move(self, to: Table) -> None:
        """Moves the live rows to the front of a table (maybe the same) and numbers them from 0."""
        shift, live = self._start, self._end - self._start
        to.given[:] = self.table.given
        for old, new in zip(self.table.arrays(), to.arrays(), strict=True):
            if new.size:
                new[:live] = old[shift : self._end]
        if to is not self.table:
            self.table, self._touched, self._shown = to, live, False
        self._start, self._end = 0, live
        self.runs.move(shift)
        self._times.move(shift)
        self._index.shift += shift
        if self._on_move is not None:
            self._on_move(shift)
