"""Built-in slice dimensions: an event's position, the block that it is in, and its propensity, in strata.

`slices.dimensions = ["country", "position", "block", "propensity"]` gives them results like any other dimension. Values
under these names in an event's `slices` take precedence. Propensities are put into strata by order of magnitude, as
required for the stratified evaluation of Jadidinejad, Macdonald and Ounis (The Simpson's Paradox in the Offline
Evaluation of Recommendation Systems, ACM TOIS 40(1), 2021). Blocks are the `mainline`, the first `auction.mainline`
positions, and the `sidebar`: AUC on the mainline alone is the offline metric that online results agree with best (Yi et
al. 2013, 4.1).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from streameval.events.batch import Catalog

_POSITIONS = (np.array([0.0, 1.0, 2.0, 3.0, 5.0, 10.0]), ("0", "1", "2", "3-4", "5-9", "10+"))
_PROPENSITIES = (np.array([0.0, 0.01, 0.1, 0.5]), ("<0.01", "0.01-0.1", "0.1-0.5", ">=0.5"))
_BLOCKS = ("mainline", "sidebar")


def _own(name: str, mainline: int) -> tuple[str, NDArray[np.float64], tuple[str, ...]] | None:
    """Returns (field, boundaries of its strata, their names) for a built-in dimension; None: it is not one."""
    if name == "block":
        return "position", np.array([0.0, mainline]), _BLOCKS
    found = {"position": _POSITIONS, "propensity": _PROPENSITIES}.get(name)
    return None if found is None else (name, *found)


def own_codes(
    dimension: int, catalog: Catalog, columns: Mapping[str, NDArray[np.float64]], rows: NDArray[np.int64]
) -> NDArray[np.int64] | None:
    """Returns the value codes of some rows in a dimension, int64[n], 0 (`__missing__`) where the field is absent; None:
    not a built-in dimension.

    `columns`: the fields, float64, NaN: absent.
    """
    own = _own(catalog.dimensions[dimension], catalog.mainline)
    if own is None:
        return None
    field, begins, names = own
    value = columns[field][rows]
    stratum = np.searchsorted(begins, value, side="right") - 1
    stratum[np.isnan(value)] = -1
    codes = np.zeros(len(names) + 1, np.int64)  # the last one: absent
    for k in np.unique(stratum[stratum >= 0]).tolist():  # a value that does not occur takes no code
        codes[k] = catalog.value_code(dimension, names[k])
    out: NDArray[np.int64] = codes[stratum]
    return out
