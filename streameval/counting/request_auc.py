"""The AUC of every closed request, added to the pane of the request's first impression."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.counting.scoreboard import Labelled, Scoreboard
from streameval.events.columns import Scored
from streameval.sketches.blocks import blocks_of
from streameval.sketches.concordance import concordant_pairs
from streameval.sketches.fixed import FRACTION, LIMB, add_real
from streameval.sketches.grid import score_keys
from streameval.sketches.layout import (
    BLOCK_CELLS,
    BLOCK_REQUEST_W,
    BLOCK_REQUEST_WA,
    BUCKETS,
    REQUEST_AUC,
    REQUEST_IMPRESSIONS,
    REQUEST_WEIGHT,
    REQUESTS,
)

_WEIGHTINGS = ("impressions", "clicks", "uniform", "value")
_CELLS = np.array([REQUESTS, REQUEST_IMPRESSIONS, REQUEST_WEIGHT, REQUEST_WEIGHT + 1, REQUEST_AUC, REQUEST_AUC + 1])


@numba.njit(cache=True, nogil=True)
def _terms(
    group: NDArray[np.int64],
    ranked: NDArray[np.uint32],
    value: NDArray[np.float64],
    weighting: int,
    sign: int,
    key: NDArray[np.int64],
    cells: NDArray[np.int64],
) -> int:
    """One row of cells for every group (sorted) with both labels; returns how many."""
    n = 0
    i = 0
    while i < group.size:
        j = i
        values = 0.0
        while j < group.size and group[j] == group[i]:
            values += max(value[j], 0.0)
            j += 1
        pairs, clicks = concordant_pairs(ranked[i:j], j - i)
        others = (j - i) - clicks
        if clicks and others:
            auc = float(pairs) / (2.0 * float(clicks) * float(others))
            weight = (
                float(j - i)
                if weighting == 0
                else float(clicks)
                if weighting == 1
                else 1.0
                if weighting == 2
                else values
            )
            cells[n, REQUESTS] += sign
            cells[n, REQUEST_IMPRESSIONS] += sign * (j - i)
            add_real(cells[n], REQUEST_WEIGHT, weight, sign)
            add_real(cells[n], REQUEST_AUC, weight * auc, sign)
            key[n] = group[i]
            n += 1
        i = j
    return n


def observe_requests(
    board: Scoreboard, labelled: Labelled, request: NDArray[np.int32], scored: Scored, sign: int
) -> None:
    """Adds (or takes out) requests: `request[i]` numbers the request of labelled row i from 0."""
    first = np.full(int(request.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, request, labelled.ts)
    pane = first // board.pane
    series_count = int(scored.series.max(initial=0)) + 1
    clicks = np.bincount(request, labelled.label)
    both = ((clicks > 0) & (clicks < np.bincount(request)))[request]  # others have no AUC
    at = np.flatnonzero(both[scored.row])
    row, of_series = scored.row[at], scored.series[at]
    group = request[row].astype(np.int64) * series_count + of_series
    ranked = (score_keys(scored.p[at]) << np.uint32(1)) | labelled.label[row].astype(np.uint32)
    order = np.lexsort((ranked, group))
    value = labelled.fields["value"][row][order] if board.weighting == "value" else np.zeros(order.size)
    cells = np.zeros((order.size, BUCKETS), np.int64)
    key = np.empty(order.size, np.int64)
    n = _terms(group[order], ranked[order], value, _WEIGHTINGS.index(board.weighting), sign, key, cells)
    cells, of_request = cells[:n], key[:n] // series_count
    user = np.zeros(pane.size, np.uint64)
    np.maximum.at(user, request, labelled.user)  # one of its users, whatever the order; nearly always there is only one
    block = board.overall_layout.blocks + blocks_of(user)[of_request].astype(np.int64) * BLOCK_CELLS
    of_pane = pane[of_request]
    series = (key[:n] % series_count).astype(np.int32)
    for number in np.unique(of_pane).tolist():
        for one in np.unique(series[of_pane == number]).tolist():
            mine = (of_pane == number) & (series == one)
            board.add_cells(number, np.full(_CELLS.size, one, np.int32), _CELLS, cells[mine].sum(axis=0)[_CELLS])
            where = np.concatenate((block[mine] + BLOCK_REQUEST_W, block[mine] + BLOCK_REQUEST_WA))
            terms = np.concatenate(
                (_coarse(cells[mine], REQUEST_WEIGHT, sign), _coarse(cells[mine], REQUEST_AUC, sign))
            )
            board.add_cells(number, np.full(where.size, one, np.int32), where, terms)


def _coarse(cells: NDArray[np.int64], limb: int, sign: int) -> NDArray[np.int64]:
    """Reals of two limbs, each of the given sign, in units of 1 / `blocks.SCALE`."""
    high, low = sign * cells[:, limb], sign * cells[:, limb + 1]
    return sign * ((high << (30 - LIMB)) + (low >> (FRACTION - 30)))
