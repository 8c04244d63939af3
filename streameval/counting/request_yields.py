"""The yield of serving versions: clicks and value of every closed request, added to the pane of its first impression.

A request counts for the version that served it; if there are several, for each of them with its own impressions.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.counting.scoreboard import Labelled, Scoreboard
from streameval.events.columns import Scored
from streameval.sketches.blocks import blocks_of
from streameval.sketches.yield_cells import (
    CLICKS_SERVED,
    MAINLINE_CLICKS,
    PLACED,
    REQUESTS_PART,
    REQUESTS_SERVED,
    REQUESTS_WHOLE,
    worth,
    yields,
)

_NOTHING = np.empty(0)


class _Served(NamedTuple):
    """Impressions by ascending request, each with the version that served it."""

    request: NDArray[np.int32]
    series: NDArray[np.int32]
    label: NDArray[np.int8]
    position: NDArray[np.float64]  # NaN: unknown; empty: all are unknown
    value: NDArray[np.float64]  # empty: not kept


@numba.njit(cache=True, nogil=True)
def _add_up(
    served: _Served, mainline: int, sign: int, of: NDArray[np.int32], by: NDArray[np.int32], cells: NDArray[np.int64]
) -> int:
    """Fills in a row of cells for every request (`of`) and version that served any of it (`by`); returns the number of
    rows.
    """
    request, series, label, position, value = served
    n = 0
    first = 0  # row of the request's first version
    for i in range(request.size):
        if i == 0 or request[i] != request[i - 1]:
            first = n
        row = first
        while row < n and by[row] != series[i]:
            row += 1
        if row == n:
            of[n], by[n] = request[i], series[i]
            cells[n, REQUESTS_SERVED] = sign
            n += 1
        if position.size and not np.isnan(position[i]):
            cells[row, PLACED] = sign
        if label[i]:
            cells[row, CLICKS_SERVED] += sign
            if position.size and position[i] < mainline:
                cells[row, MAINLINE_CLICKS] += sign
            if value.size:
                whole, part = worth(value[i])
                cells[row, REQUESTS_WHOLE] += sign * whole
                cells[row, REQUESTS_PART] += sign * part
    return n


def observe_yields(
    board: Scoreboard, labelled: Labelled, request: NDArray[np.int32], scored: Scored, sign: int
) -> None:
    """Adds (or subtracts) complete requests: `request[i]`, ascending, is the number of labelled row i's request, from
    0.

    The server of an impression is the series of its first score.
    """
    own = slice(scored.bounds[0], scored.bounds[1])
    row = scored.row[own]
    if not row.size:
        return
    position = labelled.fields.get("position", _NOTHING)
    value = labelled.fields["value"] if board.values else _NOTHING
    served = _Served(
        request[row],
        scored.series[own],
        labelled.label[row],
        position[row] if position.size else position,
        value[row] if value.size else value,
    )
    tally = yields(board.mainline)
    of, by = np.empty(row.size, np.int32), np.empty(row.size, np.int32)
    cells = np.zeros((row.size, len(tally.cells)), np.int64)
    n = _add_up(served, board.mainline, sign, of, by, cells)
    of, by, cells = of[:n], by[:n], cells[:n]
    begin = np.flatnonzero(np.diff(request, prepend=-1))
    first = np.minimum.reduceat(labelled.ts, begin)
    user = np.maximum.reduceat(labelled.user, begin)  # one of its users, whatever the order
    number = np.searchsorted(request[begin], of)  # index of the request among those given
    pane, block = (first // board.pane)[number], blocks_of(user)[number]
    for one in np.unique(pane).tolist():
        on = pane == one
        board.add_tally(one, tally.name, by[on], block[on], cells[on])
