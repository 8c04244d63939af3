"""The scores themselves, for an AUC without any rounding, while there are few enough of them to be sorted.

A score is kept in 8 bytes as the bits of its pClick and its label (`grid.score_bits`), by pane. Past the limit the
oldest panes go first, so short windows stay exact when the run and the long ones have become too many scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.metrics.auc import ranked_auc

RUN_START = -(1 << 62)  # pane from which the whole run begins
_OLD = RUN_START + 1  # where panes go that no window will hold again
_MERGE_AT = 64  # arrays that a pane collects before they become one
_RANGES = 16  # AUCs that are remembered


@dataclass(slots=True)
class _Pane:
    added: list[NDArray[np.uint64]] = field(default_factory=list)
    retracted: list[NDArray[np.uint64]] = field(default_factory=list)
    changes: int = 0

    @property
    def kept(self) -> int:
        return sum(part.size for part in (*self.added, *self.retracted))

    def scores(self) -> NDArray[np.uint64]:
        """What is left of the added scores; sorted only if some were retracted."""
        if self.retracted:
            whole, gone = np.sort(np.concatenate(self.added)), np.sort(np.concatenate(self.retracted))
            out = np.empty(whole.size, np.uint64)
            self.added, self.retracted = [out[: _without(whole, gone, out)].copy()], []
        elif len(self.added) > 1:
            self.added = [np.concatenate(self.added)]
        return self.added[0]


class ExactScores:
    """The scores of one series by pane, at most `limit` of them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._panes: dict[int, _Pane] = {}
        self._oldest: list[int] = []  # the panes, as a heap
        self._kept = 0
        self._old_before = _OLD  # panes before it are in _OLD
        self._gone_before = RUN_START  # panes before it are kept no more
        self._known: dict[tuple[int, int], tuple[int, float | None]] = {}  # AUCs of pane ranges, and as of which change

    @property
    def nbytes(self) -> int:
        """Bytes of the scores."""
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
        if len(parts) >= _MERGE_AT:  # little batches must not leave an array each
            parts[:] = [np.concatenate(parts)]
        mine.changes += 1
        self._kept += scores.size
        while self._kept > self._limit:
            self._drop_oldest()

    def drop(self) -> None:
        """Forgets everything, and keeps nothing from now on."""
        self._panes.clear()
        self._oldest.clear()
        self._known.clear()
        self._kept, self._gone_before = 0, 1 << 62

    def forget_before(self, pane: int) -> None:
        """No window will begin before `pane` any more; the run still does."""
        old = sorted(n for n in self._panes if n < pane)
        self._old_before = max(self._old_before, pane)
        if old in ([], [_OLD]):
            return
        parts = [self._panes.pop(n) for n in old]
        self._oldest = sorted(self._panes)
        if self._gone_before > RUN_START:  # the run is not whole, so nobody will ask for them
            self._kept -= sum(part.kept for part in parts)
            return
        whole = np.concatenate([part.scores() for part in parts])
        self._kept -= sum(part.kept for part in parts) - whole.size
        heappush(self._oldest, _OLD)
        self._panes[_OLD] = _Pane([whole], [], sum(part.changes for part in parts))

    def scores(self, start: int, end: int) -> NDArray[np.uint64] | None:
        """The sorted scores of the panes [start, end); None when some are not kept."""
        if start < self._gone_before:
            return None
        parts = [self._panes[n].scores() for n in self._within(start, end)]
        self._kept = sum(pane.kept for pane in self._panes.values())
        return np.sort(np.concatenate(parts)) if parts else np.empty(0, np.uint64)

    def auc(self, start: int, end: int) -> float | None:
        """The AUC of `scores`; None also when it is undefined."""
        if start < self._gone_before:
            return None
        panes = self._within(start, end)
        if not panes:
            return None
        changes, span = sum(self._panes[n].changes for n in panes), (panes[0], panes[-1])
        known = self._known.get(span)
        if known is None or known[0] != changes:
            scores = self.scores(start, end)
            if len(self._known) >= _RANGES:
                self._known.clear()
            known = self._known[span] = changes, None if scores is None else ranked_auc(scores)
        return known[1]

    def state(self) -> dict[str, Any]:
        """Everything, for `restore`; the scores are packed when the writer calls for them."""
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

    def _within(self, start: int, end: int) -> list[int]:
        return sorted(n for n in self._panes if start <= n < end)

    def _drop_oldest(self) -> None:
        oldest = heappop(self._oldest)
        self._kept -= self._panes.pop(oldest).kept
        self._gone_before = self._old_before if oldest == _OLD else oldest + 1


_Kept = tuple[Sequence[NDArray[np.uint64]], Sequence[NDArray[np.uint64]]]  # added, retracted


def _pack(panes: Mapping[int, _Kept]) -> dict[str, NDArray[np.generic]]:
    """Panes as columns: one part for what was added to a pane, one for what was retracted."""
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


@numba.njit(cache=True, nogil=True)
def _without(scores: NDArray[np.uint64], gone: NDArray[np.uint64], out: NDArray[np.uint64]) -> int:
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
