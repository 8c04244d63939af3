"""How often readers get a snapshot.

Reading has priority: while messages wait, snapshots get at most a twentieth of the time, so that a backlog with many
results can be caught up. Otherwise the pause before the next snapshot is as long as the last one took.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

PUBLISH_SHARE = 20  # of the loop's time, while messages wait
WAIT = 1.0  # seconds of traffic; more than that of messages wait


class Pace:
    """Of one loop; times in seconds of a monotonic clock."""

    def __init__(self, interval: float, lag: Callable[[], Mapping[Any, int]]) -> None:
        """`interval`: between two snapshots at least; `lag`: messages behind the end, where that is known."""
        self._interval, self._lag = interval, lag
        self._soonest = self._latest = 0.0  # when the next one may come, and when it must
        self._took = 0.0
        self._events, self._since = 0, 0.0  # counted since the last one

    def count(self, events: int) -> None:
        """So many more were counted."""
        self._events += events

    def is_due(self, now: float) -> bool:
        """Whether the next snapshot is."""
        if now >= self._latest:
            return True
        if now < self._soonest:
            return False
        self._soonest = now + self._interval  # the lag of many partitions is not for every turn of the loop
        return self._keeps_up(now)

    def published(self, begin: float, end: float) -> None:
        """One was, from `begin` to `end`."""
        before, self._took = self._took, end - begin
        self._soonest = end + max(self._interval, self._took)
        # one slow one is tolerated
        self._latest = begin + max(self._interval, PUBLISH_SHARE * min(before, self._took))
        self._events, self._since = 0, begin

    def _keeps_up(self, now: float) -> bool:
        """Whether nothing is held up: nothing comes (a broker hangs), or no more waits than what comes in a second."""
        if not self._events:
            return True
        lag = self._lag()  # what is not known waits
        return bool(lag) and sum(lag.values()) * (now - self._since) <= WAIT * self._events
