"""Scores are put in place alike, whether a part's rows were scored by the same series or each by its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from streameval.auction.scores import _write_alike, _write_scores
from streameval.events.batch import Shadow

_SERIES = (5, 2, 9)
_NUMBER = np.array([-1, -1, 0, -1, -1, 1, -1, -1, -1, 2])  # by code

_Part = tuple[Shadow, NDArray[np.int32], NDArray[np.float64], NDArray[np.int64]]


def _part(rng: np.random.Generator, n: int, series: Sequence[int], first: int = 0) -> _Part:
    """(shadow scores, own series, own scores, places) of rows that `series` have scored, the last one their own."""
    many = len(series) - 1
    shadow = Shadow(
        first + np.arange(n + 1) * many,
        np.append(np.full(first, 7, np.int32), np.tile(np.array(series[:-1], np.int32), n)),
        rng.random(first + n * many),
    )
    to = rng.permutation(n + 4)[:n]
    return shadow, np.full(n, series[-1], np.int32), rng.random(n), np.where(rng.random(n) < 0.2, -1, to)


def _written(write: Callable[..., bool], part: _Part, n: int) -> tuple[bool, NDArray[np.float64], NDArray[np.bool_]]:
    score, scored = np.full((3, n + 4), -1.0), np.zeros(3, np.bool_)
    return write(*part, _NUMBER, scored, score), score, scored


@pytest.mark.parametrize("series", [*permutations(_SERIES)])
@pytest.mark.parametrize("first", [0, 3])
def test_scores_of_the_same_series_are_written_as_if_row_by_row(series: tuple[int, ...], first: int) -> None:
    part = _part(np.random.default_rng(1), 50, series, first)
    alike, score, scored = _written(_write_alike, part, 50)
    by_row, expected, all_scored = _written(_write_scores, part, 50)
    assert alike
    assert by_row
    assert scored.all()
    assert all_scored.all()
    np.testing.assert_array_equal(score, expected)


def _another_series(part: _Part) -> None:
    part[0].series[41] = 9


def _another_own(part: _Part) -> None:
    part[1][20] = 2


def _no_score(part: _Part) -> None:
    part[2][49] = np.nan


def _fewer(part: _Part) -> None:
    part[0].indptr[30:] -= 1


def _unknown(part: _Part) -> None:
    part[0].series[::2] = 7


def _beyond(part: _Part) -> None:
    part[1][:] = 10


def _twice(part: _Part) -> None:
    part[1][:] = 5


def _nowhere(part: _Part) -> None:
    part[3][:] = -1


@pytest.mark.parametrize(
    "change", [_another_series, _another_own, _no_score, _fewer, _unknown, _beyond, _twice, _nowhere]
)
def test_other_rows_are_left_to_be_written_one_by_one(change: Callable[[_Part], Any]) -> None:
    part = _part(np.random.default_rng(2), 50, _SERIES)
    change(part)
    alike, score, scored = _written(_write_alike, part, 50)
    assert not alike
    assert not scored.any()
    assert (score == -1.0).all()


def test_rows_without_shadow_scores_and_parts_without_rows_are_left_too() -> None:
    rng = np.random.default_rng(3)
    none = Shadow(np.zeros(0, np.int64), np.empty(0, np.int32), np.empty(0))
    _, own, p, to = _part(rng, 50, _SERIES)
    assert not _written(_write_alike, (none, own, p, to), 50)[0]
    assert not _written(_write_alike, _part(rng, 0, _SERIES), 0)[0]
