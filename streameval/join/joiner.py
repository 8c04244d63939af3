"""Impressions + clicks -> labelled impressions, in event time. Columnar, bounded, never reads a clock.

Two inputs are two logs, and what becomes of an event is a function of them alone (see `kernel`). So labels mature when
*both* have passed the end of the window: `Progress.firm`. The watermark is further ahead while an input is silent and
the other is not: for readers, impressions up to it can be `show`n as they are, until they mature.

An impression matures when `firm` passes its time + attribution window. It costs 57 bytes here (61 with very
many slice combinations), 6 to 16 in the id index, 16 for every online model's score, and what its features take until
it matures. Rows lie in arrival order in parallel arrays; a `Run` is the rows of one batch, and a heap of runs gives
out the mature ones in (time, arrival) order. `kernel` decides what becomes of every event.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.columns import Scored, csr_lengths, entries, take_features, take_scores
from streameval.events import Batch, Codes, Features, Names, Shadow
from streameval.join import kernel
from streameval.join.held import HeldClicks
from streameval.join.index import IdIndex
from streameval.join.policy import CLICKED, CORRECTED, DELAY_EDGES, FOREVER, MATURED, NEVER, SHOWN, JoinPolicy
from streameval.join.progress import Progress
from streameval.join.rows import Run, Table, compacted, first_due, interleave, trim
from streameval.join.saved_runs import pack_runs, unpack_runs
from streameval.sketches.blocks import item_blocks_of

_MANY_RUNS = 64
_NO_TIMES = np.empty(0, np.int64)
_NO_NUMBERS = np.empty(0, np.int32)
_FIXED = (  # columns that never change
    "id", "ts", "user", "request", "slices", "series", "pclick", "behind", "previous", "item",
)  # fmt: skip
_Part = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float64], NDArray[np.bool_]]  # of `Scored`


@dataclass(frozen=True, slots=True)
class Flips:
    """Labels that changed after they had matured: what stood before, by row."""

    rows: NDArray[np.int64]
    was_clicked: NDArray[np.bool_]
    was_value: NDArray[np.float64]
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
        self.progress = Progress(policy, 1 if shared else 2)
        self.counts: Counter[str] = Counter()
        self.delays = np.zeros(len(DELAY_EDGES) + 1, np.int64)  # the last cell is the sum, ms
        self._online = online_models
        self.table = self._allocate(1024)
        self._index = IdIndex()
        self._start = 0  # rows before it are forgotten
        self._end = 0
        self._touched = 0  # rows of the table that have been written to
        self._mature = 0
        self._on_show = 0  # rows that are shown, and not mature
        self._runs: list[Run] = []  # all runs with live rows, by start
        self._due: list[tuple[int, Run]] = []  # heap by the time of the run's next row
        self._compact_at = _MANY_RUNS
        self._held = HeldClicks()
        self._found: list[NDArray[np.int64]] = []  # see take_judged
        self._lost: list[NDArray[np.int64]] = []
        self._conflicts = _NO_NUMBERS  # see take_conflicts
        self.fates = Fates(*((_NO_TIMES, _NO_TIMES) for _ in range(3)))  # of the last batch
        self._shown = False  # somebody may still read the table's columns: rows must not move within them

    # -- events --------------------------------------------------------------------------------------------------

    def add(self, batch: Batch) -> tuple[NDArray[np.int64], Flips]:
        """Takes a batch in. Returns the rows of its new impressions, and the mature labels that its clicks changed."""
        imp, clk = batch.impressions, batch.clicks
        self._reserve(len(imp), len(clk))
        table, policy = self.table, self.policy
        index, held = self._index, self._held
        counters = np.zeros(kernel.COUNTERS, np.int64)
        accepted = np.empty(len(imp), np.int32)
        flip_row, flip_state = np.empty(len(clk), np.int64), np.empty(len(clk), np.uint8)
        flip_value = np.empty(len(clk), np.float64)
        click_key = np.empty(len(clk), np.int64)
        found_ts, found_key, lost_ts = (np.empty(len(clk) + held.end, np.int64) for _ in range(3))
        repeated = np.empty(len(imp), np.int32)
        repeated_row, repeated_key = np.empty(len(imp), np.int64), np.empty(len(imp), np.int64)
        start = self._end
        index.fetch(imp.id)
        self._end, held_end, flips = kernel.join_batch(
            imp.order, imp.id, imp.ts, imp.label, clk.order, clk.id, clk.ts, np.nan_to_num(clk.value, nan=0.0),
            self.progress.newest, policy.attribution_window, policy.allowed_lateness, policy.correction_horizon, table.id,
            table.ts, table.behind, table.state, table.value, index.places, index.bits, index.shift, self._start, start,
            held.id, held.ts, held.key, held.value, held.taken, held.index, held.end, accepted, flip_row, flip_state,
            flip_value, click_key, found_ts, found_key, lost_ts, repeated, repeated_row, repeated_key, counters,
            self.delays, np.array(DELAY_EDGES),
        )  # fmt: skip
        held.grown_to(held_end)
        self._touched = max(self._touched, self._end)
        rows = np.arange(start, self._end, dtype=np.int64)
        index.used += rows.size
        self.progress.heard(table.state[start : self._end], len(clk))
        self._fill(batch, accepted[: rows.size], rows)
        self._count(batch, counters, rows.size)
        again = slice(counters[kernel.DUPLICATE_IMPRESSIONS])
        refused = self._tell_conflicts(batch, repeated[again], repeated_row[again])
        found = slice(counters[kernel.FOUND])
        self.fates = Fates(
            (clk.ts, click_key),
            (found_ts[found], found_key[found]),
            (imp.ts[repeated[again][refused]], repeated_key[again][refused]),
        )
        self._found.append(found_ts[found])
        self._lost.append(lost_ts[: counters[kernel.LOST]])
        was = flip_state[:flips]
        return rows, Flips(flip_row[:flips], (was & CLICKED) != 0, flip_value[:flips], (was & CORRECTED) != 0)

    def mature(self, watermark: int) -> NDArray[np.int64]:
        """Rows whose attribution window ends at or before the watermark and that were not given out yet.

        In order of time, then of arrival.
        """
        limit = watermark - self.policy.attribution_window
        parts: list[tuple[int, NDArray[np.int64]]] = []
        while self._due and self._due[0][0] <= limit:
            _, run = heapq.heappop(self._due)
            order = run.due_order
            ts = (
                self.table.ts[run.start : run.end]
                if order is None
                else self.table.ts[run.start + order.astype(np.int64)]
            )
            upto = int(np.searchsorted(ts, limit, side="right"))
            due = np.arange(run.given, upto) if order is None else order[run.given : upto]
            parts.append((run.start, due.astype(np.int64) + run.start))
            run.given = upto
            if upto < run.end - run.start:
                heapq.heappush(self._due, (int(ts[upto]), run))
            else:
                run.due_order = None
        if not parts:
            return np.empty(0, np.int64)
        parts.sort(key=lambda part: part[0])
        rows = np.concatenate([part for _, part in parts])
        if len(parts) > 1:
            rows = rows[np.argsort(self.table.ts[rows], kind="stable")]
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
        if self.progress.watermark <= self.progress.firm or not self._due:
            return np.empty(0, np.int64)
        first = min(run.start for _, run in self._due)
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
        gone = 0
        while gone < len(self._runs) and self._runs[gone].end <= self._start:
            gone += 1
        del self._runs[:gone]

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
        used = set(np.unique(self.table.series[self._start : self._end]).tolist())
        for run in self._runs:
            if run.shadow is not None:
                used |= set(np.unique(run.shadow.series).tolist())
        return used

    @property
    def front(self) -> int:
        """The first row that is still known."""
        return self._start

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

    def features(self, rows: NDArray[np.int64]) -> list[tuple[slice, Features]]:
        """The features of rows in their order: pieces of consecutive positions; [] when the events carried none."""
        pieces: list[tuple[NDArray[np.int64], Features]] = []
        for run, where in self._by_run(rows):
            if run.features is None:
                return []
            pieces.append((where, take_features(run.features, rows[where] - run.start)))
        if len(pieces) > 1 and any(a[-1] > b[0] for (a, _), (b, _) in pairwise(pieces)):
            return [(slice(0, rows.size), interleave(pieces, rows.size))]
        return [(slice(int(where[0]), int(where[-1]) + 1), features) for where, features in pieces]

    def names(self, rows: NDArray[np.int64]) -> Names | None:
        """The ids of rows as they were written, if kept."""
        out = Names(*(np.empty(rows.size, object) for _ in range(3)))
        for run, where in self._by_run(rows):
            if run.names is None:
                return None
            at = rows[where] - run.start
            out.impression_id[where] = run.names.impression_id[at]
            out.user_id[where] = run.names.user_id[at]
            out.request_id[where] = run.names.request_id[at]
        return out

    def scored(self, rows: NDArray[np.int64], online_series: list[int], grace: int = 0) -> Scored:
        """Every score of the rows: logged, shadow and online, in that order.

        An online score is a violation when the model had learned labels known later than the impression (+ `grace`).
        """
        table = self.table
        index = np.arange(rows.size, dtype=np.int32)
        p = table.pclick[rows]
        logged = ~np.isnan(p)
        all_logged = bool(logged.all())
        parts: list[_Part] = [
            (index, table.series[rows], p, np.zeros(rows.size, np.bool_))
            if all_logged
            else (index[logged], table.series[rows][logged], p[logged], np.zeros(int(logged.sum()), np.bool_))
        ]
        if self.has_shadow:
            parts.append(self._shadow(rows))
        for model, series in enumerate(online_series):
            p = table.score[model][rows]
            on = ~np.isnan(p)
            leak = table.trained[model][rows] > table.ts[rows] + grace
            parts.append((index[on], np.full(int(on.sum()), series, np.int32), p[on], leak[on]))
        bounds = tuple(np.cumsum([0, *(part[0].size for part in parts)]).tolist())
        if len(parts) == 1:
            return Scored(bounds, *parts[0])
        return Scored(bounds, *(np.concatenate(column) for column in zip(*parts, strict=True)))

    @property
    def has_shadow(self) -> bool:
        """Whether any row has scores of versions that did not serve it."""
        return any(run.shadow is not None for run in self._runs)

    def _shadow(self, rows: NDArray[np.int64]) -> _Part:
        some = [(run.shadow, rows[at] - run.start, at) for run, at in self._by_run(rows) if run.shadow is not None]
        n = sum(entries(shadow.indptr, of) for shadow, of, _ in some)
        whose, series, p = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n)
        k = 0
        for shadow, of, at in some:
            k = take_scores(shadow.indptr, shadow.series, shadow.pclick, of, at, k, whose, series, p)
        if bool((whose[1:] < whose[:-1]).any()):  # runs interleave
            order = np.argsort(whose, kind="stable")
            whose, series, p = whose[order], series[order], p[order]
        return whose, series, p, np.zeros(n, np.bool_)

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
        rows: dict[str, NDArray[np.generic]] = {name: getattr(table, name)[live] for name in _FIXED}
        rows["state"] = table.state[live].copy()
        rows["value"] = table.value[live].copy()
        online = [column[live] for column in (*table.score, *table.trained)]
        return {
            **self.progress.state(),
            "counts": dict(self.counts),
            "delays": self.delays.copy(),
            "mature": self._mature,
            "rows": rows,
            "online": [column.copy() for column in online] if scores_change else online,
            "held": self._held.state(),
            "runs": partial(pack_runs, [replace(run) for run in self._runs], self._start),
        }

    def state_written(self) -> None:
        """Nobody reads what `state` gave any more."""
        self._shown = False

    def restore(self, state: Mapping[str, Any], codes: Codes) -> None:
        """Takes over what `state` gave, into a joiner without rows."""
        self.counts, self.delays[:] = Counter(state["counts"]), state["delays"]
        self._mature = state["mature"]
        rows = {**state["rows"], "series": codes.series[state["rows"]["series"]]}
        rows["slices"] = codes.slices(rows["slices"].astype(np.int64))
        n = self._touched = self._end = len(rows["id"])
        self.table = table = self._allocate(max(1024, n + n // 4))
        for name, column in rows.items():
            getattr(table, name)[: len(column)] = column
        for column, saved in zip((*table.score, *table.trained), state["online"], strict=True):
            column[:n] = saved
        self._index.reserve(n, table.id, 0, 0)
        self._index.fill(table.id, n)
        waiting = rows["state"][rows["state"] & MATURED == 0]
        self._on_show = int(np.count_nonzero(waiting & SHOWN))
        self.progress.restore(state, waiting)
        self._held.restore(state["held"])
        self._runs = unpack_runs(state["runs"], codes)
        self._schedule()

    # -- inside --------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        """Makes the heap anew from the runs."""
        self._due = [(int(self.table.ts[first_due(run)]), run) for run in self._runs if run.given < run.end - run.start]
        heapq.heapify(self._due)

    def _by_run(self, rows: NDArray[np.int64]) -> Iterator[tuple[Run, NDArray[np.int64]]]:
        """(run, positions in `rows`) for every run that owns some of the rows; mature rows may have none."""
        if not rows.size or not self._runs:
            return
        starts = np.array([run.start for run in self._runs], np.int64)
        if bool((rows[1:] >= rows[:-1]).all()):
            every = np.arange(rows.size)
            ends = np.array([run.end for run in self._runs], np.int64)
            for run, first, end in zip(self._runs, *np.searchsorted(rows, (starts, ends)).tolist(), strict=True):
                if first < end:
                    yield run, every[first:end]
            return
        owner = np.searchsorted(starts, rows, side="right") - 1
        owner[rows >= np.array([run.end for run in self._runs], np.int64)[owner]] = -1
        low, high = int(owner.min()), int(owner.max())
        if low == high >= 0:
            yield self._runs[low], np.arange(rows.size)
            return
        low = max(low, 0)
        order = np.argsort(owner, kind="stable")
        bounds = np.searchsorted(owner[order], np.arange(low, high + 2))
        for k in range(low, high + 1):
            where = order[bounds[k - low] : bounds[k - low + 1]]
            if where.size:
                yield self._runs[k], where

    def _fill(self, batch: Batch, accepted: NDArray[np.int32], rows: NDArray[np.int64]) -> None:
        if not rows.size:
            return
        imp, table = batch.impressions, self.table
        whole = accepted.size == len(imp)
        part = slice(int(rows[0]), int(rows[-1]) + 1)
        for name in ("user", "request", "slices", "series", "pclick"):
            column = getattr(imp, name)
            getattr(table, name)[part] = column if whole else column[accepted]
        table.previous[part] = 0
        table.item[part] = item_blocks_of(imp.item if whole else imp.item[accepted])
        for score, trained in zip(table.score, table.trained, strict=True):
            score[part] = np.nan
            trained[part] = NEVER
        ts = table.ts[part]
        ordered = bool((ts[1:] >= ts[:-1]).all())
        order = None if ordered else np.argsort(ts, kind="stable").astype(np.int32)
        at = accepted.astype(np.int64)
        shadow = imp.shadow
        if shadow is not None and not whole:
            lengths, flat = csr_lengths(shadow.indptr, at)
            indptr = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
            shadow = Shadow(indptr, shadow.series[flat], shadow.pclick[flat])
        features = imp.features if whole or imp.features is None else take_features(imp.features, at)
        names = imp.names
        if names is not None and not whole:
            names = Names(names.impression_id[at], names.user_id[at], names.request_id[at])
        run = Run(part.start, part.stop, order, features, shadow, names)
        self._runs.append(run)
        heapq.heappush(self._due, (int(ts.min()), run))
        if len(self._runs) >= self._compact_at:
            self._runs = compacted(self._runs, table.ts)
            self._compact_at = 2 * len(self._runs) + _MANY_RUNS
            self._schedule()

    def drop_features(self) -> None:
        """Frees the features of runs that have wholly matured (their models have learned them)."""
        for run in self._runs:
            if run.features is not None and run.given == run.end - run.start:
                run.features = None

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
        counts, c = self.counts, counters.tolist()
        counts["impressions"] += added
        counts["clicks"] += len(batch.clicks)
        counts["duplicate_impressions"] += c[kernel.DUPLICATE_IMPRESSIONS]
        counts["expired_impressions"] += c[kernel.EXPIRED]
        counts["late_impressions"] += c[kernel.LATE_IMPRESSIONS]
        counts["matched_clicks"] += c[kernel.MATCHED]
        counts["duplicate_clicks"] += c[kernel.DUPLICATE_CLICKS]
        counts["unmatched_clicks"] += c[kernel.UNMATCHED]
        counts["late_clicks"] += c[kernel.LATE_CLICKS]
        counts["early_clicks"] += c[kernel.EARLY_CLICKS]
        counts["corrected"] += c[kernel.FIXED]

    def _reserve(self, impressions: int, clicks: int) -> None:
        capacity = self.table.id.size
        if self._end + impressions > capacity:
            live = self._end - self._start
            if self._start > self._end // 4 and live + impressions <= capacity and not self._shown:
                self._move(self.table)
            else:  # untouched room takes no memory
                self._move(self._allocate(max(live + impressions, 2 * live)))
        self._index.reserve(impressions, self.table.id, self._start, self._end)
        self._give_up(self._held.reserve(clicks, self.policy.max_pending))

    def _allocate(self, n: int) -> Table:
        return Table(
            id=np.empty(n, np.uint64), ts=np.empty(n, np.int64), user=np.empty(n, np.uint64),
            request=np.empty(n, np.uint64), slices=np.empty(n, np.int64) if self.policy.wide_slices else np.empty(n, np.uint32), series=np.empty(n, np.int32),
            pclick=np.empty(n, np.float64), state=np.empty(n, np.uint8), behind=np.empty(n, np.uint32),
            previous=np.empty(n, np.int32), item=np.empty(n, np.int8),
            value=np.empty(n if self.policy.keep_value else 0, np.float64),
            score=[np.empty(n, np.float64) for _ in range(self._online)],
            trained=[np.empty(n, np.int64) for _ in range(self._online)],
        )  # fmt: skip

    def _move(self, to: Table) -> None:
        """Moves the live rows to the front of a table (maybe the same) and numbers them from 0."""
        shift, live = self._start, self._end - self._start
        for old, new in zip(self.table.arrays(), to.arrays(), strict=True):
            if new.size:
                new[:live] = old[shift : self._end]
        if to is not self.table:
            self.table, self._touched, self._shown = to, live, False
        self._start, self._end = 0, live
        for run in self._runs:
            if run.start < shift:  # its first rows are forgotten
                trim(run, shift)
            run.start -= shift
            run.end -= shift
        self._index.shift += shift
        if self._on_move is not None:
            self._on_move(shift)
