"""The yield of serving versions: the tallies of clicks by request, and of the values of clicks.

Values are too large for one fixed-point cell, so a sum takes two: whole units, and the remainder in 30 bits.
"""

from __future__ import annotations

import math

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.sketches.blocks import fixed
from streameval.sketches.tally import Tally, reals

# of the closed requests that a version served: how many, their clicks, and the clicks' value; how many have positions, and
# the clicks of those in the mainline
REQUESTS_SERVED, CLICKS_SERVED, REQUESTS_WHOLE, REQUESTS_PART, PLACED, MAINLINE_CLICKS = range(6)
# of the impressions that it served
IMPRESSIONS_SERVED, SERVED_WHOLE, SERVED_PART = range(3)
VALUES = Tally("values", ("impressions", "whole", "part"), scales=reals("part"))
MOST_WORTH = 1e12  # of one click; larger values count as this


def yields(mainline: int) -> Tally:
    """The tally of requests; positions below `mainline` are the mainline."""
    cells = ("requests", "clicks", "whole", "part", "placed", "mainline_clicks")
    return Tally(f"yields_{mainline}", cells, scales=reals("part"))


@numba.njit(inline="always")
def worth(value: float) -> tuple[int, int]:
    """The value of a click as (whole units, the remainder in units of 1 / `blocks.SCALE`); negative values count as 0."""
    held = min(max(value, 0.0), MOST_WORTH)
    whole = math.floor(held)
    return int(whole), fixed(held - whole)


@numba.njit(cache=True, nogil=True)
def add_worth(
    series: NDArray[np.int32],
    row: NDArray[np.int32],
    block: NDArray[np.int8],
    label: NDArray[np.int8],
    value: NDArray[np.float64],
    sign: int,
    sums: NDArray[np.int64],
) -> None:
    """Adds impressions `row[i]`, each served by `series[i]`, to the cells of `VALUES`, int64[series, blocks, cells]."""
    for i in range(series.size):
        at = row[i]
        sums[series[i], block[at], IMPRESSIONS_SERVED] += sign
        if label[at]:
            whole, part = worth(value[at])
            sums[series[i], block[at], SERVED_WHOLE] += sign * whole
            sums[series[i], block[at], SERVED_PART] += sign * part
