"""Evidence without a central limit theorem: the empirical-Bernstein e-process on clipped log-loss differences.

For d_i >= -c and 0 < l < 1/c with psi(l) = (-log(1 - l c) - l c) / c**2, exp(l sum d - psi(l) sum d**2) is a
nonnegative supermartingale whenever the differences' conditional means are at most 0 on average so far (Fan's
inequality exp(y - psi y**2) <= 1 + y; Howard, Ramdas, McAuliffe, Sekhon, Probability Surveys 17, 2020; Choe and Ramdas,
Comparing sequential forecasters, Operations Research 72(4), 2024, section 4). So is a mean over a grid of l's. It needs
only the two sums. The null hypothesis is about the realised average, not about a population of users.

The bound is enforced, not assumed: the version that only scored is evaluated with its odds clipped to within e**c of
the server's, on both sides, so that |d| <= c whatever the label, and in either orientation of a pair. Log loss is
convex along the logit, so a candidate in shadow that is as good on average is no worse when it is clipped; where the
candidate served, it is the baseline that is clipped, and the null hypothesis is about the clipped baseline.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

BOUND = 2.0  # c, nats: odds within a factor of 7.4 are not clipped
_FRACTIONS = np.geomspace(0.004, 0.6, 24)  # l c


def psi(l: ArrayLike, c: float = BOUND) -> NDArray[np.float64]:  # noqa: E741  (lambda of the source)
    """Returns psi(l) for differences >= -c, 0 <= l < 1/c."""
    lc = np.asarray(l, np.float64) * c
    out: NDArray[np.float64] = (-np.log1p(-lc) - lc) / (c * c)
    return out


def log_e(total: ArrayLike, squares: ArrayLike, count: ArrayLike = 0, margin: float = 0.0) -> NDArray[np.float64]:
    """Returns log e float64[...] for "worse by more than `margin` nats per impression", from sum d, sum d**2 and the
    number of impressions.

    ValueError unless 0 <= margin < 1: the bound of d - margin is c + margin.
    """
    if not 0.0 <= margin < 1.0:
        raise ValueError(f"margin must be in [0, 1), not {margin}")
    s, q, n = (np.asarray(x, np.float64) for x in (total, squares, count))
    q = q - 2.0 * margin * s + margin * margin * n
    s = s - margin * n
    c = BOUND + margin
    grid = _FRACTIONS / c
    exponents = s[..., None] * grid - q[..., None] * psi(grid, c)
    top = exponents.max(axis=-1)
    out: NDArray[np.float64] = top + np.log(np.exp(exponents - top[..., None]).sum(axis=-1)) - math.log(grid.size)
    return out
