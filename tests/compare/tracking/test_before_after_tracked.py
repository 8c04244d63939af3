"""Before/after comparisons in a world whose days differ: rarely a false warning, a bad version in days, and exact restarts."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks.detection.days import BAD, GOOD, NEW, OLD, ONLINE, Days, Key, Quality
from streameval.compare.evidence import before_after
from streameval.compare.evidence.before_after import ADVICE
from streameval.compare.evidence.evidence import Rule
from streameval.compare.reading.as_json import comparison_json
from streameval.compare.reading.reading import Comparison, Deploy
from streameval.compare.reading.words import headline
from streameval.compare.tracking.before_after_tracked import BeforeAfterTracked
from streameval.compare.tracking.board import Board
from streameval.compare.tracking.limits import BoardLimits
from streameval.events.batch import Series
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import BLOCKS, SERIES_CELLS

pytestmark = pytest.mark.slow

HOUR, DAY = 3_600_000, 24
PANE = HOUR // 60


def tracked(start: int, alpha: float = 0.05, keep: int = 15) -> BeforeAfterTracked:
    """Of a deploy at hour `start`."""
    deploy = Deploy("1", "m", "v2", "v1", start * HOUR, "deploy", start * HOUR)
    rule, day = Rule(alpha=alpha), DAY * HOUR
    return BeforeAfterTracked(deploy, OLD, NEW, start * HOUR, start * 60, rule, PANE, keep * day)


def run(
    seed: int, quality: Quality = GOOD, *, before: int = 14, after: int = 5, swing: float = 1.0, knows: bool = False,
    online: bool = False, keep: int = 15,
) -> tuple[BeforeAfterTracked, int]:  # fmt: skip
    """A deploy after `before` days, watched for `after` days or until it is worse: and the hours that took."""
    world, start = Days(seed), before * DAY
    one = tracked(start, keep=keep)
    for hour in range(start + after * DAY):
        new = hour >= start
        rows = world.hour(
            hour, NEW if new else OLD, quality if new else Quality(), swing=swing if new else 1.0, knows=knows,
            online=online,
        )  # fmt: skip
        for key, row in rows.items():
            one.add(hour * 60, key, row)
        if new:
            one.look((hour + 1) * HOUR, None)
        if one.verdict == "worse":
            break
    return one, hour - start + 1


@pytest.mark.slow
@pytest.mark.parametrize("online", [False, True])
def test_a_harmless_deploy_is_rarely_warned_about(online: bool) -> None:
    runs, alpha = 24, 0.05
    false = sum(run(seed, online=online)[0].verdict == "worse" for seed in range(runs))
    assert false <= runs * (alpha + 2 * math.sqrt(alpha * (1 - alpha) / runs))


@pytest.mark.parametrize("learned", [False, True])
def test_a_model_that_still_learns_is_no_yardstick(learned: bool) -> None:
    """Through it the error was ten times that of levels. One that has learned for long knows the difference better than levels do."""
    world, start = Days(3), 12 * DAY
    through, plain = tracked(start), tracked(start)
    for hour in range(start + 20):
        old = Quality(1.2 if learned else 1.0 + 8.0 / (1 + hour / DAY))
        for key, row in world.hour(hour, NEW if hour >= start else OLD, GOOD, online=old).items():
            through.add(hour * 60, key, row)
            if key[1] is None:
                plain.add(hour * 60, key, row)
        for one in (through, plain):
            if hour >= start:
                one.look((hour + 1) * HOUR, None)
    with_it, without = ({m.metric: m.stderr for m in one.reading().metrics} for one in (through, plain))
    for metric in ("log_loss", "auc"):
        ratio = with_it[metric] / without[metric]
        assert (ratio < 0.8) if learned else ratio == 1.0


@pytest.mark.parametrize(("online", "days"), [(False, 7), (True, 3)])
def test_a_bad_version_is_warned_about_within_days(online: bool, days: int) -> None:
    """By levels with the four weeks of history that they deserve; with an online model as a yardstick two weeks do."""
    history = {"before": 14} if online else {"before": 28, "keep": 36}
    runs = [run(seed, BAD, after=days, online=online, **history)[0].reading() for seed in range(4)]
    found = [reading for reading in runs if reading.verdict == "worse"]
    assert len(found) >= 3
    for reading in found:
        assert reading.reason is not None
        assert reading.reason.endswith(ADVICE)
        assert "a warning only" in headline(reading)
        by = {m.metric: m for m in reading.metrics}
        assert by["gauc"].reason == "not_compared"
        for metric, low, high in (("log_loss", 0.01, 0.05), ("auc", -0.05, -0.015)):
            m = by[metric]
            assert m.difference is not None
            assert m.lower is not None
            assert m.upper is not None
            assert low < m.difference < high
            assert m.lower < m.difference < m.upper


@pytest.mark.parametrize("knows", [False, True])
@pytest.mark.parametrize("swing", [0.6, 1.4])
def test_a_swing_of_the_ctr_does_not_warn(swing: float, knows: bool) -> None:
    """With the deploy the odds move by 40% for all the time after it, whether pClick follows or not."""
    for seed in range(2):
        reading = run(seed, swing=swing, knows=knows)[0].reading()
        assert reading.verdict == "undecided"
        log_loss = next(m for m in reading.metrics if m.metric == "log_loss")
        assert log_loss.baseline is not None
        assert log_loss.candidate is not None
        assert abs(log_loss.candidate / log_loss.baseline - 1) > 0.15  # raw log loss follows it
        assert log_loss.difference is not None
        assert abs(log_loss.difference) < 0.02


def test_pclicks_that_are_too_high_are_found_and_getting_better_is_not_worse() -> None:
    one, _ = run(0, Quality(scale=1.35), after=7)
    assert {m.metric for m in one.reading().metrics if m.verdict == "worse"} == {"calibration"}
    world, start = Days(1), 14 * DAY
    back = tracked(start)  # a roll-back from such a version
    for hour in range(start + 3 * DAY):
        new = hour >= start
        for key, row in world.hour(hour, NEW if new else OLD, Quality(scale=1.0 if new else 1.35)).items():
            back.add(hour * 60, key, row)
        back.look((hour + 1) * HOUR, None)
    calibration = next(m for m in back.reading().metrics if m.metric == "calibration")
    assert calibration.verdict == "undecided"
    assert calibration.log_e_worse < 0


@pytest.mark.parametrize(
    ("before", "says"),
    [
        (0, "the previous version served none of the same hours alone on any day of the week before the deploy; "),
        (1, "needs at least 7 days before the deploy to know how much days differ, has 0 (28 is better); "),
        (2, "needs at least 7 days before the deploy to know how much days differ, has 1 (28 is better); "),
        (8, None),
    ],
)
def test_too_little_history_says_so(before: int, says: str | None) -> None:
    reading = run(0, BAD, before=before, after=2)[0].reading()
    assert reading.reason is not None
    if says is None:
        assert "7 days before the deploy" in reading.reason
        assert reading.floors_met
        return
    assert says in reading.reason
    assert reading.impressions > 0
    assert (reading.verdict, reading.floors_met, reading.log_e_worse) == ("undecided", False, 0.0)


@pytest.mark.parametrize(("seed", "before"), [(seed, before) for seed in range(4) for before in (7, 8, 10)])
def test_bounds_of_few_days_are_in_the_range_of_the_metric_or_not_known(seed: int, before: int) -> None:
    """They were +-3.5e12 for an AUC. A bound that is not shown is explained."""
    for m in run(seed, BAD, before=before, after=1)[0].reading().metrics:
        if m.metric == "gauc":
            continue
        assert m.difference is not None
        if m.lower is None or m.upper is None:
            assert (m.lower, m.upper, m.reason) == (None, None, "too_little_history")
        else:
            assert -2.0 < m.lower < m.difference < m.upper < 2.0
            assert m.reason is None


def test_days_on_which_others_served_are_no_history() -> None:
    """A week ago there is a baseline, but it served alone on two days only."""
    world, start = Days(0), 10 * DAY
    one = tracked(start)
    for hour in range(start + 20):
        new = hour >= start
        for key, row in world.hour(hour, NEW if new else OLD, BAD if new else Quality()).items():
            one.add(hour * 60, key, row)
            if not new and not start - 7 * DAY <= hour < start - 5 * DAY:
                one.add(hour * 60, (Series("m", "v0", "logged"), None), row)
        one.look((hour + 1) * HOUR, None)
    reading = one.reading()
    assert reading.reason is not None
    assert reading.reason.startswith(
        "needs at least 3 days before the deploy to know how much days differ, has 2 (28 is better); "
    )
    assert not reading.floors_met


def test_a_canary_is_not_compared_before_and_after() -> None:
    world, start = Days(0), 9 * DAY
    one = tracked(start)
    for hour in range(start + 5):
        for key, row in world.hour(hour, OLD, Quality()).items():
            one.add(hour * 60, key, row)
            if hour >= start:
                one.add(hour * 60, (NEW, None), row)  # half of the traffic
        one.look((hour + 1) * HOUR, None)
    assert one.reading().impressions == 0  # so the board does not show it


def test_nothing_is_judged_while_the_labels_cannot_be_believed() -> None:
    world, start = Days(0), 9 * DAY
    one = tracked(start)
    for hour in range(start + 6):
        new = hour >= start
        for key, row in world.hour(hour, NEW if new else OLD, Quality()).items():
            one.add(hour * 60, key, row)
        if new:
            one.look((hour + 1) * HOUR, "the join is unhealthy" if hour < start + 5 else None)
            reading = one.reading()
            assert (reading.impressions > 0) == (hour == start + 5)
            assert reading.withheld == (hour < start + 5)
    assert [change.kind for change in one.reading().changes] == ["withheld", "restored"]


def test_looks_within_an_hour_change_nothing() -> None:
    one, _ = run(0, after=1)
    before = json.dumps(one.state())
    start = 15 * DAY
    one.look(start * HOUR + HOUR // 2, None)
    after = json.loads(json.dumps(one.state()))
    assert {**after, "looked": start * HOUR} == json.loads(before)


# -- the board ---------------------------------------------------------------------------------------------------

KEEP = 15 * DAY
LIMITS = BoardLimits(0.01, 1000, 64, KEEP * HOUR)


class Stream:
    """A board with panes of an hour, and the ledger's segments beside it."""

    def __init__(self, alpha: float = 0.05) -> None:
        self.board = Board(Rule(alpha=alpha), LIMITS, HOUR)
        self.kept: dict[int, dict[Key, np.ndarray]] = {}

    def segments(self) -> Iterator[tuple[int, dict[Key, np.ndarray]]]:
        for hour in sorted(self.kept):
            yield hour, self.kept[hour]

    def arrive(self, hour: int, served: Series) -> None:
        self.board.arrivals(hour, {served: 2500})
        self.board.add_past(self.segments)

    def look(self, hour: int, rows: dict[Key, np.ndarray]) -> None:
        self.kept[hour] = rows
        self.board.look(hour, [(hour, rows)], self.segments, None)
        self.kept = {h: r for h, r in self.kept.items() if h >= hour + 1 - KEEP}

    def restarted(self, alpha: float = 0.05, anew: tuple[str, ...] = ()) -> Stream:
        out = Stream(alpha)
        out.kept = self.kept
        assert out.board.restore(json.loads(json.dumps(self.board.state()))) == list(anew)
        out.board.rebuild(out.segments)
        return out

    def readings(self) -> dict[str, Comparison]:
        return {c.id: c for c in self.board.readings(lambda tracked, reading: reading)}


