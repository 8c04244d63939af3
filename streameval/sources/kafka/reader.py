"""The protocol of a Kafka reader, implemented by `confluent_reader` and `python_reader`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from streameval.sources.kafka.topics import TopicWatch
from streameval.sources.protocol import Place

# Seconds without an answer after which the brokers count as gone. Shorter: a busy broker looks dead; longer: /readyz
# says so later. An idle topic is asked about three times as often.
QUIET = 9.0


@dataclass(frozen=True, slots=True)
class MessageRun:
    """Messages of one topic partition, in offset order; None is a tombstone."""

    topic: str
    partition: int
    values: list[bytes | None]
    offsets: list[int]

    @property
    def place(self) -> Place:
        """Where they come from."""
        return self.topic, self.partition


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where reading of a topic partition continues: at a new assignment, or behind what is gone."""

    place: Place
    offset: int
    topic_id: str | None  # of the topic that the offset is of, where known
    gap: str = ""  # what is missing before it, in words


class UnreachableError(Exception):
    """No broker answered in time; the message says what the client saw."""


class Owner(Protocol):
    """Who answers for what is read. Called inside `KafkaReader.poll`, in its thread; may raise SourceError."""

    def assigned(self, places: frozenset[Place]) -> Mapping[Place, int]:
        """The whole assignment that reading continues with; answers with the next offsets that are known.

        Called again for the same assignment when a broker could not be asked what it takes to begin.
        """

    def topic_ids(self) -> Mapping[Place, str]:
        """Of which topics those offsets are, where known."""

    def revoked(self, places: frozenset[Place]) -> None:
        """These will be reassigned, maybe to this member; they are still ours until this returns."""

    def lost(self, places: frozenset[Place]) -> None:
        """These are not ours any more, and may be another member's already."""


class KafkaReader(ABC):
    """A consumer of one client library in one group. One thread uses it."""

    # asked before messages are delivered; when it says no, none of them is, and they come again
    gate: Callable[[Iterable[MessageRun]], bool] | None = None

    @abstractmethod
    def partition_counts(self, topics: Iterable[str], timeout: float) -> dict[str, int]:
        """Partitions of those topics that exist. Raises UnreachableError, or SourceError when access is denied."""

    @abstractmethod
    def subscribe(
        self, topics: Sequence[str], owner: Owner, *, committed: bool, watch: TopicWatch | None = None
    ) -> None:
        """Join the group; `owner` is notified of every change inside `poll`. `committed`: begin at the group's offsets.

        Of partitions that are not there in every topic nothing is read. Without `watch` a topic that is recreated is
        not noticed.
        """

    @abstractmethod
    def poll(self, timeout: float, max_messages: int) -> list[MessageRun]:
        """At most `max_messages` messages, in arrival order, as runs; waits up to `timeout` s for the first one.

        Never delivers a message twice, nor out of offset order, to this process, and none of a partition that the owner
        heard in this call to be revoked or lost. Raises SourceError when it cannot continue; a connection lost is no
        such case.
        """

    @property
    @abstractmethod
    def assignment(self) -> frozenset[Place]:
        """The last assignment given; it holds until the next one comes, also during a rebalance."""

    @abstractmethod
    def lag(self) -> dict[Place, int]:
        """Messages between the next one to be delivered and the end, where the end is known."""

    @abstractmethod
    def caught_up(self, timeout: float) -> frozenset[Place]:
        """Asks the brokers, for up to `timeout` s, where the ends are: those at which nothing is left to deliver."""

    @abstractmethod
    def beginnings(self) -> list[Beginning]:
        """To be asked after every `poll`: where reading had been begun, or had moved to, when the poll began.

        What that poll delivered comes from there. Without those that were removed or begun again in the meantime.
        """

    @property
    @abstractmethod
    def recreated(self) -> Mapping[str, int]:
        """How often a topic was found deleted and recreated, since the start."""

    @property
    @abstractmethod
    def empty(self) -> Mapping[Place, int]:
        """Offsets between messages that hold none, since the start: what compaction removed, and transactions' marks."""

    @property
    @abstractmethod
    def lost(self) -> Mapping[Place, int]:
        """Offsets that were gone or passed over before they were read, since the start."""

    @property
    @abstractmethod
    def silence(self) -> float:
        """Seconds since a broker answered for the last time; infinite before the first time."""

    @abstractmethod
    def commit(self, offsets: Mapping[Place, int]) -> None:
        """Tell the group, without waiting, the next offsets to read; the last ones are made sure of by `close`."""

    @abstractmethod
    def pause(self, places: Iterable[Place]) -> None:
        """Deliver nothing of these until `resume` (or the next assignment)."""

    @abstractmethod
    def resume(self, places: Iterable[Place]) -> None:
        """Go on with these where they were paused."""

    @abstractmethod
    def close(self) -> None:
        """Leave the group, telling the owner nothing, and drop connections. May be called twice."""
