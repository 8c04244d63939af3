"""Users: every user's ranks for every series and window, kept within a budget of memory.

A pane logs what happened in it as rank entries (user slot, score key, label; 8 bytes an impression), additions and
retractions apart. The whole run's ranks take the entries in bulk; a window's ranks move from pane range to pane range
by adding the panes that enter and retracting those that leave, when somebody looks. The same log gives the exact AUC
of a window or of the run while it holds at most `EXACT_LIMIT` scores; beyond, the score histogram's certified one is
used, whose own rounding then is below 1e-6.

Past the budget, a consistent hash-sample of users is kept: the fraction halves until it fits. A user is in or out by
the hash of the id alone, so the kept users are whole and the same in every window; GAUC then has a standard error.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.metrics.auc import ranked_auc
from streameval.metrics.view import Ranked
from streameval.sketches.directory import Directory, mix
from streameval.sketches.ranks import SCALE, GroupRanks, Weighting

EXACT_LIMIT = 1 << 22  # scores of one series in one window that are sorted for an exact AUC: at most 16 MB
_APPLY_AT = 1 << 19  # entries that wait for the whole run's ranks
_NO_ENTRIES = np.empty(0, np.uint64)
_LOW = np.uint64(0xFFFFFFFF)
_OUTSIDE = _LOW << np.uint64(32)  # entries from here on: users outside the sample


@dataclass(slots=True)
class Part:
    """What one call added to one pane of one series."""

    entries: NDArray[np.uint64]
    sign: int
    value_slot: NDArray[np.int32]  # changes of users' values (weighting "value")
    value: NDArray[np.int64]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.entries.nbytes + self.value_slot.nbytes + self.value.nbytes


@dataclass(slots=True)
class WindowRanks:
    """The ranks of one series over the panes [start, end)."""

    length: int
    ranks: GroupRanks
    start: int = 0
    end: int = 0
    applied: dict[int, int] = field(default_factory=dict)  # parts taken in, by pane
    exact: tuple[tuple[int, ...], float | None] | None = None  # cache of the exact AUC


@dataclass(slots=True)
class SeriesUsers:
    """One series: its log by pane, its ranks over the run, its windows."""

    run: GroupRanks
    windows: list[WindowRanks]
    log: dict[int, list[Part]] = field(default_factory=dict)
    waiting: list[Part] = field(default_factory=list)
    waiting_entries: int = 0
    scores: list[NDArray[np.uint32]] | None = field(default_factory=list)  # of the run; None: too many
    retracted: list[NDArray[np.uint32]] = field(default_factory=list)
    score_count: int = 0
    sorted: bool = False  # the scores are one sorted array, nothing is to be retracted
    exact: float | None = None  # the AUC of the sorted scores


@numba.njit(cache=True, nogil=True)
def _in_sample(user: NDArray[np.uint64], shift: int) -> NDArray[np.bool_]:
    out = np.empty(user.size, np.bool_)
    for i in range(user.size):
        out[i] = mix(user[i]) >> np.uint64(64 - shift) == 0
    return out


@numba.njit(cache=True, nogil=True)
def _without(scores: NDArray[np.uint32], gone: NDArray[np.uint32], out: NDArray[np.uint32]) -> int:
    """Sorted scores less the sorted ones that were retracted."""
    k = 0
    g = 0
    for i in range(scores.size):
        if g < gone.size and gone[g] == scores[i]:
            g += 1
        else:
            out[k] = scores[i]
            k += 1
    return k


class Users:
    """The users of one partition."""

    def __init__(self, windows: list[int], weighting: Weighting, budget: int, exact_limit: int = EXACT_LIMIT) -> None:
        """`windows`: lengths in panes; `budget`: bytes."""
        self._windows = windows
        self._weighting: Weighting = weighting
        self.budget = budget
        self._exact_limit = exact_limit
        self._directory = Directory()
        self._series: dict[int, SeriesUsers] = {}
        self._sample_shift = 0
        self._log_bytes = 0
        self._since_check = 0

    @property
    def sampled(self) -> float:
        """The fraction of users that is kept."""
        return 0.5**self._sample_shift

    @property
    def nbytes(self) -> int:
        """Bytes of all per-user state."""
        total = self._directory.nbytes + self._log_bytes
        for s in self._series.values():
            total += s.run.nbytes + sum(w.ranks.nbytes for w in s.windows) + 4 * s.score_count
        return total

    def slots(self, user: NDArray[np.uint64]) -> NDArray[np.int32]:
        """A slot for every user; -1 for users outside the sample."""
        if not self._sample_shift:
            return self._directory.slots(user)
        keep = _in_sample(user, self._sample_shift)
        out = np.full(user.size, -1, np.int32)
        out[keep] = self._directory.slots(user[keep])
        return out

    def add(
        self,
        pane: int,
        series: int,
        entries: NDArray[np.uint64],
        value: NDArray[np.float64] | None,
        sign: int,
    ) -> None:
        """Rank entries of one series in one pane, or with sign -1 their retraction; slots in them as from `slots`."""
        mine = self._series.get(series)
        if mine is None:
            mine = self._series[series] = self._new_series()
        self._keep_scores(mine, entries, sign)
        if self._sample_shift:
            kept = entries < _OUTSIDE
            entries, value = entries[kept], None if value is None else value[kept]
        clicked = np.flatnonzero(entries & np.uint64(1)) if value is not None else np.empty(0, np.int64)
        fixed = np.empty(0, np.int64)
        if value is not None:
            fixed = np.rint(np.maximum(value[clicked], 0.0) * SCALE).astype(np.int64) * sign
        part = Part(entries, sign, (entries[clicked] >> np.uint64(32)).astype(np.int32), fixed)
        mine.log.setdefault(pane, []).append(part)
        self._log_bytes += part.nbytes
        mine.waiting.append(part)
        mine.waiting_entries += part.entries.size
        if mine.waiting_entries >= _APPLY_AT:
            self._settle(mine)
        self._since_check += part.entries.size

    def fit_budget(self) -> None:
        """Keeps to the budget. Slots change: call it when none of those that `slots` gave out are still to be added."""
        if self._since_check < _APPLY_AT:
            return
        self._since_check = 0
        if self.nbytes > self.budget:  # what can be done without goes first: the AUC has the histogram
            for mine in self._series.values():
                _drop_scores(mine)
        while self.nbytes > self.budget and self._sample_shift < 20:
            self._halve()

    def ranked(self, series: int, window: int | None, end: int) -> tuple[Ranked, float | None]:
        """GAUC's terms of a series over the run (`window` None) or a window (index) ending at pane `end`.

        With a sample of users, also the sum over users of w^2 (AUC - GAUC)^2, from which the standard error follows.
        """
        mine = self._series.get(series)
        if mine is None:
            return Ranked(0, 0, 0, 0), None
        ranks = self._run_ranks(mine) if window is None else self._window_ranks(mine, window, end)
        weighted, weight = ranks.terms()
        spread = None
        if self._sample_shift and weight:
            auc_w, w = ranks.group_terms()
            spread = float(((auc_w - w * (weighted / weight)) ** 2).sum())
        return Ranked(weighted, weight, ranks.eligible, ranks.eligible_impressions), spread

    def scores(self, series: int, window: int | None, end: int) -> NDArray[np.uint32] | None:
        """Every score (sorted key << 1 | label) of a series in a window; None when there are too many, or a sample."""
        mine = self._series.get(series)
        if mine is None:
            return np.empty(0, np.uint32)
        if window is None:
            if mine.scores is None:
                return None
            if not mine.sorted:
                whole = _difference(mine.scores, mine.retracted)
                mine.scores, mine.retracted, mine.score_count, mine.sorted = [whole], [], whole.size, True
                mine.exact = ranked_auc(whole)
            return mine.scores[0]
        if self._sample_shift:
            return None
        length = self._windows[window]
        parts = [p for pane in _panes(mine.log, end - length, end) for p in mine.log[pane]]
        if sum(p.entries.size for p in parts) > self._exact_limit:
            return None
        low = [((p.entries & _LOW).astype(np.uint32), p.sign) for p in parts]
        return _difference([e for e, sign in low if sign > 0], [e for e, sign in low if sign < 0])

    def exact_auc(self, series: int, window: int | None, end: int) -> float | None:
        """The AUC of the scores themselves; None when it is undefined or too many scores would have to be sorted."""
        mine = self._series.get(series)
        if mine is None:
            return None
        if window is None:
            return None if self.scores(series, None, end) is None else mine.exact
        view = mine.windows[window]
        length = self._windows[window]
        stamps = (end, *(len(mine.log[pane]) for pane in _panes(mine.log, end - length, end)))
        if view.exact is None or view.exact[0] != stamps:
            found = self.scores(series, window, end)
            view.exact = (stamps, None if found is None else ranked_auc(found))
        return view.exact[1]

    def pane_ranked(self, series: int, pane: int) -> Ranked | None:
        """GAUC's terms within one pane; None when only a sample of users is kept, or users weigh by value."""
        mine = self._series.get(series)
        if mine is None or pane not in mine.log:
            return Ranked(0, 0, 0, 0)
        if self._sample_shift or self._weighting == "value":
            return None
        ranks = GroupRanks(self._weighting)
        add, sub = _signed(mine.log[pane], 1)
        ids, add = _renumber(add)
        _, sub = _renumber(sub, ids)
        ranks.apply(add, sub, ids.size)
        weighted, weight = ranks.terms()
        return Ranked(weighted, weight, ranks.eligible, ranks.eligible_impressions)

    def columns(self, series: int) -> tuple[NDArray[np.uint64], dict[str, NDArray[np.generic]]]:
        """(user hashes, columns of `GroupRanks.columns`) of the users with impressions in the run; copies."""
        mine = self._series[series]
        ranks = self._run_ranks(mine)
        columns = ranks.columns()
        n = len(self._directory)
        some = np.flatnonzero(columns["impressions"][:n])
        return self._directory.ids[some], {name: column[some] for name, column in columns.items()}

    def series(self) -> list[int]:
        """The series that have users."""
        return list(self._series)

    def forget_before(self, pane: int) -> None:
        """Lets the log of old panes go; the run keeps its ranks."""
        for mine in self._series.values():
            for number in [n for n in mine.log if n < pane]:
                self._log_bytes -= sum(part.nbytes for part in mine.log.pop(number))
            for window in mine.windows:
                if window.applied and window.start < pane:
                    _reset(window)

    # -- inside --------------------------------------------------------------------------------------------------

    def _new_series(self) -> SeriesUsers:
        windows = [WindowRanks(length, GroupRanks(self._weighting)) for length in self._windows]
        return SeriesUsers(GroupRanks(self._weighting), windows)

    def _keep_scores(self, mine: SeriesUsers, entries: NDArray[np.uint64], sign: int) -> None:
        if mine.scores is None:
            return
        ranked = entries.astype(np.uint32)  # the low half
        mine.sorted = False
        if sign < 0:
            mine.retracted.append(ranked)
            return
        mine.scores.append(ranked)
        mine.score_count += ranked.size
        if mine.score_count > self._exact_limit:
            _drop_scores(mine)

    def _settle(self, mine: SeriesUsers) -> None:
        if mine.waiting:
            self._apply(mine.run, mine.waiting, 1)
            mine.waiting, mine.waiting_entries = [], 0

    def _run_ranks(self, mine: SeriesUsers) -> GroupRanks:
        self._settle(mine)
        return mine.run

    def _window_ranks(self, mine: SeriesUsers, index: int, end: int) -> GroupRanks:
        window = mine.windows[index]
        start = end - window.length
        if start >= window.end or end <= window.start:
            _reset(window)
        leaving: list[Part] = []
        entering: list[Part] = []
        for pane in [p for p in window.applied if not start <= p < end]:
            leaving += mine.log[pane][: window.applied.pop(pane)]
        for pane in _panes(mine.log, start, end):
            done = window.applied.get(pane, 0)
            entering += mine.log[pane][done:]
            window.applied[pane] = len(mine.log[pane])
        window.start, window.end = start, end
        if leaving or entering:
            self._apply(window.ranks, entering, 1, leaving)
        return window.ranks

    def _apply(self, ranks: GroupRanks, parts: list[Part], sign: int, leaving: list[Part] | None = None) -> None:
        add, sub = _signed(parts, sign)
        if leaving:
            gone, back = _signed(leaving, 1)
            add, sub = np.concatenate((add, back)), np.concatenate((sub, gone))
        add.sort()
        sub.sort()
        slots = value = None
        if self._weighting == "value":
            slots = np.concatenate([p.value_slot for p in [*parts, *(leaving or ())]])
            value = np.concatenate([*(p.value for p in parts), *(-p.value for p in leaving or ())])
        ranks.apply(add, sub, len(self._directory), slots, value)

    def _halve(self) -> None:
        """Keeps half of the users: those whose hash begins with one more zero bit."""
        for mine in self._series.values():
            self._settle(mine)
        self._sample_shift += 1
        ids = self._directory.ids
        keep = np.flatnonzero(_in_sample(ids, self._sample_shift))
        renumbered = np.full(ids.size, -1, np.int32)
        renumbered[keep] = np.arange(keep.size, dtype=np.int32)
        self._directory = Directory()
        self._directory.slots(ids[keep])
        self._log_bytes = 0
        for mine in self._series.values():
            mine.run.keep(keep)
            for window in mine.windows:
                window.ranks = GroupRanks(self._weighting)
                _reset(window)
            for parts in mine.log.values():
                for i, part in enumerate(parts):
                    parts[i] = _kept(part, renumbered)
                    self._log_bytes += parts[i].nbytes