def test_the_board_watches_a_deploy_and_restarts_change_nothing() -> None:
    """16 days of v1, then v2: labels are two hours behind, and the ledger lets go of hours all along."""
    world, start, end = Days(5), 16 * DAY, 18 * DAY + 12
    streams = [Stream(), Stream()]
    waiting: list[tuple[int, dict[Key, np.ndarray]]] = []
    for hour in range(end):
        served = NEW if hour >= start else OLD
        waiting.append((hour, world.hour(hour, served, BAD if hour >= start else Quality(), online=True)))
        for stream in streams:
            stream.arrive(hour, served)
        if len(waiting) > 2:
            now, rows = waiting.pop(0)
            for stream in streams:
                stream.look(now, rows)
            if hour >= start and hour % 9 == 0:
                streams[1] = streams[1].restarted()
    one, other = streams
    assert json.dumps(one.board.state()) == json.dumps(other.board.state())
    found = {c.setup: c for c in one.readings().values() if c.candidate == NEW}
    assert found["before_after"].verdict == "worse"
    assert found["before_after"].impressions > 0
    again = {c.setup: c for c in other.readings().values() if c.candidate == NEW}
    assert again["before_after"].metrics == found["before_after"].metrics
    assert again["before_after"].reason == found["before_after"].reason


