"""What impressions say of policies: their clicks and values, each weighing probability / propensity (`exposure`)."""

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
    weight_bin,
)
from streameval.sketches.weighted_room import Room

_TERMS = len(POLICY_TERMS)
_CLIPPED_PLACES = (
    4  # from a term's cell in a block to that of what clipping takes away: weight, click, and two of value
)


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
    """Counts an impression by its weight, which it returns: target / propensity, the two of `share`. Adds the weight, its
    square, and what clipping takes away of either."""
    target, given = share
    least, most = rule
    weight = target / max(given, least)
    total[cell + CLIPPED] += sign * (weight > most or given < least)
    total[cell + COUNT] += sign
    blocks[place + COUNT] += sign
    total[cell + FIRST_TERM + 4 * _TERMS + weight_bin(weight)] += sign
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
    """Adds the terms of a weight, beside those of `_weigh`, of an impression that was clicked (its value) or not (NaN)."""
    if value == value:  # noqa: PLR0124  (not NaN: it was clicked)
        add_real(total, cell + 2 * POLICY_CLICK, blocks, place + 1, weight, sign)
        add_fine(total, cell + 2 * POLICY_VALUE, weight * value, sign)
        add_fine(blocks, place + 2, weight * value, sign)


@numba.njit(cache=True, nogil=True)
def add_policies(room: Room, policies: PolicyRows, rule: WeightRule, sign: int) -> None:
    """Adds (or takes out) what impressions say of policies: their clicks and values weigh probability / propensity."""
    width, places = room.total.shape[1], room.blocks.shape[2]
    total, blocks = room.total.ravel(), room.blocks.ravel()  # views; one of a row in the loop costs as much as the sums
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
