"""Clicks that come after their labels were due, against a count one by one."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from streameval.counting.late_labels import LateCount, LateLabels, corrected_since, incomplete_hours, lagging
from streameval.events.durations import HOUR
from streameval.join.fates import NO_FATES, Fates, Met
from streameval.join.policy import FOREVER

PANE = 60_000
NONE = np.empty(0, np.int64), np.empty(0, np.int64)


def fates(found: list[tuple[int, int]], corrected: list[tuple[int, int]]) -> Fates:
    pairs = [
        tuple(np.array(column, np.int64) for column in zip(*rows, strict=True)) or NONE for rows in (found, corrected)
    ]
    return replace(
        NO_FATES, found=(pairs[0][0], pairs[0][1]), corrected=Met(*pairs[1], np.zeros(len(corrected), np.int32))
    )


def clicks(seed: int, share: float, n: int = 3_000) -> list[tuple[int, int, bool]]:
    """(when, when it came, whether it came late), in the order in which they came."""
    luck = Random(seed)
    out = []
    for _ in range(n):
        ts, late = luck.randrange(4 * HOUR), luck.random() < share
        out.append((ts, ts + luck.randrange(2 * HOUR, 3 * HOUR) if late else ts, late))
    return sorted(out, key=lambda click: click[1])


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_counts_are_of_what_came_before_a_pane_however_it_is_cut(size: int) -> None:
    given = clicks(0, 0.3)
    late = LateLabels(PANE)
    for start in range(0, len(given), size):
        some = given[start : start + size]
        late.add(fates([(ts, key) for ts, key, _ in some], [(ts, key) for ts, key, is_late in some if is_late]))
    for until in (30, 90, 91, 200, 400):
        late.advance(until)
        came = [click for click in given if click[1] < until * PANE]
        for hour in range(4):
            of = [(ts, is_late) for ts, _, is_late in came if ts // HOUR == hour]
            fixed = [ts for ts, is_late in of if is_late]
            assert late.hours.get(hour, LateCount()) == (len(of), len(fixed), min(fixed, default=FOREVER))
            assert corrected_since([late], [hour]) == min(fixed, default=FOREVER)
        lately = [is_late for _, key, is_late in came if key // PANE >= until - 60]
        assert late.recent[:2] == (len(lately), sum(lately))
        late, before = LateLabels(PANE), late
        late.restore(before.state())
        assert late.state() == before.state()
    late.forget_before(2)
    assert sorted(late.hours) == [2, 3]


def part_of(given: list[tuple[int, int, bool]], until: int) -> LateLabels:
    part = LateLabels(PANE)
    part.add(fates([(ts, key) for ts, key, _ in given], [(ts, key) for ts, key, late in given if late]))
    part.advance(until)
    return part


@pytest.mark.parametrize(
    ("usual", "share", "found"), [(0.0, 0.05, False), (0.0, 0.3, True), (0.25, 0.4, False), (0.25, 0.5, True)]
)
def test_more_late_clicks_than_usual_are_found(usual: float, share: float, found: bool) -> None:
    def stream(seed: int) -> list[tuple[int, int, bool]]:
        luck = Random(seed)
        before = [(minute * PANE, minute * PANE, luck.random() < usual) for minute in range(60) for _ in range(10)]
        return before + [(HOUR + i, 2 * HOUR + i, luck.random() < share) for i in range(1_000)]

    whole = [part_of(stream(seed), 122) for seed in range(2)]
    assert incomplete_hours(whole, {0, 1, 2}) == (frozenset({1}) if found else frozenset())
    late = lagging(whole)
    assert (late is not None) == found
    if late is not None:
        assert late.endswith("came after the label of their impression was due")
    for part in whole:
        part.advance(10_000)
    assert lagging(whole) is None, "they came long ago"


def test_what_is_usual_is_not_known_at_first() -> None:
    part = part_of([(0, HOUR + i, True) for i in range(200)], 62)
    assert lagging([part]) is None
    assert incomplete_hours([part], {0}) == frozenset()


def test_a_checkpoint_that_does_not_say_which_label_was_corrected_first_means_any_of_the_hour() -> None:
    older = {"coming": [[90, 1, 4, 1]], "recent": [], "before": [9, 2], "hours": [[1, 5, 2], [2, 5, 0]]}
    late = LateLabels(PANE)
    late.restore(older)
    assert (corrected_since([late], [1]), corrected_since([late], [2])) == (HOUR, FOREVER)
    late.advance(91)
    assert late.hours[1] == (9, 3, HOUR)
