"""Users of one partition, kept within a budget of memory: the table of their slots, and what each series keeps.

Past the budget, a consistent hash-sample of users is kept: the fraction halves until it fits. A user is in or out by
the hash of the id alone, so the kept users are whole and the same in every window; GAUC then has a standard error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.counting.exact_scores import ALWAYS, ExactScores
from streameval.counting.series_users import APPLY_AT, LOW, Part, SeriesUsers
from streameval.metrics.view import Ranked
from streameval.sketches.directory import Directory, mix
from streameval.sketches.ranks import SCALE, GroupRanks, Weighting

EXACT_LIMIT = 1 << 22  # scores of one series that are kept for an exact AUC: at most 32 MB
_OUTSIDE = LOW << np.uint64(32)  # entries from here on: users outside the sample
_MOST_HALVINGS = 20


@dataclass(frozen=True, slots=True)
class PaneEntries:
    """What one series logged in one pane; arrays that nobody changes any more."""

    added: tuple[NDArray[np.uint64], ...]  # rank entries, see `ranks.entries`
    retracted: tuple[NDArray[np.uint64], ...]
    ids: NDArray[np.uint64]  # user hashes by slot
    halvings: int  # users are those of a fraction 2**-halvings, see `Users.sampled`


@numba.njit(cache=True, nogil=True)
def _in_sample(user: NDArray[np.uint64], shift: int) -> NDArray[np.bool_]:
    out = np.empty(user.size, np.bool_)
    for i in range(user.size):
        out[i] = mix(user[i]) >> np.uint64(64 - shift) == 0
    return out


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
        self._exact: dict[int, ExactScores] = {}
        self._sample_shift = 0
        self._since_check = 0

    @property
    def sampled(self) -> float:
        """The fraction of users that is kept."""
        return 0.5**self._sample_shift

    @property
    def nbytes(self) -> int:
        """Bytes of all per-user state."""
        users = self._directory.nbytes + sum(s.nbytes for s in self._series.values())
        return users + sum(s.nbytes for s in self._exact.values())

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
        exact: NDArray[np.uint64],
        value: NDArray[np.float64] | None,
        sign: int,
    ) -> None:
        """Scores of one series in one pane, or with sign -1 their retraction.

        n rank entries (see `ranks.entries`) with slots as from `slots`, and the scores' `grid.score_bits`.
        """
        mine = self._series.get(series)
        if mine is None:
            mine = self._series[series] = SeriesUsers(self._windows, self._weighting)
            self._exact[series] = ExactScores(self._exact_limit)
        self._exact[series].add(pane, exact, sign)
        if self._sample_shift:
            kept = entries < _OUTSIDE
            entries, value = entries[kept], None if value is None else value[kept]
        slot, fixed = np.empty(0, np.int32), np.empty(0, np.int64)
        if value is not None:
            clicked = np.flatnonzero(entries & np.uint64(1))
            slot = (entries[clicked] >> np.uint64(32)).astype(np.int32)
            fixed = np.rint(np.maximum(value[clicked], 0.0) * SCALE).astype(np.int64) * sign
        mine.add(pane, Part(entries, sign, slot, fixed))
        self._since_check += entries.size

    def fit_budget(self) -> None:
        """Keeps to the budget. Slots change: call it when none of those that `slots` gave out are still to be added."""
        if self._since_check < APPLY_AT:
            return
        self._since_check = 0
        if self.nbytes > self.budget:  # what can be done without goes first: the AUC has the histogram
            for scores in self._exact.values():
                scores.drop()
        while self.nbytes > self.budget and self._sample_shift < _MOST_HALVINGS:
            self._halve()

    def ranked(self, series: int, window: int | None, end: int) -> tuple[Ranked, float | None]:
        """GAUC's terms of a series over the run (`window` None) or a window (index) ending at pane `end`.

        With a sample of users, also the sum over users of w^2 (AUC - GAUC)^2, from which the standard error follows.
        """
        mine = self._series.get(series)
        if mine is None:
            return Ranked(0, 0, 0, 0), None
        ranks = mine.run() if window is None else mine.window(window, end)
        terms = _terms(ranks)
        spread = None
        if self._sample_shift and terms.weight:
            auc_w, w = ranks.group_terms()
            spread = float(((auc_w - w * (terms.weighted_auc / terms.weight)) ** 2).sum())
        return terms, spread

    def scores(self, series: int, window: int | None, end: int) -> NDArray[np.uint64] | None:
        """Every score of a series in a window, sorted (see `ExactScores`); None when there are too many."""
        exact = self._exact.get(series)
        return np.empty(0, np.uint64) if exact is None else exact.scores(*self._range(window, end))

    def exact_auc(self, series: int, window: int | None, end: int) -> float | None:
        """The AUC of `scores`; None when it is undefined or there are too many."""
        exact = self._exact.get(series)
        return None if exact is None else exact.auc(*self._range(window, end))

    def pane_ranked(self, series: int, pane: int) -> Ranked | None:
        """GAUC's terms within one pane; None when only a sample of users is kept, or users weigh by value."""
        if self._sample_shift or self._weighting == "value":
            return None
        mine = self._series.get(series)
        return Ranked(0, 0, 0, 0) if mine is None else _terms(mine.pane(pane))

    def pane_entries(self, pane: int) -> dict[int, PaneEntries]:
        """What every series logged in a pane."""
        ids = self._directory.ids
        out = {}
        for code, mine in self._series.items():
            parts = mine.parts(pane)
            added, retracted = (tuple(p.entries for p in parts if p.sign == sign) for sign in (1, -1))
            if parts:
                out[code] = PaneEntries(added, retracted, ids, self._sample_shift)
        return out

    def columns(self, series: int) -> tuple[NDArray[np.uint64], dict[str, NDArray[np.generic]]]:
        """(user hashes, columns of `GroupRanks.columns`) of the users with impressions in the run; copies."""
        columns = self._series[series].run().columns()
        some = np.flatnonzero(columns["impressions"])
        return self._directory.ids[some], {name: column[some] for name, column in columns.items()}

    def clear(self, series: int) -> None:
        """Forgets a series."""
        self._series.pop(series, None)
        self._exact.pop(series, None)

    def series(self) -> list[int]:
        """The series that have users."""
        return list(self._series)

    def forget_before(self, pane: int) -> None:
        """Lets the log of old panes go; the run keeps its ranks."""
        for mine in self._series.values():
            mine.forget_before(pane)
        for scores in self._exact.values():
            scores.forget_before(pane)

    def state(self) -> dict[str, Any]:
        """Everything, for `restore`; series by their codes."""
        return {
            "ids": self._directory.ids.copy(),
            "sample_shift": self._sample_shift,
            "series": [
                {"code": code, "users": mine.state(), "scores": self._exact[code].state()}
                for code, mine in self._series.items()
            ],
        }

    def restore(self, state: Mapping[str, Any], codes: NDArray[np.int32]) -> None:
        """Takes over what `state` gave, into a table without users. `codes[c]` is what series c is called here."""
        self._directory.slots(state["ids"])
        self._sample_shift = state["sample_shift"]
        for saved in state["series"]:
            code = int(codes[saved["code"]])
            mine = self._series.setdefault(code, SeriesUsers(self._windows, self._weighting))
            mine.restore(saved["users"])
            self._exact.setdefault(code, ExactScores(self._exact_limit)).restore(saved["scores"])

    def _range(self, window: int | None, end: int) -> tuple[int, int]:
        return (ALWAYS, -ALWAYS) if window is None else (end - self._windows[window], end)

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


def _terms(ranks: GroupRanks) -> Ranked:
    weighted, weight = ranks.terms()
    return Ranked(weighted, weight, ranks.eligible, ranks.eligible_impressions, ranks.squares())
