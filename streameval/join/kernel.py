"""The join itself: one batch, event by event.

An event's *key* is the newest time in its log up to and including it; impressions and clicks have one log each, unless
they share one. Merged by key (impressions first where keys are equal), the events of both have one well-defined order, and
an event's outcome is decided against the watermark at that point: its key minus the lateness. So outcomes are a function
of the two logs. They depend neither on how the stream is divided into batches, nor on how far one log is read ahead of the
other: the keys tell whether a click's impression had already arrived, and vice versa.

- an impression seen before (same id, within the correction horizon) is a duplicate; one older than the watermark minus
  the horizon is expired; one older than the watermark is late, and is counted in the pane of its own time;
- a click finds its impression or is held until the impression arrives; one held past the horizon is unmatched;
- a click after the attribution window (by its own time) is late and changes nothing; one before the impression by more
  than the lateness is early: clocks differ by at most that, so it cannot be a click on this impression;
- a click in time makes the impression positive, once; if it arrives after maturity, it is a correction.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.events.fields import Join
from streameval.join.held import HeldColumns, enter_held
from streameval.join.index import LiveNumbers, Places, enter, find, find_around
from streameval.join.policy import CLICKED, CORRECTED, DELAY_EDGES, KNOWN, LATE, MATURED, SHOWN, JoinPolicy
from streameval.sketches.directory import mix

# indexes of the counters
DUPLICATE_IMPRESSIONS, EXPIRED, LATE_IMPRESSIONS = 0, 1, 2
MATCHED, DUPLICATE_CLICKS, UNMATCHED, LATE_CLICKS, FIXED = 3, 4, 5, 6, 7
FOUND, LOST = 8, 9  # clicks whose times were written to found_ts and lost_ts
EARLY_CLICKS = 10
COUNTERS = 11
COUNTED = {  # by the name of the count
    "duplicate_impressions": DUPLICATE_IMPRESSIONS,
    "expired_impressions": EXPIRED,
    "late_impressions": LATE_IMPRESSIONS,
    "matched_clicks": MATCHED,
    "duplicate_clicks": DUPLICATE_CLICKS,
    "unmatched_clicks": UNMATCHED,
    "late_clicks": LATE_CLICKS,
    "early_clicks": EARLY_CLICKS,
    "corrected": FIXED,
}


MOST_BEHIND = (1 << 32) - 1  # ms, 49 days: the most that a row can store


class ImpressionColumns(NamedTuple):
    """Impressions of the batch."""

    order: NDArray[np.int32]  # place in the batch, among impressions and clicks
    id: NDArray[np.uint64]
    ts: NDArray[np.int64]
    label: NDArray[np.int8]  # -1: unknown


class ClickColumns(NamedTuple):
    """Clicks of the batch."""

    order: NDArray[np.int32]
    id: NDArray[np.uint64]
    ts: NDArray[np.int64]
    fields: NDArray[np.float64]  # [fields that rows keep, clicks]; NaN: absent


class RowColumns(NamedTuple):
    """The table: rows [front, end) are live, with room for more behind them."""

    id: NDArray[np.uint64]
    ts: NDArray[np.int64]
    behind: NDArray[np.uint32]
    state: NDArray[np.uint8]
    fields: NDArray[np.float64]  # [fields, rows]
    front: int
    end: int


class ColdRowsFound(NamedTuple):
    """Known rows of the batch's ids that are not in `Places`, -1: none; all empty if no id has one."""

    shown: NDArray[np.int64]  # by impression: the newest
    before: NDArray[np.int64]  # by click: the newest that had arrived by the click's key
    after: NDArray[np.int64]  # by click: the oldest that arrived after it


class KnownIds(NamedTuple):
    """Where to find the rows with the ids of a batch."""

    places: Places
    cold: ColdRowsFound


class Rules(NamedTuple):
    """The policy, in ms, and by field how clicks join (`events.fields.Join`) and the value without clicks (`start`)."""

    window: int
    lateness: int
    horizon: int
    rule: NDArray[np.int64]
    start: NDArray[np.float64]
    delay_edges: NDArray[np.float64]  # s


