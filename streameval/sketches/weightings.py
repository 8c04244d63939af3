"""GAUC by every weighting at once, from what is known of every user anyway: worked out when it is read, kept nowhere.

Terms are rounded as `ranks` rounds those of the one weighting that it keeps up to date, so both give the same bits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

TERM_BITS = 31  # of fixed-point numbers
TERM_SCALE = float(1 << TERM_BITS)
SQUARE_SCALE = 256.0  # units of squares: integers, so that they add up in any order
OTHER_WEIGHTINGS = ("clicks", "uniform", "value")  # the weightings of `of_each`, in its order
_MOST_SQUARE = float(1 << 50)
_LOW = (1 << TERM_BITS) - 1
_BY_CLICKS, _, _BY_VALUE = range(3)  # numbers of `OTHER_WEIGHTINGS`
# columns of `_add_up`: the weighted AUC and the weight in two limbs each, then the squares of `Weighted`
_AUC, _AUC_LOW, _WEIGHT, _WEIGHT_LOW, _AUC_SQ, _AUC_WEIGHT, _WEIGHT_SQ = range(7)


class Weighted(NamedTuple):
    """Sums over groups with both labels: of w AUC and of w in units of 2**-31, and of (w AUC)^2, w * w AUC and w^2 in units
    of 1 / `SQUARE_SCALE`. All of them add up over disjoint groups.
    """

    weighted_auc: int = 0
    weight: int = 0
    squares: tuple[int, int, int] = (0, 0, 0)

    def plus(self, other: Weighted) -> Weighted:
        """Both together."""
        a, b = self.squares, other.squares
        squares = (a[0] + b[0], a[1] + b[1], a[2] + b[2])
        return Weighted(self.weighted_auc + other.weighted_auc, self.weight + other.weight, squares)


@numba.njit(inline="always")
def fixed_square(x: float) -> int:
    """A square in units of 1 / `SQUARE_SCALE`."""
    return int(np.rint(min(x * SQUARE_SCALE, _MOST_SQUARE)))


@numba.njit(cache=True, nogil=True)
def add_weighted_squares(weighted_auc: NDArray[np.int64], weight: NDArray[np.int64], out: NDArray[np.int64]) -> None:
    """Adds the squares of `Weighted`, of every group with a weight, to out int64[3]."""
    for i in range(weight.size):
        if weight[i] > 0:
            w = weight[i] / TERM_SCALE
            wa = weighted_auc[i] / TERM_SCALE
            out[0] += fixed_square(wa * wa)
            out[1] += fixed_square(w * wa)
            out[2] += fixed_square(w * w)


@numba.njit(cache=True, nogil=True)
def _add_up(
    length: NDArray[np.signedinteger[Any]],
    clicks: NDArray[np.signedinteger[Any]],
    pairs: NDArray[np.int64],
    value: NDArray[np.int64],
    sums: NDArray[np.int64],
) -> None:
    """`sums`: a row per weighting, int64[3, 7]."""
    for slot in range(clicks.size):
        n, c = np.int64(length[slot]), np.int64(clicks[slot])
        if not 0 < c < n:
            continue
        auc = float(pairs[slot]) / (2.0 * float(c) * float(n - c))
        for k in range(3):
            weight = np.int64(1) << TERM_BITS
            if k == _BY_CLICKS:
                weight = c << TERM_BITS
            elif k == _BY_VALUE:
                if value.size == 0:
                    break
                weight = value[slot]
            weighted = np.int64(np.rint(float(weight) * auc))
            sums[k, _AUC] += weighted >> TERM_BITS
            sums[k, _AUC_LOW] += weighted & _LOW
            sums[k, _WEIGHT] += weight >> TERM_BITS
            sums[k, _WEIGHT_LOW] += weight & _LOW
            if weight > 0:
                w, wa = weight / TERM_SCALE, weighted / TERM_SCALE
                sums[k, _AUC_SQ] += fixed_square(wa * wa)
                sums[k, _AUC_WEIGHT] += fixed_square(w * wa)
                sums[k, _WEIGHT_SQ] += fixed_square(w * w)


def of_each(
    length: NDArray[np.signedinteger[Any]],
    clicks: NDArray[np.signedinteger[Any]],
    pairs: NDArray[np.int64],
    value: NDArray[np.int64],
) -> tuple[Weighted, Weighted, Weighted | None]:
    """The sums by `OTHER_WEIGHTINGS`; the last one None where `value` is empty.

    By group: its impressions, clicks, twice its concordant pairs, and the summed value of its clicks in units of 2**-31.
    """
    sums = np.zeros((3, 7), np.int64)
    _add_up(length, clicks, pairs, value, sums)
    by_clicks, uniform, by_value = (
        Weighted((a << TERM_BITS) + b, (c << TERM_BITS) + d, (both, one, plain))
        for a, b, c, d, both, one, plain in sums.tolist()
    )
    return by_clicks, uniform, by_value if value.size else None
