"""The exact AUC of a changing set of scores, at a cost proportional to the changes.

Twice the number of concordant pairs is a sum over pairs of a click and a non-click. So for scores A and additional
scores B it is the sum of the pairs within A, within B and between the two; removed scores count as -1. B is looked up
in A, which is sorted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from streameval.counting.exact_scores import RUN_START, ExactScores, without
from streameval.metrics.auc import auc_of_pairs, ranked_auc
from streameval.sketches.concordance import clicks_by_block, pairs_between, pairs_within

ScoreBits = NDArray[np.uint64]  # `grid.score_bits`
_FEWEST = 4096  # scores that may be kept separately from the sorted ones
_SHARE = 64  # or this fraction of the sorted ones (1 / 64)


class _Sorted:
    """Sorted scores with an index for look-ups."""

    def __init__(self, scores: ScoreBits) -> None:
        self.scores, self.by_block = scores, clicks_by_block(scores)

    def pairs_with(self, others: ScoreBits) -> int:
        """Returns twice the number of concordant pairs between these and other scores."""
        return pairs_between(self.scores, self.by_block, others) if self.scores.size else 0


class GrowingAuc:
    """The AUC of a set of scores that may be added and removed."""

    def __init__(self, sorted_scores: ScoreBits) -> None:
        self._settle(sorted_scores)

    def change(self, scores: ScoreBits, sign: int) -> None:
        """Adds scores, or with sign -1 removes them."""
        if not scores.size:
            return
        more, most = np.sort(scores), max(_FEWEST, self._base.scores.size // _SHARE)
        if more.size <= most:  # with more than that, merging is cheaper
            self._count(more, sign)
        beside = {own: one.scores for own, one in self._beside.items()}
        beside[sign] = np.sort(np.concatenate((beside[sign], more)))
        if beside[1].size + beside[-1].size <= most:
            self._beside[sign] = _Sorted(beside[sign])
            return
        whole = np.sort(np.concatenate((self._base.scores, beside[1])))
        self._settle(without(whole, beside[-1]) if beside[-1].size else whole)

    def _count(self, more: ScoreBits, sign: int) -> None:
        within, clicks = pairs_within(more)
        between = self._base.pairs_with(more)
        between += sum(own * one.pairs_with(more) for own, one in self._beside.items())
        self._pairs += within + sign * between
        self._clicks += sign * clicks
        self._size += sign * more.size

    @property
    def value(self) -> float | None:
        """The AUC, as in `ranked_auc`; None if a class is missing."""
        return auc_of_pairs(self._pairs, self._clicks, self._size)

    @property
    def nbytes(self) -> int:
        """Size of the sorted scores in bytes."""
        return sum(one.scores.nbytes for one in (self._base, *self._beside.values()))

    def _settle(self, sorted_scores: ScoreBits) -> None:
        """Makes these scores the sorted base, with no changes."""
        self._pairs, self._clicks = pairs_within(sorted_scores)
        self._size = sorted_scores.size
        self._base, nothing = _Sorted(sorted_scores), _Sorted(np.empty(0, np.uint64))
        self._beside = {1: nothing, -1: nothing}  # added and removed scores


class Aucs:
    """The AUCs of every series as of the last reading; what has not changed since is not computed again."""

    def __init__(self) -> None:
        self._runs: dict[int, tuple[tuple[int, ...], GrowingAuc | None]] = {}  # by series: numbers of the scores
        # by series and panes, for the current reading and the previous one: the AUC, and the changes that it includes
        self._windows: dict[tuple[int, int, int], tuple[object, float | None]] = {}
        self._before = self._windows
        self._of_runs: dict[int, tuple[object, float | None]] = {}  # by series, for the current reading: as of windows
        self._asked: set[int] = set()

    @property
    def nbytes(self) -> int:
        """Size of the runs' sorted scores in bytes."""
        return sum(run.nbytes for _, run in self._runs.values() if run is not None)

    def begin(self) -> None:
        """Begins a reading; drops series that were not needed in the last one."""
        for series in self._runs.keys() - self._asked:
            del self._runs[series]
        self._asked.clear()
        self._of_runs.clear()
        self._before, self._windows = self._windows, {}

    def of_run(self, series: int, kept: Sequence[ExactScores]) -> float | None:
        """Returns the AUC of all scores that partitions keep of a series; None if it is undefined, or they do not keep
        all.
        """
        if not all(one.keeps(RUN_START) for one in kept):
            return None
        auc = self._of_run(series, kept)
        self._of_runs[series] = _changes(kept, RUN_START, -RUN_START), auc
        return auc

    def _of_run(self, series: int, kept: Sequence[ExactScores]) -> float | None:
        self._asked.add(series)
        whose, since = tuple(one.number for one in kept), [one.take_changes() for one in kept]
        known = self._runs.get(series)
        few = max(_FEWEST, sum(one.nbytes for one in kept) // 8 // _SHARE)
        # if much has been added, as in a fast replay, sorting is cheapest
        if known is None or known[0] != whose or _size(since) > few:
            self._runs[series] = whose, None
            return ranked_auc(_sorted(kept, RUN_START, -RUN_START))
        growing = known[1]
        if growing is None:
            growing = GrowingAuc(_sorted(kept, RUN_START, -RUN_START))
            self._runs[series] = whose, growing
            return growing.value
        for sign in (1, -1):
            parts = [scores for changes in since for scores, own in changes or () if own == sign]
            growing.change(np.concatenate([np.empty(0, np.uint64), *parts]), sign)
        return growing.value

    def of_window(self, series: int, kept: Sequence[ExactScores], panes: tuple[int, int]) -> float | None:
        """Returns the AUC of the scores in the panes [start, end); windows that begin before all scores share one
        entry, and that of the run if they end after all.
        """
        if not all(one.keeps(panes[0]) for one in kept):
            return None
        start, end = max(panes[0], min(one.oldest for one in kept)), panes[1]
        which, now = (series, start, end), _changes(kept, start, end)
        known = self._windows.get(which) or self._before.get(which)
        if (known is None or known[0] != now) and all(start <= one.oldest and one.newest < end for one in kept):
            known = self._of_runs.get(series)
        if known is None or known[0] != now:
            known = now, ranked_auc(_sorted(kept, start, end))
        self._windows[which] = known
        return known[1]


def _changes(kept: Sequence[ExactScores], start: int, end: int) -> object:
    """Returns what the scores in the panes [start, end) are the same as of."""
    return tuple((one.number, one.last_change(start, end)) for one in kept)


def _size(since: Sequence[Sequence[tuple[ScoreBits, int]] | None]) -> float:
    """Returns how many scores were added or removed; infinite if there were too many."""
    return sum(math.inf if changes is None else sum(scores.size for scores, _ in changes) for changes in since)


def _sorted(kept: Sequence[ExactScores], start: int, end: int) -> ScoreBits:
    parts = [scores for one in kept if (scores := one.scores(start, end)) is not None]
    return parts[0] if len(parts) == 1 else np.sort(np.concatenate([np.empty(0, np.uint64), *parts]))
