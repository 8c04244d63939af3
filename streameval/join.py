"""Impressions + clicks -> labelled impressions, in event time. Columnar, bounded, never reads a clock.

Every decision is made event by event in arrival order, against the watermark as it stood when the event arrived (its
own time included), so the fates do not depend on how the stream was cut into batches:

- an impression seen before (same id, inside the correction horizon) is a duplicate; one older than the watermark less
  the horizon is expired; one older than the watermark is late, and counted where it belongs;
- a click finds its impression or is held until the impression comes; held past the horizon it is unmatched;
- a click later than the attribution window (by its own time) is late and changes nothing; one in time makes the
  impression positive, once; in time but arriving after maturity it is a correction.

An impression matures when the watermark passes its time + attribution window. It costs 53 bytes here (57 with very
many slice combinations), 6 to 16 in the id index, 16 for every online model's score, and what its features take until
it matures. Rows lie in arrival order in parallel arrays; a `Run` is the rows of one batch, and a heap of runs gives
out the mature ones in (time, arrival) order.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.columns import Scored, csr_lengths, take_features
from streameval.events import Batch, Features, Names, Shadow
from streameval.sketches.directory import mix

NEVER = -(1 << 62)
FOREVER = 1 << 62
_BIG = 1 << 20  # rows; up to here tables double
_MAX_ROW = (1 << 31) - 1

CLICKED, KNOWN, MATURED, LATE, CORRECTED = 1, 2, 4, 8, 16

# indexes of the kernel's counters
_DUPLICATE_IMPRESSIONS, _EXPIRED, _LATE_IMPRESSIONS = 0, 1, 2
_MATCHED, _DUPLICATE_CLICKS, _UNMATCHED, _LATE_CLICKS, _CORRECTED = 3, 4, 5, 6, 7
_COUNTERS = 8

DELAY_EDGES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 180.0, 600.0, 1800.0, 3600.0, 10800.0, 86400.0, float("inf"))


_Part = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float64], NDArray[np.bool_]]  # of `Scored`


@dataclass(frozen=True, slots=True)
class JoinPolicy:
    """The rules, in ms; see `config.Join`."""

    attribution_window: int
    allowed_lateness: int
    correction_horizon: int
    max_pending: int = 50_000_000
    wide_slices: bool = True  # slice combinations need 64 bits (32 otherwise)
    keep_value: bool = False  # keep the click's value (for GAUC weighted by value)


@dataclass(slots=True)
class Run:
    """The rows of one batch: [start, end), in arrival order."""

    start: int
    end: int
    due_order: NDArray[np.int32] | None  # rows - start, by time; None when they came in order
    features: Features | None
    shadow: Shadow | None
    names: Names | None
    given: int = 0  # how many have matured

    def __lt__(self, other: Run) -> bool:
        return self.start < other.start


@dataclass(frozen=True, slots=True)
class Flips:
    """Labels that changed after they had matured: what stood before, by row."""

    rows: NDArray[np.int64]
    was_clicked: NDArray[np.bool_]
    was_value: NDArray[np.float64]
    was_corrected: NDArray[np.bool_]


@dataclass(slots=True)
class Table:
    """The rows' columns (capacity may exceed what is used)."""

    id: NDArray[np.uint64]
    ts: NDArray[np.int64]
    user: NDArray[np.uint64]
    request: NDArray[np.uint64]
    slices: NDArray[np.int64] | NDArray[np.uint32]
    series: NDArray[np.int32]
    pclick: NDArray[np.float64]
    state: NDArray[np.uint8]
    previous: NDArray[np.int32]  # rows back to the request's previous impression, 0: none
    value: NDArray[np.float64]  # empty unless kept
    score: list[NDArray[np.float64]] = field(default_factory=list)  # by online model; NaN: not scored
    trained: list[NDArray[np.int64]] = field(default_factory=list)  # the model's training watermark at that moment

    def arrays(self) -> list[NDArray[np.generic]]:
        """Every column."""
        return [
            self.id, self.ts, self.user, self.request, self.slices, self.series, self.pclick, self.state,
            self.previous, self.value, *self.score, *self.trained,
        ]  # fmt: skip


@numba.njit(inline="always")
def _watermark(newest: NDArray[np.int64], active: NDArray[np.int8], lateness: int, before: int) -> int:
    """The slowest active input's newest time less the lateness; it never goes back."""
    low = FOREVER
    for i in range(newest.size):
        if active[i]:
            low = min(low, newest[i])
    if low in (FOREVER, NEVER):
        return before
    return max(before, low - lateness)


