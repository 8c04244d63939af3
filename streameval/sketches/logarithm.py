"""The natural logarithm in a form that compilers can vectorise: no call, no branch, no table."""

from __future__ import annotations

import math

import numba
import numpy as np

_LN2 = math.log(2.0)
_MANTISSA = 52  # bits
_LEAST = np.int64(np.float64(math.sqrt(0.5)).view(np.int64))  # the bits of the least mantissa


@numba.njit(inline="always")
def natural_log(x: float) -> float:
    """ln x of a normal float64 x > 0, with an error of at most 4e-16 times max(1, |ln x|); exactly 0 at 1. Undefined for other x.

    x = m 2**e with m from sqrt(1/2) to sqrt(2); ln m = 2 artanh t, t = (m - 1) / (m + 1), by its series, which |t| < 0.172 cuts
    short (Abramowitz and Stegun 1964, 4.1.27).
    """
    bits = np.float64(x).view(np.int64)
    e = (bits - _LEAST) >> _MANTISSA
    m = np.int64(bits - (e << _MANTISSA)).view(np.float64)
    t = (m - 1.0) / (m + 1.0)
    u = t * t
    rest = u * (1 / 15 + u * (1 / 17 + u * (1 / 19 + u / 21)))
    series = u * (1 / 3 + u * (1 / 5 + u * (1 / 7 + u * (1 / 9 + u * (1 / 11 + u * (1 / 13 + rest))))))
    return float(e) * _LN2 + 2.0 * (t + t * series)
