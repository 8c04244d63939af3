"""How often snapshots are published.

Ingest has priority: while messages wait, snapshots get at most a twentieth of the time, so that the loop can catch up with a
backlog even if there are many results. Otherwise the pause before the next snapshot is as long as the last one took.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

PUBLISH_SHARE = 20  # of the loop's time, while messages wait
WAIT = 1.0  # seconds of traffic: with more messages than that behind, the loop is catching up


class Pace:
    """The pace of one loop; times in seconds of a monotonic clock."""

    def __init__(self, interval: float, lag: Callable[[], Mapping[Any, int]]) -> None:
        """`interval`: least time between two snapshots; `lag`: messages behind the end, if known."""
        self._interval, self._lag = interval, lag
        self._soonest = self._latest = 0.0  # when the next snapshot may be taken, and when it must be
        self._took = 0.0
        self._events, self._since = 0, 0.0  # events since the last snapshot, and its time

    def count(self, events: int) -> None:
        """This many more events were counted."""
        self._events += events

    def is_due(self, now: float) -> bool:
        """Whether the next snapshot is due."""
        if now >= self._latest:
            return True
        if now < self._soonest:
            return False
        self._soonest = now + self._interval  # asking for the lag of many partitions is too slow for every iteration
        return self._keeps_up(now)

    def published(self, begin: float, end: float) -> None:
        """A snapshot was taken and published between `begin` and `end`."""
        before, self._took = self._took, end - begin
        self._soonest = end + max(self._interval, self._took)
        # a single slow snapshot is tolerated
        self._latest = begin + max(self._interval, PUBLISH_SHARE * min(before, self._took))
        self._events, self._since = 0, begin

    def _keeps_up(self, now: float) -> bool:
        """Whether the loop keeps up: no events arrive (a broker may hang), or no more wait than arrive in a second."""
        if not self._events:
            return True
        lag = self._lag()  # an unknown lag counts as a backlog
        return bool(lag) and sum(lag.values()) * (now - self._since) <= WAIT * self._events