@numba.njit(inline="always")
def _find(
    index: NDArray[np.int32], shift: int, ids: NDArray[np.uint64], front: int, wanted: np.uint64
) -> tuple[int, np.uint64]:
    """(the newest live row of an id, -1: none; the free place where the id would be entered)."""
    mask = np.uint64(index.size - 1)
    h = mix(wanted) & mask
    found = -1
    while index[h] != 0:
        row = index[h] - shift
        if row >= front and ids[row] == wanted and row > found:  # below the front: forgotten, and to be overlooked
            found = row
        h = (h + np.uint64(1)) & mask
    return found, h


@numba.njit(inline="always")
def _enter(index: NDArray[np.int32], wanted: np.uint64, row: int) -> None:
    mask = np.uint64(index.size - 1)
    h = mix(wanted) & mask
    while index[h] != 0:
        h = (h + np.uint64(1)) & mask
    index[h] = row + 1


@numba.njit(cache=True, nogil=True)
def _reindex(index: NDArray[np.int32], ids: NDArray[np.uint64], front: int, end: int) -> None:
    for row in range(front, end):
        _enter(index, ids[row], row)


@numba.njit(cache=True, nogil=True)
def _fetch(
    index: NDArray[np.int32], shift: int, ids: NDArray[np.uint64], front: int, wanted: NDArray[np.uint64]
) -> int:
    """Touches what looking up a batch's ids will touch: many cache misses at once cost little more than one."""
    mask = np.uint64(index.size - 1)
    found = np.uint64(0)
    for i in range(wanted.size):
        row = index[mix(wanted[i]) & mask] - shift
        if row >= front:
            found ^= ids[row]
    return int(found & np.uint64(1))


@numba.njit(inline="always")
def _count_delay(delays: NDArray[np.int64], edges: NDArray[np.float64], ms: int) -> None:
    seconds = max(ms, 0) / 1000.0
    b = 0
    while seconds > edges[b]:
        b += 1
    delays[b] += 1
    delays[edges.size] += max(ms, 0)


