"""Where the segments of a ledger begin and end: at full hours, and at cuts within them. A segment is named by its first
pane.
"""

from __future__ import annotations

from bisect import bisect_right

from streameval.events.durations import HOUR


class SegmentBounds:
    """The bounds of one partition's segments, in panes."""

    def __init__(self, pane: int) -> None:
        """`pane` in ms."""
        self._pane = pane
        self.cuts: list[int] = []  # sorted

    def cut(self, pane: int) -> bool:
        """Starts a new segment at a pane; returns whether there was no cut yet."""
        if pane in self.cuts:
            return False
        self.cuts = sorted([*self.cuts, pane])
        return True

    def first(self, pane: int) -> int:
        """Returns the first pane of a pane's segment: of its hour, or of the last cut within it."""
        begin = pane * self._pane // HOUR * HOUR
        first = -(-begin // self._pane)
        cut = bisect_right(self.cuts, pane) - 1
        return first if cut < 0 else max(first, self.cuts[cut])

    def end(self, segment: int) -> int:
        """Returns the first pane after a segment."""
        end = -(-(segment * self._pane // HOUR + 1) * HOUR // self._pane)
        cut = bisect_right(self.cuts, segment)
        return end if cut == len(self.cuts) else min(end, self.cuts[cut])

    def forget_before(self, pane: int) -> bool:
        """Drops cuts before a pane; returns whether there were any."""
        kept = [cut for cut in self.cuts if cut >= pane]
        changed = len(kept) < len(self.cuts)
        self.cuts = kept
        return changed
