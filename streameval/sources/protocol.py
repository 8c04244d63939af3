"""What a source promises, and where bad events go."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from streameval.events.batch import Batch

Place = tuple[str, int]  # (input by its name, partition)

# The closed set of reasons for a dead letter: also the labels of the Prometheus counter.
REASONS = (
    "empty",  # no bytes, or a Kafka tombstone
    "too_large",  # longer than kafka.max_message
    "malformed",  # not JSON, not UTF-8, not an Arrow stream, not of its schema, nested too deep
    "unknown_schema",  # the schema registry has no schema of the id that a message names
    "wrong_schema",  # an Arrow stream or file whose columns or types are not ours
    "missing_field",  # a required field is absent or null
    "wrong_type",  # a field has another type than the contract says
    "out_of_range",  # pclick outside [0, 1], a time before 2000 or in another unit than ms, NaN, ...
    "future_timestamp",  # further ahead of the wall clock than join.max_future
    "conflicting_id",  # an impression whose id another model's or version's impression has
)


class SourceError(RuntimeError):
    """A source that cannot continue; the message names the source, what happened and the fix."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One event that could not be used, whole. `offset` is the Kafka offset, or the line or row number (from 0)."""

    value: bytes  # the original bytes of the message or line; of a row of Parquet or Arrow: the row as JSON
    reason: str  # one of REASONS
    field: str  # "" when no single field is at fault
    message: str  # for people: the thing, the value, what would be right
    topic: str  # or the file's path
    partition: int
    offset: int


class DeadLetterSink(Protocol):
    """Keeps dead letters, whole, outside the process."""

    def write(self, letters: Sequence[DeadLetter]) -> None:
        """Hand over letters; may return before they are stored."""

    def flush(self) -> None:
        """Return once everything written is stored; raises SourceError if that cannot be."""

    def close(self) -> None:
        """Flush and let go. May be called twice."""


class Keeper(Protocol):
    """Who keeps the state of partitions. A source that shares partitions with others calls it inside `poll`.

    A partition belongs to one worker at a time. The source never delivers events of a partition that was not taken,
    and begins a taken one exactly at the offsets returned.
    """

    def take(self, partitions: frozenset[int]) -> Mapping[Place, int]:
        """These are ours now, new ones (what was held before and not dropped continues untouched, also when released).

        Returns the next offset to read of those topic partitions whose state was found; the others begin where the
        source's own settings say. Raises SourceError when a state is there but cannot be used.
        """

    def topic_ids(self, partitions: frozenset[int]) -> Mapping[Place, str]:
        """The ids of the topics that the offsets are of which `take` returned for these, where known."""

    def release(self, partitions: frozenset[int]) -> None:
        """These are about to go to another worker, or to come back: write them now. Still ours; waits a bounded time.

        Those that come back are not taken again (see `regain`). Nothing of them is delivered until it is known who has
        them.
        """

    def regain(self, partitions: frozenset[int]) -> None:
        """These were ours and still are, whether released or not: they continue untouched."""

    def drop(self, partitions: frozenset[int]) -> None:
        """These are not ours any more (released before, or lost without warning): forget them, write nothing."""


# B027: an empty method is a default here
class Source(ABC):
    """Delivers decoded batches. One thread uses it.

    A new one must only `poll`. What is inherited answers for a source of one partition and one input (impressions and
    clicks in one order) that loses nothing, keeps no offsets, and never has more than `poll` brings.
    A *place* is (input, partition): the input by its name, a topic's for example.
    """

    finished: bool = False  # True when nothing will ever come any more

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the logs that are read: one of both kinds of events, or that of impressions and that of clicks."""
        return ("events",)

    @abstractmethod
    def poll(self, timeout: float) -> list[Batch]:
        """Batches that are ready, at most one per partition, each with at most about `batch.max_events` events.

        Waits up to `timeout` seconds for the first one; an empty list says that nothing came. Dead letters are written
        to the sink before the batch that counts them is returned. Raises SourceError when it cannot continue.
        """

    def deliver(self, timeout: float, take: Callable[[Batch], None]) -> None:
        """Hands `take` what there is, batch by batch, maybe several of a partition, in their order: what the loop asks.

        Else as `poll`. A source whose decoding takes long decodes the next batch in the meantime; none is left when
        this returns.
        """
        for batch in self.poll(timeout):
            take(batch)

    def connect(self, stop: threading.Event) -> None:  # noqa: B027  (a default that does nothing)
        """Wait until the events' keeper answers, or `stop` is set: asked before whatever takes long.

        Raises SourceError when nobody does, so that a wrong address is reported soon.
        """

    def begin(self, keeper: Keeper | None) -> None:
        """Called once, before the first `poll`: has the keeper restore the partitions, and continues where their states end.

        A source that shares partitions with others overrides this, and calls the keeper inside `poll`.
        """
        if keeper is not None:
            self.go_on(keeper.take(self.partitions()))

    def go_on(self, offsets: Mapping[Place, int]) -> None:  # noqa: B027  (a default that does nothing)
        """Read from these offsets on, where there are any. A source that cannot read anything twice does nothing."""

    def lacks_features(self) -> str:
        """Why no event can carry features, and what would help ("...: do this"); "" when events may carry some."""
        return ""

    def partitions(self) -> frozenset[int]:
        """The partitions that this source reads now."""
        return frozenset({0})

    def lag(self) -> Mapping[Place, int]:
        """Messages not read yet, where known."""
        return {}

    def caught_up(self) -> frozenset[Place]:
        """The places at which no message waits, as of now; may ask and wait about a second."""
        return frozenset((name, partition) for name in self.inputs for partition in self.partitions())

    def lost(self) -> Mapping[Place, int]:
        """Messages that were gone or passed over before they were read, since the start."""
        return {}

    def empty(self) -> Mapping[Place, int]:
        """Offsets between messages that hold none (compacted away, or marks of transactions), since the start."""
        return {}

    def recreated(self) -> Mapping[str, int]:
        """How often an input was found deleted and recreated, by name, since the start."""
        return {}

    def unpaired(self) -> Mapping[str, int]:
        """Partitions of an input that are not read, because the other does not have them; no entry: none."""
        return {}

    def strangers(self) -> Mapping[str, int]:
        """Partitions that a program which is none of ours reads in our place, by who it is; no entry: none."""
        return {}

    def connected(self) -> bool:
        """False while nobody answers where the events come from."""
        return True

    def progress(self) -> tuple[int, int] | None:
        """(done, total) in units of the source's own, for a progress bar; None when there is no end."""
        return None

    def commit(self, offsets: Mapping[Place, int]) -> None:  # noqa: B027  (a default that does nothing)
        """Tell where the offsets are kept, if anywhere, what has been counted (`Batch.offsets`); does not wait."""

    def close(self) -> None:  # noqa: B027  (a default that does nothing)
        """Drop connections and files. May be called twice."""
