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
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.compare.ledger.list_rows import NO_LISTS, ListMetrics
from streameval.compare.ledger.request_rows import YIELD_WIDTH, RequestColumns, request_rows
from streameval.compare.ledger.window_choice import MOST_CHOSEN, LiveRows, Wanted, choose
from streameval.events.batch import Codes
from streameval.events.columns import Scored, ScoreList
from streameval.join.joiner import Joiner
from streameval.join.policy import CLICKED, CORRECTED
from streameval.join.sampled import copies
from streameval.sketches import blocks
from streameval.sketches.blocks import BLOCKS, GAUC_CELLS, SCALE
from streameval.sketches.concordance import concordant_pairs, weighted_pairs
from streameval.sketches.grid import score_key

MOST_OF_A_USER = 4096  # impressions in a window: who has more is no person, and would outweigh everybody
MOST_PAIRS = 128  # numbers of 8 bits
_NEAR = 64  # windows that are computed together
_FEW = 32  # clicks or others of a user, up to which every pair is looked at: sooner done than sorting
_SCALARS = BLOCKS * GAUC_CELLS

_NO_COPIES = np.empty(0, np.int64)
_Key = tuple[int, int]  # (series that served, series that scored too; -1: rows of requests)
Sums = dict[_Key, NDArray[np.int64]]  # int64[WIDTH]: cells by block, then scalars (see `blocks`)


class Groups(NamedTuple):
    """Impressions of a user in a window, and by impression which of them it is in."""

    window: NDArray[np.int32]  # index of the window
    block: NDArray[np.int8]
    group: NDArray[np.int32]  # by impression
    label: NDArray[np.int8]
    copies: NDArray[np.int64] = _NO_COPIES  # how often each counts; empty: once


@dataclass(frozen=True, slots=True)
class Gathered:
    """The impressions of some windows by users who clicked there."""

    late: int  # 1: with what was late
    windows: NDArray[np.int64]  # numbers of the windows
    groups: Groups
    scored: Scored
    request: NDArray[np.uint64]  # by impression; 0: none
    served: Mapping[int, Sums] = field(
        default_factory=dict
    )  # by window, of requests by who served them (see `request_rows`)
    propensity: NDArray[np.float64] | None = None  # by impression; None: no list is weighted


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


@numba.njit(inline="always")
def _auc_of_copies(entries: NDArray[np.uint32], copies: NDArray[np.uint32], clicks: int, others: int) -> float:
    """The AUC of a user's entries, each of which counts as often as `copies` says: `clicks` and `others` in all."""
    order = np.argsort(entries)
    pairs, _, _, _ = weighted_pairs(entries[order], copies[order], entries.size)
    return float(pairs / (2.0 * clicks * others))