def rules_of(policy: JoinPolicy) -> Rules:
    """The policy as the kernel reads it."""
    return Rules(
        policy.attribution_window,
        policy.allowed_lateness,
        policy.correction_horizon,
        np.array([field.join for field in policy.of_clicks], np.int64),
        np.array([field.absent for field in policy.of_clicks], np.float64),
        np.array(DELAY_EDGES),
    )


class Outcome(NamedTuple):
    """Output of the kernel: room for the worst case; `counters` and the return values say how much of it was used."""

    accepted: NDArray[np.int32]  # impressions that became rows
    flip_row: NDArray[np.int64]  # flips: the row, and its previous state and fields
    flip_state: NDArray[np.uint8]
    flip_fields: NDArray[np.float64]  # [fields, flips]
    click_key: NDArray[np.int64]  # of every click
    found_ts: NDArray[np.int64]
    found_key: NDArray[np.int64]
    found_row: NDArray[np.int64]
    lost_ts: NDArray[np.int64]
    # of impressions whose label was due when their first click arrived, and the key of that click
    fixed_key: NDArray[np.int64]
    fixed_row: NDArray[np.int64]
    repeated: NDArray[np.int32]  # impressions seen before: their number, the row of the first, the key
    repeated_row: NDArray[np.int64]
    repeated_key: NDArray[np.int64]
    counters: NDArray[np.int64]
    delays: NDArray[np.int64]


def room_for(impressions: int, clicks: int, held: int, fields: int, delays: NDArray[np.int64]) -> Outcome:
    """Room for the outcome of a batch."""
    return Outcome(
        accepted=np.empty(impressions, np.int32),
        flip_row=np.empty(clicks, np.int64),
        flip_state=np.empty(clicks, np.uint8),
        flip_fields=np.empty((fields, clicks)),
        click_key=np.empty(clicks, np.int64),
        found_ts=np.empty(clicks + held, np.int64),
        found_key=np.empty(clicks + held, np.int64),
        found_row=np.empty(clicks + held, np.int64),
        lost_ts=np.empty(clicks + held, np.int64),
        fixed_key=np.empty(clicks + held, np.int64),
        fixed_row=np.empty(clicks + held, np.int64),
        repeated=np.empty(impressions, np.int32),
        repeated_row=np.empty(impressions, np.int64),
        repeated_key=np.empty(impressions, np.int64),
        counters=np.zeros(COUNTERS, np.int64),
        delays=delays,
    )


@numba.njit(inline="always")
def _joined(rule: int, old: float, new: float, first: bool, due: bool) -> float:
    """The field of an impression after a click with the value `new`; `first`: no click has counted before; `due`: its label
    was due when the click arrived."""
    if np.isnan(new) or (due and rule == Join.LARGEST_IN_TIME):
        return old
    if rule == Join.SUM:
        return old + new
    if rule == Join.LAST:
        return new
    if rule == Join.FIRST:
        return new if first else old
    return max(old, new)


@numba.njit(inline="always")
def _count_delay(delays: NDArray[np.int64], edges: NDArray[np.float64], ms: int) -> None:
    seconds = max(ms, 0) / 1000.0
    b = 0
    while seconds > edges[b]:
        b += 1
    delays[b] += 1
    delays[edges.size] += max(ms, 0)


@numba.njit(inline="always")
def _judge(flags: np.uint8, shown: int, clicked: int, window: int, lateness: int) -> tuple[int, bool]:
    """(the counter of a click on an impression, whether its fields count)."""
    if clicked + lateness < shown:
        return EARLY_CLICKS, False
    if flags & KNOWN:
        return DUPLICATE_CLICKS, False
    if clicked > shown + window:
        return LATE_CLICKS, False
    return (DUPLICATE_CLICKS if flags & CLICKED else MATCHED), True


