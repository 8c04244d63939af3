"""Sums of a pair weighted by inverse propensity: its differences as if everything had been shown equally often.

The serving version chose what was shown, so what it shows often dominates every mean. With weight 1 / propensity an
impression counts for all those it represents (Schnabel et al., ICML 2016): with W = sum w, sum w d / W is SNIPS of the
difference in log loss, and sum w phi / W over clicks that of their placements among all non-clicks, whose plain mean is
the difference in AUC. This equals stratification by propensity, with strata so narrow that every weight is that of its
stratum.

A weight is kept in 11 bits, next to the score's code until the score is placed: 128 to the octave, rounded down, below
2**14. Squares of weights have few fractional bits: a million of weight 1e4 sum to 1e14, beyond int64 with the 30 bits
that other reals have.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.sketches.blocks import BLOCKS
from streameval.sketches.weight_classes import class_begin, weight_class

_BITS, _OCTAVES = 7, 14  # a code is the class of a weight, plus 1
HEAVIEST = _OCTAVES << _BITS  # the largest code
WEIGHT_SCALE = 128.0  # units per weight 1; weights are an exact multiple of the unit
TERM_UNITS = float(1 << 24)  # of w d and w phi
SQUARE_UNITS = 64.0  # of squares of weights
SQUARED_TERM_UNITS = float(1 << 12)  # of products with squares of weights

# cells by block of users: over impressions with a propensity, and over the clicks among them
XW, XWD, XW1, XWPHI = range(4)
EXPOSED_CELLS = 4
# scalars: number of impressions, sums of w^2, w^2 d, w^2 d^2, over clicks w^2, w^2 phi, w^2 phi^2; then impressions and
# clicks by octave of the weight
X_N, X_WW, X_WWD, X_WWDD, X_WW1, X_WWPHI, X_WWPHI2 = range(BLOCKS * EXPOSED_CELLS, BLOCKS * EXPOSED_CELLS + 7)
X_OCTAVES = X_WWPHI2 + 1
X_OCTAVES1 = X_OCTAVES + _OCTAVES
EXPOSED = X_OCTAVES1 + _OCTAVES  # cells in total
_TURNED = [*range(XWD, X_N, EXPOSED_CELLS), *range(XWPHI, X_N, EXPOSED_CELLS), X_WWD, X_WWPHI]

_Ints = NDArray[np.int64]


def weight_codes(propensity: NDArray[np.float64] | None, least: float | None, n: int) -> NDArray[np.int16]:
    """Returns the codes of 1 / propensity of n impressions, int16[n]; propensities below `least` count as `least`.

    0 where the propensity is NaN, and everywhere without propensities or without `least`.
    """
    out = np.zeros(n, np.int16)
    if propensity is not None and least is not None:
        _weight_codes(propensity, least, out)
    return out


@numba.njit(cache=True, nogil=True)
def _weight_codes(propensity: NDArray[np.float64], least: float, out: NDArray[np.int16]) -> None:
    for i in range(propensity.size):
        if not np.isnan(propensity[i]):
            weight = 1.0 / max(propensity[i], least)
            out[i] = min(max(weight_class(weight, _BITS) + 1, 1), HEAVIEST)


@numba.njit(inline="always")
def weight_of(code: int) -> int:
    """Returns the weight of a code above 0, in units of 1 / `WEIGHT_SCALE`."""
    return class_begin(code - 1, _BITS)


@numba.njit(inline="always")
def add_exposed(sums: _Ints, r: int, at: int, block: int, code: int, d: float, clicked: int, sign: int) -> None:
    """Adds a labelled impression of a pair to sums[r, at:]; `d`: difference in log loss, nats."""
    units = weight_of(code)
    weight = units / WEIGHT_SCALE
    square = weight * weight
    octave = (code - 1) >> _BITS
    cell = at + np.int64(block) * EXPOSED_CELLS
    sums[r, cell + XW] += sign * units
    sums[r, cell + XWD] += sign * np.int64(np.rint(weight * d * TERM_UNITS))
    sums[r, at + X_N] += sign
    square_units = np.int64(np.rint(square * SQUARE_UNITS))
    sums[r, at + X_WW] += sign * square_units
    sums[r, at + X_WWD] += sign * np.int64(np.rint(square * d * SQUARED_TERM_UNITS))
    sums[r, at + X_WWDD] += sign * np.int64(np.rint(square * d * d * SQUARED_TERM_UNITS))
    sums[r, at + X_OCTAVES + octave] += sign
    if clicked:
        sums[r, cell + XW1] += sign * units
        sums[r, at + X_WW1] += sign * square_units
        sums[r, at + X_OCTAVES1 + octave] += sign


@numba.njit(inline="always")
def place_exposed(out: _Ints, at: int, block: int, code: int, phi: float, sign: int) -> None:
    """Adds the placement of a click to out[at:]."""
    weight = weight_of(code) / WEIGHT_SCALE
    square = weight * weight
    out[at + np.int64(block) * EXPOSED_CELLS + XWPHI] += sign * np.int64(np.rint(weight * phi * TERM_UNITS))
    out[at + X_WWPHI] += sign * np.int64(np.rint(square * phi * SQUARED_TERM_UNITS))
    out[at + X_WWPHI2] += sign * np.int64(np.rint(square * phi * phi * SQUARED_TERM_UNITS))


def turned(exposed: _Ints) -> _Ints:
    """Converts sums of (candidate served, baseline scored) to (baseline, candidate), int64[EXPOSED]; its own
    inverse.
    """
    out = exposed.copy()
    out[_TURNED] *= -1
    return out
