"""Detects idle inputs, by time during which this process was running."""

from __future__ import annotations

from collections.abc import Callable

LONGEST_TICK = 2.0  # seconds of silence that one tick can add at most

Input = tuple[int, int]  # (partition, number of the input)


class IdleInputs:
    """Measures how long every input of every partition has been silent."""

    def __init__(self, clock: Callable[[], float], limit: float) -> None:
        """`clock`: wall-clock seconds; an input is idle after `limit` seconds without an event."""
        self._clock, self._limit = clock, limit
        self._ticked = clock()
        self._quiet: dict[Input, float] = {}  # seconds

    def know(self, partition: int, inputs: int) -> None:
        """Adds a partition with this many inputs."""
        for number in range(inputs):
            self._quiet.setdefault((partition, number), 0.0)

    def heard(self, partition: int, number: int) -> None:
        """Resets an input's silence: an event has arrived, or may be on its way."""
        self._quiet[partition, number] = 0.0

    def forget(self, partition: int) -> None:
        """Drops a partition that another worker now owns."""
        self._quiet = {key: seconds for key, seconds in self._quiet.items() if key[0] != partition}

    def tick(self) -> list[Input]:
        """The inputs that have been silent for the limit; they are returned at every tick until an event arrives.

        A step of the clock, or a time in which this process was frozen, does not count as silence.
        """
        now = self._clock()
        passed = min(max(now - self._ticked, 0.0), LONGEST_TICK)
        self._ticked = now
        for key in self._quiet:
            self._quiet[key] += passed
        return [key for key, seconds in self._quiet.items() if seconds >= self._limit]
