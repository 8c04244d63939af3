"""The scores themselves, for an AUC without any rounding, as long as there are few enough of them to be sorted.

A score is kept in 8 bytes as the bits of its pClick and its label (`grid.score_bits`), by pane. Beyond the limit the
oldest panes are dropped first, so short windows stay exact when the run and long windows have too many scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.metrics.auc import ranked_auc

RUN_START = -(1 << 62)  # start of the entire run
_OLD = RUN_START + 1  # holds the panes that no window will contain again
_MERGE_AT = 64  # arrays that a pane collects before they are merged
_MOST_CHANGES = 1 << 20  # scores added or retracted since the last reading; beyond that, the reader takes all scores

_numbers = count()


_Change = tuple[NDArray[np.uint64], int]


@dataclass(slots=True)
class _Pane:
    added: list[NDArray[np.uint64]] = field(default_factory=list)
    retracted: list[NDArray[np.uint64]] = field(default_factory=list)

    @property
    def kept(self) -> int:
        return sum(part.size for part in (*self.added, *self.retracted))

    def scores(self) -> NDArray[np.uint64]:
        """Returns the scores added and not retracted; sorted only if some were retracted."""
        if self.retracted:
            whole, gone = np.sort(np.concatenate(self.added)), np.sort(np.concatenate(self.retracted))
            self.added, self.retracted = [without(whole, gone)], []
        elif len(self.added) > 1:
            self.added = [np.concatenate(self.added)]
        return self.added[0]


class ExactScores:
    """The scores of one series by pane, up to `limit` of them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._panes: dict[int, _Pane] = {}
        self._oldest: list[int] = []  # the panes, as a heap
        self._kept = 0
        self._old_before = _OLD  # panes before this one are merged into _OLD
        self._gone_before = RUN_START  # panes before this one have been dropped
        self.number = next(_numbers)  # unique for this object's scores; a new one once they are dropped
        self._change = 0
        self._changed: dict[int, int] = {}  # the last change of each pane, in the order of changes
        self._since: list[_Change] | None = None  # changes since `take_changes`; None: too many, or it was never called
        self._since_size = 0

    @property
    def oldest(self) -> int:
        """The first pane that has scores."""
        return self._oldest[0] if self._oldest else 1 << 62

    @property
    def newest(self) -> int:
        """The last pane that has scores."""
        return max(self._panes, default=RUN_START)

    def keeps(self, start: int) -> bool:
        """Whether every score from a pane on, or from `RUN_START`, is kept."""
        return start >= self._gone_before

    @property
    def nbytes(self) -> int:
        """Size of the scores in bytes."""
        return 8 * self._kept

    def add(self, pane: int, scores: NDArray[np.uint64], sign: int) -> None:
        """Adds n scores (`grid.score_bits`) to a pane, or with sign -1 retracts them."""
        pane = pane if pane >= self._old_before else _OLD
        if pane < self._gone_before or not scores.size:
            return
        mine = self._panes.get(pane)
        if mine is None:
            mine = self._panes[pane] = _Pane()
            heappush(self._oldest, pane)
        parts = mine.added if sign > 0 else mine.retracted
        parts.append(scores)
        if len(parts) >= _MERGE_AT:  # so that small batches do not leave an array each
            parts[:] = [np.concatenate(parts)]
        self._note(pane, scores, sign)
        self._kept += scores.size
        while self._kept > self._limit:
            self._drop_oldest()

    def drop(self) -> None:
        """Drops everything, and keeps no scores from now on."""
        self._panes.clear()
        self._oldest.clear()
        self._changed.clear()
        self._since, self.number = None, next(_numbers)
        self._kept, self._gone_before = 0, 1 << 62

    def forget_before(self, pane: int) -> None:
        """Merges panes before `pane`: no window will begin there any more, but the run still does."""
        old = sorted(n for n in self._panes if n < pane)
        self._old_before = max(self._old_before, pane)
        if old in ([], [_OLD]):
            return
        parts = [self._panes.pop(n) for n in old]
        for n in old:
            self._changed.pop(n, None)
        self._oldest = sorted(self._panes)
        if self._gone_before > RUN_START:  # the run is incomplete, so these are no longer needed
            self._kept -= sum(part.kept for part in parts)
            return
        whole = np.concatenate([part.scores() for part in parts])
        self._kept -= sum(part.kept for part in parts) - whole.size
        heappush(self._oldest, _OLD)
        self._panes[_OLD] = _Pane([whole], [])

    def scores(self, start: int, end: int) -> NDArray[np.uint64] | None:
        """Returns the sorted scores of the panes [start, end); None if some are not kept."""
        if not self.keeps(start):
            return None
        parts = [self._panes[n].scores() for n in self._within(start, end)]
        self._kept = sum(pane.kept for pane in self._panes.values())
        return np.sort(np.concatenate(parts)) if parts else np.empty(0, np.uint64)

    def auc(self, start: int, end: int) -> float | None:
        """Returns the AUC of `scores`; also None if it is undefined."""
        scores = self.scores(start, end)
        return None if scores is None else ranked_auc(scores)

    def last_change(self, start: int, end: int) -> int:
        """Returns the number of the last change in the panes [start, end)."""
        return next((change for pane, change in reversed(self._changed.items()) if start <= pane < end), -1)

    def take_changes(self) -> list[_Change] | None:
        """Returns (scores, 1 for added or -1 for retracted) since the last call; None: too many changes, use all
        scores.
        """
        since, self._since, self._since_size = self._since, [], 0
        return since

    def state(self) -> dict[str, Any]:
        """Returns everything, for `restore`; the scores are packed when the writer asks for them."""
        panes = {number: (tuple(pane.added), tuple(pane.retracted)) for number, pane in self._panes.items()}
        return {"old_before": self._old_before, "gone_before": self._gone_before, "panes": partial(_pack, panes)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned."""
        self._old_before = max(self._old_before, state["old_before"])
        self._gone_before = max(self._gone_before, state["gone_before"])
        packed = state["panes"]
        ends = np.cumsum(packed["length"])
        parts = zip(packed["pane"].tolist(), packed["sign"].tolist(), ends - packed["length"], ends, strict=True)
        for number, sign, start, end in parts:
            self.add(number, packed["scores"][start:end].copy(), sign)

    def _note(self, pane: int, scores: NDArray[np.uint64], sign: int) -> None:
        self._change += 1
        self._changed.pop(pane, None)
        self._changed[pane] = self._change
        if self._since is not None:
            self._since.append((scores, sign))
            self._since_size += scores.size
            if self._since_size > _MOST_CHANGES:
                self._since = None

    def _within(self, start: int, end: int) -> list[int]:
        return sorted(n for n in self._panes if start <= n < end)

    def _drop_oldest(self) -> None:
        oldest = heappop(self._oldest)
        self._kept -= self._panes.pop(oldest).kept
        self._changed.pop(oldest, None)
        self._gone_before = self._old_before if oldest == _OLD else oldest + 1


_Kept = tuple[Sequence[NDArray[np.uint64]], Sequence[NDArray[np.uint64]]]  # added, retracted


def _pack(panes: Mapping[int, _Kept]) -> dict[str, NDArray[np.generic]]:
    """Returns panes as columns: one part for the scores added to a pane, one for those retracted."""
    parts = [
        (number, sign, np.concatenate(scores))
        for number, kept in sorted(panes.items())
        for sign, scores in zip((1, -1), kept, strict=True)
        if scores
    ]
    return {
        "pane": np.array([number for number, _, _ in parts], np.int64),
        "sign": np.array([sign for _, sign, _ in parts], np.int8),
        "length": np.array([scores.size for _, _, scores in parts], np.int64),
        "scores": np.concatenate([np.empty(0, np.uint64), *(scores for _, _, scores in parts)]),
    }


def without(scores: NDArray[np.uint64], gone: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Returns sorted scores without the sorted ones that were retracted."""
    out = np.empty(scores.size, np.uint64)
    return out[: _without(scores, gone, out)].copy()


@numba.njit(cache=True, nogil=True)
def _without(scores: NDArray[np.uint64], gone: NDArray[np.uint64], out: NDArray[np.uint64]) -> int:
    k = 0
    g = 0
    for i in range(scores.size):
        if g < gone.size and gone[g] == scores[i]:
            g += 1
        else:
            out[k] = scores[i]
            k += 1
    return k
