"""The piece of `value`: the value of clicks on impressions that a version served (see `sketches.yield_cells`)."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.compare.ledger.pieces import PieceScores, RowPiece
from streameval.compare.ledger.sums import Matrix
from streameval.compare.ledger.wide_sums import REAL, add_real, add_square
from streameval.sketches.blocks import BLOCKS, NO_ITEM, OF_ITEMS, OF_USERS
from streameval.sketches.yield_cells import MOST_WORTH

VALUE = "value"

# cells by block of users, and by block of items: impressions, and values
V_N, V_WORTH = 0, 1
VALUE_CELLS = 1 + REAL
V_USERS, V_ITEMS, V_SQUARES = 0, BLOCKS * VALUE_CELLS, 2 * BLOCKS * VALUE_CELLS
VALUE_WIDTH = V_SQUARES + 3


def value_piece() -> RowPiece:
    """Returns the piece, which adds impressions when their labels are due."""
    return RowPiece(VALUE, VALUE, VALUE_WIDTH, pairs=False, add=_add, values=True)


def _add(some: PieceScores, sums: Matrix, column: int) -> None:
    value = some.fields.get("value")
    if value is None:  # a table without such a column
        return
    scores = some.scores.row, some.scores.series
    labels = some.labels.label, some.labels.block, some.labels.item
    _add_served((some.start, some.end, column, some.sign), scores, labels, value, some.row_of, sums)


@numba.njit(cache=True, nogil=True)
def _add_served(
    span: tuple[int, int, int, int],
    scores: tuple[NDArray[np.int32], NDArray[np.int32]],
    labels: tuple[NDArray[np.int8], NDArray[np.int8], NDArray[np.int8]],
    value: NDArray[np.float64],
    row_of: NDArray[np.int32],
    sums: Matrix,
) -> None:
    start, end, column, sign = span
    row, series = scores
    label, block, item = labels
    for k in range(start, end):
        i = row[k]
        r = row_of[series[k], 0]
        if r < 0:
            continue
        worth = min(max(value[i], 0.0), MOST_WORTH) if label[i] else 0.0
        for by in range(2):
            group = np.int64(block[i]) if by == OF_USERS else np.int64(item[i])
            if by == OF_ITEMS and group == NO_ITEM:
                continue
            cell = column + (V_USERS if by == OF_USERS else V_ITEMS) + group * VALUE_CELLS
            sums[r, cell + V_N] += sign
            add_real(sums, r, cell + V_WORTH, worth, sign)
        add_square(sums, r, column + V_SQUARES, worth * worth, sign)