def test_a_changed_rule_restarts_running_comparisons_and_leaves_ended_ones() -> None:
    """Version 2 has its week under one rule; a day after version 3 has come the rule changes."""
    newer = Series("m", "v3", "logged")
    world, second, third, change, end = Days(5), 14 * DAY, 22 * DAY, 23 * DAY, 25 * DAY
    stream = Stream()
    for hour in range(end):
        served = newer if hour >= third else NEW if hour >= second else OLD
        rows = world.hour(hour, served, BAD if served == NEW else Quality(), online=False)
        stream.arrive(hour, served)
        stream.look(hour, rows)
        if hour == change - 1:
            before = stream.readings()
            over = [key for key, c in before.items() if c.candidate == NEW and c.setup == "before_after"]
            runs = [key for key, c in before.items() if c.candidate == newer]
            stream = stream.restarted(0.01, tuple(t.id for t in stream.board.tracked if t.candidate == newer))
    after = stream.readings()
    assert [before[key].verdict for key in over] == ["worse"]
    assert [comparison_json(after[key]) for key in over] == [comparison_json(before[key]) for key in over]
    (running,) = (after[key] for key in runs if after[key].setup == "before_after")
    assert (running.alpha, running.start) == (0.01, change * HOUR)
    assert [(one.kind, one.at) for one in running.changes] == [("anew", change * HOUR)]
    # of each hour since then, and of the same hour a week before; none twice
    hours = [(hour, newer) for hour in range(change, end)] + [(hour - 7 * DAY, NEW) for hour in range(change, end)]
    rows = [stream.kept[hour][version, None][: BLOCKS * SERIES_CELLS] for hour, version in hours]
    assert running.impressions == sum(int(row.reshape(BLOCKS, SERIES_CELLS)[:, cells.N].sum()) for row in rows)


