"""How partitions come to a group member of confluent-kafka, and go, under both protocols of a group.

Under the classic one every rebalance takes all partitions and gives a complete assignment. Under KIP-848 the broker
gives and takes single ones, and the client is told only what changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException, TopicPartition

from streameval.sources.kafka.confluent_client import generation
from streameval.sources.kafka.member import Member, whole
from streameval.sources.kafka.starts import Offsets, Origin, known, noted
from streameval.sources.protocol import Place


def at(offsets: Offsets) -> list[TopicPartition]:
    """Returns places with their offsets, as the client wants them."""
    return [TopicPartition(*place, *noted(offset)) for place, offset in offsets.items()]


def offsets_of(committed: Sequence[TopicPartition]) -> dict[Place, int | Origin]:
    """Returns the offsets of a group that it has."""
    found = {(one.topic, one.partition): known(one.offset, one.metadata) for one in committed}
    return {place: offset for place, offset in found.items() if offset is not None}


class Assignments:
    """What the group has assigned to a client, and what the client was told to read.

    Its callbacks only record an assignment; `ConfluentReader.poll` begins reading, where brokers may be asked and
    errors can be raised.
    """

    def __init__(self, member: Callable[[], Member], *, incremental: bool) -> None:
        """`member`: ours, once there is one. `incremental`: the broker changes only what must change (KIP-848)."""
        self._member = member
        self.incremental = incremental
        self._topics: list[str] = []
        self._granted: frozenset[Place] = frozenset()  # by the broker; a partition is ours once all its topics are
        self._reading: frozenset[Place] = frozenset()  # what the client was told to read
        self._closed = False

    def subscribe(self, consumer: Consumer, topics: Sequence[str]) -> None:
        """Joins the group with a new client, which has no partitions yet."""
        self._topics = list(topics)
        self._granted = self._reading = frozenset()
        consumer.subscribe(self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)

    def read(self, consumer: Consumer, starts: Mapping[Place, int]) -> None:
        """Has the client read these: the complete assignment, of which it may read some already."""
        if self.incremental:
            if waiting := self._reading - starts.keys():  # a topic that was recreated, and has no leader yet
                consumer.incremental_unassign([TopicPartition(*place) for place in waiting])
            consumer.incremental_assign(at({place: starts[place] for place in starts.keys() - self._reading}))
        else:
            consumer.assign(at(starts))
        self._reading = frozenset(starts)

    def rewind(self, consumer: Consumer, positions: Mapping[Place, int]) -> None:
        """Has the client read all that is open from these positions."""
        places = at(positions)
        if self.incremental:  # everything it reads is open: see `_release`
            consumer.incremental_unassign(places)
            consumer.incremental_assign(places)
        else:
            consumer.assign(places)

    def close(self) -> None:
        """From now on nobody is told what the group takes."""
        self._closed = True

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        accept = consumer.incremental_assign if self.incremental else consumer.assign
        if self._closed:  # the client is leaving, and may have left: an error here would be a SystemError of its own
            with suppress(KafkaException, RuntimeError):
                accept([])
            return
        places = _places(partitions)
        accept([])  # but nothing is read before `read` says from where
        if self.incremental:
            self._granted |= places
            self._member().assign(self._whole())
        else:
            self._member().assign(places, generation(consumer))

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._release(consumer, partitions, Member.revoke)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._release(consumer, partitions, Member.lose)

    def _release(
        self, consumer: Consumer, partitions: list[TopicPartition], tell: Callable[[Member, frozenset[Place]], None]
    ) -> None:
        """Gives partitions up; `tell`: the method by which the member is told."""
        if self._closed:
            return
        member, places = self._member(), _places(partitions)
        if not self.incremental:
            tell(member, places)  # all of them; the client unassigns them by itself
            return
        self._granted -= places
        numbers = {partition for _, partition in places}
        leaving = frozenset(place for place in self._reading if place[1] in numbers)  # never half of a pair
        tell(member, leaving)
        consumer.incremental_unassign([TopicPartition(*place) for place in leaving])
        self._reading -= leaving
        member.assign(self._whole())

    def _whole(self) -> frozenset[Place]:
        """Returns the granted partitions whose topics have all been granted: they may come one after another."""
        return whole(self._granted, self._topics)


def _places(partitions: Sequence[TopicPartition]) -> frozenset[Place]:
    return frozenset((one.topic, one.partition) for one in partitions)
