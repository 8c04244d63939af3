"""Propensities by popularity: an item shown n times has n^((g + 1) / 2), up to a constant (Yang et al. 2018, eq. 7 of
Jadidinejad et al. 2021), where g is the exponent of the power law that the counts follow.

Every item counts, also those shown once, and the power is (g + 1) / 2, not g: the code published with the second paper
differs in both.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

_LEAST, _MOST = 1.0 + 1e-6, 20.0  # exponents that are looked for; counts that are nearly all 1 have none
_TERMS = 12  # of the zeta function that are added one by one
_STEPS = 200


def exponent(counts: NDArray[np.int64]) -> float | None:
    """g of P(n) = n^-g / zeta(g), n = 1, 2, ..., by maximum likelihood; counts of 0 are left out. None without any.

    The likelihood of a discrete power law (Clauset, Shalizi and Newman 2009, eq. 3.5, x_min = 1) is concave in g: the
    root of its slope is found by halving [_LEAST, _MOST].
    """
    value, times = np.unique(counts[counts > 0], return_counts=True)  # sorted: sums do not depend on the order of items
    if not value.size:
        return None
    mean_log = float((np.log(value) * times).sum()) / float(times.sum())
    low, high = _LEAST, _MOST
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        zeta, slope = _zeta(middle)
        if -slope / zeta > mean_log:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def propensities(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """(n / n_max)^((g + 1) / 2) per item, float64[items] in [0, 1]: the most popular item has 1, one never shown 0."""
    g = exponent(counts)
    if g is None:
        return np.zeros(counts.size)
    most = float(counts.max())
    return np.asarray((np.maximum(counts, 0) / most) ** ((g + 1) / 2), np.float64)


def _zeta(s: float) -> tuple[float, float]:
    """(zeta(s), its derivative), s > 1, by the Euler-Maclaurin formula; to 1e-12 of either."""
    total, slope = 0.0, 0.0
    for k in range(1, _TERMS):
        term = k**-s
        total += term
        slope -= math.log(k) * term
    n, log_n = float(_TERMS), math.log(_TERMS)
    tail = n ** (1 - s) / (s - 1)
    total += tail + n**-s / 2
    slope -= tail * (log_n + 1 / (s - 1)) + log_n * n**-s / 2
    factor, factor_slope = s, 1.0  # of s (s + 1) ... (s + 2 k - 2), and its derivative
    for k, bernoulli in enumerate((1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160)):
        power = n ** (-s - 2 * k - 1)
        total += bernoulli * factor * power
        slope += bernoulli * power * (factor_slope - factor * log_n)
        for step in (2 * k + 1, 2 * k + 2):
            factor, factor_slope = factor * (s + step), factor_slope * (s + step) + factor
    return total, slope