@numba.njit(inline="always")
def _note(
    fate: int,
    clicked: int,
    met: int,
    row: int,
    found: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]],
    lost_ts: NDArray[np.int64],
    counters: NDArray[np.int64],
) -> None:
    """Counts a click by its outcome; `met`: the key at which both it and its impression, in this row, had arrived."""
    found_ts, found_key, found_row = found
    counters[fate] += 1
    if fate == EARLY_CLICKS:
        lost_ts[counters[LOST]] = clicked
        counters[LOST] += 1
    else:
        at = counters[FOUND]
        found_ts[at], found_key[at], found_row[at] = clicked, met, row
        counters[FOUND] += 1


@numba.njit(inline="always")
def _first_click(
    delay: int, corrects: bool, counters: NDArray[np.int64], delays: NDArray[np.int64], edges: NDArray[np.float64]
) -> np.uint8:
    """Counts the click that makes an impression positive; returns the flags to set. `corrects`: the label was due."""
    _count_delay(delays, edges, delay)
    if corrects:
        counters[FIXED] += 1
        return np.uint8(CLICKED | CORRECTED)
    return np.uint8(CLICKED)


@numba.njit(cache=True, nogil=True)
def join_batch(
    imp: ImpressionColumns,
    clk: ClickColumns,
    newest: NDArray[np.int64],
    rules: Rules,
    rows: RowColumns,
    known: KnownIds,
    held: HeldColumns,
    out: Outcome,
) -> tuple[int, int, int]:
    """Joins one batch, event by event in arrival order. Returns (end of rows, end of held clicks, flips)."""
    # unpacked once: taking arrays out of tuples in the loop would count references
    i_order, i_id, i_ts, i_label = imp
    c_order, c_id, c_ts, c_fields = clk
    ids, ts, behind, state, fields, front, end = rows
    h_id, h_ts, h_key, h_fields, h_taken, h_places, h_end = held
    places, bits, shift = known.places
    cold_shown, cold_before, cold_after = known.cold
    live = LiveNumbers(bits, shift, front)
    rule, start, lateness, horizon = rules.rule, rules.start, rules.lateness, rules.horizon
    accepted, flip_row, flip_state, flip_fields = out.accepted, out.flip_row, out.flip_state, out.flip_fields
    repeated, repeated_row, repeated_key = out.repeated, out.repeated_row, out.repeated_key
    found, delays = (out.found_ts, out.found_key, out.found_row), out.delays
    delay_edges, window = rules.delay_edges, rules.window
    click_key, lost_ts, counters = out.click_key, out.lost_ts, out.counters
    fixed_key, fixed_row = out.fixed_key, out.fixed_row
    i = 0
    c = 0
    flips = 0
    n = 0
    click_input = newest.size - 1  # the same as that of impressions if they share one
    while i < i_id.size or c < c_id.size:
        if c >= c_id.size or (i < i_id.size and i_order[i] < c_order[c]):
            shown = i_ts[i]
            newest[0] = max(newest[0], shown)
            key = newest[0]
            watermark = key - lateness
            hashed = mix(i_id[i])
            seen, place = find(places, live, ids, i_id[i], hashed)
            if cold_shown.size:
                seen = max(seen, cold_shown[i])
            if shown + horizon <= watermark:
                counters[EXPIRED] += 1
            elif seen >= 0 and ts[seen] + horizon > watermark:
                repeated[counters[DUPLICATE_IMPRESSIONS]] = i
                repeated_row[counters[DUPLICATE_IMPRESSIONS]] = seen
                repeated_key[counters[DUPLICATE_IMPRESSIONS]] = key
                counters[DUPLICATE_IMPRESSIONS] += 1
            else:
                row = end
                end += 1
                accepted[n] = i
                n += 1
                ids[row] = i_id[i]
                ts[row] = shown
                behind[row] = np.uint32(min(key - shown, MOST_BEHIND))
                flags = np.uint8(0)
                if i_label[i] >= 0:
                    flags |= np.uint8(KNOWN | (CLICKED if i_label[i] == 1 else 0))
                if shown < watermark:
                    flags |= np.uint8(LATE)
                    counters[LATE_IMPRESSIONS] += 1
                for f in range(rule.size):
                    fields[f, row] = start[f]
                enter(places, bits, place, hashed, row + shift)
                # clicks that were read before their impression
                mask = np.uint64(h_places.size - 1)
                h = hashed & mask
                while h_places[h] != 0:
                    k = h_places[h] - 1
                    if h_id[k] == i_id[i] and not h_taken[k]:
                        came_after = h_key[k] >= key and click_input > 0
                        older, then = (shown, h_key[k]) if came_after else (h_ts[k], key)
                        if older + horizon > then - lateness:
                            h_taken[k] = True
                            first = flags & CLICKED == 0
                            met = max(h_key[k], key)
                            fate, counts = _judge(flags, shown, h_ts[k], window, lateness)
                            _note(fate, h_ts[k], met, row, found, lost_ts, counters)
                            due = came_after and shown + window <= h_key[k] - lateness
                            if fate == MATCHED:
                                flags |= _first_click(h_ts[k] - shown, due, counters, delays, delay_edges)
                                if due:
                                    at = counters[FIXED] - 1
                                    fixed_key[at], fixed_row[at] = h_key[k], row
                            if counts:
                                for f in range(rule.size):
                                    old, new = fields[f, row], h_fields[f, k]
                                    fields[f, row] = _joined(rule[f], old, new, first, due)
                    h = (h + np.uint64(1)) & mask
                state[row] = flags
            i += 1
        else:
            clicked = c_ts[c]
            newest[click_input] = max(newest[click_input], clicked)
            key = click_key[c] = newest[click_input]
            watermark = key - lateness
            row, later = find_around(places, live, ids, ts, behind, c_id[c], key)
            if cold_before.size:
                row = max(row, cold_before[c])
                later = cold_after[c] if cold_after[c] >= 0 else later  # rows on disk are older
            came_after = row >= 0 and ts[row] + horizon > watermark
            if not came_after:  # in merged order the impression comes after the click, even if it was read before
                row = later
            if came_after or (row >= 0 and clicked + horizon > ts[row] + np.int64(behind[row]) - lateness):
                was = state[row]
                met = max(key, ts[row] + np.int64(behind[row]))
                flags = was
                fate, counts = _judge(flags, ts[row], clicked, window, lateness)
                _note(fate, clicked, met, row, found, lost_ts, counters)
                due = came_after and ts[row] + window <= key - lateness
                if fate == MATCHED:
                    flags |= _first_click(clicked - ts[row], due, counters, delays, delay_edges)
                    if due:
                        at = counters[FIXED] - 1
                        fixed_key[at], fixed_row[at] = key, row
                changed = flags != was
                for f in range(rule.size):
                    old = fields[f, row]
                    if counts:
                        first = was & CLICKED == 0
                        fields[f, row] = _joined(rule[f], old, c_fields[f, c], first, due)
                        changed |= fields[f, row] != old
                    flip_fields[f, flips] = old
                if was & (MATURED | SHOWN) and changed:
                    flip_row[flips] = row
                    flip_state[flips] = was
                    flips += 1
                if flags != was:  # writing would copy a mapped page to memory
                    state[row] = flags
            elif clicked + horizon <= watermark and (click_input == 0 or key < newest[0]):
                counters[UNMATCHED] += 1
                lost_ts[counters[LOST]] = clicked
                counters[LOST] += 1
            else:
                h_id[h_end] = c_id[c]
                h_ts[h_end] = clicked
                h_key[h_end] = key
                for f in range(rule.size):
                    h_fields[f, h_end] = c_fields[f, c]
                h_taken[h_end] = False
                enter_held(h_places, c_id[c], h_end)
                h_end += 1
            c += 1
    return end, h_end, flips


@numba.njit(cache=True, nogil=True)
def first_kept(ts: NDArray[np.int64], state: NDArray[np.uint8], front: int, end: int, before: int) -> int:
    while front < end and ts[front] <= before and state[front] & MATURED:
        front += 1
    return front
