"""GAUC of pairs: rows of (user, tumbling window of event time), made when the window's labels are complete.

A row is of the impressions of a user in a window that one version served and another scored too: w of them, and D, the
other's AUC on them less the server's (ties by half); users with both labels only. An AUC is no sum over impressions, so
a window is computed whole, from the joiner's rows: once of what was on time, when its labels are complete, and if
anything in it was late, once more with that, when nothing can be corrected any more; readers get the difference of
the two. What they get when depends on event time alone (see `Ledger`). The joiner keeps rows a window longer than they
can be corrected (`JoinPolicy.hold`), so that they are still there.

`mark`, `due` and `gather` are for the loop's thread, everything else for the one that counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.columns import Scored
from streameval.events import Codes
from streameval.join.joiner import Joiner
from streameval.join.policy import CLICKED, CORRECTED, LATE, MATURED
from streameval.sketches import blocks
from streameval.sketches.blocks import BLOCKS, GAUC_CELLS, GAUC_SCALARS, SCALE, block_of
from streameval.sketches.directory import mix
from streameval.sketches.grid import score_key
from streameval.sketches.ranks import concordant_pairs

MOST_ROWS = 1 << 21  # of impressions that are taken at a time; beyond it users are sampled
MOST_OF_A_USER = 4096  # impressions in a window: who has more is no person, and would outweigh everybody
MOST_PAIRS = 128
_NEAR = 64  # windows that are computed together
_FEW = 32  # clicks or others of a user, up to which every pair is looked at: sooner done than sorting
WIDTH = BLOCKS * GAUC_CELLS + GAUC_SCALARS
_SCALARS = BLOCKS * GAUC_CELLS
_WINDOW_SALT, _SAMPLE_SALT = np.uint64(0x9E3779B97F4A7C15), np.uint64(0x6A0C5A3B17)

Key = tuple[int, int]  # (series that served, series that scored too)
Sums = dict[Key, NDArray[np.int64]]  # int64[WIDTH]: cells by block, then scalars (see `blocks`)


@dataclass(frozen=True, slots=True)
class Gathered:
    """The impressions of some windows by users who clicked there: columns."""

    late: int  # 1: with what was late
    windows: NDArray[np.int64]  # numbers of the windows
    window: NDArray[np.int32]  # of each group, as an index of `windows`
    block: NDArray[np.int8]  # of each group
    group: NDArray[np.int32]  # of each impression: its (user, window)
    label: NDArray[np.int8]
    scored: Scored


_NOTHING = (
    np.empty(0, np.int32), np.empty(0, np.int8), np.empty(0, np.int32), np.empty(0, np.int8),
    Scored((0, 0), np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0), np.empty(0, np.bool_)),
)  # fmt: skip


@numba.njit(inline="always")
def _is_click(state: int, late: int) -> bool:
    if not state & CLICKED:
        return False
    return bool(late) or not state & (CORRECTED | LATE)


@numba.njit(cache=True, nogil=True)
def _choose(
    ts: NDArray[np.int64],
    user: NDArray[np.uint64],
    state: NDArray[np.uint8],
    window: int,
    first: int,
    place: NDArray[np.int32],
    late: int,
    halvings: int,
    most: int,
    rows: NDArray[np.int64],
    group: NDArray[np.int32],
) -> tuple[int, int, NDArray[np.int32], NDArray[np.int8]]:
    """Mature rows (with `late` 0: on time, by their labels then) in wanted windows (`place[w - first]` >= 0) of users with a click there, and the groups they form.

    Returns (rows found, groups, the groups' windows, the groups' blocks); -1 rows: more than `most`.
    """
    low, high = first * window, (first + place.size) * window
    clicks = 0
    for i in range(ts.size):
        if (
            low <= ts[i] < high
            and _is_click(state[i], late)
            and state[i] & MATURED
            and place[ts[i] // window - first] >= 0
        ):
            clicks += 1
    size = 16
    while size < 2 * clicks:
        size *= 2
    mask = np.uint64(size - 1)
    table, number = np.zeros(size, np.uint64), np.empty(size, np.int32)
    windows, block = np.empty(clicks, np.int32), np.empty(clicks, np.int8)
    groups = 0
    n = 0
    for clicked in (True, False):  # first who clicked, then everything that they saw
        for i in range(ts.size):
            if not (low <= ts[i] < high and state[i] & MATURED) or (clicked and not _is_click(state[i], late)):
                continue
            if not late and state[i] & LATE:
                continue
            w = ts[i] // window
            if place[w - first] < 0:
                continue
            if halvings and mix(user[i] ^ _SAMPLE_SALT) >> np.uint64(64 - halvings):
                continue
            key = mix(user[i] ^ mix(np.uint64(w) + _WINDOW_SALT)) | np.uint64(1)
            at = (key >> np.uint64(1)) & mask
            while table[at] != 0 and table[at] != key:
                at = (at + np.uint64(1)) & mask
            if clicked:
                if table[at] == 0:
                    table[at] = key
                    number[at] = groups
                    windows[groups], block[groups] = place[w - first], block_of(user[i])
                    groups += 1
            elif table[at] == key:
                if n == most:
                    return -1, groups, windows[:groups], block[:groups]
                rows[n], group[n] = i, number[at]
                n += 1
    return n, groups, windows[:groups], block[:groups]


@numba.njit(inline="always")
def _concordant(entries: NDArray[np.uint32], clicks: int) -> int:
    """Twice the concordant pairs of a user's score << 1 | label entries, the clicks first; a tie counts 1 of 2."""
    others = entries.size - clicks
    if min(clicks, others) > _FEW:
        entries.sort()
        return concordant_pairs(entries, entries.size)[0]
    pairs = np.int64(0)
    for i in range(clicks):
        above, at_least = np.int32(0), np.int32(0)
        strictly = entries[i] ^ np.uint32(1)
        for j in range(clicks, entries.size):
            above += np.int32(strictly > entries[j])
            at_least += np.int32(entries[i] > entries[j])
        pairs += np.int64(above) + np.int64(at_least)
    return int(pairs)


