"""Quantities of labelled, scored impressions that both the scoreboard and the ledger need, computed once."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.counting.users import UserSlots
from streameval.events.columns import Scored
from streameval.sketches.accumulate import measure
from streameval.sketches.blocks import blocks_of


@dataclass(frozen=True, slots=True)
class Measured:
    """Log loss and part of a curve bin of every score, block of every impression, and the boundaries of panes."""

    loss: NDArray[np.float64]
    part: NDArray[np.int16]
    block: NDArray[np.int8]
    panes: list[int]
    first: NDArray[np.int64]  # first impression of each pane, and the end
    cuts: list[NDArray[np.int64]]  # by giver (see `Scored`): cuts[g][j] is its first score in pane j; then the end
    users: UserSlots | None = None  # of every impression, if a board measured them

    @staticmethod
    def of(
        ts: NDArray[np.int64],
        user: NDArray[np.uint64],
        label: NDArray[np.int8],
        scored: Scored,
        pane: int,
        users: UserSlots | None = None,
    ) -> Measured:
        """Measures impressions in time order; `pane` in ms."""
        first = pane_starts(ts, pane)
        cuts = [a + np.searchsorted(scored.row[a:b], first) for a, b in pairwise(scored.bounds)]
        panes = [int(t) // pane for t in ts[first[:-1]]]
        loss, part = measure(scored.p, scored.row, label)
        return Measured(loss, part, blocks_of(user), panes, first, cuts, users)


@numba.njit(cache=True, nogil=True)
def _starts(ts: NDArray[np.int64], pane: int, out: NDArray[np.int64]) -> int:
    n = 0
    end = np.int64(0)
    for i in range(ts.size):
        if i == 0 or ts[i] >= end:  # a division only at the start of a pane
            end = (ts[i] // pane + 1) * pane
            out[n] = i
            n += 1
    out[n] = ts.size
    return n + 1


def pane_starts(ts: NDArray[np.int64], pane: int) -> NDArray[np.int64]:
    """Returns the first of ascending times in every pane that has some, and the end."""
    out = np.empty(ts.size + 1, np.int64)
    return out[: _starts(ts, pane, out)]