@numba.njit(cache=True, nogil=True)
def _add(
    by: Groups,
    scores: ScoreList,
    first: int,
    pair_of: NDArray[np.int32],
    pairs: NDArray[np.int32],
    sums: NDArray[np.int64],
) -> int:
    """Adds up rows: sums[window, pair] (see WIDTH) of pairs[pair] = (served, other); returns how many pairs there are.

    Scores from `first` on are others'; pairs for which `pairs` has no room are left out.
    """
    window, block, group, label, copies = by
    weighed = copies.size > 0
    row, series, p = scores
    groups = window.size
    logged_at = np.full(group.size, -1, np.int32)
    for k in range(first):
        logged_at[np.uint32(row[k])] = k
    # of the others; indices that cannot be below 0 are unsigned: nothing is spent on wrapping them around
    rows, others, ps = row[first:], series[first:], p[first:]
    found = 0
    pair = np.full(rows.size, -1, np.int8)  # of each score
    for k in range(rows.size):
        s = logged_at[np.uint32(rows[k])]
        if s >= 0:
            server, other = np.uint32(series[s]), np.uint32(others[k])
            if server != other and pair_of[server, other] < 0 and found < len(pairs):
                pair_of[server, other] = found
                pairs[found, 0], pairs[found, 1] = server, other
                found += 1
            pair[k] = pair_of[server, other]
    start = np.zeros(groups * found + 1, np.int32)  # a group's pairs are neighbours, in memory too
    for k in range(rows.size):
        if pair[k] >= 0:
            start[np.uint32(group[np.uint32(rows[k])] * found + pair[k] + 1)] += 1
    for i in range(groups * found):
        start[i + 1] += start[i]
    both = np.empty((start[-1], 2), np.uint32)  # the server's entry and the other's: one place in memory to go to
    many = np.empty(start[-1] if weighed else 0, np.uint32)
    # by cell, where the next non-click goes, from the end, and the next click, from the beginning
    ends = np.empty((groups * found, 2), np.int32)
    ends[:, 0], ends[:, 1] = start[1:], start[:-1]
    for k in range(rows.size):
        if pair[k] >= 0:
            shown = np.uint32(rows[k])
            at, mine = np.uint32(logged_at[shown]), np.uint32(group[shown] * found + pair[k])
            clicked = np.uint8(label[shown])
            place = np.uint32(ends[mine, clicked] - 1 + clicked)
            ends[mine, clicked] += 2 * np.int32(clicked) - 1
            both[place, 0] = (score_key(p[at]) << 1) | clicked
            both[place, 1] = (score_key(ps[k]) << 1) | clicked
            if weighed:
                many[place] = copies[shown]
    entries = np.empty((2, MOST_OF_A_USER), np.uint32)
    for g in range(groups):
        for i in range(found):
            a, b = start[g * found + i], start[g * found + i + 1]
            w, clicks = np.int64(b - a), np.int64(ends[g * found + i, 1] - a)
            if w > MOST_OF_A_USER or clicks in (0, w):
                continue
            for j in range(w):
                entries[0, j], entries[1, j] = both[a + j, 0], both[a + j, 1]
            if weighed:
                of_clicks, of_others = np.int64(many[a : a + clicks].sum()), np.int64(many[a + clicks : b].sum())
                if of_clicks == 0 or of_others == 0:
                    continue
                served = _auc_of_copies(entries[0, :w], many[a:b], of_clicks, of_others)
                difference = _auc_of_copies(entries[1, :w], many[a:b], of_clicks, of_others) - served
                w = of_clicks + of_others
            else:
                old, new = _concordant(entries[0, :w], clicks), _concordant(entries[1, :w], clicks)
                pairs_of_user = np.float64(2 * clicks * (w - clicks))
                served, difference = np.float64(old) / pairs_of_user, np.float64(new - old) / pairs_of_user
            wd = w * difference
            out = sums[window[g], i]
            cell = np.int64(block[g]) * GAUC_CELLS
            out[cell + blocks.G_W] += w
            out[cell + blocks.G_WD] += np.int64(np.rint(wd * SCALE))
            out[_SCALARS + blocks.G_WD_SQ] += np.int64(np.rint(wd * wd * SCALE))
            out[_SCALARS + blocks.G_W_WD] += np.int64(np.rint(w * wd * SCALE))
            out[_SCALARS + blocks.G_W_SQ] += w * w
            out[_SCALARS + blocks.G_ROWS] += 1
            out[_SCALARS + blocks.G_W_SERVER] += np.int64(np.rint(w * served * SCALE))
    return found


