"""Reals as integers: fixed point with 48 fractional bits, in two int64 limbs.

Of a term x >= 0, floor(x * 2**24) is added to the high limb, and the remainder, in units of 2**-48, to the low one
(error at most 1.8e-15). Both are plain integer sums, so any split, order, merge and retraction gives the same bits.
Capacity: the low limb holds at least 2**63 / 2**24 = 5.5e11 terms (at 10,000 a second: 636 days), the high limb a sum
of 5.5e11 nats or expected clicks.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

FRACTION = 48
LIMB = 24
_HIGH = float(1 << LIMB)
_LOW = float(1 << FRACTION)


@numba.njit(inline="always")
def limbs(x: float) -> tuple[np.int64, np.int64]:
    """(high, low) of x >= 0."""
    high = np.int64(x * _HIGH)
    return high, np.int64(np.rint((x - high / _HIGH) * _LOW))


@numba.njit(inline="always")
def add_real(vector: NDArray[np.int64], cell: int, x: float, sign: int) -> None:
    """Adds sign * x to the two limbs at `cell` and `cell + 1`."""
    high, low = limbs(x)
    vector[cell] += sign * high
    vector[cell + 1] += sign * low


def read_real(high: int, low: int) -> float:
    """The sum in two limbs, rounded once."""
    return float(((int(high) << LIMB) + int(low)) / (1 << FRACTION))
