"""The wall clock that events are checked against: it never goes backwards."""

from __future__ import annotations

import time
from collections.abc import Callable


class WallClock:
    """Seconds since the epoch: `wall`, or what it said at the start plus what has elapsed since, whichever is later.

    When the system's clock is stepped back, this one continues as if nothing had happened, so what is not in the future
    now never becomes so. When it is stepped forward (also after a suspend, during which `elapsed` may stand still),
    this one goes with it; and back with it, should the step be undone, but never behind its own count.
    """

    def __init__(self, wall: Callable[[], float] = time.time, elapsed: Callable[[], float] = time.monotonic) -> None:
        """`wall`: seconds since the epoch; `elapsed`: seconds from anywhere, which never go back."""
        self._wall = wall
        self._elapsed = elapsed
        self._origin = wall() - elapsed()

    def __call__(self) -> float:
        """Now."""
        return max(self._wall(), self._origin + self._elapsed())

    def ms(self) -> int:
        """Now, in whole milliseconds."""
        return int(self() * 1000)
