"""Panes in memory in front of the history."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from streameval.events.batch import Series
from streameval.events.durations import HOUR
from streameval.results.lines import Line, Point
from streameval.store.history.live import LiveHistory

V1 = Series("m", "v1", "logged")


def point(start: int, length: int) -> Point:
    return Point(start, length, 0.7, None, impressions=10, clicks=1, corrected=0, error=0.0)


def source(points: list[Any]) -> Any:
    """Holds these points of one series."""
    return SimpleNamespace(
        pane=points[0].length,
        series_names=lambda: [V1],
        starts=lambda _: [one.start for one in points],
        series=lambda *_: {V1: Line(tuple(points), False)},
    )


@pytest.mark.parametrize("pane", [HOUR, 24 * HOUR])
def test_where_panes_are_as_long_as_what_they_are_folded_into_none_comes_twice(pane: int) -> None:
    """Those in memory that the history had folded did."""
    memory, history = (source([point(k * pane, pane) for k in which]) for which in (range(2, 6), range(4)))
    (line,) = LiveHistory(cast(Any, memory), cast(Any, history), {}).series("auc", [V1], None, None, 100).values()
    assert [one.start for one in line.points] == [k * pane for k in range(6)]
