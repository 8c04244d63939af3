"""Pacing, against a clock that only moves when the runner waits."""

from __future__ import annotations

import threading

import msgspec
import pytest

from streameval.simulate.encode import events
from streameval.simulate.runner import SLICE_MS, run
from streameval.simulate.scenario import Scenario
from streameval.simulate.traffic import Traffic

SCENARIO = Scenario(duration_s=20, rate=100)


class Waiting(threading.Event):
    """A stop signal on whose `wait` a manual clock moves; it is set by itself at `until` seconds."""

    def __init__(self, until: float = float("inf")) -> None:
        super().__init__()
        self.now = 1000.0
        self.end = self.now + until

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        assert timeout > 0
        self.now += timeout
        if self.now >= self.end:
            self.set()
        return self.is_set()

    def clock(self) -> float:
        return self.now


def sent(speed: float | None, stop: Waiting) -> list[tuple[float, str, bytes, bytes]]:
    """(seconds since the begin, kind, key, value) in the order of sending."""
    out: list[tuple[float, str, bytes, bytes]] = []
    begin = stop.now

    def send(kind: str, keys: list[bytes], values: list[bytes]) -> None:
        out.extend((stop.now - begin, kind, key, value) for key, value in zip(keys, values, strict=True))

    run(Traffic(SCENARIO), send, speed=speed, stop=stop, clock=stop.clock)
    return out


@pytest.mark.parametrize("speed", [1.0, 4.0])
def test_events_are_sent_when_they_are_due_at_any_speed(speed: float) -> None:
    made = sent(speed, Waiting())
    assert len(made) == len(list(events(Traffic(SCENARIO))))
    for at, _, _, value in made:
        due = (msgspec.json.decode(value)["ts"] - SCENARIO.start_ms) / 1000 / speed
        assert due - SLICE_MS / 1000 / speed - 1e-6 <= at <= due + 1e-6  # a slice goes out with its first event
    assert made[-1][0] >= SCENARIO.duration_s / speed - 1


def test_flat_out_nothing_waits_and_the_same_messages_are_sent() -> None:
    stop = Waiting()
    flat, paced = sent(None, stop), sent(1.0, Waiting())
    assert stop.now == 1000.0
    assert [m[1:] for m in flat] == [m[1:] for m in paced]


def test_the_stop_signal_ends_the_run_within_a_slice() -> None:
    made = sent(1.0, Waiting(until=5.0))
    assert made
    assert max(at for at, *_ in made) < 5.0
    assert made[-1][0] > 4.0


def test_a_clock_that_is_late_is_caught_up_with_and_nothing_is_skipped() -> None:
    stop = Waiting()
    out: list[float] = []

    def slow(kind: str, keys: list[bytes], values: list[bytes]) -> None:
        out.extend([stop.now] * len(keys))
        if len(out) == len(keys):
            stop.now += 10.0  # the first send takes ten seconds

    run(Traffic(SCENARIO), slow, speed=1.0, stop=stop, clock=stop.clock)
    assert len(out) == len(list(events(Traffic(SCENARIO))))
    last = max(e.arrives for e in events(Traffic(SCENARIO)))
    assert out[-1] - 1000.0 <= (last - SCENARIO.start_ms) / 1000 + 1e-6


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan")])
def test_a_speed_that_is_not_positive_is_refused(speed: float) -> None:
    with pytest.raises(ValueError, match=f"speed = {speed}: must be positive"):
        sent(speed, Waiting())
