"""The protocol of a Kafka reader, implemented by `confluent_reader` and `python_reader`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from streameval.sources.formats.line_text import Lines
from streameval.sources.kafka import linger
from streameval.sources.kafka.topics import TopicWatch
from streameval.sources.protocol import Place

# Seconds without an answer after which the brokers count as unavailable. Shorter: a busy broker looks dead; longer:
# /readyz reports it later. For an idle topic they are asked about three times as often.
QUIET = 9.0


@dataclass(frozen=True, slots=True)
class MessageRun:
    """Messages of one topic partition, in offset order; None is a tombstone."""

    topic: str
    partition: int
    values: Sequence[bytes | None]
    offsets: Sequence[int] | NDArray[np.int64]

    @property
    def place(self) -> Place:
        """The topic partition that they come from."""
        return self.topic, self.partition

    @property
    def end(self) -> int:
        """The offset after the last one."""
        return int(self.offsets[-1]) + 1

    def part(self, begin: int, end: int | None = None) -> MessageRun:
        """Returns some of the messages, by their position."""
        return MessageRun(self.topic, self.partition, self.values[begin:end], self.offsets[begin:end])


def joined(runs: Sequence[MessageRun]) -> tuple[Sequence[bytes | None], NDArray[np.int64]]:
    """Returns the values and offsets of several runs; as one text if any of them is one, and there are no tombstones."""
    offsets = np.concatenate([np.zeros(0, np.int64), *(np.asarray(run.offsets, np.int64) for run in runs)])
    parts: list[Lines] = []
    if any(isinstance(run.values, Lines) for run in runs):
        for run in runs:
            part = run.values if isinstance(run.values, Lines) else Lines.packed(run.values)
            if part is None:
                break
            parts.append(part)
        else:
            return Lines.joined(parts), offsets
    return list(chain.from_iterable(run.values for run in runs)), offsets


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where reading of a topic partition continues: at a new assignment, or after missing messages."""

    place: Place
    offset: int
    topic_id: str | None  # of the topic that the offset belongs to, if known
    gap: str = ""  # what is missing before it, in words


class UnreachableError(Exception):
    """No broker answered in time; the message contains the client's error."""


class Owner(Protocol):
    """The owner of what is read. Called inside `KafkaReader.poll`, in its thread; may raise SourceError."""

    def assigned(self, places: frozenset[Place]) -> Mapping[Place, int]:
        """Takes the complete assignment that reading continues with; returns the next offsets that are known.

        Called again for the same assignment if a broker could not be asked for what is needed to begin.
        """

    def topic_ids(self) -> Mapping[Place, str]:
        """Returns the ids of the topics that those offsets belong to, if known."""

    def revoked(self, places: frozenset[Place]) -> None:
        """These will be reassigned, maybe to this member; they are still ours until this returns."""

    def lost(self, places: frozenset[Place]) -> None:
        """These are no longer ours, and may already be another member's."""


class KafkaReader(ABC):
    """A consumer of one client library in one group. Used by a single thread."""

    # called before messages are delivered; if it returns False, none of them is delivered, and they come again
    gate: Callable[[Iterable[MessageRun]], bool] | None = None
    linger: float = linger.LEAST_LINGER  # seconds that a poll waits for more after the first message

    @abstractmethod
    def partition_counts(self, topics: Iterable[str], timeout: float) -> dict[str, int]:
        """Returns the partition counts of those topics that exist. Raises UnreachableError, or SourceError if access is
        denied.
        """

    @abstractmethod
    def subscribe(
        self, topics: Sequence[str], owner: Owner, *, committed: bool, watch: TopicWatch | None = None
    ) -> None:
        """Joins the group; `owner` is notified of every change inside `poll`. `committed`: begin at the group's
        offsets.

        Partitions that do not exist in every topic are not read. Without `watch` a recreated topic is not noticed.
        """

    @abstractmethod
    def poll(self, timeout: float, max_messages: int) -> list[MessageRun]:
        """Returns up to `max_messages` messages, in arrival order, as runs; waits up to `timeout` s for the first one.

        Never delivers a message twice, or out of offset order, to this process, and none of a partition that was
        revoked or lost in this call. Raises SourceError if it cannot continue; a lost connection is not such a case.
        """

    @property
    @abstractmethod
    def assignment(self) -> frozenset[Place]:
        """The last assignment given; it is valid until the next one comes, also during a rebalance."""

    @abstractmethod
    def lag(self) -> dict[Place, int]:
        """Returns the number of messages between the next one to be delivered and the end, if the end is known."""

    @abstractmethod
    def caught_up(self, timeout: float) -> frozenset[Place]:
        """Asks the brokers, for up to `timeout` s, for the ends; returns the places where nothing is left to
        deliver, now or after the end of a transaction.
        """

    @property
    @abstractmethod
    def in_transaction(self) -> Mapping[Place, int]:
        """As `caught_up` last found: places where all that can be read was delivered, and more follows, behind a
        transaction that has not ended; with the offset at which that begins.
        """

    @abstractmethod
    def beginnings(self) -> list[Beginning]:
        """To be called after every `poll`: returns where reading had begun, or had moved to, when the poll began.

        What that poll delivered comes from there. Places that were revoked or begun again in the meantime are left out.
        """

    @property
    @abstractmethod
    def recreated(self) -> Mapping[str, int]:
        """How often a topic was found deleted and recreated, since the start."""

    @property
    @abstractmethod
    def empty(self) -> Mapping[Place, int]:
        """Offsets between messages that contain none, since the start: removed by compaction, or transaction
        markers.
        """

    @property
    @abstractmethod
    def lost(self) -> Mapping[Place, int]:
        """Offsets that were deleted or skipped before they were read, since the start."""

    @property
    @abstractmethod
    def silence(self) -> float:
        """Seconds since a broker last answered; infinite before the first time."""

    @abstractmethod
    def commit(self, offsets: Mapping[Place, int]) -> None:
        """Commits the next offsets to read to the group, without waiting; `close` makes sure of the last ones."""

    @abstractmethod
    def pause(self, places: Iterable[Place]) -> None:
        """Stops delivering messages of these until `resume` (or the next assignment)."""

    @abstractmethod
    def resume(self, places: Iterable[Place]) -> None:
        """Continues these where they were paused."""

    @abstractmethod
    def close(self) -> None:
        """Leaves the group, without notifying the owner, and closes connections. May be called twice."""
