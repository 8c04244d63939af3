"""Users of one partition, kept within a memory budget: the table of their slots, and what each series keeps.

Beyond the budget, a consistent hash sample of users is kept: the fraction is halved until it fits. A user is in or out
by the hash of the id alone, so the kept users are complete and the same in every window; GAUC then has a standard
error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.counting.exact_scores import ExactScores
from streameval.counting.list_users import ListUsers, UserRows
from streameval.counting.series_users import APPLY_AT, LOW, Part, SeriesUsers
from streameval.metrics.view import Ranked, UserMeans
from streameval.sketches.directory import Directory, mix
from streameval.sketches.list_cells import Averages
from streameval.sketches.ranks import GroupRanks, Weighting
from streameval.sketches.weightings import NO_WORTHS, worths

EXACT_LIMIT = 1 << 22  # scores of one series that are kept for an exact AUC: up to 32 MB
_OUTSIDE = LOW << np.uint64(32)  # entries from here on: users outside the sample
_MOST_HALVINGS = 20
_NEVER = -(1 << 62)
_SHADOW = Averages((), (0,), (), (), ())  # one cell per user, not averaged


@dataclass(frozen=True, slots=True)
class PaneEntries:
    """What one series logged in one pane; arrays that no longer change."""

    added: tuple[NDArray[np.uint64], ...]  # rank entries, see `ranks.entries`
    retracted: tuple[NDArray[np.uint64], ...]
    ids: NDArray[np.uint64]  # user hashes by slot
    halvings: int  # users are a fraction 2**-halvings, see `Users.sampled`


class UserSlots(NamedTuple):
    """The slots of n users."""

    slot: NDArray[np.int32]  # -1: outside the sample
    directory: Directory  # whose slots they are


@numba.njit(cache=True, nogil=True)
def _in_sample(user: NDArray[np.uint64], shift: int) -> NDArray[np.bool_]:
    out = np.empty(user.size, np.bool_)
    for i in range(user.size):
        out[i] = mix(user[i]) >> np.uint64(64 - shift) == 0
    return out


class Users:
    """The users of one partition."""

    def __init__(
        self,
        windows: list[int],
        weighting: Weighting,
        budget: int,
        exact_limit: int = EXACT_LIMIT,
        averages: Averages | None = None,
        values: bool = False,
        with_copies: bool = False,
    ) -> None:
        """`windows`: lengths in panes; `budget`: bytes; `averages`: metrics of ranked lists averaged by user; `values`:
        whether values of users' clicks are kept; `with_copies`: whether impressions have copies.
        """
        self._windows = windows
        self._weighting: Weighting = weighting
        self._new_series = partial(SeriesUsers, windows, weighting, values, with_copies)
        self._values, self._with_copies = values, with_copies
        self.budget = budget
        self.exact_limit = exact_limit  # of series to come
        self._directory = Directory()
        self._series: dict[int, SeriesUsers] = {}
        self._exact: dict[int, ExactScores] = {}
        self.averages = averages
        self._lists: dict[int, ListUsers] = {}
        self._lists_from = _NEVER  # first pane whose lists count: averages may have begun after a restart
        self._shadow: dict[
            int, ListUsers
        ] = {}  # impressions that a series scored and others served, if values are kept
        self._shadow_known = True  # False after a checkpoint without them
        self._sample_shift = 0
        self._since_check = 0

    @property
    def sampled(self) -> float:
        """The fraction of users kept."""
        return 0.5**self._sample_shift

    @property
    def nbytes(self) -> int:
        """Size of all per-user state in bytes."""
        users = self._directory.nbytes + sum(s.nbytes for s in self._series.values())
        return users + sum(s.nbytes for kept in (self._exact, self._lists, self._shadow) for s in kept.values())

    def slots(self, user: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Returns a slot for every user; -1 for users outside the sample."""
        if not self._sample_shift:
            return self._directory.slots(user)
        keep = _in_sample(user, self._sample_shift)
        out = np.full(user.size, -1, np.int32)
        out[keep] = self._directory.slots(user[keep])
        return out

    def known(self, user: NDArray[np.uint64]) -> UserSlots:
        """Returns `slots`, and which directory they are of: another one once the sample has become smaller."""
        return UserSlots(self.slots(user), self._directory)

    def add(
        self,
        pane: int,
        series: int,
        entries: NDArray[np.uint64],
        exact: NDArray[np.uint64],
        value: NDArray[np.float64] | None,
        sign: int,
        copies: NDArray[np.uint32] | None = None,
        *,
        served: bool = True,
    ) -> None:
        """Adds scores of one series in one pane, or with sign -1 retracts them.

        `entries`: n rank entries (see `ranks.entries`) with slots from `slots`; `exact`: the scores' `grid.score_bits`;
        `value`: that of each click, if values are kept; `copies`: weights of the impressions. `served`: whether this
        series itself served them.
        """
        mine = self._series.get(series)
        if mine is None:
            mine = self._series[series] = self._new_series()
            self._exact[series] = ExactScores(self.exact_limit)
        fewest = 1 if copies is None else int(copies.min(initial=1))
        if copies is not None:
            if fewest == 1 == copies.max(initial=1):
                copies = None
            else:  # the AUC falls back to the histogram
                self._exact[series].drop()
        self._exact[series].add(pane, exact, sign)
        if fewest == 0 or self._sample_shift:
            kept = entries < _OUTSIDE
            if copies is not None:
                kept &= copies > 0
            entries, value = entries[kept], None if value is None else value[kept]
            copies = None if copies is None else copies[kept]
        slot, worth = np.empty(0, np.int32), NO_WORTHS
        if value is not None:
            clicked = np.flatnonzero(entries & np.uint64(1))
            slot = (entries[clicked] >> np.uint64(32)).astype(np.int32)
            worth = worths(value[clicked]) * sign
            if copies is not None:
                worth *= copies[clicked, None]
        mine.add(pane, Part(entries, sign, slot, worth, copies))
        if self._values and not served and entries.size:
            of, n = np.unique((entries >> np.uint64(32)).astype(np.int32), return_counts=True)
            shadow = self._shadow.setdefault(series, ListUsers(self._windows, _SHADOW))
            shadow.add({pane: (of, sign * n[:, None].astype(np.int64))})
        self._since_check += entries.size

    def add_lists(self, series: int, parts: Mapping[int, UserRows]) -> None:
        """Adds ranked lists of one series: by pane, signed rows of `Averages`, with slots from `slots`."""
        kept = {pane: part for pane, part in parts.items() if pane >= self._lists_from}
        if self.averages is None or not kept:
            return
        self._since_check += sum(cells.size for _, cells in kept.values())  # 8 bytes each, like rank entries
        if self._sample_shift:
            kept = {pane: (slot[slot >= 0], cells[slot >= 0]) for pane, (slot, cells) in kept.items()}
        mine = self._lists.get(series)
        if mine is None:
            mine = self._lists[series] = ListUsers(self._windows, self.averages)
        mine.add(kept)

    def list_means(self, series: int, window: int | None, end: int) -> dict[str, UserMeans]:
        """Returns metrics of lists averaged by user, over the run or a window as in `ranked`."""
        mine, names = self._lists.get(series), () if self.averages is None else self.averages.names
        return {} if mine is None else dict(zip(names, mine.means(window, end), strict=True))

    def fit_budget(self) -> None:
        """Enforces the budget. Slots change: call it only when everything with slots from `slots` has been added."""
        if self._since_check < APPLY_AT:
            return
        self._since_check = 0
        if self.nbytes > self.budget:  # exact scores go first: the AUC falls back to the histogram
            for scores in self._exact.values():
                scores.drop()
        while self.nbytes > self.budget and self._sample_shift < _MOST_HALVINGS:
            self._halve()

    def ranked(self, series: int, window: int | None, end: int) -> tuple[Ranked, float | None]:
        """Returns GAUC's terms of a series over the run (`window` None) or a window (index) ending at pane `end`.

        With a sample of users, also the sum over users of w^2 (AUC - GAUC)^2, for the standard error; else None.
        """
        mine = self._series.get(series)
        if mine is None:
            return Ranked(0, 0, 0, 0), None
        ranks = mine.run() if window is None else mine.window(window, end)
        shadow = self._shadow.get(series)
        less = None if shadow is None else shadow.rows(window, end)[:, 0]
        terms = self._terms(ranks, self._directory.ids, less)
        spread = None
        if self._sample_shift and terms.weight:
            auc_w, w = ranks.group_terms()
            spread = float(((auc_w - w * (terms.weighted_auc / terms.weight)) ** 2).sum())
        return terms, spread

    def scores(self, series: int) -> ExactScores | None:
        """Returns the scores of a series, as far as they are kept; None if it has none."""
        return self._exact.get(series)

    def pane_ranked(self, series: int, pane: int) -> Ranked | None:
        """Returns GAUC's terms within one pane; None if only a sample of users is kept."""
        if self._sample_shift:
            return None
        mine = self._series.get(series)
        if mine is None:
            return Ranked(0, 0, 0, 0)
        ranks, slots = mine.pane(pane)
        shadow, number = self._shadow.get(series), slots.astype(np.int64)
        less = None if shadow is None else shadow.pane(pane, number)[:, 0]
        return self._terms(ranks, self._directory.ids[number], less)

    def pane_entries(self, pane: int) -> dict[int, PaneEntries]:
        """Returns what every series logged in a pane."""
        ids = self._directory.ids
        out = {}
        for code, mine in self._series.items():
            parts = mine.parts(pane)
            added, retracted = (tuple(p.entries for p in parts if p.sign == sign) for sign in (1, -1))
            if parts:
                out[code] = PaneEntries(added, retracted, ids, self._sample_shift)
        return out

    def columns(self, series: int) -> tuple[NDArray[np.uint64], dict[str, NDArray[np.generic]]]:
        """Returns (user hashes, columns of `GroupRanks.columns`) of the users with impressions in the run; copies."""
        columns = self._series[series].run().columns()
        some = np.flatnonzero(columns["impressions"])
        return self._directory.ids[some], {name: column[some] for name, column in columns.items()}

    def clear(self, series: int) -> None:
        """Forgets a series."""
        self._series.pop(series, None)
        self._exact.pop(series, None)
        self._lists.pop(series, None)
        self._shadow.pop(series, None)

    def series(self) -> list[int]:
        """Returns the series that have users."""
        return list(self._series)

    def forget_before(self, pane: int) -> None:
        """Drops the log of old panes; the run keeps its ranks."""
        for mine in self._series.values():
            mine.forget_before(pane)
        for scores in self._exact.values():
            scores.forget_before(pane)
        for lists in (*self._lists.values(), *self._shadow.values()):
            lists.forget_before(pane)

    def state(self) -> dict[str, Any]:
        """Returns everything, for `restore`; series by their codes."""
        return {
            "ids": self._directory.ids.copy(),
            "sample_shift": self._sample_shift,
            "series": [
                {"code": code, "users": mine.state(), "scores": self._exact[code].state()}
                for code, mine in self._series.items()
            ],
            "lists": [{"code": code, "users": mine.state()} for code, mine in self._lists.items()],
            "lists_from": self._lists_from,
            "averages": self._average_names,
            "shadow": [{"code": code, "users": mine.state()} for code, mine in self._shadow.items()],
            "shadow_known": self._shadow_known and self._values,
        }

    def restore(self, state: Mapping[str, Any], codes: NDArray[np.int32], first: int, lists_anew: bool) -> None:
        """Restores what `state` returned, into a table without users. `codes[c]` is this process's code of series c.

        Averages of lists begin again at pane `first` if there are others than before, or if `lists_anew`.
        """
        self._directory.slots(state["ids"])
        self._sample_shift = state["sample_shift"]
        for saved in state["series"]:
            code = int(codes[saved["code"]])
            mine = self._series.setdefault(code, self._new_series())
            mine.restore(saved["users"])
            self._exact.setdefault(code, ExactScores(self.exact_limit)).restore(saved["scores"])
        lists_saved = state.get("lists", [])  # missing if written before there were any
        names = state.get("averages", lists_saved[0]["users"]["metrics"] if lists_saved else self._average_names)
        anew = lists_anew or names != self._average_names
        self._lists_from = first if anew else state.get("lists_from", _NEVER)
        for saved in [] if anew else lists_saved:
            if self.averages is not None:
                self._lists[int(codes[saved["code"]])] = lists = ListUsers(self._windows, self.averages)
                lists.restore(saved["users"])
        for saved in state.get("shadow", []) if self._values else []:
            self._shadow[int(codes[saved["code"]])] = shadow = ListUsers(self._windows, _SHADOW)
            shadow.restore(saved["users"])
        self._shadow_known = state.get("shadow_known", False) or not state["series"]

    @property
    def _average_names(self) -> list[str]:
        return [] if self.averages is None else list(self.averages.names)

    def _terms(self, ranks: GroupRanks, ids: NDArray[np.uint64], less: NDArray[np.int64] | None) -> Ranked:
        """Returns GAUC's terms. `ids`: users by slot; `less`: by slot, as far as known, impressions that others
        served.
        """
        weighted, weight = ranks.terms()
        own = (weighted, weight, ranks.eligible, ranks.eligible_impressions, ranks.squares(), ranks.of_each())
        if not self._values:
            return Ranked(*own)
        return Ranked(*own, ranks.by_block(ids, self._sample_shift, less), self._shadow_known)

    def _halve(self) -> None:
        """Keeps half of the users: those whose hash begins with one more zero bit."""
        self._sample_shift += 1
        ids = self._directory.ids
        keep = np.flatnonzero(_in_sample(ids, self._sample_shift))
        renumbered = np.full(ids.size, -1, np.int32)
        renumbered[keep] = np.arange(keep.size, dtype=np.int32)
        self._directory = Directory()
        self._directory.slots(ids[keep])
        for mine in self._series.values():
            mine.keep(keep, renumbered)
        for lists in (*self._lists.values(), *self._shadow.values()):
            lists.keep(keep, renumbered)
