"""The join itself: one batch, event by event.

An event's *key* is the newest time in its log up to it, itself included: impressions have a log and clicks have one,
unless they share it. The events of both, merged by key (impressions first where keys are equal), stand in the one order
that every reader finds, and an event's fate is decided against the watermark there: its key less the lateness. So fates
are a function of the two logs. They do not depend on how the stream was cut into batches, nor on how far one log was
read ahead of the other: a click knows by its key whether its impression had come already, and the other way round.

- an impression seen before (same id, inside the correction horizon) is a duplicate; one older than the watermark less
  the horizon is expired; one older than the watermark is late, and counted where it belongs;
- a click finds its impression or is held until the impression comes; held past the horizon it is unmatched;
- a click later than the attribution window (by its own time) is late and changes nothing, and one earlier than the
  impression by more than the lateness is early: clocks are that far apart at the most, so it is no click on it;
- one in time makes the impression positive, once; in time but arriving after maturity it is a correction.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.join.held import enter_held
from streameval.join.index import enter, find, find_around
from streameval.join.policy import CLICKED, CORRECTED, KNOWN, LATE, MATURED, SHOWN
from streameval.sketches.directory import mix

# indexes of the counters
DUPLICATE_IMPRESSIONS, EXPIRED, LATE_IMPRESSIONS = 0, 1, 2
MATCHED, DUPLICATE_CLICKS, UNMATCHED, LATE_CLICKS, FIXED = 3, 4, 5, 6, 7
FOUND, LOST = 8, 9  # clicks whose times were written to found_ts and lost_ts
EARLY_CLICKS = 10
COUNTERS = 11


MOST_BEHIND = (1 << 32) - 1  # ms, 49 days: further back than that nobody looks for an impression


@numba.njit(inline="always")
def _count_delay(delays: NDArray[np.int64], edges: NDArray[np.float64], ms: int) -> None:
    seconds = max(ms, 0) / 1000.0
    b = 0
    while seconds > edges[b]:
        b += 1
    delays[b] += 1
    delays[edges.size] += max(ms, 0)


@numba.njit(inline="always")
def _click_on(
    shown: int,
    flags: np.uint8,
    clicked: int,
    key: int,
    came_after: bool,
    met: int,
    window: int,
    lateness: int,
    found_ts: NDArray[np.int64],
    found_key: NDArray[np.int64],
    lost_ts: NDArray[np.int64],
    counters: NDArray[np.int64],
    delays: NDArray[np.int64],
    delay_edges: NDArray[np.float64],
) -> tuple[np.uint8, bool]:
    """Counts a click on an impression; `met`: the key at which both had come. Returns (the impression's flags from now on, whether the click's value counts)."""
    in_time = False
    if clicked + lateness < shown:
        counters[EARLY_CLICKS] += 1
        lost_ts[counters[LOST]] = clicked
        counters[LOST] += 1
    else:
        found_ts[counters[FOUND]], found_key[counters[FOUND]] = clicked, met
        counters[FOUND] += 1
        if flags & KNOWN:
            counters[DUPLICATE_CLICKS] += 1
        elif clicked > shown + window:
            counters[LATE_CLICKS] += 1
        else:
            in_time = True
            if flags & CLICKED:
                counters[DUPLICATE_CLICKS] += 1
            else:
                flags |= np.uint8(CLICKED)
                counters[MATCHED] += 1
                _count_delay(delays, delay_edges, clicked - shown)
                if came_after and shown + window <= key - lateness:
                    counters[FIXED] += 1
                    flags |= np.uint8(CORRECTED)
    return flags, in_time


@numba.njit(cache=True, nogil=True)
def join_batch(
    i_order: NDArray[np.int32],
    i_id: NDArray[np.uint64],
    i_ts: NDArray[np.int64],
    i_label: NDArray[np.int8],
    c_order: NDArray[np.int32],
    c_id: NDArray[np.uint64],
    c_ts: NDArray[np.int64],
    c_value: NDArray[np.float64],
    newest: NDArray[np.int64],
    window: int,
    lateness: int,
    horizon: int,
    ids: NDArray[np.uint64],
    ts: NDArray[np.int64],
    behind: NDArray[np.uint32],
    state: NDArray[np.uint8],
    value: NDArray[np.float64],
    places: NDArray[np.uint32],
    bits: np.uint64,
    shift: int,
    front: int,
    end: int,
    h_id: NDArray[np.uint64],
    h_ts: NDArray[np.int64],
    h_key: NDArray[np.int64],
    h_value: NDArray[np.float64],
    h_taken: NDArray[np.bool_],
    h_index: NDArray[np.int32],
    h_end: int,
    accepted: NDArray[np.int32],
    flip_row: NDArray[np.int64],
    flip_state: NDArray[np.uint8],
    flip_value: NDArray[np.float64],
    c_key: NDArray[np.int64],
    found_ts: NDArray[np.int64],
    found_key: NDArray[np.int64],
    lost_ts: NDArray[np.int64],
    repeated: NDArray[np.int32],
    repeated_row: NDArray[np.int64],
    repeated_key: NDArray[np.int64],
    counters: NDArray[np.int64],
    delays: NDArray[np.int64],
    delay_edges: NDArray[np.float64],
) -> tuple[int, int, int]:
    """One batch, event by event in arrival order. Returns (end of rows, end of held clicks, flips)."""
    i = 0
    c = 0
    flips = 0
    n = 0
    click_input = newest.size - 1  # the same input as the impressions' when they share one
    while i < i_id.size or c < c_id.size:
        if c >= c_id.size or (i < i_id.size and i_order[i] < c_order[c]):
            newest[0] = max(newest[0], i_ts[i])
            key = newest[0]
            watermark = key - lateness
            hashed = mix(i_id[i])
            seen, place = find(places, bits, shift, ids, front, i_id[i], hashed)
            if i_ts[i] + horizon <= watermark:
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
                ts[row] = i_ts[i]
                behind[row] = np.uint32(min(key - i_ts[i], MOST_BEHIND))
                flags = np.uint8(0)
                if i_label[i] >= 0:
                    flags |= np.uint8(KNOWN | (CLICKED if i_label[i] == 1 else 0))
                if i_ts[i] < watermark:
                    flags |= np.uint8(LATE)
                    counters[LATE_IMPRESSIONS] += 1
                if value.size:
                    value[row] = 0.0
                enter(places, bits, place, hashed, row + shift)
                # clicks that were read first
                mask = np.uint64(h_index.size - 1)
                h = hashed & mask
                while h_index[h] != 0:
                    k = h_index[h] - 1
                    if h_id[k] == i_id[i] and not h_taken[k]:
                        came_after = h_key[k] >= key and click_input > 0
                        older, then = (i_ts[i], h_key[k]) if came_after else (h_ts[k], key)
                        if older + horizon > then - lateness:
                            h_taken[k] = True
                            flags, counts = _click_on(
                                i_ts[i], flags, h_ts[k], h_key[k], came_after, max(h_key[k], key), window, lateness,
                                found_ts, found_key, lost_ts, counters, delays, delay_edges,
                            )  # fmt: skip
                            if counts and value.size:
                                value[row] = max(value[row], h_value[k])
                    h = (h + np.uint64(1)) & mask
                state[row] = flags
            i += 1
        else:
            newest[click_input] = max(newest[click_input], c_ts[c])
            key = c_key[c] = newest[click_input]
            watermark = key - lateness
            row, later = find_around(places, bits, shift, ids, ts, behind, front, c_id[c], key)
            came_after = row >= 0 and ts[row] + horizon > watermark
            if not came_after:  # in the merged order the click waits, if its impression is here already
                row = later
            if came_after or (row >= 0 and c_ts[c] + horizon > ts[row] + np.int64(behind[row]) - lateness):
                was = state[row]
                flags, counts = _click_on(
                    ts[row], was, c_ts[c], key, came_after, max(key, ts[row] + np.int64(behind[row])), window, lateness,
                    found_ts, found_key, lost_ts, counters, delays, delay_edges,
                )  # fmt: skip
                raised = counts and value.size > 0 and c_value[c] > value[row]
                if was & (MATURED | SHOWN) and (flags != was or raised):
                    flip_row[flips] = row
                    flip_state[flips] = was
                    flip_value[flips] = value[row] if value.size else 0.0
                    flips += 1
                state[row] = flags
                if raised:
                    value[row] = c_value[c]
            elif c_ts[c] + horizon <= watermark and (click_input == 0 or key < newest[0]):
                counters[UNMATCHED] += 1
                lost_ts[counters[LOST]] = c_ts[c]
                counters[LOST] += 1
            else:
                h_id[h_end] = c_id[c]
                h_ts[h_end] = c_ts[c]
                h_key[h_end] = key
                h_value[h_end] = c_value[c]
                h_taken[h_end] = False
                enter_held(h_index, c_id[c], h_end)
                h_end += 1
            c += 1
    return end, h_end, flips


@numba.njit(cache=True, nogil=True)
def first_kept(ts: NDArray[np.int64], state: NDArray[np.uint8], front: int, end: int, before: int) -> int:
    while front < end and ts[front] <= before and state[front] & MATURED:
        front += 1
    return front
