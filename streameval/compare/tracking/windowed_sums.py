"""Sums of rows over the windows of a comparison: the first holds everything, later ones the segments from their start
on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streameval.compare.evidence.ratio import Ints

BEFORE_ALL = -(1 << 62)  # the start of the first window: before every segment


class WindowedSums:
    """Exact sums of rows int64[width] of one kind: corrections of an old segment change only the windows that contain
    it.
    """

    def __init__(self, width: int, starts: Sequence[int] = (BEFORE_ALL,)) -> None:
        """`starts`: the segments at which the windows begin."""
        self.total = np.zeros(width, np.int64)
        self._starts = list(starts)
        self._before = [np.zeros(width, np.int64) for _ in starts]  # for each window, the sum of earlier segments

    def add(self, segment: int, row: Ints) -> None:
        """Adds a row of a segment."""
        self.total += row
        for start, before in zip(self._starts, self._before, strict=True):
            if segment < start:
                np.add(before, row, out=before)

    def begin(self, segment: int) -> None:
        """Begins a window at a segment that nothing has been added to yet."""
        self._starts.append(segment)
        self._before.append(self.total.copy())

    def windows(self) -> Ints:
        """Returns the sums of each window, int64[1, windows, width]."""
        return (self.total - np.array(self._before))[None]
