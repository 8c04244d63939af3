"""The statistics that evidence and bounds are computed from, with floors on their variances, as kernels over packed
arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.compare.evidence.eprocess import mixture_root, t_score
from streameval.compare.evidence.paired import GAP, MID
from streameval.compare.evidence.ratio import DF, THETA, USED_BLOCKS, V_CLU, V_FLOOR, V_IID, WEIGHT, Reals

LEAVES = ("log_loss", "auc", "gauc", MID, GAP)  # statistics; the last two make the metric "calibration"
LEAF_THETA, LEAF_WEIGHT, LEAF_VARIANCE, LEAF_DF = range(4)  # fields of a leaf
LEAF_FIELDS = 4
CERTAIN = 1e9  # degrees of freedom of a variance that is exactly 0: there is nothing to estimate


class Floors(NamedTuple):
    """Requirements on a variance."""

    variances: Reals  # float64[5], by leaf: the floor at `clicks`, which falls as 1 / clicks**2
    clicks: int
    blocks: float


@cache
def places_of(names: Sequence[str]) -> NDArray[np.int64]:
    """Returns the indexes of statistics among the leaves. ValueError if one of them is not a leaf."""
    return np.array([LEAVES.index(name) for name in names], np.int64)


@numba.njit(cache=True)
def fill(packed: Reals, places: NDArray[np.int64], clicks: NDArray[np.int64], floors: Floors, out: Reals) -> None:
    """Fills out float64[LEAF_FIELDS, 5, n] at `places` from statistics float64[k, n, STATISTIC_FIELDS] and clicks
    int64[n].

    The variance is NaN without enough blocks, and otherwise at least its floor (NaN stays NaN).
    """
    for k in range(places.size):
        i = places[k]
        for t in range(clicks.size):
            of = packed[k, t]
            variance = np.maximum(np.maximum(of[V_CLU], of[V_IID]), of[V_FLOOR])  # as `Statistic.variance`
            least = floors.clicks / max(clicks[t], 1)
            out[LEAF_THETA, i, t], out[LEAF_WEIGHT, i, t] = of[THETA], of[WEIGHT]
            out[LEAF_DF, i, t] = CERTAIN if variance == 0.0 else of[DF]
            if not of[USED_BLOCKS] >= floors.blocks:
                variance = np.nan
            out[LEAF_VARIANCE, i, t] = np.maximum(variance, floors.variances[i] * (least * least))


@numba.njit(cache=True, error_model="numpy")
def bounds(of: Reals, rho: Reals, level: Reals) -> Reals:
    """Returns (lower, upper) of leaves float64[LEAF_FIELDS, 5, n] at log e = `level`, by leaf: float64[2, 5, n];
    infinite where unknown.
    """
    out = np.empty((2, *of.shape[1:]))
    for i in range(of.shape[1]):
        for t in range(of.shape[2]):
            theta, weight, variance, df = (
                of[LEAF_THETA, i, t],
                of[LEAF_WEIGHT, i, t],
                of[LEAF_VARIANCE, i, t],
                of[LEAF_DF, i, t],
            )
            v = variance * (weight * weight)
            root = np.sqrt(v)
            half = t_score(mixture_root(v, rho[i], level[i]) / root, df) * root / weight
            known = np.isfinite(theta)
            if not (known and np.isfinite(half)):
                half = np.inf
            if not known:
                theta = 0.0
            out[0, i, t], out[1, i, t] = theta - half, theta + half
    return out
