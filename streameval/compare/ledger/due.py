"""Panes waiting for their look, in order: the cost of a look depends on what is due, not on everything that is
waiting.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Collection


class DuePanes:
    """The panes of one partition; those of late labels are kept separately."""

    def __init__(self, defer: int) -> None:
        """`defer`: panes after which late labels count."""
        self._defer = defer
        self._waiting: list[int] = []  # on time, sorted; without deferred ones
        self._deferred: list[tuple[int, int]] = []  # heap of (when it is due, pane), for deferred panes
        self._late: list[int] = []  # heap

    def add(self, pane: int, late: int) -> None:
        """Adds a pane that is not waiting yet."""
        if late:
            heapq.heappush(self._late, pane)
        else:
            insort(self._waiting, pane)

    def waiting(self, start: int, end: int, but: Collection[int]) -> list[int]:
        """Returns the panes on time from `start` on and before `end`, in order; without deferred ones and those in
        `but`.
        """
        first = bisect_left(self._waiting, start)
        return [pane for pane in self._waiting[first : bisect_left(self._waiting, end)] if pane not in but]

    def take(self, end: int, deferred: Collection[int], end_of: Callable[[int], int]) -> list[tuple[int, int]]:
        """Removes and returns what is due before `end`: (pane, late), sorted. A deferred pane is due once its segment
        can no longer change; `end_of`: returns the first pane after the segment of a pane.
        """
        out = []
        cut = bisect_left(self._waiting, end)
        for pane in self._waiting[:cut]:
            until = end_of(pane) - 1 + self._defer if pane in deferred else pane
            if until < end:
                out.append((pane, 0))
            else:
                heapq.heappush(self._deferred, (until, pane))
        del self._waiting[:cut]
        while self._deferred and self._deferred[0][0] < end:
            out.append((heapq.heappop(self._deferred)[1], 0))
        while self._late and self._late[0] + self._defer < end:
            out.append((heapq.heappop(self._late), 1))
        return sorted(out)

    def cut(self) -> None:
        """Handles a change of segments: when deferred panes are due is determined again at the next look."""
        for _, pane in self._deferred:
            insort(self._waiting, pane)
        self._deferred = []
