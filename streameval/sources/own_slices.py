"""Slice dimensions that every event has by itself: its position and its propensity, in strata.

`slices.dimensions = ["country", "position", "propensity"]` gives them results like any other dimension. What an event's
`slices` says under these names comes first. Propensities are put into strata by order of magnitude, as the stratified
evaluation of Jadidinejad, Macdonald and Ounis needs them (The Simpson's Paradox in the Offline Evaluation of
Recommendation Systems, ACM TOIS 40(1), 2021).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streameval.events import Catalog

POSITION, PROPENSITY = "position", "propensity"
OWN = (POSITION, PROPENSITY)
_POSITION_FROM = np.array([0, 1, 2, 3, 5, 10])
POSITIONS = ("0", "1", "2", "3-4", "5-9", "10+")
_PROPENSITY_FROM = np.array([0.0, 0.01, 0.1, 0.5])
PROPENSITIES = ("<0.01", "0.01-0.1", "0.1-0.5", ">=0.5")


def own_codes(
    dimension: int, catalog: Catalog, position: NDArray[np.int64], propensity: NDArray[np.float64]
) -> NDArray[np.int64] | None:
    """The value codes of n events in a dimension, int64[n], 0 (`__missing__`) where the field is absent; None: not such a dimension.

    `position` counts from 0, negative is absent; `propensity` NaN is absent.
    """
    name = catalog.dimensions[dimension]
    names: tuple[str, ...]
    if name == POSITION:
        stratum, names = np.searchsorted(_POSITION_FROM, position, side="right") - 1, POSITIONS
        stratum[position < 0] = -1
    elif name == PROPENSITY:
        stratum, names = np.searchsorted(_PROPENSITY_FROM, propensity, side="right") - 1, PROPENSITIES
        stratum[np.isnan(propensity)] = -1
    else:
        return None
    codes = np.zeros(len(names) + 1, np.int64)  # the last one: absent
    for k in np.unique(stratum[stratum >= 0]).tolist():  # a value that nobody has takes no room
        codes[k] = catalog.value_code(dimension, names[k])
    out: NDArray[np.int64] = codes[stratum]
    return out
