"""How often readers get a snapshot."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from streameval.loop.pace import Pace


def snapshots(
    took: float, rate: float, speed: float, backlog: float, seconds: float, known: bool = True
) -> list[float]:
    """When snapshots begin in a loop that reads `speed` messages a second, of which `rate` come, and `backlog` wait at first."""
    waiting, now, out = backlog, 0.0, []

    def lag() -> Mapping[str, int]:
        return {"topic": int(waiting)} if known else {}

    pace = Pace(1.0, lag)
    while now < seconds:
        read = min(waiting, speed * 0.1)
        now += max(read / speed, 0.02)
        waiting += rate * max(read / speed, 0.02) - read
        pace.count(int(read))
        if pace.is_due(now):
            out.append(now)
            pace.published(now, now + took)
            now += took
            waiting += rate * took
    return out


def apart(begun: list[float]) -> float:
    """The longest time between two of the last ones."""
    return max(b - a for a, b in zip(begun[-6:], begun[-5:], strict=False))


def test_a_live_stream_has_snapshots_as_soon_as_the_last_one_took() -> None:
    assert apart(snapshots(took=6.0, rate=2_000, speed=100_000, backlog=0, seconds=200)) < 13.0
    assert apart(snapshots(took=0.01, rate=2_000, speed=100_000, backlog=0, seconds=20)) < 1.2


def test_a_topic_on_which_nothing_comes_has_them_too() -> None:
    assert apart(snapshots(took=6.0, rate=0, speed=100_000, backlog=0, seconds=200)) < 13.0


@pytest.mark.parametrize("known", [True, False])
def test_a_backlog_comes_first(known: bool) -> None:
    begun = snapshots(took=6.0, rate=2_000, speed=100_000, backlog=1e9, seconds=2_000, known=known)
    assert apart(begun) == pytest.approx(120.0, abs=1.0)  # twenty times as long as one takes


def test_what_can_just_be_read_is_not_starved_by_snapshots() -> None:
    """80% of the time goes into reading: snapshots get what is left, and the stream does not fall behind."""
    begun = snapshots(took=6.0, rate=80_000, speed=100_000, backlog=0, seconds=2_000)
    assert 24.0 < apart(begun) < 121.0
    assert len(begun) * 6.0 < 0.21 * 2_000


def test_the_lag_is_asked_for_once_an_interval() -> None:
    asked = []

    def lag() -> Mapping[str, int]:
        asked.append(1)
        return {"topic": 10**9}

    pace = Pace(1.0, lag)
    pace.published(0.0, 5.0)
    pace.published(5.0, 10.0)
    pace.count(1)
    assert not any(pace.is_due(10.0 + turn * 0.01) for turn in range(2_000))
    assert len(asked) == 15  # from 15 s to 30 s


@pytest.mark.parametrize("lag", [{"topic": 10**9}, {}], ids=["behind", "unknown"])
def test_a_stream_that_stands_still_is_told_of_soon(lag: Mapping[str, int]) -> None:
    """A broker hangs, and each snapshot waits a second for its answer: twenty times as long would be too late to say so."""
    pace = Pace(1.0, lambda: lag)
    pace.published(0.0, 1.5)
    pace.published(20.0, 21.5)
    assert not pace.is_due(22.0)
    assert pace.is_due(23.1)


def test_one_slow_snapshot_does_not_hold_up_the_next() -> None:
    pace = Pace(1.0, lambda: {"topic": 10**9})
    pace.published(0.0, 0.01)
    pace.published(1.0, 9.0)
    pace.count(1)
    assert not pace.is_due(1.5)
    assert pace.is_due(9.0)
