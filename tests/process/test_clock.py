"""The wall clock under NTP steps and suspends, and the decoder that relies on it."""

from __future__ import annotations

import json

import pytest

from streameval.events.batch import Catalog
from streameval.process.clock import WallClock
from streameval.sources.formats.decode import Decoder

START = 1_800_000_000.0
HOUR = 3_600.0


class Machine:
    """A computer's two clocks, in our hands."""

    def __init__(self) -> None:
        self.wall = START
        self.elapsed = 500.0

    def run(self, seconds: float) -> None:
        self.wall += seconds
        self.elapsed += seconds


def test_without_a_step_it_is_the_wall_clock() -> None:
    machine = Machine()
    clock = WallClock(lambda: machine.wall, lambda: machine.elapsed)
    assert clock() == START
    machine.run(10.5)
    assert clock() == START + 10.5
    assert clock.ms() == int((START + 10.5) * 1000)


def test_a_step_back_does_not_stop_it() -> None:
    machine = Machine()
    clock = WallClock(lambda: machine.wall, lambda: machine.elapsed)
    machine.run(10)
    machine.wall -= 24 * HOUR
    assert clock() == START + 10
    machine.run(5)
    assert clock() == START + 15


def test_a_step_forward_or_a_suspend_takes_it_along() -> None:
    machine = Machine()
    clock = WallClock(lambda: machine.wall, lambda: machine.elapsed)
    machine.wall += 3 * HOUR
    machine.run(1)
    assert clock() == START + 3 * HOUR + 1
    machine.wall -= 3 * HOUR  # the step was a mistake, and is undone
    assert clock() == START + 1


@pytest.mark.parametrize("step", [-48 * HOUR, -2 * HOUR, 2 * HOUR, 48 * HOUR])
def test_no_step_of_the_clock_refuses_an_event_of_now(step: float) -> None:
    machine = Machine()
    clock = WallClock(lambda: machine.wall, lambda: machine.elapsed)
    decoder = Decoder(Catalog(), clock=clock.ms, max_future=3_600_000)
    true = START

    def refused(ts: float) -> list[str]:
        event = {"impression_id": "i", "ts": int(ts * 1000), "user_id": "u", "pclick": 0.5}
        _, letters = decoder.messages(
            [json.dumps(event).encode()], [0], topic=("t",), partition=0, offsets=[0], format="json", shared=True
        )
        return [letter.reason for letter in letters]

    machine.run(60)
    true += 60
    machine.wall += step
    assert refused(true) == []
    machine.run(60)
    assert refused(true + 60) == []
    assert refused(max(true + 60, machine.wall) + 2 * HOUR) == ["future_timestamp"], "the check itself still holds"
