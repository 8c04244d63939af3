"""What a Kafka client must do to be read from: one protocol, done by `confluent_reader` and `python_reader`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from streameval.sources.kafka.pacing import Place
from streameval.sources.protocol import SourceError

# Told the partitions of a new assignment; answers with those whose next offset is known. May raise SourceError.
Assigned = Callable[[frozenset[Place]], Mapping[Place, int]]


@dataclass(frozen=True, slots=True)
class Run:
    """Messages of one topic partition, in offset order; None is a tombstone."""

    topic: str
    partition: int
    values: list[bytes | None]
    offsets: list[int]


class UnreachableError(Exception):
    """No broker answered in time; the message says what the client saw."""


class KafkaReader(Protocol):
    """A consumer of one client library in one group. One thread uses it."""

    def partition_counts(self, topics: Iterable[str], timeout: float) -> dict[str, int]:
        """Partitions of those topics that exist. Raises UnreachableError, or SourceError when access is denied."""

    def subscribe(self, topics: Sequence[str], assigned: Assigned) -> None:
        """Join the group; `assigned` is called inside `poll` at every assignment."""

    def poll(self, timeout: float, max_messages: int) -> list[Run]:
        """At most `max_messages` messages, in arrival order, as runs; waits up to `timeout` s for the first one.

        Never delivers a message twice, nor out of offset order, to this process. Raises SourceError when it cannot
        go on; a connection lost is no such case.
        """

    @property
    def assignment(self) -> frozenset[Place]:
        """The last assignment given; it holds until the next one comes, also during a rebalance."""

    def lag(self) -> dict[Place, int]:
        """Messages between the next one to be delivered and the end, where the end is known."""

    def commit(self, offsets: Mapping[Place, int]) -> None:
        """Tell the group, without waiting, the next offsets to read; the last ones are made sure of by `close`."""

    def pause(self, places: Iterable[Place]) -> None:
        """Deliver nothing of these until `resume` (or the next assignment)."""

    def resume(self, places: Iterable[Place]) -> None:
        """Go on with these where they were paused."""

    def close(self) -> None:
        """Leave the group and let go of connections. May be called twice."""


class Positions:
    """The next offset of every topic partition, for a reader.

    A position goes with the state in this process' memory, which survives a rebalance that gives the partition back;
    so it is forgotten only when an assignment comes without the partition.
    """

    def __init__(self) -> None:
        self.next: dict[Place, int] = {}

    def regained(self, places: frozenset[Place]) -> dict[Place, int]:
        """The positions that still hold after an assignment."""
        self.next = {place: offset for place, offset in self.next.items() if place in places}
        return dict(self.next)

    def advance(self, run: Run) -> Run | None:
        """Move past a run; what remains of it when what was delivered before (a rebalance can repeat it) is cut off."""
        place = (run.topic, run.partition)
        due = self.next.get(place, 0)
        if run.offsets[0] < due:
            keep = [i for i, offset in enumerate(run.offsets) if offset >= due]
            if not keep:
                return None
            run = Run(run.topic, run.partition, run.values[keep[0] :], run.offsets[keep[0] :])
        self.next[place] = run.offsets[-1] + 1
        return run


def check_start(place: Place, offset: int, low: int, high: int) -> None:
    """Raise SourceError when a checkpoint's offset is outside of what the broker has, [low, high]."""
    if not low <= offset <= high:
        raise SourceError(
            f"{place[0]} [{place[1]}]: the checkpoint goes on at offset {offset}, but Kafka has {low} to {high}: "
            "events would be lost or mistaken; begin without the checkpoint, or keep messages longer (retention.ms)"
        )
