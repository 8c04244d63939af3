"""Scores in the order in which candidates are arranged: a row for every series that has scored them."""

from __future__ import annotations

from collections.abc import Sequence

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.events.batch import Impressions, Shadow

_NO_SHADOW = Shadow(np.zeros(0, np.int64), np.empty(0, np.int32), np.empty(0))


def codes_of(parts: Sequence[Impressions], to: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Returns the series that have scored any of the rows with a place."""
    many = max(max(part.series.max(initial=-1), _shadow(part).series.max(initial=-1)) for part in parts) + 1
    scored = np.zeros(many, np.bool_)
    for part, places in zip(parts, to, strict=True):
        _mark_series(_shadow(part), part.series, part.pclick, places, scored)
    return np.flatnonzero(scored)


def scores_of(
    parts: Sequence[Impressions], to: Sequence[NDArray[np.int64]], codes: NDArray[np.int64], places: int
) -> NDArray[np.float64] | None:
    """Returns the scores [codes, places]; None if other series have scored as well, or one of these has not."""
    number = np.full(codes.max(initial=-1) + 1, -1)  # by code
    number[codes] = np.arange(codes.size)
    score, scored = np.empty((codes.size, places)), np.zeros(codes.size, np.bool_)
    for part, at in zip(parts, to, strict=True):
        if not _write_scores(_shadow(part), part.series, part.pclick, at, number, scored, score):
            return None
    return score if bool(scored.all()) else None


def _shadow(rows: Impressions) -> Shadow:
    return _NO_SHADOW if rows.shadow is None else rows.shadow


@numba.njit(cache=True)
def _mark_series(
    shadow: Shadow,
    own: NDArray[np.int32],
    p: NDArray[np.float64],
    to: NDArray[np.int64],
    scored: NDArray[np.bool_],
) -> None:
    """Marks the series that have scored any of the rows with a place."""
    indptr, series, _ = shadow
    for row in range(to.size):
        if to[row] < 0:
            continue
        if not np.isnan(p[row]):
            scored[own[row]] = True
        if indptr.size:
            for k in range(indptr[row], indptr[row + 1]):
                scored[series[k]] = True


@numba.njit(cache=True)
def _write_scores(
    shadow: Shadow,
    own: NDArray[np.int32],
    p: NDArray[np.float64],
    to: NDArray[np.int64],
    number: NDArray[np.int64],
    scored: NDArray[np.bool_],
    score: NDArray[np.float64],
) -> bool:
    """Writes the scores of every row with a place. Returns False if a series that has scored has no number."""
    indptr, series, pclick = shadow
    for row in range(np.uint64(to.size)):  # unsigned indices: not checked for counting from the end
        if to[row] < 0:
            continue
        at = np.uint64(to[row])
        for v in range(np.uint64(score.shape[0])):
            score[v, at] = np.nan
        if indptr.size:
            for k in range(np.uint64(indptr[row]), np.uint64(indptr[row + np.uint64(1)])):
                code = np.uint64(series[k])
                if code >= np.uint64(number.size) or number[code] < 0:
                    return False
                one = np.uint64(number[code])
                score[one, at], scored[one] = pclick[k], True
        if not np.isnan(p[row]):
            code = np.uint64(own[row])
            if code >= np.uint64(number.size) or number[code] < 0:
                return False
            one = np.uint64(number[code])
            score[one, at], scored[one] = p[row], True
    return True
