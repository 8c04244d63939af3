"""Kernels that assign numbers to the rows and parts that occur in a batch for the first time (see `sums`)."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.compare.ledger.sums import LedgerScores, Numbers


@numba.njit(cache=True, nogil=True)
def new_rows(
    first: int, scores: LedgerScores, row_of: NDArray[np.int32], numbered: int, most: int, out: NDArray[np.int64]
) -> int:
    """Numbers the new rows of an entire batch, whose scores from `first` on are not the server's. out[n]: (served,
    other + 1).
    """
    row, series, logged_at = scores.row, scores.series, scores.logged_at
    made = 0
    for k in range(series.size):
        s = k if k < first else logged_at[row[k]]
        if s < 0 or numbered + made == most:
            continue
        served = series[s]
        other = 0 if k < first else series[k] + 1
        if k >= first and (series[k] == served or row_of[served, 0] < 0):
            continue
        if row_of[served, other] < 0:
            row_of[served, other] = numbered + made
            out[made, 0], out[made, 1] = served, other
            made += 1
    return made


@numba.njit(cache=True, nogil=True)
def new_parts(
    start: int,
    end: int,
    pairs: bool,
    scores: LedgerScores,
    value: NDArray[np.int32],
    numbers: Numbers,
    numbered: int,
    out: NDArray[np.int64],
) -> int:
    """Numbers the new parts of scores start .. end - 1 (`pairs`: of versions that did not serve, or else logged);
    out[n]: (row, column).

    Stops when `out` is full.
    """
    row, series, logged_at = scores.row, scores.series, scores.logged_at
    row_of, part_of = numbers.row_of, numbers.part_of
    made = 0
    for k in range(start, end):
        i = row[k]
        s = logged_at[i]
        if s < 0 or (pairs and (series[k] == series[s] or row_of[series[s], 0] < 0)):
            continue
        r = row_of[series[s], series[k] + 1 if pairs else 0]
        if r < 0:
            continue
        for d in range(value.shape[1]):
            if part_of[r, value[i, d]] < 0:
                if made == len(out):
                    return made
                part_of[r, value[i, d]] = numbered + made
                out[made, 0], out[made, 1] = r, value[i, d]
                made += 1
    return made
