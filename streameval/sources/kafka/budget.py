"""How many messages a poll takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streameval.sources.kafka.reader import MessageRun

FIRST = 10  # messages of the first poll, when it is not known yet how many events a message holds


class Budget:
    """Learns from every poll."""

    def __init__(self, topics: Sequence[str], max_events: int) -> None:
        """`max_events`: of a batch."""
        self._topics, self._max_events = topics, max_events
        self._density: dict[str, float] = {}  # events per message, by topic, as far as seen
        self.messages = min(FIRST, max_events)  # of a batch

    def learn(self, runs: Sequence[MessageRun], events: Mapping[str, int]) -> None:
        """A poll brought these, with so many events by topic: a batch is of as many messages as hold `max_events`.

        But of at most twice as many as before, which bounds what a topic not seen so far can bring.
        """
        messages = dict.fromkeys(self._topics, 0)
        for run in runs:
            messages[run.topic] += len(run.values)
        for topic, count in messages.items():
            if count:
                self._density[topic] = max(1.0, events[topic] / count, 0.8 * self._density.get(topic, 1.0))
        if runs:
            self.messages = max(1, min(2 * self.messages, int(self._max_events / max(self._density.values()))))