@numba.njit(cache=True, nogil=True)
def _add(
    group: NDArray[np.int32],
    label: NDArray[np.int8],
    window: NDArray[np.int32],
    block: NDArray[np.int8],
    first: int,
    row: NDArray[np.int32],
    series: NDArray[np.int32],
    p: NDArray[np.float64],
    pair_of: NDArray[np.int32],
    most_pairs: int,
    pairs: NDArray[np.int32],
    sums: NDArray[np.int64],
) -> int:
    """Adds up rows: sums[window, pair] (see WIDTH) of pairs[pair] = (served, other); returns how many pairs there are."""
    groups = window.size
    logged_at = np.full(group.size, -1, np.int32)
    for k in range(first):
        logged_at[row[k]] = k
    found = 0
    for k in range(first, series.size):
        s = logged_at[row[k]]
        if s >= 0 and series[s] != series[k] and pair_of[series[s], series[k]] < 0 and found < most_pairs:
            pair_of[series[s], series[k]] = found
            pairs[found, 0], pairs[found, 1] = series[s], series[k]
            found += 1
    start = np.zeros(found * groups + 1, np.int32)
    for k in range(first, series.size):
        s = logged_at[row[k]]
        if s >= 0 and pair_of[series[s], series[k]] >= 0:
            start[pair_of[series[s], series[k]] * groups + group[row[k]] + 1] += 1
    for i in range(found * groups):
        start[i + 1] += start[i]
    mine, theirs = np.empty(start[-1], np.uint32), np.empty(start[-1], np.uint32)
    front, back = start[:-1].copy(), start[1:].copy()  # a user's clicks first, then the others from the end
    for k in range(first, series.size):
        s = logged_at[row[k]]
        if s >= 0 and pair_of[series[s], series[k]] >= 0:
            cell = pair_of[series[s], series[k]] * groups + group[row[k]]
            clicked = np.int64(label[row[k]])
            if clicked:
                place = front[cell]
                front[cell] += 1
            else:
                back[cell] -= 1
                place = back[cell]
            mine[place] = (score_key(p[s]) << 1) | clicked
            theirs[place] = (score_key(p[k]) << 1) | clicked
    for pair in range(found):
        for g in range(groups):
            a, b = start[pair * groups + g], start[pair * groups + g + 1]
            w, clicks = np.int64(b - a), np.int64(front[pair * groups + g] - a)
            if w > MOST_OF_A_USER or clicks in (0, w):
                continue
            old, new = _concordant(mine[a:b], clicks), _concordant(theirs[a:b], clicks)
            pairs_of_user = np.float64(2 * clicks * (w - clicks))
            wd = w * (np.float64(new - old) / pairs_of_user)
            out = sums[window[g], pair]
            cell = np.int64(block[g]) * GAUC_CELLS
            out[cell + blocks.G_W] += w
            out[cell + blocks.G_WD] += np.int64(np.rint(wd * SCALE))
            out[_SCALARS + blocks.G_WD_SQ] += np.int64(np.rint(wd * wd * SCALE))
            out[_SCALARS + blocks.G_W_WD] += np.int64(np.rint(w * wd * SCALE))
            out[_SCALARS + blocks.G_W_SQ] += w * w
            out[_SCALARS + blocks.G_ROWS] += 1
            out[_SCALARS + blocks.G_W_SERVER] += np.int64(np.rint(w * (np.float64(old) / pairs_of_user) * SCALE))
    return found