@numba.njit(cache=True, nogil=True)
def _join(
    i_order: NDArray[np.int32],
    i_id: NDArray[np.uint64],
    i_ts: NDArray[np.int64],
    i_label: NDArray[np.int8],
    c_order: NDArray[np.int32],
    c_id: NDArray[np.uint64],
    c_ts: NDArray[np.int64],
    c_value: NDArray[np.float64],
    newest: NDArray[np.int64],
    active: NDArray[np.int8],
    watermark: int,
    window: int,
    lateness: int,
    horizon: int,
    ids: NDArray[np.uint64],
    ts: NDArray[np.int64],
    state: NDArray[np.uint8],
    value: NDArray[np.float64],
    index: NDArray[np.int32],
    shift: int,
    front: int,
    end: int,
    h_id: NDArray[np.uint64],
    h_ts: NDArray[np.int64],
    h_value: NDArray[np.float64],
    h_taken: NDArray[np.bool_],
    h_index: NDArray[np.int32],
    h_end: int,
    accepted: NDArray[np.int32],
    flip_row: NDArray[np.int64],
    flip_state: NDArray[np.uint8],
    flip_value: NDArray[np.float64],
    counters: NDArray[np.int64],
    delays: NDArray[np.int64],
    delay_edges: NDArray[np.float64],
) -> tuple[int, int, int, int]:
    """One batch, event by event in arrival order. Returns (end of rows, end of held clicks, watermark, flips)."""
    i = 0
    c = 0
    flips = 0
    n = 0
    click_input = newest.size - 1  # the same input as the impressions' when they share one
    while i < i_id.size or c < c_id.size:
        if c >= c_id.size or (i < i_id.size and i_order[i] < c_order[c]):
            newest[0] = max(newest[0], i_ts[i])
            watermark = _watermark(newest, active, lateness, watermark)
            seen, place = _find(index, shift, ids, front, i_id[i])
            if i_ts[i] + horizon <= watermark:
                counters[_EXPIRED] += 1
            elif seen >= 0 and ts[seen] + horizon > watermark:
                counters[_DUPLICATE_IMPRESSIONS] += 1
            else:
                row = end
                end += 1
                accepted[n] = i
                n += 1
                ids[row] = i_id[i]
                ts[row] = i_ts[i]
                flags = np.uint8(0)
                if i_label[i] >= 0:
                    flags |= np.uint8(KNOWN | (CLICKED if i_label[i] == 1 else 0))
                if i_ts[i] < watermark:
                    flags |= np.uint8(LATE)
                    counters[_LATE_IMPRESSIONS] += 1
                if value.size:
                    value[row] = 0.0
                index[place] = row + shift
                # clicks that came first
                mask = np.uint64(h_index.size - 1)
                h = mix(i_id[i]) & mask
                while h_index[h] != 0:
                    k = h_index[h] - 1
                    if h_id[k] == i_id[i] and not h_taken[k] and h_ts[k] + horizon > watermark:
                        h_taken[k] = True
                        if flags & KNOWN:
                            counters[_DUPLICATE_CLICKS] += 1
                        elif h_ts[k] > i_ts[i] + window:
                            counters[_LATE_CLICKS] += 1
                        else:
                            if flags & CLICKED:
                                counters[_DUPLICATE_CLICKS] += 1
                            else:
                                flags |= np.uint8(CLICKED)
                                counters[_MATCHED] += 1
                                _count_delay(delays, delay_edges, h_ts[k] - i_ts[i])
                            if value.size:
                                value[row] = max(value[row], h_value[k])
                    h = (h + np.uint64(1)) & mask
                state[row] = flags
            i += 1
        else:
            newest[click_input] = max(newest[click_input], c_ts[c])
            watermark = _watermark(newest, active, lateness, watermark)
            row, _ = _find(index, shift, ids, front, c_id[c])
            if row >= 0 and ts[row] + horizon > watermark:
                flags = state[row]
                if flags & KNOWN:
                    counters[_DUPLICATE_CLICKS] += 1
                elif c_ts[c] > ts[row] + window:
                    counters[_LATE_CLICKS] += 1
                else:
                    first = not flags & CLICKED
                    raised = value.size > 0 and c_value[c] > value[row]
                    if flags & MATURED and (first or raised):
                        flip_row[flips] = row
                        flip_state[flips] = flags
                        flip_value[flips] = value[row] if value.size else 0.0
                        flips += 1
                    if first:
                        state[row] = flags | np.uint8(CLICKED)
                        counters[_MATCHED] += 1
                        _count_delay(delays, delay_edges, c_ts[c] - ts[row])
                        if ts[row] + window <= watermark:
                            counters[_CORRECTED] += 1
                            state[row] |= np.uint8(CORRECTED)
                    else:
                        counters[_DUPLICATE_CLICKS] += 1
                    if raised:
                        value[row] = c_value[c]
            elif c_ts[c] + horizon <= watermark:
                counters[_UNMATCHED] += 1
            else:
                h_id[h_end] = c_id[c]
                h_ts[h_end] = c_ts[c]
                h_value[h_end] = c_value[c]
                h_taken[h_end] = False
                _enter(h_index, c_id[c], h_end)
                h_end += 1
            c += 1
    return end, h_end, watermark, flips


