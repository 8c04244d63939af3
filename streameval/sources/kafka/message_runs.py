"""Messages of confluent-kafka sorted into runs by topic partition: column by column, for a million a second."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, groupby
from operator import itemgetter

import numpy as np
from confluent_kafka import Message
from numpy.typing import NDArray

from streameval.sources.kafka.reader import MessageRun
from streameval.sources.protocol import Place

# Messages requested at a time. The client creates an object for each: a few hundred stay in the processor's cache until
# their values are read, and cost a third of what ten thousand do (1.7 against 0.56 million messages of 290 bytes a
# second).
SLICE_MESSAGES = 500


class MessageColumns:
    """Messages received, as runs by topic partition, in the order of their first messages."""

    def __init__(self) -> None:
        self.events: list[Message] = []  # errors and ends, which are not messages
        self._runs: dict[Place, list[MessageRun]] = {}

    def add(self, messages: Sequence[Message]) -> None:
        """Adds messages, whose objects can be freed then."""
        if any(map(Message.error, messages)):  # None: a message
            self.events += [message for message in messages if message.error() is not None]
            messages = [message for message in messages if message.error() is None]
        if not messages:
            return
        partitions, topics = list(map(Message.partition, messages)), list(map(Message.topic, messages))
        size = len(messages)
        if partitions.count(partitions[0]) == size == topics.count(topics[0]):  # as mostly, in a backlog
            self._add((topics[0], partitions[0]), messages)
            return
        of_place: dict[Place, list[Message]] = {}
        for place, same in groupby(zip(topics, partitions, messages, strict=True), itemgetter(0, 1)):
            of_place.setdefault(place, []).extend(message for _, _, message in same)
        for place, some in of_place.items():
            self._add(place, some)

    def _add(self, place: Place, messages: Sequence[Message]) -> None:
        run = MessageRun(*place, list(map(Message.value, messages)), _offsets(messages))
        self._runs.setdefault(place, []).append(run)

    def runs(self) -> list[MessageRun]:
        """Returns the runs, those of a topic partition one after the other."""
        return list(chain.from_iterable(self._runs.values()))


def _offsets(messages: Sequence[Message]) -> NDArray[np.int64]:
    """Returns the offsets of messages of one topic partition.

    They increase, so where the first and the last are as far apart as there are messages, nobody asks for the others.
    """
    first, last = messages[0].offset(), messages[-1].offset()
    if last - first == len(messages) - 1:
        return np.arange(first, last + 1)
    return np.fromiter(map(Message.offset, messages), np.int64, len(messages))
