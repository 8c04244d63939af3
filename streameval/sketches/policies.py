"""Off-policy sums: clicks and values of impressions, weighted by probability / propensity (`exposure`)."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.sketches.blocks import BLOCKS
from streameval.sketches.exposure import (
    CLIPPED,
    COUNT,
    FIRST_TERM,
    MOST_VALUE,
    POLICY_CLICK,
    POLICY_TERMS,
    POLICY_VALUE,
    TERM_SQUARE,
    WeightRule,
    add_fine,
    add_real,
    bins_from,
    weight_bin,
)
from streameval.sketches.weighted_room import Room

_TERMS = len(POLICY_TERMS)
_BINS = bins_from(_TERMS)
# from a term's cell in a block to the one of what clipping removes: weight, click, and two cells of value
_CLIPPED_PLACES = 4


class PolicyRows(NamedTuple):
    """Probabilities of one pane's impressions under policies, and the columns of the impressions by row."""

    row: NDArray[np.int32]
    series: NDArray[np.int32]
    probability: NDArray[np.float64]
    label: NDArray[np.int8]
    value: NDArray[np.float64]
    propensity: NDArray[np.float64]
    block: NDArray[np.int8]


@numba.njit(inline="always")
def _weigh(
    total: NDArray[np.int64],
    cell: int,
    blocks: NDArray[np.int64],
    place: int,
    share: tuple[float, float],
    rule: WeightRule,
    sign: int,
) -> float:
    """Counts an impression and returns its weight, target / propensity (the two of `share`). Adds the weight, its
    square, and what clipping removes from each."""
    target, given = share
    least, most = rule
    weight = target / max(given, least)
    total[cell + CLIPPED] += sign * (weight > most or given < least)
    total[cell + COUNT] += sign
    blocks[place + COUNT] += sign
    total[cell + _BINS + weight_bin(weight)] += sign
    add_real(total, cell + FIRST_TERM, blocks, place + 1, weight, sign)
    add_fine(total, cell + FIRST_TERM + 2 * TERM_SQUARE, weight * weight, sign)
    if weight > most:
        add_real(total, cell + FIRST_TERM + 2 * _TERMS, blocks, place + 1 + _CLIPPED_PLACES, weight - most, sign)
        add_fine(total, cell + FIRST_TERM + 2 * (_TERMS + TERM_SQUARE), weight * weight - most * most, sign)
    return weight


@numba.njit(inline="always")
def _add_rewards(
    total: NDArray[np.int64], cell: int, blocks: NDArray[np.int64], place: int, weight: float, value: float, sign: int
) -> None:
    """Adds the terms of a weight other than those of `_weigh`; `value`: of the click, NaN without a click."""
    if value == value:  # noqa: PLR0124  (not NaN: it was clicked)
        add_real(total, cell + 2 * POLICY_CLICK, blocks, place + 1, weight, sign)
        add_fine(total, cell + 2 * POLICY_VALUE, weight * value, sign)
        add_fine(blocks, place + 2, weight * value, sign)


@numba.njit(cache=True, nogil=True)
def add_policies(room: Room, policies: PolicyRows, rule: WeightRule, sign: int) -> None:
    """Adds (or retracts) impressions' terms for policies: clicks and values weigh probability / propensity."""
    width, places = room.total.shape[1], room.blocks.shape[2]
    total, blocks = room.total.ravel(), room.blocks.ravel()  # views of rows in the loop would cost as much as the sums
    rows, series, probability, label, value, propensity, block = policies
    most = rule.most
    for i in range(rows.size):
        at = rows[i]
        given = propensity[at]
        if not given > 0:
            continue
        cell, place = series[i] * width, (np.int64(series[i]) * BLOCKS + block[at]) * places
        weight = _weigh(total, cell, blocks, place, (probability[i], given), rule, sign)
        worth = min(max(value[at], -MOST_VALUE), MOST_VALUE) if label[at] else np.nan
        _add_rewards(total, cell + FIRST_TERM, blocks, place + 1, weight, worth, sign)
        if weight > most:
            _add_rewards(
                total, cell + FIRST_TERM + 2 * _TERMS, blocks, place + 1 + _CLIPPED_PLACES, weight - most, worth, sign
            )