class GaucRows:
    """The GAUC sums of one partition, by window."""

    def __init__(
        self, window: int, attribution_window: int, reach: int, lists: ListMetrics = NO_LISTS, requests: bool = False
    ) -> None:
        """In ms. `reach`: how far behind the watermark an impression may be corrected; `lists`: what is computed of their lists;
        `requests`: those that a version served are counted, with and without clicks.
        """
        self.window, self.lists, self._requests = window, lists, requests
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
        """What the sums of these windows are computed of: no users, when nobody but the servers scored."""
        live, table = slice(joiner.front, joiner.front + joiner.known), joiner.table
        known = LiveRows(table.ts[live], table.user[live], table.state[live])
        wanted = Wanted.of(self.window, due, late)
        served: dict[int, Sums] = {}
        if self._requests:
            columns = RequestColumns(table.request[live], table.series[live], table.pclick[live], table.item[live])
            served, halved = request_rows(known, columns, wanted, due)
            self.sampled += halved
        if not online_series and not joiner.runs.has_shadow:
            nobody = Scored((0, 0), np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0), np.empty(0, np.bool_))
            no_groups = Groups(np.empty(0, np.int32), np.empty(0, np.int8), np.empty(0, np.int32), np.empty(0, np.int8))
            return Gathered(late, np.array(due), no_groups, nobody, np.empty(0, np.uint64), served)
        most = min(MOST_CHOSEN, joiner.known)
        rows, group = np.empty(most, np.int64), np.empty(most, np.int32)
        halvings = 0
        n, _, window, block = choose(known, wanted, halvings, rows, group)
        while n < 0:
            halvings += 1
            self.sampled += 1
            n, _, window, block = choose(known, wanted, halvings, rows, group)
        chosen = rows[:n] + joiner.front
        scored = joiner.scored(chosen, online_series, grace)
        clicked = (table.state[chosen] & CLICKED) != 0
        if not late:
            clicked &= (table.state[chosen] & CORRECTED) == 0
        label = clicked.astype(np.int8)
        stand_for = copies(table, joiner.policy, chosen, label)
        groups = Groups(window, block, group[:n], label, _NO_COPIES if stand_for is None else stand_for.now)
        weights = None if self.lists.guard is None else table.given_field("propensity", chosen)
        return Gathered(late, np.array(due), groups, scored, table.request[chosen], served, weights)

    # -- counting, and who reads -----------------------------------------------------------------------------------

    def compute(self, some: Gathered) -> None:
        """The sums of windows as they are now."""
        scored = some.scored
        codes = int(scored.series.max(initial=-1)) + 1
        sums = np.zeros((some.windows.size, MOST_PAIRS, self.lists.width), np.int64)
        pairs, pair_of = np.empty((MOST_PAIRS, 2), np.int32), np.full((codes, codes), -1, np.int32)
        scores = ScoreList(scored.row, scored.series, scored.p)
        found = _add(some.groups, scores, scored.bounds[1], pair_of, pairs, sums)
        self.lists.add(some.groups, some.request, scores, scored.bounds[1], pair_of, sums, some.propensity)
        keys = [(int(served), int(other)) for served, other in pairs[:found]]
        for j, window in enumerate(some.windows.tolist()):
            of_pairs = {key: sums[j, i].copy() for i, key in enumerate(keys) if sums[j, i].any()}
            self.waiting[some.late][window] = {**of_pairs, **some.served.get(window, {})}

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
            gained = {key: now.get(key, 0) - before.get(key, self._nothing(key)) for key in sorted(now.keys() | before)}
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
        return {
            "waiting": [self.lists.saved(_of(kept, pairs=True)) for kept in self.waiting],
            "given": self.lists.saved(_of(self._given, pairs=True)),
            "lists": self.lists.names,
            "requests": [
                [[window, [[key[0], row] for key, row in sums.items()]] for window, sums in sorted(kept.items())]
                for kept in (_of(one, pairs=False) for one in (*self.waiting, self._given))
            ],
        }

    def restore(self, marks: Mapping[str, Any], state: Mapping[str, Any], codes: Codes) -> None:
        """Takes over what `marks` and `state` gave. `codes.series[c]` is what series c is called here."""
        self._open, self.sampled = (set(marks["open"][0]), set(marks["open"][1])), marks["sampled"]
        for kept, saved in zip((*self.waiting, self._given), (*state["waiting"], state["given"]), strict=True):
            for window, keys, rows in saved:
                names = [(int(codes.series[a]), int(codes.series[b])) for a, b in keys]
                kept[window] = dict(zip(names, self.lists.fitted(rows, state.get("lists", [])), strict=True))
        if self._requests:  # older checkpoints have none
            for kept, by_window in zip((*self.waiting, self._given), state.get("requests", []), strict=False):
                for window, served in by_window:
                    kept[window] |= {(int(codes.series[code]), -1): row.copy() for code, row in served}

    def _nothing(self, key: _Key) -> NDArray[np.int64]:
        return np.zeros(YIELD_WIDTH if key[1] < 0 else self.lists.width, np.int64)


def _of(kept: Mapping[int, Sums], pairs: bool) -> dict[int, Sums]:
    """The rows of pairs alone, or those of requests."""
    return {w: {key: row for key, row in sums.items() if (key[1] >= 0) == pairs} for w, sums in kept.items()}
