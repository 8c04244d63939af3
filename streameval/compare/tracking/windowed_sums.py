"""Sums of rows over the windows of a comparison: the first holds everything, a later one what is of segments from where it begins."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streameval.compare.evidence.ratio import Ints

BEFORE_ALL = -(1 << 62)  # where the first window begins: before every segment


class WindowedSums:
    """Rows int64[width] of one kind, exactly: corrections of an old segment change only the windows that hold it."""

    def __init__(self, width: int, starts: Sequence[int] = (BEFORE_ALL,)) -> None:
        """`starts`: the segments at which the windows begin."""
        self.total = np.zeros(width, np.int64)
        self._starts = list(starts)
        self._before = [np.zeros(width, np.int64) for _ in starts]  # of each window: what is of segments before it

    def gain(self, segment: int, row: Ints) -> None:
        """Adds a row of a segment."""
        self.total += row
        for start, before in zip(self._starts, self._before, strict=True):
            if segment < start:
                np.add(before, row, out=before)

    def begin(self, segment: int) -> None:
        """A window begins at a segment, of which nothing has been gained yet."""
        self._starts.append(segment)
        self._before.append(self.total.copy())

    def windows(self) -> Ints:
        """Each window's own, int64[1, windows, width]."""
        return (self.total - np.array(self._before))[None]
