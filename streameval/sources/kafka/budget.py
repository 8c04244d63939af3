"""How many messages a poll takes, and a batch of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streameval.sources.kafka.reader import MessageRun

FIRST = 10  # messages of the first poll, before it is known how many events a message contains
BATCHES_A_POLL = 4  # full batches in a poll


class Budget:
    """Adapts the number of messages to every poll.

    A batch costs milliseconds, whatever it contains. So where a poll brings messages of several partitions, it takes
    more of them, or each would have a batch of a few hundred.
    """

    def __init__(self, topics: Sequence[str], max_events: int) -> None:
        """`max_events`: per batch."""
        self._topics, self._max_events = topics, max_events
        self._density: dict[str, float] = {}  # events per message, by topic, as seen so far
        self.batch = self.messages = min(FIRST, max_events)  # messages of a batch, and of a poll

    def learn(self, runs: Sequence[MessageRun], events: Mapping[str, int]) -> None:
        """Adapts to a poll's messages and their events by topic: a batch has as many messages as contain `max_events`.

        Both numbers are at most twice as high as before, which limits the effect of a topic not seen so far.
        """
        messages = dict.fromkeys(self._topics, 0)
        for run in runs:
            messages[run.topic] += len(run.values)
        for topic, count in messages.items():
            if count:
                self._density[topic] = max(1.0, events[topic] / count, 0.8 * self._density.get(topic, 1.0))
        if runs:
            partitions = len({run.partition for run in runs})
            self.batch = max(1, min(2 * self.batch, int(self._max_events / max(self._density.values()))))
            self.messages = min(2 * self.messages, self.batch * min(partitions, BATCHES_A_POLL))

    def split(self, runs: Sequence[MessageRun]) -> list[list[MessageRun]]:
        """Divides the runs of one partition, in order, into those of batches."""
        out: list[list[MessageRun]] = [[]]
        room = self.batch
        for run in runs:
            begin, size = 0, len(run.values)
            while begin < size:
                if not room:
                    out.append([])
                    room = self.batch
                end = min(begin + room, size)
                out[-1].append(run if end - begin == size else run.part(begin, end))
                room -= end - begin
                begin = end
        return out
