"""Versions of whose events many more come late than of those of the others, against a count one by one."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from streameval.counting.lagging import lagging_by_clicks, lagging_by_impressions
from streameval.counting.late_by_version import ByHour, LateByVersion, LateOfAll, Share
from streameval.events.batch import RETIRED, Series
from streameval.events.durations import HOUR
from streameval.join.policy import FOREVER

PANE = 60_000
V1, V2, OTHER = Series("ctr", "v1", "logged"), Series("ctr", "v2", "logged"), Series("cvr", "v1", "logged")
SERIES = [V1, V2, OTHER]
Event = tuple[int, int, bool, int]  # of an impression shown when, when it came, whether late, series

LAG, WINDOW = 3 * HOUR, HOUR // 2


def events(
    seed: int, shares: dict[int, float], n: int, start: int = 0, end: int = 8 * HOUR, lag: int = LAG
) -> list[Event]:
    """Of twenty one each is of the second and the third series; of each series this share comes hours late."""
    luck = Random(seed)
    out = []
    for i in range(n):
        code = 1 if i % 20 == 0 else 2 if i % 20 == 1 else 0
        ts, late = luck.randrange(start, end), luck.random() < shares.get(code, 0.0)
        out.append((ts, ts + lag if late else ts, late, code))
    return sorted(out, key=lambda event: event[1])


def columns(some: list[Event]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    shown, came, _, series = (np.array(column) for column in zip(*some, strict=True)) if some else [np.empty(0)] * 4
    return shown.astype(np.int64), came.astype(np.int64), series.astype(np.int32)


def parts_of(given: list[Event], size: int = 100_000, partitions: int = 1) -> list[LateByVersion]:
    parts = [LateByVersion(PANE) for _ in range(partitions)]
    for start in range(0, len(given), size):
        for p, part in enumerate(parts):
            some = given[start : start + size][p::partitions]
            part.count(*columns(some))
            part.count_late(*columns([event for event in some if event[2]]))
    return parts


def sums(parts: list[LateByVersion], hours: float, settled: int = 0) -> dict[Series, ByHour]:
    return LateOfAll().advance(parts, SERIES, int(hours * 60), settled)


def of_impressions(parts: list[LateByVersion], hours: float) -> dict[Series, Share]:
    return lagging_by_impressions(sums(parts, hours), int(hours * HOUR))


class Clicks:
    """Of clicks, and impressions in time, of which every second one was clicked."""

    def __init__(self, given: list[Event], size: int = 100_000, partitions: int = 1) -> None:
        self.parts = parts_of(given, size, partitions)
        self.shown = parts_of([(ts, ts, False, code) for ts, _, _, code in given for _ in range(2)], size)

    def lagging(self, hours: float) -> dict[Series, Share]:
        clicks, shown = (sums(parts, hours) for parts in (self.parts, self.shown))
        return lagging_by_clicks(clicks, shown, int(hours * HOUR), WINDOW)


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("size", [1, 40, 100_000])
def test_counts_are_of_what_came_before_a_pane_however_the_log_is_cut(size: int, partitions: int) -> None:
    given = events(1, {0: 0.02, 1: 0.6, 2: 0.1}, 3_000)
    parts = parts_of(given, size, partitions)
    for until in (3 * 60, 5 * 60 + 7, 12 * 60):
        truth: dict[tuple[int, int], Share] = {}
        for shown, came, late, code in given:
            if came < until * PANE:
                hour = shown // HOUR
                waited = came // PANE * PANE - hour * HOUR if late else 0
                one = Share(1, late, shown, shown if late else FOREVER, waited)
                truth[code, hour] = truth.get((code, hour), Share()).plus(one)
        for at, part in enumerate(parts):
            part.advance(until, 0)
            parts[at] = LateByVersion(PANE)
            parts[at].restore(part.state(), np.arange(3, dtype=np.int32))
            assert parts[at].state() == part.state()
        together: dict[tuple[int, int], Share] = {}
        for part in parts:
            for key, share in part.hours.items():
                together[key] = together.get(key, Share()).plus(share)
        assert together == truth
    assert min(hour for row in sums(parts, 12, settled=2).values() for hour in row) == 2
    assert min(hour for _, hour in parts[0].hours) == 2


@pytest.mark.parametrize(("n", "first", "last"), [(1_500, 5, 13), (20_000, 4, 7 + 7)])
def test_a_version_lags_until_its_late_clicks_have_had_twice_their_time(n: int, first: int, last: int) -> None:
    clicks = Clicks(events(2, {0: 0.1, 1: 0.8, 2: 0.1}, n))
    assert not clicks.lagging(2.9), "nothing of it has come yet"
    known = [hours for hours in range(4, 20) if clicks.lagging(hours)]
    assert known == list(range(first, last + 1))  # those of hour 7 take three hours and a half from its start
    (only,) = Clicks(events(2, {0: 0.1, 1: 0.8, 2: 0.1}, n)).lagging(12).items()
    assert only[0] == V2
    assert 4 * HOUR < only[1].first_late < 8 * HOUR


@pytest.mark.parametrize("every", [20, 60, 100, 240])  # minutes
@pytest.mark.parametrize("share", [0.7, 1.0])
@pytest.mark.parametrize("began", [0, 150, 230])  # minutes
def test_clicks_that_come_in_batches_lag_from_the_first_batch_on_until_they_come_in_time(
    every: int, share: float, began: int
) -> None:
    luck, given = Random(every + began), []
    for _ in range(40_000):
        ts = luck.randrange(24 * HOUR)
        code = int(ts >= began * PANE and luck.random() < 0.1)
        batched = code == 1 and ts < 16 * HOUR and luck.random() < share
        comes = max(ts, (ts // (every * PANE) + 1) * every * PANE - 1) if batched else ts + luck.randrange(10 * PANE)
        given.append((ts, comes, comes > ts + WINDOW, code))
    clicks = Clicks(sorted(given, key=lambda event: event[1]))
    known = [quarter / 4 for quarter in range(4, 24 * 4) if clicks.lagging(quarter / 4)]
    if every == 20:
        assert not known
        return
    first = (began // every + 1) * every / 60 + 1.5
    if every == 240 and began == 230:
        first += 4  # the first batch has not ten late clicks
    assert set(known) >= {quarter / 4 for quarter in range(int(first * 4) + 1, 16 * 4)}, "and not between batches"
    assert 16 < max(known) < 16 + 2 * every / 60 + 4, "until they were seen to come in time"


@pytest.mark.parametrize("rate", [30, 2_000])
def test_a_version_that_lagged_for_long_is_free_soon_after_though_some_of_its_clicks_are_late_as_ever(
    rate: int,
) -> None:
    luck, given = Random(rate), []
    for i in range(rate * 24):
        ts, code = luck.randrange(24 * HOUR), int(i % 3 == 0)
        lags = code == 1 and ts < 6 * HOUR
        comes = ts + LAG if lags else ts + luck.randrange(2 * WINDOW) if luck.random() < 0.1 else ts
        given.append((ts, comes, comes > ts + WINDOW, code))
    clicks = Clicks(sorted(given, key=lambda event: event[1]))
    known = [hour for hour in range(2, 24) if clicks.lagging(hour)]
    # beside others whose clicks are known
    assert set(range(5 if rate > 100 else 7, 9)) <= set(known) <= set(range(3, 16))


def test_what_stays_missing_counts_as_long_as_it_is_much_of_all() -> None:
    short = events(3, {1: 1.0}, 4_000, 0, 2 * HOUR, HOUR // 4)
    then = events(4, {}, 40_000, 2 * HOUR, 20 * HOUR)
    assert of_impressions(parts_of(short), 20).keys() == {V2}
    assert not Clicks(short).lagging(20)
    parts = parts_of(sorted([*short, *then], key=lambda event: event[1]))
    assert [hours for hours in range(1, 20) if of_impressions(parts, hours)] == [*range(1, 10)]  # of 1,000, 200


def test_a_version_that_begins_to_lag_is_found_though_it_was_in_time_for_long() -> None:
    before, now = events(5, {}, 100_000, 0, 20 * HOUR), events(6, {1: 0.9}, 20_000, 20 * HOUR, 24 * HOUR)
    assert Clicks([*before, *now]).lagging(23.9).keys() == {V2}


@pytest.mark.parametrize("shares", [{}, {0: 0.02, 1: 0.15}, {0: 0.5, 1: 0.6, 2: 0.5}, {0: 1.0, 1: 1.0, 2: 1.0}])
def test_what_comes_as_late_as_the_events_of_the_others_is_usual(shares: dict[int, float]) -> None:
    clicks = Clicks(events(7, shares, 6_000), 500, 2)
    for hours in range(1, 14):
        assert not clicks.lagging(hours)
        assert not of_impressions(clicks.parts, hours)


@pytest.mark.parametrize("minute", [1, 20, 59])
def test_the_version_that_is_replaced_does_not_lag_because_the_new_one_s_events_have_not_had_time_to(
    minute: int,
) -> None:
    luck, out = Random(8), []
    for _ in range(30_000):
        ts, late = luck.randrange(8 * HOUR), luck.random() < 0.4
        code = int(ts >= 4 * HOUR + minute * PANE)
        out.append((ts, ts + (luck.randrange(HOUR // 2, 2 * HOUR) if late else 0), late, code))
    clicks = Clicks(sorted(out, key=lambda event: event[1]))
    for quarters in range(4, 48):
        assert not clicks.lagging(quarters / 4)
        assert not of_impressions(clicks.parts, quarters / 4)


def test_a_version_alone_is_beside_no_other_and_few_say_nothing() -> None:
    alone = [(i, i + LAG, True, 0) for i in range(500)]
    assert not Clicks([*alone, *((ts, ts, False, 2) for ts in range(500))]).lagging(5)
    few = [(i, i + LAG, True, 1) for i in range(9)]
    many = [(i, i + LAG, True, 1) for i in range(10)]
    others = [(ts, ts, False, 0) for ts in range(500)]
    assert not Clicks([*others, *few]).lagging(5)
    assert Clicks([*others, *many]).lagging(5).keys() == {V2}


def test_a_code_that_is_reused_begins_anew() -> None:
    (part,) = parts_of(events(9, {1: 0.8}, 4_000))
    sums([part], 4)
    part.clear(1)
    assert {code for code, _ in part.hours} == {0, 2}
    assert V2 not in sums([part], 4.5), "and nothing of it is left that has not come yet"
    assert LateOfAll().advance([part], [RETIRED, V2, OTHER], 270, 0).keys() == {OTHER}


@pytest.mark.parametrize("looks", [1, 7, 50])
def test_what_is_kept_between_looks_is_what_the_partitions_count(looks: int) -> None:
    given, kept, luck = events(looks, {0: 0.02, 1: 0.6, 2: 0.1}, 3_000), LateOfAll(), Random(looks)
    parts = parts_of(given, partitions=3)
    for look in range(1, looks + 1):
        until, settled = look * 12 * 60 // looks, look * 5 // looks
        if luck.random() < 0.2:
            parts.pop(luck.randrange(len(parts)))
        if luck.random() < 0.2:
            parts.insert(luck.randrange(len(parts) + 1), *parts_of(events(look, {1: 0.4}, 500)))
        if luck.random() < 0.2:
            luck.choice(parts).clear(luck.randrange(3))
        found = kept.advance(parts, SERIES, until, settled)
        assert found == LateOfAll().advance(parts, SERIES, until, settled)
        assert list(found) == sorted(found)
        assert found or not settled
