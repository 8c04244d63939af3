"""Panes waiting for their look, in order: the cost of a look depends on what is due, not on everything that waits."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Collection


class DuePanes:
    """The panes of one partition; those of late labels apart."""

    def __init__(self, defer: int, end_of: Callable[[int], int]) -> None:
        """`defer`: panes after which what is late counts; `end_of`: the first pane behind the segment that a pane is in."""
        self._defer, self._end_of = defer, end_of
        self._waiting: list[int] = []  # on time, sorted; without those that were put off
        self._put_off: list[tuple[int, int]] = []  # heap of (when it is due, pane)
        self._late: list[int] = []  # heap

    def add(self, pane: int, late: int) -> None:
        """One that was not there."""
        if late:
            heapq.heappush(self._late, pane)
        else:
            insort(self._waiting, pane)

    def waiting(self, start: int, end: int, but: Collection[int]) -> list[int]:
        """Those on time from `start` on, before `end`, in order; without what was put off, and `but` for some."""
        first = bisect_left(self._waiting, start)
        return [pane for pane in self._waiting[first : bisect_left(self._waiting, end)] if pane not in but]

    def take(self, end: int, put_off: Collection[int]) -> list[tuple[int, int]]:
        """Removes what is due before `end`: (pane, late), sorted. What was put off is due once its segment can change no more."""
        out = []
        cut = bisect_left(self._waiting, end)
        for pane in self._waiting[:cut]:
            until = self._end_of(pane) - 1 + self._defer if pane in put_off else pane
            if until < end:
                out.append((pane, 0))
            else:
                heapq.heappush(self._put_off, (until, pane))
        del self._waiting[:cut]
        while self._put_off and self._put_off[0][0] < end:
            out.append((heapq.heappop(self._put_off)[1], 0))
        while self._late and self._late[0] + self._defer < end:
            out.append((heapq.heappop(self._late), 1))
        return sorted(out)

    def cut(self) -> None:
        """Segments have changed: when what was put off is due is told again at the next look."""
        for _, pane in self._put_off:
            insort(self._waiting, pane)
        self._put_off = []
