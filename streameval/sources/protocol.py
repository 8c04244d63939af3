"""The interface of a source, and where bad events go."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from streameval.events.batch import Batch

Place = tuple[str, int]  # (name of the input, partition)

# The closed set of reasons for a dead letter: also the labels of the Prometheus counter.
REASONS = (
    "empty",  # no bytes, or a Kafka tombstone
    "too_large",  # longer than kafka.max_message
    "malformed",  # not JSON, not UTF-8, not an Arrow stream, not of its schema, nested too deep
    "unknown_schema",  # the schema registry has no schema of the id in a message
    "wrong_schema",  # an Arrow stream or file with other columns or types than ours
    "missing_field",  # a required field is absent or null
    "wrong_type",  # a field has another type than the contract says
    "out_of_range",  # pclick outside [0, 1], a time before 2000 or in another unit than ms, NaN, ...
    "future_timestamp",  # further ahead of the wall clock than join.max_future
    "conflicting_id",  # an impression whose id another model's or version's impression has
)


class Stopped(Exception):  # noqa: N818  (nothing went wrong)
    """No more partitions are taken, because the process is to end."""


class SourceError(RuntimeError):
    """A source cannot continue; the message names the source, what happened and the fix."""


class LettersError(SourceError):
    """Dead letters wait until somebody acts, and are stored then; the message names the setting and the fix."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One event that could not be used, complete. `offset` is the Kafka offset, or the line or row number (from 0)."""

    value: bytes  # the original bytes of the message or line; for a row of Parquet or Arrow: the row as JSON
    reason: str  # one of REASONS
    field: str  # "" if no single field is at fault
    message: str  # for people: the field, the value, what would be right
    topic: str  # or the file's path
    partition: int
    offset: int


class DeadLetterSink(Protocol):
    """Stores dead letters, complete, outside the process."""

    def write(self, letters: Sequence[DeadLetter]) -> None:
        """Queues letters; may return before they are stored."""

    def flush(self, timeout: float) -> None:
        """Returns once everything written before this call is stored; any thread may call it, while another one writes.

        Raises SourceError if that fails, or takes longer than `timeout` s.
        """

    def close(self) -> None:
        """Flushes and closes. May be called twice."""


class Keeper(Protocol):
    """Keeps the state of partitions. A source that shares partitions with others calls it inside `poll`.

    A partition belongs to one worker at a time. The source never delivers events of a partition that was not taken, and
    begins a taken one exactly at the offsets returned.
    """

    def take(self, partitions: frozenset[int]) -> Mapping[Place, int]:
        """Takes new partitions (those held before and not dropped continue untouched, also if they were released).

        Returns the next offset to read for those topic partitions whose state was found; the others begin where the
        source's own settings say. Raises SourceError if a state exists but cannot be used, and Stopped once the process is
        to end: some may have been taken by then, and the others are left as they are.
        """

    def topic_ids(self, partitions: frozenset[int]) -> Mapping[Place, str]:
        """Returns the ids of the topics that the offsets returned by `take` belong to, if known."""

    def release(self, partitions: frozenset[int]) -> None:
        """Writes these now: they are about to go to another worker, or to come back. Still ours; waits a bounded time.

        Those that come back are not taken again (see `regain`). Nothing of them is delivered until it is known who has
        them.
        """

    def regain(self, partitions: frozenset[int]) -> None:
        """These were ours and still are, whether released or not: they continue untouched."""

    def drop(self, partitions: frozenset[int]) -> None:
        """These are no longer ours (released before, or lost without warning): drops them, writes nothing."""


