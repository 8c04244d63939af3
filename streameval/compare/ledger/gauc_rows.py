"""GAUC of pairs: rows of (user, tumbling window of event time), computed when the window's labels are complete.

A row covers the impressions of a user in a window that one version served and another scored too: w of them, and D, the
other's AUC on them less the server's (ties by half); only users with both labels have one. An AUC is no sum over
impressions, so a window is computed as a whole, from the joiner's rows: once from what was on time, when its labels are
complete, and if anything in it was late, once more including that, when nothing can be corrected any more; readers get
the difference of the two. What they get, and when, depends only on event time (see `Ledger`). The joiner keeps rows for
one window longer than they can be corrected (`JoinPolicy.hold`), so that they are still available.

`mark`, `due` and `gather` are called by the loop's thread, everything else by the one that counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streameval.compare.ledger.list_rows import NO_LISTS, ListMetrics
from streameval.compare.ledger.request_rows import YIELD_WIDTH, RequestColumns, request_rows
from streameval.compare.ledger.user_aucs import MOST_PAIRS, Groups, UserScores, known_items
from streameval.compare.ledger.window_choice import MOST_CHOSEN, LiveRows, Wanted, choose
from streameval.events.codes import Codes
from streameval.events.columns import Scored, ScoreList
from streameval.join.joiner import Joiner
from streameval.join.policy import CLICKED, CORRECTED
from streameval.join.sampled import copies
from streameval.join.scores import served_and_others, split_scored

_NEAR = 64  # windows within this distance are computed together
_Key = tuple[int, int]  # (series that served, series that scored too; -1: rows of requests)
Sums = dict[_Key, NDArray[np.int64]]  # int64[WIDTH]: cells by block, then scalars (see `blocks`)


class ListScores(NamedTuple):
    """The data for the metrics of lists, by impression."""

    scored: Scored
    request: NDArray[np.uint64]  # 0: none
    propensity: NDArray[np.float64] | None = None  # None: lists are not weighted


@dataclass(frozen=True, slots=True)
class Gathered:
    """The impressions of some windows, of users who clicked in them."""

    late: int  # 1: including what was late
    windows: NDArray[np.int64]  # numbers of the windows
    groups: Groups
    scores: UserScores
    lists: ListScores | None = None  # None: no metrics of lists are needed
    # by window, the rows of requests by server (see `request_rows`)
    served: Mapping[int, Sums] = field(default_factory=dict)


class GaucRows:
    """The GAUC sums of one partition, by window."""

    def __init__(
        self, window: int, attribution_window: int, reach: int, lists: ListMetrics = NO_LISTS, requests: bool = False
    ) -> None:
        """Times in ms. `reach`: how far behind the watermark an impression may be corrected; `lists`: the metrics of
        lists; `requests`: whether the requests that a version served are counted, with and without clicks.
        """
        self.window, self.lists, self._requests = window, lists, requests
        self._attribution_window, self._reach = attribution_window, reach
        # for what was on time, and what was late: windows to compute, and those computed but not taken yet
        self._open: tuple[set[int], set[int]] = (set(), set())
        self.waiting: tuple[dict[int, Sums], dict[int, Sums]] = ({}, {})
        self._given: dict[int, Sums] = {}  # by window
        self.sampled = 0  # how often users had to be sampled

    # -- the loop's thread ---------------------------------------------------------------------------------------

    def mark(self, ts: NDArray[np.int64], late: int) -> None:
        """Records that labels at these times, in time order, have matured; with `late` 1, that they came late or have
        changed.
        """
        if not ts.size:
            return
        first, last = int(ts[0]) // self.window, int(ts[-1]) // self.window
        self._open[late].update({first} if first == last else np.unique(ts // self.window).tolist())

    def due(self, watermark: int) -> list[tuple[int, list[int]]]:
        """Returns (late, windows) to compute now, in groups of close ones; call it before the joiner drops any rows."""
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
        """Returns the data for the sums of these windows; no users if only the servers scored."""
        table, wanted = joiner.table, Wanted.of(self.window, due, late)
        known = LiveRows(table.ts, table.user, table.state, joiner.rows_between(*wanted.times))
        served: dict[int, Sums] = {}
        if self._requests:
            columns = RequestColumns(table.request, table.series, table.pclick, table.item)
            served, halved = request_rows(known, columns, wanted, due)
            self.sampled += halved
        scores = UserScores()
        if not online_series and not joiner.runs.has_shadow:
            no_groups = Groups(np.empty(0, np.int32), np.empty(0, np.int8), np.empty(0, np.int32), np.empty(0, np.int8))
            return Gathered(late, np.array(due), no_groups, scores, None, served)
        most = min(MOST_CHOSEN, int(np.diff(known.spans).sum()))
        rows, group = np.empty(most, np.int64), np.empty(most, np.int32)
        halvings = 0
        n, _, window, block = choose(known, wanted, halvings, rows, group)
        while n < 0:
            halvings += 1
            self.sampled += 1
            n, _, window, block = choose(known, wanted, halvings, rows, group)
        chosen = rows[:n]
        state = table.state[chosen]
        clicked = (state & CLICKED) != 0
        if not late:
            clicked &= (state & CORRECTED) == 0
        label = clicked.astype(np.int8)
        stand_for = copies(table, joiner.policy, chosen, label)
        groups = Groups(window, block, group[:n], label, item=known_items(table.item[chosen]))
        if stand_for is not None:
            groups = groups._replace(copies=stand_for.now)
        if not self.lists.wanted and joiner.policy.recalibrate is None:
            scores.add(groups, *served_and_others(table, joiner.runs, chosen, online_series))
            return Gathered(late, np.array(due), groups, scores, None, served)
        scored, lists = joiner.scored(chosen, online_series, grace), None
        scores.add(groups, *split_scored(scored, n))
        if self.lists.wanted:
            weights = None if self.lists.guard is None else table.given_field("propensity", chosen)
            lists = ListScores(scored, table.request[chosen], weights)
        return Gathered(late, np.array(due), groups, scores, lists, served)

    # -- counting and reading ---------------------------------------------------------------------------------------

    def compute(self, some: Gathered) -> None:
        """Computes the current sums of windows."""
        sums = np.zeros((some.windows.size, MOST_PAIRS, self.lists.width), np.int64)
        some.scores.add_up(some.groups, sums)
        if some.lists is not None:
            scored, request, propensity = some.lists
            scores = ScoreList(scored.row, scored.series, scored.p)
            self.lists.add(some.groups, request, scores, scored.bounds[1], some.scores.pair_of, sums, propensity)
        keys = some.scores.pairs
        for j, window in enumerate(some.windows.tolist()):
            of_pairs = {key: sums[j, i].copy() for i, key in enumerate(keys) if sums[j, i].any()}
            self.waiting[some.late][window] = {**of_pairs, **some.served.get(window, {})}

    def take(self, end: int) -> list[tuple[int, Sums]]:
        """Returns (window's start, added sums by pair), oldest first: for windows that end by `end`, and including late
        labels for those that could not be corrected any more when labels were complete up to `end`; all in ms.
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
        """Yields (window's start in ms, sums) of everything taken, oldest first."""
        for window in sorted(self._given):
            yield window * self.window, self._given[window]

    def forget_before(self, ts: int) -> None:
        """Drops windows that ended before a time."""
        for kept in (*self.waiting, self._given):
            for window in [w for w in kept if (w + 1) * self.window <= ts]:
                del kept[window]

    def clear(self, series: int) -> None:
        """Forgets a series, so that its code can be reused."""
        for kept in (*self.waiting, self._given):
            for window, sums in kept.items():
                kept[window] = {key: row for key, row in sums.items() if series not in key}

    @property
    def nbytes(self) -> int:
        """Total size in bytes."""
        return sum(
            row.nbytes for kept in (*self.waiting, self._given) for sums in kept.values() for row in sums.values()
        )

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def marks(self) -> dict[str, Any]:
        """Returns the state of the loop's thread, for `restore`."""
        return {"open": [sorted(windows) for windows in self._open], "sampled": self.sampled}

    def state(self) -> dict[str, Any]:
        """Returns the sums, for `restore`."""
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
        """Restores what `marks` and `state` returned. `codes.series[c]` is this process's code of series c."""
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
    """Returns only the rows of pairs, or only those of requests."""
    return {w: {key: row for key, row in sums.items() if (key[1] >= 0) == pairs} for w, sums in kept.items()}
