"""Classes of weights from 1 on: 2**bits to the octave, linear within it, read off the float's own bits.

Whoever counts weights by class knows the largest from above to one step, which is a 2**-bits of it at most.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

_MANTISSA, _BIAS = 52, 1023  # of a float64


@numba.njit(inline="always")
def weight_class(weight: float, bits: int) -> int:
    """The class of a weight of at least 1: the one that begins at 1 is 0."""
    return int((np.float64(weight).view(np.int64) >> (_MANTISSA - bits)) - (_BIAS << bits))


@numba.njit(inline="always")
def class_begin(number: int, bits: int) -> int:
    """The smallest weight of a class, in units of 2**-bits: a whole number, exactly."""
    return ((1 << bits) + (number & ((1 << bits) - 1))) << (number >> bits)


def class_ends(number: NDArray[np.int64], bits: int) -> NDArray[np.float64]:
    """The upper edges of classes."""
    octave, step = np.divmod(number + 1, 1 << bits)
    out: NDArray[np.float64] = 2.0**octave * (1.0 + step / (1 << bits))
    return out
