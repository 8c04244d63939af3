"""How many messages a poll takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streameval.sources.kafka.reader import MessageRun

FIRST = 10  # messages of the first poll, before it is known how many events a message contains


class Budget:
    """Adapts the number of messages to every poll."""

    def __init__(self, topics: Sequence[str], max_events: int) -> None:
        """`max_events`: per batch."""
        self._topics, self._max_events = topics, max_events
        self._density: dict[str, float] = {}  # events per message, by topic, as seen so far
        self.messages = min(FIRST, max_events)  # per batch

    def learn(self, runs: Sequence[MessageRun], events: Mapping[str, int]) -> None:
        """Adapts to a poll's messages and their events by topic: a batch has as many messages as contain `max_events`.

        It has at most twice as many as before, which limits the effect of a topic not seen so far.
        """
        messages = dict.fromkeys(self._topics, 0)
        for run in runs:
            messages[run.topic] += len(run.values)
        for topic, count in messages.items():
            if count:
                self._density[topic] = max(1.0, events[topic] / count, 0.8 * self._density.get(topic, 1.0))
        if runs:
            self.messages = max(1, min(2 * self.messages, int(self._max_events / max(self._density.values()))))
