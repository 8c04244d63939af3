"""GAUC by every weighting at once, from what `ranks` has of every user: computed when it is read, and not stored.

Terms are rounded as `ranks` rounds those of the one weighting that it maintains, so both give the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.sketches.yield_cells import MOST_WORTH

TERM_BITS = 31  # of fixed-point numbers
TERM_SCALE = float(1 << TERM_BITS)
SQUARE_SCALE = TERM_SCALE * TERM_SCALE  # units of squares: integers, so that sums do not depend on order
OTHER_WEIGHTINGS = ("clicks", "uniform", "value")  # the weightings of `of_each`, in its order
# where weights are counts, their squares are rounded to multiples of 1 / _COARSE, which are 2**_COARSE_BITS units
_COARSE, _COARSE_BITS = 256.0, 2 * TERM_BITS - 8
_LIMB, _LIMBS = 40, 5  # bits and number of the limbs of a sum of squares: values are between 1e-9 and 1e12
_TO_THIRD_LIMB = 2 * _LIMB - _COARSE_BITS
NO_WORTHS = np.empty((0, 2), np.int64)
_BY_CLICKS, _, _BY_VALUE = range(3)  # indexes of `OTHER_WEIGHTINGS`
# columns of `_add_up`: the weighted AUC and the weight in two limbs each, then the squares
_AUC, _WEIGHT, _SQUARES = 0, 2, 4


class Weighted(NamedTuple):
    """Sums over groups with both labels: of w AUC and of w in units of 2**-31, and of (w AUC)^2, w * w AUC and w^2 in units
    of 1 / `SQUARE_SCALE`. All are additive over disjoint groups.
    """

    weighted_auc: int = 0
    weight: int = 0
    squares: tuple[int, int, int] = (0, 0, 0)

    def plus(self, other: Weighted) -> Weighted:
        """The sums over the groups of both."""
        a, b = self.squares, other.squares
        squares = (a[0] + b[0], a[1] + b[1], a[2] + b[2])
        return Weighted(self.weighted_auc + other.weighted_auc, self.weight + other.weight, squares)


@numba.njit(inline="always")
def limbs(x: float) -> tuple[int, int]:
    """A non-negative number as (whole units, the remainder in units of 2**-31)."""
    whole = math.floor(x)
    return int(whole), int(np.rint((x - whole) * TERM_SCALE))


@numba.njit(inline="always")
def rounded(x: float) -> float:
    """Rounds to units of 2**-31."""
    high, low = limbs(x)
    return weight_of(high, low)


@numba.njit(inline="always")
def weight_of(whole: int, part: int) -> float:
    """Two limbs as a number."""
    return float(whole) + part / TERM_SCALE


@numba.njit(cache=True, nogil=True)
def in_limbs(x: NDArray[np.float64]) -> NDArray[np.int64]:
    """`limbs` of n numbers, (n, 2)."""
    out = np.empty((x.size, 2), np.int64)
    for i in range(x.size):
        out[i, 0], out[i, 1] = limbs(x[i])
    return out


def worths(value: NDArray[np.float64]) -> NDArray[np.int64]:
    """Values of clicks as weights from 0 to `MOST_WORTH`, in limbs, so that they can be summed exactly."""
    return in_limbs(np.clip(value, 0.0, MOST_WORTH))


def pack_worths(worth: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """For checkpoints: "value" in units of 2**-31, modulo 2**64 (older checkpoints have only this), and the whole units."""
    return {"value": (worth[:, 0] << TERM_BITS) + worth[:, 1], "whole": worth[:, 0].copy()}


def unpack_worths(state: Mapping[str, Any]) -> NDArray[np.int64]:
    """The inverse of `pack_worths`."""
    value = np.asarray(state["value"], np.int64)
    whole = np.asarray(state.get("whole", value >> TERM_BITS), np.int64)
    return np.stack((whole, value - (whole << TERM_BITS)), axis=1)


@numba.njit(inline="always")
def _add_square(out: NDArray[np.int64], at: int, x: float, fine: bool) -> None:
    """Adds a square in units of 1 / `SQUARE_SCALE`, in limbs, the lowest first; `fine`: weights are values, which may be tiny."""
    if fine:
        units = x * SQUARE_SCALE
        for limb in range(_LIMBS - 1, 0, -1):
            unit = 2.0 ** (_LIMB * limb)
            whole = math.floor(units / unit)
            out[at + limb] += int(whole)
            units -= whole * unit
        out[at] += int(np.rint(units))
    else:
        parts = int(np.rint(x * _COARSE))
        out[at + 2] += parts >> _TO_THIRD_LIMB
        out[at + 1] += (parts & ((1 << _TO_THIRD_LIMB) - 1)) << (_COARSE_BITS - _LIMB)


@numba.njit(inline="always")
def _add_all_squares(out: NDArray[np.int64], at: int, weighted: float, weight: float, fine: bool) -> None:
    _add_square(out, at, weighted * weighted, fine)
    _add_square(out, at + _LIMBS, weight * weighted, fine)
    _add_square(out, at + 2 * _LIMBS, weight * weight, fine)


@numba.njit(cache=True, nogil=True)
def _add_squares(
    weighted_auc: NDArray[np.float64], weight: NDArray[np.float64], fine: bool, out: NDArray[np.int64]
) -> None:
    for i in range(weight.size):
        if weight[i] > 0:
            _add_all_squares(out, 0, weighted_auc[i], weight[i], fine)


def weighted_squares(
    weighted_auc: NDArray[np.float64], weight: NDArray[np.float64], by_value: bool
) -> tuple[int, int, int]:
    """The squares of `Weighted`, over all groups with a weight."""
    out = np.zeros(3 * _LIMBS, np.int64)
    _add_squares(weighted_auc, weight, by_value, out)
    return _squares(out.tolist())


def _squares(out: Sequence[int]) -> tuple[int, int, int]:
    both, one, plain = (
        sum(out[at + limb] << (_LIMB * limb) for limb in range(_LIMBS)) for at in range(0, 3 * _LIMBS, _LIMBS)
    )
    return both, one, plain


@numba.njit(cache=True, nogil=True)
def _add_up(
    length: NDArray[np.signedinteger[Any]],
    clicks: NDArray[np.signedinteger[Any]],
    pairs: NDArray[np.int64],
    value: NDArray[np.int64],
    sums: NDArray[np.int64],
) -> None:
    """`sums`: a row by weighting of the weighted AUC and the weight in two limbs each, then the squares, likewise."""
    for slot in range(clicks.size):
        n, c = np.int64(length[slot]), np.int64(clicks[slot])
        if not 0 < c < n:
            continue
        auc = float(pairs[slot]) / (2.0 * float(c) * float(n - c))
        for k in range(3):
            weight = 1.0
            if k == _BY_CLICKS:
                weight = float(c)
            elif k == _BY_VALUE:
                if value.size == 0:
                    break
                weight = weight_of(value[slot, 0], value[slot, 1])
            weighted = rounded(weight * auc)
            for at, x in ((_AUC, weighted), (_WEIGHT, weight)):
                high, low = limbs(x)
                sums[k, at] += high
                sums[k, at + 1] += low
            if weight > 0:
                _add_all_squares(sums[k], _SQUARES, weighted, weight, k == _BY_VALUE)


def of_each(
    length: NDArray[np.signedinteger[Any]],
    clicks: NDArray[np.signedinteger[Any]],
    pairs: NDArray[np.int64],
    value: NDArray[np.int64] | None,
) -> tuple[Weighted, Weighted, Weighted | None]:
    """The sums by `OTHER_WEIGHTINGS`; the last one None where `value` is: nothing is not the same as nobody.

    By group: its impressions, clicks, twice its concordant pairs, and the summed `worths` of its clicks.
    """
    sums = np.zeros((3, 4 + 3 * _LIMBS), np.int64)
    _add_up(length, clicks, pairs, NO_WORTHS if value is None else value, sums)
    by_clicks, uniform, by_value = (
        Weighted((a << TERM_BITS) + b, (c << TERM_BITS) + d, _squares(squares))
        for a, b, c, d, *squares in sums.tolist()
    )
    return by_clicks, uniform, None if value is None else by_value
