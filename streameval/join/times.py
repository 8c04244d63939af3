"""The times of rows, block by block, so that finding the rows of some hours does not require scanning a whole day.

Rows are in order of arrival, so rows close in time are close in the table, except for late ones.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_BLOCK = 16_384  # rows


def block_times(ts: NDArray[np.int64], begun: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The earliest and the latest time, ms, of every block of rows; the first block already has `begun` rows."""
    begins = np.arange(-begun, ts.size, _BLOCK)
    begins[0] = 0
    return np.minimum.reduceat(ts, begins), np.maximum.reduceat(ts, begins)


class RowTimes:
    """The earliest and the latest time of every block of rows."""

    def __init__(self) -> None:
        self._moved = 0  # row r is in block (r + _moved) // _BLOCK
        self._first = 0  # the first block in the lists
        self._least: list[int] = []
        self._greatest: list[int] = []

    def add(self, start: int, ts: NDArray[np.int64]) -> None:
        """Adds rows from `start` on, behind all others, with these times, ms."""
        if not ts.size:
            return
        self.add_blocks(start, *block_times(ts, (start + self._moved) % _BLOCK))

    def add_blocks(self, start: int, least: NDArray[np.int64], greatest: NDArray[np.int64]) -> None:
        """Adds rows from `start` on, behind all others, by the times of their blocks."""
        begun = (start + self._moved) // _BLOCK
        lows, highs = least.tolist(), greatest.tolist()
        if not self._least:
            self._first = begun
        elif begun < self._first + len(self._least):
            lows[0], highs[0] = min(lows[0], self._least.pop()), max(highs[0], self._greatest.pop())
        self._least += lows
        self._greatest += highs

    def between(self, low: int, high: int, front: int, end: int) -> NDArray[np.int64]:
        """[n, 2]: ranges among the rows [front, end) that contain all rows with times in [low, high), ms."""
        wanted = (np.array(self._least) < high) & (np.array(self._greatest) >= low)
        edges = np.flatnonzero(np.diff(wanted.astype(np.int8), prepend=np.int8(0), append=np.int8(0)))
        rows = (edges.reshape(-1, 2) + self._first) * _BLOCK - self._moved
        spans: NDArray[np.int64] = np.clip(rows, front, end)
        return spans[spans[:, 0] < spans[:, 1]]

    def forget_before(self, row: int) -> None:
        """Drops the times of rows before `row`."""
        gone = min((row + self._moved) // _BLOCK - self._first, len(self._least))
        if gone > 0:
            self._first += gone
            del self._least[:gone], self._greatest[:gone]

    def move(self, shift: int) -> None:
        """Decreases every row number by `shift`."""
        self._moved += shift
