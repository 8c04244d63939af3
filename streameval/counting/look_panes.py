"""Which panes comparisons look at together: one at a time, or, where panes are shorter than ten seconds, as many as make
ten.

A look costs the same however little it sees: with panes of a second, more than the rest of the loop. What is counted for
looks goes by the last pane of those looked at together: a look at its end sees all of them, and numbers of panes mean the
same everywhere. Which panes these are depends on event time alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

LEAST = 10_000  # ms


class LookPanes:
    """Runs of `many` panes, which make `length` ms; the first one begins with pane 0."""

    def __init__(self, pane: int) -> None:
        """`pane` in ms."""
        self.many = -(-LEAST // pane)
        self.length = self.many * pane

    def first(self, pane: int) -> int:
        """Returns the first of the panes that are looked at with this one."""
        return pane // self.many * self.many

    def of(self, pane: int) -> int:
        """Returns the last of the panes that are looked at with this one."""
        return self.first(pane) + self.many - 1

    def runs(self, panes: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """Yields (`of`, begin, end) for what is looked at together of ascending panes: `panes[begin:end]`."""
        begin = 0
        for last, some in groupby(panes, self.of):
            end = begin + len(list(some))
            yield last, begin, end
            begin = end