# B027: an empty method is a default here
class Source(ABC):
    """Delivers decoded batches. Used by a single thread.

    A new one must only `poll`. The defaults are those of a source of one partition and one input (impressions and
    clicks in one order) that loses nothing, keeps no offsets, and never has more than `poll` returns. A *place* is
    (input, partition): the input by its name, for example a topic's.
    """

    finished: bool = False  # True if nothing will ever come any more

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the logs that are read: one of both kinds of events, or that of impressions and that of
        clicks.
        """
        return ("events",)

    @abstractmethod
    def poll(self, timeout: float) -> list[Batch]:
        """Returns batches that are ready, those of a partition in order, each with at most about `batch.max_events` events.

        Waits up to `timeout` seconds for the first one; an empty list means that nothing came. Dead letters are written
        to the sink before the batch that counts them is returned. Raises SourceError if it cannot continue.
        """

    def deliver(self, timeout: float, take: Callable[[Batch], None]) -> None:
        """Passes what there is to `take`, batch by batch, maybe several per partition, in order: called by the loop.

        Otherwise like `poll`. A source that takes long to decode decodes the next batch in the meantime; none is left
        when this returns.
        """
        for batch in self.poll(timeout):
            take(batch)

    def rest(self, timeout: float, take: Callable[[Batch], None]) -> None:  # noqa: B027
        """Called in place of `deliver` while no more events may come, as the disk is behind.

        A source that must be heard of by others, as by a group, overrides this. What comes all the same goes to `take`.
        """

    def connect(self, stop: threading.Event) -> None:  # noqa: B027  (a default that does nothing)
        """Waits until the system that the events come from answers, or `stop` is set: called before anything slow.

        Raises SourceError if nothing answers, so that a wrong address is reported soon.
        """

    def begin(self, keeper: Keeper | None) -> None:
        """Called once, before the first `poll`: has the keeper restore the partitions, and continues where their states
        end.

        A source that shares partitions with others overrides this, and calls the keeper inside `poll`.
        """
        if keeper is not None:
            self.go_on(keeper.take(self.partitions()))

    def go_on(self, offsets: Mapping[Place, int]) -> None:  # noqa: B027  (a default that does nothing)
        """Continues reading from these offsets, if there are any. A source that cannot read anything twice does
        nothing.
        """

    def lacks_features(self) -> str:
        """Returns why no event can carry features, and what would help ("...: do this"); "" if events may carry
        some.
        """
        return ""

    def partitions(self) -> frozenset[int]:
        """Returns the partitions that this source reads now."""
        return frozenset({0})

    def partition_count(self) -> int | None:
        """Returns how many partitions every input has now, over all workers, 0 while one is away; None: unknown, or it never
        shrinks.

        What partitions beyond it had counted stays in the results (see `streameval.loop.gone`).
        """
        return None

    def lag(self) -> Mapping[Place, int]:
        """Returns the number of messages not read yet, if known."""
        return {}

    def caught_up(self) -> frozenset[Place]:
        """Returns the places where no message is waiting now; may ask and wait for about a second."""
        return frozenset((name, partition) for name in self.inputs for partition in self.partitions())

    def in_transaction(self) -> Mapping[Place, int]:
        """Returns the places of which nothing more can be read until a transaction ends, as `caught_up` last found, with the
        offset at which it begins. They are not caught up.
        """
        return {}

    def lost(self) -> Mapping[Place, int]:
        """Returns the number of messages that were deleted or skipped before they were read, since the start."""
        return {}

    def empty(self) -> Mapping[Place, int]:
        """Returns the offsets between messages that contain none (compaction, or transaction markers), since
        the start.
        """
        return {}

    def recreated(self) -> Mapping[str, int]:
        """Returns how often an input was found deleted and recreated, by name, since the start."""
        return {}

    def unpaired(self) -> Mapping[str, int]:
        """Returns the partitions of an input that are not read, because the other one lacks them; no entry: none."""
        return {}

    def missing(self) -> frozenset[str]:
        """Returns the inputs that do not exist, or no longer."""
        return frozenset()

    def held(self) -> frozenset[Place]:
        """Returns what is not read for now, because its partner is behind it in event time."""
        return frozenset()

    def schemas(self) -> str:
        """Returns why messages wait for their schemas, in a sentence; "": none does."""
        return ""

    def strangers(self) -> Mapping[str, int]:
        """Partitions that a program which is none of ours reads in our place, by who it is; no entry: none."""
        return {}

    def is_out(self) -> bool:
        """Whether all partitions were taken from this process without notice, and nothing was assigned to it since."""
        return False

    def connected(self) -> bool:
        """False while the system that the events come from does not answer."""
        return True

    def progress(self) -> tuple[int, int] | None:
        """Returns (done, total) in the source's own units, for a progress bar; None if there is no end."""
        return None

    def commit(self, offsets: Mapping[Place, int]) -> None:  # noqa: B027  (a default that does nothing)
        """Commits what has been counted (`Batch.offsets`) to where offsets are kept, if anywhere; does not wait."""

    def close(self) -> None:  # noqa: B027  (a default that does nothing)
        """Closes connections and files. May be called twice."""
