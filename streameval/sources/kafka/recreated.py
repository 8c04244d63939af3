"""Whether a client reads a topic that was recreated."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Set

from streameval.sources.protocol import Place

HEARD_WITHIN = 5.0  # seconds in which a recreated topic gives a message, or its end


class Unheard:
    """The places of recreated topics that have given nothing yet.

    librdkafka (2.16) ignores a leader of an older epoch than it knows. A new topic's begin at 0, so where a broker has
    restarted during the old one, it waits forever; only a new client does not know the old epoch.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen = 0  # topics recreated so far
        self._places: frozenset[Place] = frozenset()
        self._due_at = 0.0

    def overdue(self, recreated: Mapping[str, int], reading: Set[Place], heard: Set[Place]) -> frozenset[Place]:
        """Those that should have given something by now, once. `recreated`: how often a topic was; `heard`: what has given
        a message or its end since the last call, of the topics as they were then.
        """
        self._places = (self._places & reading) - heard
        if sum(recreated.values()) > self._seen:
            self._seen = sum(recreated.values())
            self._places = frozenset(place for place in reading if place[0] in recreated)
            self._due_at = self._clock() + HEARD_WITHIN
        if not self._places or self._clock() < self._due_at:
            return frozenset()
        late, self._places = self._places, frozenset()
        return late
