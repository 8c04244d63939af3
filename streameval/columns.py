"""Small operations on the columns of `events`: taking rows out of ragged columns, and the flat form of scores."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.events import Features


@dataclass(frozen=True, slots=True)
class Scored:
    """k scores of some rows: score j was given to row `row[j]` by series `series[j]`.

    Who gave them follows one after the other: scores bounds[i] to bounds[i + 1] - 1 are one giver's, by ascending row.
    """

    bounds: tuple[int, ...]
    row: NDArray[np.int32]  # position in the rows that were asked for
    series: NDArray[np.int32]
    p: NDArray[np.float64]
    violation: NDArray[np.bool_]  # the score may have known its label


@numba.njit(cache=True, nogil=True)
def _flat(
    indptr: NDArray[np.int64], rows: NDArray[np.int64], lengths: NDArray[np.int64], flat: NDArray[np.int64]
) -> None:
    k = 0
    for i in range(rows.size):
        for j in range(lengths[i]):
            flat[k] = indptr[rows[i]] + j
            k += 1


def csr_lengths(indptr: NDArray[np.int64], rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(how many entries each row has, where they all are) of rows of a ragged column."""
    lengths = indptr[rows + 1] - indptr[rows]
    flat = np.empty(int(lengths.sum()), np.int64)
    _flat(indptr, rows, lengths, flat)
    return lengths, flat


def take_features(features: Features, rows: NDArray[np.int64]) -> Features:
    """The features of the given rows, in that order."""
    if rows.size and rows[-1] - rows[0] == rows.size - 1 and bool((np.diff(rows) == 1).all()):  # without a copy
        first, end = int(rows[0]), int(rows[-1]) + 1
        a, b = int(features.indptr[first]), int(features.indptr[end])
        dicts = None if features.dicts is None else features.dicts[first:end]
        offset = None if features.offset is None else features.offset[first:end]
        return Features(features.indptr[first : end + 1] - a, features.index[a:b], features.value[a:b], dicts, offset)
    lengths, flat = csr_lengths(features.indptr, rows)
    indptr = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
    dicts = features.dicts
    return Features(
        indptr,
        features.index[flat],
        features.value[flat],
        None if dicts is None else tuple(dicts[i] for i in rows.tolist()),
        None if features.offset is None else features.offset[rows],
    )
