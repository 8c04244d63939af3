"""Which of the joiner's rows form windows of event time: those of users with a click in the window, by their labels
when due, or now.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.join.policy import CLICKED, CORRECTED, LATE, MATURED
from streameval.sketches.blocks import block_of
from streameval.sketches.directory import mix

MOST_CHOSEN = 1 << 21  # rows taken at a time; above that, users are sampled
_GROUP_BITS = 22  # of a cell, for the group; there are fewer than MOST_CHOSEN
_AT_ONCE = 256  # rows looked up together
WINDOW_SALT, _SAMPLE_SALT = np.uint64(0x9E3779B97F4A7C15), np.uint64(0x6A0C5A3B17)


class LiveRows(NamedTuple):
    """The joiner's rows, and the spans to search: they include all rows of wanted windows."""

    ts: NDArray[np.int64]
    user: NDArray[np.uint64]
    state: NDArray[np.uint8]
    spans: NDArray[np.int64]  # [n, 2]: first row and end of each span, ascending


class Wanted(NamedTuple):
    """Windows: `place[w - first]` is window w's index, -1 if it is not wanted."""

    window: int  # ms
    first: int
    place: NDArray[np.int32]
    late: int

    @classmethod
    def of(cls, window: int, due: Sequence[int], late: int) -> Wanted:
        """Returns the windows numbered `due`, ascending; window `due[j]` has index j."""
        place = np.full(due[-1] - due[0] + 1, -1, np.int32)
        place[np.array(due) - due[0]] = np.arange(len(due))
        return cls(window, due[0], place, late)

    @property
    def times(self) -> tuple[int, int]:
        """When the first window begins and the last one ends, ms."""
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
def _key_of(user: np.uint64, salt: np.uint64) -> np.uint64:
    """Returns a user's key in the window of a salt; never 0."""
    return mix(user ^ salt) | np.uint64(1 << _GROUP_BITS)


@numba.njit(inline="always")
def _home(key: np.uint64, table: NDArray[np.uint64]) -> np.uint64:
    return key & np.uint64(table.size - 1)


@numba.njit(inline="always")
def _find(table: NDArray[np.uint64], key: np.uint64) -> np.uint64:
    """Returns the index of a key, or where to insert it."""
    mask, at = np.uint64(table.size - 1), _home(key, table)
    while table[at] != 0 and (table[at] ^ key) >> np.uint64(_GROUP_BITS):
        at = (at + np.uint64(1)) & mask
    return at


@numba.njit(inline="always")
def _salt_of(window: int) -> np.uint64:
    return mix(np.uint64(window) + WINDOW_SALT)


@numba.njit(cache=True, nogil=True)
def _clicks(known: LiveRows, wanted: Wanted, halvings: int, rows: NDArray[np.int64]) -> int:
    """Fills in the rows of clicks in wanted windows; returns their number, or -1 if `rows` has too little room."""
    ts, user, state, spans = known
    window, first, place, late = wanted
    low, high = first * window, (first + place.size) * window
    clicks = 0
    for span in range(len(spans)):
        for i in range(spans[span, 0], spans[span, 1]):
            if (
                low <= ts[i] < high
                and is_click(state[i], late)
                and state[i] & MATURED
                and place[ts[i] // window - first] >= 0
                and is_sampled(user[i], halvings)
            ):
                if clicks == rows.size:
                    return -1
                rows[clicks] = i
                clicks += 1
    return clicks


@numba.njit(inline="always")
def _take(
    table: NDArray[np.uint64],
    keys: NDArray[np.uint64],
    asked: NDArray[np.int64],
    cells: NDArray[np.uint64],
    n: int,
    rows: NDArray[np.int64],
    group: NDArray[np.int32],
) -> int:
    """Appends those of some rows (`asked`, `keys`) whose users are in the table to the n that there are; returns their
    new number.

    All cells are fetched before any is compared, so memory latency is paid once. -1 if `rows` has too little room.
    """
    for j in range(asked.size):
        cells[j] = table[_home(keys[j], table)]
    for j in range(asked.size):
        cell = cells[j]
        if cell != 0 and (cell ^ keys[j]) >> np.uint64(_GROUP_BITS):
            cell = table[_find(table, keys[j])]
        if cell != 0:
            if n == rows.size:
                return -1
            rows[n], group[n] = asked[j], np.int32(cell & np.uint64((1 << _GROUP_BITS) - 1))
            n += 1
    return n


@numba.njit(cache=True, nogil=True)
def choose(
    known: LiveRows, wanted: Wanted, halvings: int, rows: NDArray[np.int64], group: NDArray[np.int32]
) -> tuple[int, int, NDArray[np.int32], NDArray[np.int8]]:
    """Finds mature rows (with `late` 0: those on time, by their labels then) in wanted windows of users with a click
    there, and their groups.

    Returns (rows found, groups, the groups' windows, the groups' blocks); -1 rows if `rows` has too little room.
    """
    ts, user, state, spans = known
    window, first, place, late = wanted
    low, high = first * window, (first + place.size) * window
    clicks = _clicks(known, wanted, halvings, rows)  # their rows are kept in `rows` until then
    if clicks < 0:
        return -1, 0, np.empty(0, np.int32), np.empty(0, np.int8)
    size = 16
    while size < 2 * clicks:
        size *= 2
    table = np.zeros(size, np.uint64)  # by user and window: most of the key, and in the low bits the group
    windows, block = np.empty(clicks, np.int32), np.empty(clicks, np.int8)
    groups = 0
    for i in rows[:clicks]:  # first those who clicked, then everything that they saw
        w = ts[i] // window
        key = _key_of(user[i], _salt_of(w))
        at = _find(table, key)
        if table[at] == 0:
            table[at] = (key >> np.uint64(_GROUP_BITS)) << np.uint64(_GROUP_BITS) | np.uint64(groups)
            windows[groups], block[groups] = place[w - first], block_of(user[i])
            groups += 1
    n, waiting = 0, 0
    asked, keys, cells = np.empty(_AT_ONCE, np.int64), np.empty(_AT_ONCE, np.uint64), np.empty(_AT_ONCE, np.uint64)
    begin, inside, salt = high, False, np.uint64(0)  # of the previous row's window
    for span in range(len(spans)):
        for i in range(spans[span, 0], spans[span, 1]):
            if not (low <= ts[i] < high and state[i] & MATURED) or (not late and state[i] & LATE):
                continue
            if not begin <= ts[i] < begin + window:
                w = ts[i] // window
                begin, inside, salt = w * window, place[w - first] >= 0, _salt_of(w)
            if inside and is_sampled(user[i], halvings):
                asked[waiting], keys[waiting] = i, _key_of(user[i], salt)
                waiting += 1
                if waiting == _AT_ONCE:
                    n = _take(table, keys, asked, cells, n, rows, group)
                    if n < 0:
                        return -1, groups, windows[:groups], block[:groups]
                    waiting = 0
    n = _take(table, keys[:waiting], asked[:waiting], cells, n, rows, group)
    return n, groups, windows[:groups], block[:groups]
