"""What auctions are told of the joiner's rows, in short kernels that keep the interpreter lock (see `auction.grouping`)."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.join.policy import LATE


@numba.njit(cache=True)
def any_late(state: NDArray[np.uint8], rows: NDArray[np.int64]) -> bool:
    """Whether any of the rows is late."""
    late = np.uint8(0)
    for row in rows:
        late |= state[row] & np.uint8(LATE)
    return late != 0


@numba.njit(cache=True)
def labels_due(
    mark: NDArray[np.uint64],
    rows: NDArray[np.int64],
    label: NDArray[np.int8],
    corrected: NDArray[np.bool_],
    fresh: NDArray[np.bool_],
    ts: NDArray[np.int64],
    window: int,
) -> tuple[NDArray[np.uint64], NDArray[np.int8], NDArray[np.int64]]:
    """Returns (keys in the history of pairs, labels, when these became final) of rows as they were when due; keys of rows
    that are not fresh are 0. `window`: ms from an impression to that time.

    A click that arrived after the due time may be in the same batch.
    """
    keys, labels, final = np.zeros(rows.size, np.uint64), np.zeros(rows.size, np.int8), np.empty(rows.size, np.int64)
    for i in range(rows.size):
        if fresh[i]:
            keys[i] = mark[rows[i]]
        if not corrected[i]:
            labels[i] = label[i]
        final[i] = ts[i] + window
    return keys, labels, final
