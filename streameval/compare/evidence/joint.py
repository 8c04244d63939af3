"""One statistic for log loss and AUC together, for the overall verdict: theta_J = theta_LL + c theta_AUC, c = se_LL /
se_AUC.

A model that ranks worse has a worse log loss too, and the same blocks show both. If neither is above its margin,
theta_J is not above m_LL + c m_AUC: one test of theta_J instead of two that share alpha, and just as valid. c only
determines the units in which the two are added; `evidence` freezes it, per window, at the first look with enough
clicks, so that no later look can choose it. With r the correlation of the blocks' deviations,

    v_J = v_LL + 2 r c se_LL se_AUC + c**2 v_AUC

which is the sum over blocks of (dev_LL + c dev_AUC)**2 if blocks determine both variances. Where a floor or items
increase one, r is still that of the users' blocks; r = 1, the default, is always valid, and costs a twentieth of the
impressions at r = 0.9.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numba
import numpy as np
from numpy.typing import NDArray

_Reals = NDArray[np.float64]


def correlation(one: _Reals, other: _Reals) -> _Reals:
    """Returns the correlation of two statistics' deviations by block (float64[..., G] each, with sum 0), float64[...];
    1 if not known.
    """
    return _each()(one, other)


@cache
def _each() -> Callable[..., _Reals]:
    """Returns the function for arrays of any leading shape. Built on first use: it takes too long for an import."""
    made: Callable[..., _Reals] = numba.guvectorize(["(f8[:],f8[:],f8[:])"], "(g),(g)->()", nopython=True, cache=True)(
        _correlation
    )
    return made


def _correlation(one: _Reals, other: _Reals, out: _Reals) -> None:
    xx, xy, yy = 0.0, 0.0, 0.0
    for g in range(one.size):
        xx += one[g] * one[g]
        xy += one[g] * other[g]
        yy += other[g] * other[g]
    both = math.sqrt(xx) * math.sqrt(yy)
    out[0] = min(max(xy / both, -1.0), 1.0) if both > 0.0 else 1.0


@numba.njit(cache=True)
def scale(v_log_loss: float, v_auc: float) -> float:
    """Returns c, to be frozen."""
    return math.sqrt(v_log_loss / v_auc)


@numba.njit(cache=True)
def variance(v_log_loss: float, v_auc: float, c: float, r: float) -> float:
    """Returns v_J from positive variances and -1 <= r <= 1. At least 1/16 of its largest value: more cancellation than
    that cannot be trusted.
    """
    one, other = math.sqrt(v_log_loss), c * math.sqrt(v_auc)
    return max(one * one + 2.0 * r * one * other + other * other, (one + other) ** 2 / 16.0)