# -- the statistics ----------------------------------------------------------------------------------------------


def test_log_loss_is_normalised_entropy_when_pclick_is_right_on_average() -> None:
    world = Days(4)
    rows = sum(world.hour(hour, OLD, Quality())[OLD, None][:512].reshape(64, 8) for hour in range(48)).copy()
    n, y, loss = (int(rows[:, cell].sum()) for cell in (cells.N, cells.Y, cells.L))
    rows[:, cells.P] = rows[:, cells.P] * (y * cells.SCALE / rows[:, cells.P].sum())
    c = y / n
    ne = loss / cells.SCALE / n / (-c * math.log(c) - (1 - c) * math.log1p(-c))
    unit = before_after.entropy_per_click(n, y)
    assert 1 + before_after.levels("log_loss", rows).over(unit).value == pytest.approx(ne, abs=1e-6)


def test_the_yardstick_is_the_difference_of_the_levels_on_the_same_impressions() -> None:
    rows = Days(5).hour(0, OLD, Quality(), online=True)
    served, pair = (rows[OLD, other][:512].reshape(64, 8) for other in (None, ONLINE))
    online = served.copy()
    online[:, cells.L] += pair[:, cells.D]
    online[:, cells.P] = pair[:, cells.PAIR_P_OTHER]
    difference = before_after.levels("log_loss", served) - before_after.levels("log_loss", online)
    yardstick = before_after.yardstick("log_loss", pair)
    assert yardstick.value == pytest.approx(difference.value, abs=1e-6)
    np.testing.assert_allclose(yardstick.changes, difference.changes, atol=1e-6)
