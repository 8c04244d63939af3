"""Which of the joiner's rows windows of event time are made of: those of users with a click there, as their labels were when due, or are now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.join.policy import CLICKED, CORRECTED, LATE, MATURED
from streameval.sketches.blocks import block_of
from streameval.sketches.directory import mix

MOST_CHOSEN = 1 << 21  # rows that are taken at a time; beyond it users are sampled
WINDOW_SALT, _SAMPLE_SALT = np.uint64(0x9E3779B97F4A7C15), np.uint64(0x6A0C5A3B17)


class LiveRows(NamedTuple):
    """The joiner's rows, and which of them are looked through: all those of wanted windows are among them."""

    ts: NDArray[np.int64]
    user: NDArray[np.uint64]
    state: NDArray[np.uint8]
    spans: NDArray[np.int64]  # [n, 2]: rows from where up to where, ascending


class Wanted(NamedTuple):
    """Windows: `place[w - first]` is window w's index, -1: not wanted."""

    window: int  # ms
    first: int
    place: NDArray[np.int32]
    late: int

    @classmethod
    def of(cls, window: int, due: Sequence[int], late: int) -> Wanted:
        """Those numbered `due`, ascending; window `due[j]` is j."""
        place = np.full(due[-1] - due[0] + 1, -1, np.int32)
        place[np.array(due) - due[0]] = np.arange(len(due))
        return cls(window, due[0], place, late)

    @property
    def times(self) -> tuple[int, int]:
        """From when to when the first window begins and the last ends, ms."""
        return self.first * self.window, (self.first + self.place.size) * self.window


@numba.njit(inline="always")
def is_click(state: int, late: int) -> bool:
    if not state & CLICKED:
        return False
    return bool(late) or not state & (CORRECTED | LATE)


@numba.njit(inline="always")
def is_sampled(user: np.uint64, halvings: int) -> bool:
    return halvings == 0 or not mix(user ^ _SAMPLE_SALT) >> np.uint64(64 - halvings)


@numba.njit(inline="always")
def _find(table: NDArray[np.uint64], user: np.uint64, salt: np.uint64) -> tuple[np.uint64, np.uint64]:
    """(where a user of the window that `salt` is of stands, or would stand; the key there)."""
    mask = np.uint64(table.size - 1)
    key = mix(user ^ salt) | np.uint64(1)
    at = (key >> np.uint64(1)) & mask
    while table[at] != 0 and table[at] != key:
        at = (at + np.uint64(1)) & mask
    return at, key


@numba.njit(cache=True, nogil=True)
def choose(
    known: LiveRows, wanted: Wanted, halvings: int, rows: NDArray[np.int64], group: NDArray[np.int32]
) -> tuple[int, int, NDArray[np.int32], NDArray[np.int8]]:
    """Mature rows (with `late` 0: on time, by their labels then) in wanted windows of users with a click there, and the groups they form.

    Returns (rows found, groups, the groups' windows, the groups' blocks); -1 rows: more than `rows` has room for.
    """
    ts, user, state, spans = known
    window, first, place, late = wanted
    most = rows.size
    low, high = first * window, (first + place.size) * window
    clicks = 0  # their rows stand in `rows` until there is more
    for span in range(len(spans)):
        for i in range(spans[span, 0], spans[span, 1]):
            if (
                low <= ts[i] < high
                and is_click(state[i], late)
                and state[i] & MATURED
                and place[ts[i] // window - first] >= 0
                and is_sampled(user[i], halvings)
            ):
                if clicks == most:
                    return -1, 0, np.empty(0, np.int32), np.empty(0, np.int8)
                rows[clicks] = i
                clicks += 1
    size = 16
    while size < 2 * clicks:
        size *= 2
    table, number = np.zeros(size, np.uint64), np.empty(size, np.int32)
    windows, block = np.empty(clicks, np.int32), np.empty(clicks, np.int8)
    groups = 0
    for i in rows[:clicks]:  # first who clicked, then everything that they saw
        w = ts[i] // window
        at, key = _find(table, user[i], mix(np.uint64(w) + WINDOW_SALT))
        if table[at] == 0:
            table[at] = key
            number[at] = groups
            windows[groups], block[groups] = place[w - first], block_of(user[i])
            groups += 1
    n = 0
    begin, inside, salt = high, False, np.uint64(0)  # of the window of the row before
    for span in range(len(spans)):
        for i in range(spans[span, 0], spans[span, 1]):
            if not (low <= ts[i] < high and state[i] & MATURED) or (not late and state[i] & LATE):
                continue
            if not begin <= ts[i] < begin + window:
                w = ts[i] // window
                begin, inside, salt = w * window, place[w - first] >= 0, mix(np.uint64(w) + WINDOW_SALT)
            if inside and is_sampled(user[i], halvings):
                at, key = _find(table, user[i], salt)
                if table[at] == key:
                    if n == most:
                        return -1, groups, windows[:groups], block[:groups]
                    rows[n], group[n] = i, number[at]
                    n += 1
    return n, groups, windows[:groups], block[:groups]
