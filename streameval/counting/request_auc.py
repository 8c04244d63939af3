"""The AUC of every closed request, added to the pane of the request's first impression."""

from __future__ import annotations

from itertools import pairwise

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
    REQUEST_AUC,
    REQUEST_IMPRESSIONS,
    REQUEST_WEIGHT,
    REQUESTS,
)

_WEIGHTINGS = ("impressions", "clicks", "uniform", "value")
_BY_IMPRESSIONS, _BY_CLICKS, _UNIFORM = range(3)  # numbers of the first three; the other one is by value
_CELLS = np.array([REQUESTS, REQUEST_IMPRESSIONS, REQUEST_WEIGHT, REQUEST_WEIGHT + 1, REQUEST_AUC, REQUEST_AUC + 1])
_LISTS, _IMPRESSIONS, _WEIGHT, _AUC = 0, 1, 2, 4  # indexes in `_CELLS`; the last two have two limbs each


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
    """Fills in one row of `_CELLS` for every group (sorted) with both labels; returns the number of rows."""
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
                if weighting == _BY_IMPRESSIONS
                else float(clicks)
                if weighting == _BY_CLICKS
                else 1.0
                if weighting == _UNIFORM
                else values
            )
            cells[n, _LISTS] += sign
            cells[n, _IMPRESSIONS] += sign * (j - i)
            add_real(cells[n], _WEIGHT, weight, sign)
            add_real(cells[n], _AUC, weight * auc, sign)
            key[n] = group[i]
            n += 1
        i = j
    return n


def observe_requests(
    board: Scoreboard, labelled: Labelled, request: NDArray[np.int32], scored: Scored, sign: int
) -> None:
    """Adds (or subtracts) requests: `request[i]` is the number of labelled row i's request, from 0."""
    first = np.full(int(request.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, request, labelled.ts)
    pane = first // board.pane
    series_count = int(scored.series.max(initial=0)) + 1
    clicks = np.bincount(request, labelled.label)
    both = ((clicks > 0) & (clicks < np.bincount(request)))[request]  # other requests have no AUC
    at = np.flatnonzero(both[scored.row])
    row, of_series = scored.row[at], scored.series[at]
    group = request[row].astype(np.int64) * series_count + of_series
    entries = (group << 32) | (score_keys(scored.p[at]).astype(np.int64) << 1) | labelled.label[row]
    if board.weighting == "value":
        order = np.argsort(entries, kind="stable")
        worth = np.where(labelled.label != 0, labelled.fields["value"], 0.0)  # for an objective, not every click counts
        entries, value = entries[order], worth[row][order]
    else:
        entries, value = np.sort(entries), np.zeros(entries.size)
    cells = np.zeros((entries.size, _CELLS.size), np.int64)
    key = np.empty(entries.size, np.int64)
    ranked = entries.astype(np.uint32)  # the lower 32 bits
    n = _terms(entries >> 32, ranked, value, _WEIGHTINGS.index(board.weighting), sign, key, cells)
    cells, of_request = cells[:n], key[:n] // series_count
    user = np.zeros(pane.size, np.uint64)
    np.maximum.at(user, request, labelled.user)  # one of its users, whatever the order; there is nearly always only one
    block = board.overall_layout.blocks + blocks_of(user)[of_request].astype(np.int64) * BLOCK_CELLS
    # sorted by pane and series, so that each is contiguous
    by = pane[of_request] * series_count + key[:n] % series_count
    order = np.argsort(by, kind="stable")
    by, cells, block = by[order], cells[order], block[order]
    bounds = np.flatnonzero(np.diff(by, prepend=-1, append=-1))
    for start, end in pairwise(bounds.tolist()):
        number, one = divmod(int(by[start]), series_count)
        mine, where = cells[start:end], block[start:end]
        board.add_cells(number, np.full(_CELLS.size, one, np.int32), _CELLS, mine.sum(axis=0))
        places = np.concatenate((where + BLOCK_REQUEST_W, where + BLOCK_REQUEST_WA))
        terms = np.concatenate((_coarse(mine, _WEIGHT, sign), _coarse(mine, _AUC, sign)))
        board.add_cells(number, np.full(places.size, one, np.int32), places, terms)


def _coarse(cells: NDArray[np.int64], limb: int, sign: int) -> NDArray[np.int64]:
    """Returns real numbers of two limbs, with this sign, in units of 1 / `blocks.SCALE`."""
    high, low = sign * cells[:, limb], sign * cells[:, limb + 1]
    return sign * ((high << (30 - LIMB)) + (low >> (FRACTION - 30)))