class GaucRows:
    """The GAUC sums of one partition, by window."""

    def __init__(self, window: int, attribution_window: int, reach: int) -> None:
        """In ms. `reach`: how far behind the watermark an impression may be corrected."""
        self.window = window
        self._attribution_window, self._reach = attribution_window, reach
        # by what was on time, and what was late: windows to compute, and those computed but not given out
        self._open: tuple[set[int], set[int]] = (set(), set())
        self.waiting: tuple[dict[int, Sums], dict[int, Sums]] = ({}, {})
        self._given: dict[int, Sums] = {}  # by window
        self.sampled = 0  # times that not all users were taken

    # -- the loop's thread ---------------------------------------------------------------------------------------

    def mark(self, ts: NDArray[np.int64], late: int) -> None:
        """Labels at these times have matured, in order of time; or with `late` 1, they came late or have changed."""
        if not ts.size:
            return
        first, last = int(ts[0]) // self.window, int(ts[-1]) // self.window
        self._open[late].update({first} if first == last else np.unique(ts // self.window).tolist())

    def due(self, watermark: int) -> list[tuple[int, list[int]]]:
        """(late, windows) to compute now, in groups of near ones; the joiner must not forget anything before."""
        complete = (watermark - self._attribution_window) // self.window
        last = (watermark - self._reach) // self.window  # windows before it cannot be corrected
        groups: list[tuple[int, list[int]]] = []
        for late, end in ((0, complete), (1, last)):
            out = sorted(w for w in self._open[late] if w < end)
            self._open[late].difference_update(out)
            for w in out:
                if groups and groups[-1][0] == late and w - groups[-1][1][0] < _NEAR:
                    groups[-1][1].append(w)
                else:
                    groups.append((late, [w]))
        return groups

    def gather(self, late: int, due: Sequence[int], joiner: Joiner, online_series: list[int], grace: int) -> Gathered:
        """What the sums of these windows are computed of: nothing, when nobody but the servers scored."""
        if not online_series and not joiner.has_shadow:
            return Gathered(late, np.array(due), *_NOTHING)
        live, table = slice(joiner.front, joiner.front + joiner.known), joiner.table
        first = due[0]
        place = np.full(due[-1] - first + 1, -1, np.int32)
        place[np.array(due) - first] = np.arange(len(due))
        most = min(MOST_ROWS, joiner.known)
        rows, group = np.empty(most, np.int64), np.empty(most, np.int32)
        halvings = 0
        columns = table.ts[live], table.user[live], table.state[live], self.window, first, place, late
        n, _, window, block = _choose(*columns, halvings, most, rows, group)
        while n < 0:
            halvings += 1
            self.sampled += 1
            n, _, window, block = _choose(*columns, halvings, most, rows, group)
        chosen = rows[:n] + joiner.front
        scored = joiner.scored(chosen, online_series, grace)
        clicked = (table.state[chosen] & CLICKED) != 0
        if not late:
            clicked &= (table.state[chosen] & CORRECTED) == 0
        label = clicked.astype(np.int8)
        return Gathered(late, np.array(due), window, block, group[:n], label, scored)

    # -- counting, and who reads -----------------------------------------------------------------------------------

    def compute(self, some: Gathered) -> None:
        """The sums of windows as they are now."""
        scored = some.scored
        codes = int(scored.series.max(initial=-1)) + 1
        sums = np.zeros((some.windows.size, MOST_PAIRS, WIDTH), np.int64)
        pairs, pair_of = np.empty((MOST_PAIRS, 2), np.int32), np.full((codes, codes), -1, np.int32)
        found = _add(
            some.group, some.label, some.window, some.block, scored.bounds[1], scored.row, scored.series, scored.p,
            pair_of, MOST_PAIRS, pairs, sums,
        )  # fmt: skip
        keys = [(int(served), int(other)) for served, other in pairs[:found]]
        for j, window in enumerate(some.windows.tolist()):
            self.waiting[some.late][window] = {key: sums[j, i].copy() for i, key in enumerate(keys) if sums[j, i].any()}

    def take(self, end: int) -> list[tuple[int, Sums]]:
        """(window's beginning, what it gains by pair), oldest first: of windows that end by `end`, and with what was late in
        those that could not be corrected any more when labels were complete until `end`; all ms.
        """
        out = []
        over = end + self._attribution_window - self._reach
        due = [
            (w, late) for late, by in ((0, end), (1, over)) for w in self.waiting[late] if (w + 1) * self.window <= by
        ]
        for window, late in sorted(due):
            now, before = self.waiting[late].pop(window), self._given.get(window, {})
            nothing = np.zeros(WIDTH, np.int64)
            gained = {
                key: now.get(key, nothing) - before.get(key, nothing) for key in sorted(now.keys() | before.keys())
            }
            out.append((window * self.window, {key: sums for key, sums in gained.items() if sums.any()}))
            self._given[window] = now
        return out

    def given(self) -> Iterator[tuple[int, Sums]]:
        """(window's beginning in ms, sums) of everything that was taken, oldest first."""
        for window in sorted(self._given):
            yield window * self.window, self._given[window]

    def forget_before(self, ts: int) -> None:
        """Lets go of windows that ended before a time."""
        for kept in (*self.waiting, self._given):
            for window in [w for w in kept if (w + 1) * self.window <= ts]:
                del kept[window]

    def clear(self, series: int) -> None:
        """Forgets a series; its code may be given to another."""
        for kept in (*self.waiting, self._given):
            for window, sums in kept.items():
                kept[window] = {key: row for key, row in sums.items() if series not in key}

    @property
    def nbytes(self) -> int:
        """Bytes of everything."""
        return sum(
            row.nbytes for kept in (*self.waiting, self._given) for sums in kept.values() for row in sums.values()
        )

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def marks(self) -> dict[str, Any]:
        """What the loop's thread knows, for `restore`."""
        return {"open": [sorted(windows) for windows in self._open], "sampled": self.sampled}

    def state(self) -> dict[str, Any]:
        """The sums, for `restore`."""
        return {"waiting": [_saved(kept) for kept in self.waiting], "given": _saved(self._given)}

    def restore(self, marks: Mapping[str, Any], state: Mapping[str, Any], codes: Codes) -> None:
        """Takes over what `marks` and `state` gave. `codes.series[c]` is what series c is called here."""
        self._open, self.sampled = (set(marks["open"][0]), set(marks["open"][1])), marks["sampled"]
        for kept, saved in zip((*self.waiting, self._given), (*state["waiting"], state["given"]), strict=True):
            for window, keys, rows in saved:
                names = [(int(codes.series[a]), int(codes.series[b])) for a, b in keys]
                kept[window] = dict(zip(names, rows.copy(), strict=True))


def _saved(kept: Mapping[int, Sums]) -> list[list[Any]]:
    out = []
    for window, sums in sorted(kept.items()):
        rows = np.array(list(sums.values()), np.int64).reshape(-1, WIDTH)
        out.append([window, [list(key) for key in sums], rows])
    return out