@numba.njit(cache=True, nogil=True)
def _front(ts: NDArray[np.int64], state: NDArray[np.uint8], front: int, end: int, before: int) -> int:
    while front < end and ts[front] <= before and state[front] & MATURED:
        front += 1
    return front


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
        self.watermark = NEVER
        self.newest_event = NEVER
        self.counts: Counter[str] = Counter()
        self.delays = np.zeros(len(DELAY_EDGES) + 1, np.int64)  # the last cell is the sum, ms
        self._inputs = 1 if shared else 2
        self._newest = np.full(self._inputs, NEVER, np.int64)
        self._active = np.ones(self._inputs, np.int8)
        self._online = online_models
        self.table = self._allocate(1024)
        self._index = np.zeros(4096, np.int32)  # open addressing: row + _shift, 0: free
        self._shift = 1  # grows as rows move to the front, so that the index need not follow
        self._indexed = 0  # places in use, by forgotten rows too
        self._start = 0  # rows before it are forgotten
        self._end = 0
        self._touched = 0  # rows of the table that have been written to
        self._mature = 0
        self._runs: list[Run] = []  # all runs with live rows, by start
        self._due: list[tuple[int, Run]] = []  # heap by the time of the run's next row
        self._held_id = np.empty(256, np.uint64)
        self._held_ts = np.empty(256, np.int64)
        self._held_value = np.empty(256, np.float64)
        self._held_taken = np.zeros(256, np.bool_)
        self._held_index = np.zeros(1024, np.int32)
        self._held_end = 0
        self._held_oldest = FOREVER

    # -- time ----------------------------------------------------------------------------------------------------

    def look_ahead(self, batch: Batch) -> int:
        """The watermark as it will be when every input of the batch has reached its earliest event there."""
        newest = self._newest.copy()
        if self._inputs == 1:
            newest[0] = max(newest[0], _earliest(batch.impressions.ts, batch.clicks.ts))
        else:  # an input without events says nothing about how far it is
            for number, ts in enumerate((batch.impressions.ts, batch.clicks.ts)):
                if ts.size:
                    newest[number] = max(newest[number], _earliest(ts))
        return int(_watermark(newest, self._active, self.policy.allowed_lateness, self.watermark))

    def set_idle(self, input_number: int, idle: bool) -> None:
        """An input without events for long (by somebody else's clock) stops holding the watermark back."""
        active = np.int8(not idle)
        if self._active[input_number] != active:
            self._active[input_number] = active
            if idle and self._active.any():
                self.watermark = int(
                    _watermark(self._newest, self._active, self.policy.allowed_lateness, self.watermark)
                )

    def is_idle(self, input_number: int) -> bool:
        """Whether an input was set idle."""
        return not self._active[input_number]

    @property
    def idle(self) -> bool:
        """Whether all inputs are idle, so that nothing moves the watermark."""
        return not self._active.any()

    @property
    def inputs(self) -> int:
        """1: impressions and clicks come by one input; 2: by two (0 impressions, 1 clicks)."""
        return self._inputs

    # -- events --------------------------------------------------------------------------------------------------

    def add(self, batch: Batch) -> tuple[NDArray[np.int64], Flips]:
        """Takes a batch in. Returns the rows of its new impressions, and the mature labels that its clicks changed."""
        imp, clk = batch.impressions, batch.clicks
        self._reserve(len(imp), len(clk))
        table, policy = self.table, self.policy
        counters = np.zeros(_COUNTERS, np.int64)
        accepted = np.empty(len(imp), np.int32)
        flip_row, flip_state = np.empty(len(clk), np.int64), np.empty(len(clk), np.uint8)
        flip_value = np.empty(len(clk), np.float64)
        start, held = self._end, self._held_end
        _fetch(self._index, self._shift, table.id, self._start, imp.id)
        self._end, self._held_end, self.watermark, flips = _join(
            imp.order, imp.id, imp.ts, imp.label, clk.order, clk.id, clk.ts, np.nan_to_num(clk.value, nan=0.0),
            self._newest, self._active, self.watermark, policy.attribution_window, policy.allowed_lateness,
            policy.correction_horizon, table.id, table.ts, table.state, table.value, self._index, self._shift, self._start,
            start,
            self._held_id, self._held_ts, self._held_value, self._held_taken, self._held_index, held, accepted,
            flip_row, flip_state, flip_value, counters, self.delays, np.array(DELAY_EDGES),
        )  # fmt: skip
        self.newest_event = max(self.newest_event, int(self._newest.max()))
        if self._held_end > held:
            self._held_oldest = min(self._held_oldest, int(self._held_ts[held : self._held_end].min()))
        self._touched = max(self._touched, self._end)
        rows = np.arange(start, self._end, dtype=np.int64)
        self._indexed += rows.size
        self._fill(batch, accepted[: rows.size], rows)
        self._count(batch, counters, rows.size)
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
        self.table.state[rows] |= MATURED
        self._mature += rows.size
        self.counts["matured"] += rows.size
        return rows

    def forget(self) -> None:
        """Lets go of what the correction horizon has passed: rows, and held clicks that nothing claimed."""
        horizon = self.policy.correction_horizon
        self._expire_held(self.watermark - horizon)
        before = self._start
        self._start = int(_front(self.table.ts, self.table.state, self._start, self._end, self.watermark - horizon))
        surplus = self._end - self._start - self.policy.max_pending
        if surplus > 0:
            forced = int(_front(self.table.ts, self.table.state, self._start, self._start + surplus, FOREVER))
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
        self.watermark = FOREVER
        self._expire_held(FOREVER)

    # -- reading -------------------------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """Impressions whose label is not mature."""
        return self._end - self._start - self._mature

    @property
    def known(self) -> int:
        """Impressions that clicks can still find: pending, or mature and inside the correction horizon."""
        return self._end - self._start

    @property
    def front(self) -> int:
        """The first row that is still known."""
        return self._start

    def overdue_clicks(self) -> int:
        """Held clicks older than the watermark: their impression should have come by now."""
        held = slice(0, self._held_end)
        return int(np.count_nonzero(~self._held_taken[held] & (self._held_ts[held] < self.watermark)))

    def features(self, rows: NDArray[np.int64]) -> list[tuple[slice, Features]]:
        """The features of rows in their order: pieces of consecutive positions; [] when the events carried none."""
        pieces: list[tuple[NDArray[np.int64], Features]] = []
        for run, where in self._by_run(rows):
            if run.features is None:
                return []
            pieces.append((where, take_features(run.features, rows[where] - run.start)))
        if len(pieces) > 1 and any(a[-1] > b[0] for (a, _), (b, _) in pairwise(pieces)):
            return [(slice(0, rows.size), _interleave(pieces, rows.size))]
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
        if any(run.shadow is not None for run in self._runs):
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

    def _shadow(self, rows: NDArray[np.int64]) -> _Part:
        owner, series, p = [np.empty(0, np.int32)], [np.empty(0, np.int32)], [np.empty(0)]
        for run, where in self._by_run(rows):
            if run.shadow is not None:
                lengths, flat = csr_lengths(run.shadow.indptr, rows[where] - run.start)
                owner.append(np.repeat(where.astype(np.int32), lengths))
                series.append(run.shadow.series[flat])
                p.append(run.shadow.pclick[flat])
        whose = np.concatenate(owner)
        order = np.argsort(whose, kind="stable")  # runs can interleave
        return whose[order], np.concatenate(series)[order], np.concatenate(p)[order], np.zeros(whose.size, np.bool_)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows, the indexes and the held clicks, features apart; room never touched takes none."""
        rows = sum(column.itemsize for column in self.table.arrays() if column.size) * self._touched
        held = (self._held_id, self._held_ts, self._held_value, self._held_index)
        return rows + self._index.nbytes + sum(column.nbytes for column in held)

    # -- inside --------------------------------------------------------------------------------------------------

    def _by_run(self, rows: NDArray[np.int64]) -> Iterator[tuple[Run, NDArray[np.int64]]]:
        """(run, positions in `rows`) for every run that owns some of the rows."""
        if not rows.size:
            return
        starts = np.array([run.start for run in self._runs], np.int64)
        owner = np.searchsorted(starts, rows, side="right") - 1
        low, high = int(owner.min()), int(owner.max())
        if low == high:
            yield self._runs[low], np.arange(rows.size)
            return
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

    def drop_features(self) -> None:
        """Frees the features of runs that have wholly matured (their models have learned them)."""
        for run in self._runs:
            if run.features is not None and run.given == run.end - run.start:
                run.features = None

    def _count(self, batch: Batch, counters: NDArray[np.int64], added: int) -> None:
        counts, c = self.counts, counters.tolist()
        counts["impressions"] += added
        counts["clicks"] += len(batch.clicks)
        counts["duplicate_impressions"] += c[_DUPLICATE_IMPRESSIONS]
        counts["expired_impressions"] += c[_EXPIRED]
        counts["late_impressions"] += c[_LATE_IMPRESSIONS]
        counts["matched_clicks"] += c[_MATCHED]
        counts["duplicate_clicks"] += c[_DUPLICATE_CLICKS]
        counts["unmatched_clicks"] += c[_UNMATCHED]
        counts["late_clicks"] += c[_LATE_CLICKS]
        counts["corrected"] += c[_CORRECTED]

    def _expire_held(self, before: int) -> None:
        if self._held_oldest > before:
            return
        held = slice(0, self._held_end)
        alive = ~self._held_taken[held]
        gone = alive & (self._held_ts[held] <= before)
        self.counts["unmatched_clicks"] += int(gone.sum())
        keep = np.flatnonzero(alive & ~gone)
        self._keep_held(keep)

    def _keep_held(self, keep: NDArray[np.int64]) -> None:
        n = keep.size
        for column in (self._held_id, self._held_ts, self._held_value):
            column[:n] = column[keep]
        self._held_taken[:n] = False
        self._held_end = n
        self._held_oldest = int(self._held_ts[:n].min()) if n else FOREVER
        self._held_index[:] = 0
        _reindex(self._held_index, self._held_id, 0, n)

    def _reserve(self, impressions: int, clicks: int) -> None:
        capacity = self.table.id.size
        if self._end + impressions > capacity:
            live = self._end - self._start
            if self._start > self._end // 4 and live + impressions <= capacity:
                self._move(self.table)
            else:  # untouched room takes no memory
                self._move(self._allocate(max(live + impressions, 2 * live)))
        if (self._indexed + impressions) * 3 > self._index.size * 2 or self._shift + self._end + impressions > _MAX_ROW:
            self._rebuild_index(impressions)
        if self._held_end + clicks > self._held_id.size or (self._held_end + clicks) * 3 > self._held_index.size * 2:
            self._reserve_held(clicks)

    def _rebuild_index(self, impressions: int) -> None:
        live, size = self._end - self._start, self._index.size
        while (live + impressions) * 2 > size:
            size *= 2 if size >= _BIG else 4
        self._index = np.zeros(size, np.int32)
        self._shift, self._indexed = 1, live
        _reindex(self._index, self.table.id, self._start, self._end)

    def _reserve_held(self, clicks: int) -> None:
        keep = np.flatnonzero(~self._held_taken[: self._held_end])
        if keep.size > self.policy.max_pending:  # the oldest are given up as unmatched
            surplus = keep.size - self.policy.max_pending
            self.counts["unmatched_clicks"] += surplus
            keep = np.sort(keep[np.argsort(self._held_ts[keep], kind="stable")[surplus:]])
        capacity = self._held_id.size
        while (keep.size + clicks) * 4 > capacity * 3:
            capacity *= 2
        size = 2 * capacity
        for name in ("_held_id", "_held_ts", "_held_value", "_held_taken"):
            old = getattr(self, name)
            new = np.zeros(capacity, old.dtype)
            new[: self._held_end] = old[: self._held_end]
            setattr(self, name, new)
        self._held_index = np.zeros(max(size, self._held_index.size), np.int32)
        self._keep_held(keep)

    def _allocate(self, n: int) -> Table:
        return Table(
            id=np.empty(n, np.uint64), ts=np.empty(n, np.int64), user=np.empty(n, np.uint64),
            request=np.empty(n, np.uint64), slices=np.empty(n, np.int64) if self.policy.wide_slices else np.empty(n, np.uint32), series=np.empty(n, np.int32),
            pclick=np.empty(n, np.float64), state=np.empty(n, np.uint8), previous=np.empty(n, np.int32),
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
            self.table, self._touched = to, live
        self._start, self._end = 0, live
        for run in self._runs:
            if run.start < shift:  # its first rows are forgotten
                _trim(run, shift)
            run.start -= shift
            run.end -= shift
        self._shift += shift
        if self._on_move is not None:
            self._on_move(shift)


def _earliest(*columns: NDArray[np.int64]) -> int:
    return min(int(ts.min()) for ts in columns if ts.size)


def _trim(run: Run, start: int) -> None:
    """Cuts the forgotten (hence mature) rows off a run's beginning."""
    cut = start - run.start
    keep = np.arange(cut, run.end - run.start, dtype=np.int64)
    if run.due_order is not None:
        later = run.due_order[run.given :]
        run.due_order = np.concatenate((np.setdiff1d(keep, later).astype(np.int32) - cut, later - cut)).astype(np.int32)
        run.given = run.due_order.size - later.size
    else:
        run.given -= cut
    if run.features is not None:
        run.features = take_features(run.features, keep)
    if run.shadow is not None:
        lengths, flat = csr_lengths(run.shadow.indptr, keep)
        indptr = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
        run.shadow = Shadow(indptr, run.shadow.series[flat], run.shadow.pclick[flat])
    if run.names is not None:
        run.names = Names(run.names.impression_id[keep], run.names.user_id[keep], run.names.request_id[keep])
    run.start = start


def _interleave(pieces: list[tuple[NDArray[np.int64], Features]], n: int) -> Features:
    """Features of several runs in the order of the rows that were asked for."""
    position = np.concatenate([where for where, _ in pieces])
    back = np.empty(n, np.int64)
    back[position] = np.arange(n)
    lengths = np.concatenate([np.diff(f.indptr) for _, f in pieces])
    dicts = None
    if pieces[0][1].dicts is not None:
        dicts = tuple(d for _, f in pieces for d in f.dicts or ())
    whole = Features(
        np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths))),
        np.concatenate([f.index for _, f in pieces]),
        np.concatenate([f.value for _, f in pieces]),
        dicts,
    )
    return take_features(whole, back)
