"""Sums of hours that are kept from look to look are those of the hours."""

from __future__ import annotations

import numpy as np

from benchmarks.detection.days import NEW, OLD, ONLINE
from streameval.compare.tracking.hours import HourSums
from streameval.sketches.blocks import BLOCKS, SERIES_CELLS


def test_a_day_already_read_includes_later_corrections() -> None:
    rng, sums = np.random.default_rng(0), HourSums(OLD, NEW)
    day, truth = [3, 4, 5], {None: np.zeros(SERIES_CELLS, np.int64), ONLINE: np.zeros(SERIES_CELLS, np.int64)}
    for hour in [*range(8), 4, 7, 5, 5, 3]:
        for by in (None, ONLINE):
            rows = rng.integers(0, 9, (BLOCKS if hour % 2 else 1, SERIES_CELLS))
            sums.add(hour, (OLD, by), rows)
            truth[by] += rows.sum(axis=0) * (hour in day)
            for version in (OLD, None):
                assert sums.of_day(version, day, by).tolist() == [truth[by].tolist()]
                assert sums.of_day(version, day, by).tolist() == [sums.sum(version, day, by).sum(axis=0).tolist()]


def test_an_hour_is_a_versions_own_by_all_that_was_served_in_it() -> None:
    sums = HourSums(OLD, NEW)
    row = np.zeros((1, SERIES_CELLS), np.int64)
    for served, n in ((OLD, 60), (OLD, 39), (NEW, 10), (NEW, 2)):
        row[0, 0] = n
        sums.count(1, n)
        sums.add(1, (served, None), row)
        assert sums.alone(OLD, 1) == (served == OLD or n == 10), "99 of 109, then of 111"
        assert sums.usual(OLD, [0, 1, 2]) == sums.alone(OLD, 1)  # nobody served in the others
    assert not sums.alone(OLD, 0)
    assert not sums.usual(None, [0, 2])
    assert sums.usual(None, [0, 1])
