"""Sums of numbers whose range is too wide for one fixed-point cell: values of clicks and their squares, in two or three
int64 cells each.

Capacity: a term of `add_real` is below 2**53, and its cells hold 1e3 of the largest; a term of `add_square` is below
2**88 (a value of 2**30 with a weight of 2**14, squared), and its cells hold 3e4 of the largest, and 8e6 of any below
2**80.
"""

from __future__ import annotations

import math

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.compare.ledger.sums import Matrix

_REST = float(1 << 30)
_HIGH = float(1 << 40)
REAL, SQUARE = 2, 3  # cells per number


@numba.njit(inline="always")
def add_real(sums: Matrix, r: int, at: int, value: float, sign: int) -> None:
    """Adds a number >= 0 to two cells."""
    whole = math.floor(value)
    sums[r, at] += sign * np.int64(whole)
    sums[r, at + 1] += sign * np.int64(np.rint((value - whole) * _REST))


@numba.njit(inline="always")
def add_square(sums: Matrix, r: int, at: int, value: float, sign: int) -> None:
    """Adds a number >= 0 to three cells."""
    high = math.floor(value / _HIGH)
    sums[r, at] += sign * np.int64(high)
    add_real(sums, r, at + 1, value - high * _HIGH, sign)


def reals(cells: NDArray[np.int64], at: int) -> NDArray[np.float64]:
    """Returns the values of two-cell sums, at cells[..., at:]."""
    out: NDArray[np.float64] = cells[..., at] + cells[..., at + 1] / _REST
    return out


def squares(cells: NDArray[np.int64], at: int) -> NDArray[np.float64]:
    """Returns the values of three-cell sums, at cells[..., at:]."""
    out: NDArray[np.float64] = cells[..., at] * _HIGH + reals(cells, at + 1)
    return out
