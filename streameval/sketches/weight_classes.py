"""Classes of weights from 1 on: 2**bits per octave, linear within it, taken from the float's own bits.

Counts by class bound the largest weight from above, to within one step, at most 2**-bits of it.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

_MANTISSA, _BIAS = 52, 1023  # of a float64


@numba.njit(inline="always")
def weight_class(weight: float, bits: int) -> int:
    """The class of a weight of at least 1; class 0 begins at 1."""
    return int((np.float64(weight).view(np.int64) >> (_MANTISSA - bits)) - (_BIAS << bits))


@numba.njit(inline="always")
def class_begin(number: int, bits: int) -> int:
    """The smallest weight of a class, in units of 2**-bits: exactly an integer."""
    return ((1 << bits) + (number & ((1 << bits) - 1))) << (number >> bits)


def class_ends(number: NDArray[np.int64], bits: int) -> NDArray[np.float64]:
    """The upper edges of classes."""
    octave, step = np.divmod(number + 1, 1 << bits)
    out: NDArray[np.float64] = 2.0**octave * (1.0 + step / (1 << bits))
    return out
