"""Buffers for the weighted sums of one pane (see `exposure`), and their draining into sparse vectors."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.sketches.blocks import BLOCKS
from streameval.sketches.sparse import SparseVector, trimmed
from streameval.sketches.tally import Tally


class Room(NamedTuple):
    """Sums of one pane, zero between panes: by series, and by series and block of users."""

    total: NDArray[np.int64]  # [series, cells]
    blocks: NDArray[np.int64]  # [series, BLOCKS, cells]

    @staticmethod
    def of(series: int, kept: tuple[Tally, Tally]) -> Room:
        """Room for series 0 .. series - 1."""
        total, blocks = (len(tally.cells) for tally in kept)
        return Room(np.zeros((series, total), np.int64), np.zeros((series, BLOCKS, blocks), np.int64))


@numba.njit(cache=True, nogil=True)
def _drain(room: Room, size: int, at: int, at_blocks: int, cells: NDArray[np.int64], values: NDArray[np.int64]) -> int:
    total, blocks = room
    k = 0
    for r in range(len(total)):
        if not total[r].any():
            continue
        row, by_block = total[r], blocks[r].ravel()
        for c in range(row.size):
            if row[c] != 0:
                cells[k], values[k] = r * size + at + c, row[c]
                k += 1
        for c in range(by_block.size):
            if by_block[c] != 0:
                cells[k], values[k] = r * size + at_blocks + c, by_block[c]
                k += 1
        row[:] = 0
        by_block[:] = 0
    return k


def drained(room: Room, size: int, at: int, at_blocks: int) -> SparseVector:
    """The sums as one vector over rows of `size` cells, whose two tallies begin at `at` and, behind it, at `at_blocks`.

    Resets the room to zero.
    """
    most = room.total.size + room.blocks.size
    cells, values = np.empty(most, np.int64), np.empty(most, np.int64)
    return trimmed(cells, values, _drain(room, size, at, at_blocks, cells, values))