def _panes(log: dict[int, list[Part]], start: int, end: int) -> list[int]:
    if end - start < len(log):
        return [n for n in range(start, end) if n in log]
    return sorted(n for n in log if start <= n < end)


def _signed(parts: list[Part], sign: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """(entries to add, entries to retract) of parts applied with a sign; not sorted."""
    add = [p.entries for p in parts if p.sign * sign > 0]
    sub = [p.entries for p in parts if p.sign * sign < 0]
    return np.concatenate(add) if add else _NO_ENTRIES, np.concatenate(sub) if sub else _NO_ENTRIES


def _difference(scores: list[NDArray[np.uint32]], retracted: list[NDArray[np.uint32]]) -> NDArray[np.uint32]:
    if not scores:
        return np.empty(0, np.uint32)
    whole = np.sort(np.concatenate(scores))
    if not retracted:
        return whole
    out = np.empty(whole.size, np.uint32)
    return out[: _without(whole, np.sort(np.concatenate(retracted)), out)]


def _renumber(
    parts: NDArray[np.uint64], ids: NDArray[np.uint64] | None = None
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Entries sorted, with their slots replaced by places in `ids` (the distinct slots)."""
    parts = np.sort(parts)
    slot = parts >> np.uint64(32)
    known = np.unique(slot) if ids is None else ids
    place = np.searchsorted(known, slot).astype(np.uint64)
    return known, (place << np.uint64(32)) | (parts & _LOW)


def _drop_scores(mine: SeriesUsers) -> None:
    mine.scores, mine.retracted, mine.score_count, mine.exact = None, [], 0, None


def _reset(window: WindowRanks) -> None:
    window.ranks.clear()
    window.applied.clear()
    window.start = window.end = 0


def _kept(part: Part, renumbered: NDArray[np.int32]) -> Part:
    slot = renumbered[(part.entries >> np.uint64(32)).astype(np.int64)]
    on = slot >= 0
    entry = (slot[on].astype(np.uint64) << np.uint64(32)) | (part.entries[on] & _LOW)
    value_slot = renumbered[part.value_slot]
    valued = value_slot >= 0
    return Part(entry, part.sign, value_slot[valued], part.value[valued])
