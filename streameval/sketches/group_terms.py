"""The terms w_u AUC_u and w_u of every group (user), and their totals over groups."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.sketches.weightings import limbs, weight_of

_BY_IMPRESSIONS, _BY_CLICKS, _UNIFORM, BY_VALUE = range(4)

# The totals over groups: fixed-point numbers in two limbs, so that no partial sum overflows.
AUC_HIGH, AUC_LOW, WEIGHT_HIGH, WEIGHT_LOW, ELIGIBLE, ELIGIBLE_IMPRESSIONS, GROUPS_SEEN, IMPRESSIONS_OF_ALL = range(8)


class GroupTerms(NamedTuple):
    """Counts and terms of every group, by slot."""

    clicks: NDArray[np.int32]
    pairs: NDArray[np.int64]  # twice the concordant ones
    weighted_auc: NDArray[np.float64]  # w_u AUC_u, in whole units of 2**-31; 0 unless the group has both labels
    weight: NDArray[np.float64]  # w_u; 0 unless the group has both labels
    value: NDArray[np.int64]  # summed `weightings.worths` of its clicks; empty unless values are kept
    many: NDArray[np.int64]  # copies of its impressions, and of its clicks; empty unless entries have copies
    many_clicks: NDArray[np.int64]


@numba.njit(inline="always")
def weight_of_group(terms: GroupTerms, slot: int, weighting: int, impressions: int) -> float:
    """w_u, by a weighting's number."""
    if weighting == _BY_IMPRESSIONS:
        return float(impressions)
    if weighting == _BY_CLICKS:
        return float(terms.many_clicks[slot] if terms.many_clicks.size else terms.clicks[slot])
    if weighting == _UNIFORM:
        return 1.0
    return weight_of(terms.value[slot, 0], terms.value[slot, 1])


@numba.njit(inline="always")
def count_group(terms: GroupTerms, slot: int, impressions: int, totals: NDArray[np.int64], sign: int) -> None:
    """Adds a group's terms to the totals, or retracts them (sign -1)."""
    eligible = 0 < terms.clicks[slot] < impressions
    if terms.many.size:
        impressions = terms.many[slot]
    for at, term in ((AUC_HIGH, terms.weighted_auc[slot]), (WEIGHT_HIGH, terms.weight[slot])):
        high, low = limbs(term)
        totals[at] += sign * high
        totals[at + 1] += sign * low  # AUC_LOW, WEIGHT_LOW
    totals[ELIGIBLE] += sign * np.int64(eligible)
    totals[ELIGIBLE_IMPRESSIONS] += sign * (impressions if eligible else 0)
    totals[GROUPS_SEEN] += sign * np.int64(impressions > 0)
    totals[IMPRESSIONS_OF_ALL] += sign * impressions
