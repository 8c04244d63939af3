"""Versions that come every day or two: no hour of a week ago is the previous version's, so it is those of the days that it served."""

from __future__ import annotations

import json

import pytest

from benchmarks.detection.days import BAD, DAY_HOURS, GOOD
from benchmarks.detection.frequent import Deploys
from streameval.compare.reading.as_json import comparison_json
from streameval.compare.reading.reading import Comparison
from streameval.events.durations import HOUR

pytestmark = pytest.mark.slow


def watched(deploys: Deploys, hours: int) -> Comparison:
    one = deploys.tracked()
    for _ in deploys.watch(one, hours):
        pass
    return one.reading()


def test_a_harmless_version_among_many_is_not_warned_about_on_any_day_of_the_week() -> None:
    """Weekends differ from the days that they are held against by more than days do otherwise."""
    for seed in range(7):
        deploys = Deploys(seed, GOOD, every=2 * DAY_HOURS, history=8, weekend=0.15)
        reading = watched(deploys, 2 * DAY_HOURS)
        assert reading.verdict == "undecided"
        assert reading.floors_met


def test_a_bad_version_among_many_is_warned_about_within_two_days() -> None:
    found = []
    for seed in range(4):
        reading = watched(Deploys(seed, BAD, every=2 * DAY_HOURS, history=10), 2 * DAY_HOURS)
        assert reading.reason is not None
        assert reading.reason.startswith("against the same hours 2 days earlier; ")
        difference = {m.metric: m.difference for m in reading.metrics}
        assert difference["log_loss"] is not None
        assert difference["auc"] is not None
        assert 0.01 < difference["log_loss"] < 0.05
        assert -0.05 < difference["auc"] < -0.015
        found.append(reading.verdict == "worse")
    assert sum(found) >= 2


@pytest.mark.parametrize(
    ("every", "says"),
    [
        (
            DAY_HOURS // 2,
            "against the same hours 1 day earlier; ",
        ),  # of half a day: the other half was another version's
        (3 * DAY_HOURS - 3, "against the same hours 3 days earlier; "),  # three hours are waited for
        (3 * DAY_HOURS - 12, "against the same hours 2 days earlier; "),  # half a day is not
        # a week ago it is, though not always at the same hour; days are the previous version's alone
        (7 * DAY_HOURS - 3, "7 days before the deploy show how much days differ; "),
        (7 * DAY_HOURS, "7 days before the deploy show how much days differ; "),
    ],
)
def test_it_goes_back_as_far_as_the_previous_version_served(every: int, says: str) -> None:
    reading = watched(Deploys(0, GOOD, every=every, history=11, online=False), 16)
    assert reading.reason is not None
    assert reading.reason.startswith(says)
    assert reading.impressions > 0


def test_less_than_a_week_of_any_version_is_too_little() -> None:
    reading = watched(Deploys(0, BAD, every=DAY_HOURS, history=6), 6)
    assert reading.reason is not None
    assert reading.reason.startswith(
        "needs at least 7 days before the deploy to know how much days differ, has 5 (28 is better); "
    )
    assert (reading.verdict, reading.floors_met) == ("undecided", False)
    assert {m.metric: m.reason for m in reading.metrics}["log_loss"] == "too_little_history"


def test_a_restart_changes_nothing() -> None:
    deploys = Deploys(2, BAD, every=2 * DAY_HOURS, history=8)
    one, again = deploys.tracked(), deploys.tracked()
    ledger = list(deploys.watch(one, 8))
    again.restore(json.loads(json.dumps(one.state())))
    for hour, rows in enumerate(ledger):
        for key, row in rows.items():
            again.add(hour * 60, key, row)
    for hour in range(len(ledger), len(ledger) + 8):
        rows = deploys.hour(hour)
        for both in (one, again):
            for key, row in rows.items():
                both.add(hour * 60, key, row)
            both.look((hour + 1) * HOUR, None)
    assert json.dumps(one.state()) == json.dumps(again.state())
    assert comparison_json(one.reading()) == comparison_json(again.reading())
