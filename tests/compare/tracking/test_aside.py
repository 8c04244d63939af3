"""Hours left out of comparisons because clicks lagged: with everything that some of their impressions are in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from streameval.compare.ledger.list_rows import NO_LISTS
from streameval.compare.reading.reading import MetricReading
from streameval.compare.tracking.aside import AsideHours
from streameval.compare.tracking.board import Board
from streameval.compare.tracking.limits import BoardLimits
from streameval.events.batch import Series
from tests.compare.tracking.test_learning import RULE, V1, minute_rows

MINUTE, HOUR = 60_000, 3_600_000
V2 = Series("m", "v2", "logged")


def read(windows: list[int], aside: set[int]) -> Sequence[MetricReading]:
    """Five hours of two versions of which some hours are left out. `windows`: the hours in which GAUC's of two hours begin."""
    limits = BoardLimits(0.01, 1000, 64, 72 * HOUR, gauc_window=2 * HOUR)
    board = Board(RULE, limits, MINUTE)
    board.set_aside(frozenset(aside))
    past = []
    for minute in range(300):
        board.arrivals(minute, {V1: 500})
        past.append((minute // 60 * 60, minute_rows(minute, 0.1, V2)))
        ended = [hour for hour in windows if (hour + 2) * 60 == minute + 1]
        rows = [(hour * 60, {(V1, V2): np.random.default_rng(hour).integers(1, 100, NO_LISTS.width)}) for hour in ended]
        board.look(minute, past[-1:], lambda: iter(past), None, rows)
    (out,) = board.readings(lambda _, reading: reading)
    return out.metrics


@pytest.mark.parametrize("aside", [{1}, {2}, {3}])
def test_a_window_of_users_lists_is_left_out_whichever_of_its_hours_is(aside: set[int]) -> None:
    complete = [hour for hour in (0, 2) if not {hour, hour + 1} & aside]
    assert read([0, 2], aside) == read(complete, aside)
    assert read([0, 2], aside) != read([0, 2], set())


def test_a_pane_longer_than_an_hour_is_left_out_whichever_of_its_hours_is() -> None:
    hours = AsideHours(3 * HOUR)
    hours.change(frozenset({4}), 0)
    assert [hours.overlap(pane) for pane in range(4)] == [False, True, False, False]
    assert [hours.overlap(pane, 5 * HOUR) for pane in range(4)] == [True, True, False, False]
