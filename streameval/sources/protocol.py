"""What a source promises, and where bad events go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from streameval.events import Batch

# The closed set of reasons for a dead letter: also the labels of the Prometheus counter.
REASONS = (
    "empty",  # no bytes, or a Kafka tombstone
    "too_large",  # longer than kafka.max_message
    "malformed",  # not JSON, not UTF-8, not an Arrow stream, nested too deep
    "wrong_schema",  # an Arrow stream or file whose columns or types are not ours
    "missing_field",  # a required field is absent or null
    "wrong_type",  # a field has another type than the contract says
    "out_of_range",  # pclick outside [0, 1], a time before 2000 or in another unit than ms, NaN, ...
    "future_timestamp",  # further ahead of the wall clock than join.max_future
)


class SourceError(RuntimeError):
    """A source that cannot go on; the message names the source, what happened and the fix."""


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

    def take(self, partitions: frozenset[int]) -> Mapping[tuple[str, int], int]:
        """These are ours now, new ones (what was held before and not dropped goes on untouched, also when released).

        Returns the next offset to read of those topic partitions whose state was found; the others begin where the
        source's own settings say. Raises SourceError when a state is there but cannot be used.
        """

    def release(self, partitions: frozenset[int]) -> None:
        """These are about to go to another worker, or to come back: write them now. Still ours; waits a bounded time.

        Those that come back are not taken again (see `regain`). Nothing of them is delivered until it is known who has
        them.
        """

    def regain(self, partitions: frozenset[int]) -> None:
        """These were ours and still are, whether released or not: they go on untouched."""

    def drop(self, partitions: frozenset[int]) -> None:
        """These are not ours any more (released before, or lost without warning): forget them, write nothing."""


class Source(Protocol):
    """Delivers decoded batches. One thread uses it."""

    def poll(self, timeout: float) -> list[Batch]:
        """Batches that are ready, at most one per partition, each with at most about `batch.max_events` events.

        Waits up to `timeout` seconds for the first one; an empty list says that nothing came. Dead letters are
        written to the sink before the batch that counts them is returned. Raises SourceError when it cannot go on.
        """

    @property
    def finished(self) -> bool:
        """True when nothing will ever come any more (the files are read). Kafka is never finished."""

    def partitions(self) -> frozenset[int]:
        """The partitions that this source reads now."""

    def lag(self) -> Mapping[tuple[str, int], int]:
        """Messages not read yet, by (topic, partition), where known."""

    def caught_up(self) -> frozenset[tuple[str, int]]:
        """The (topic, partition) of which no message waits, as of now; may ask and wait about a second."""

    def lost(self) -> Mapping[tuple[str, int], int]:
        """Messages that were deleted before they were read, by (topic, partition), since the start."""

    def connected(self) -> bool:
        """False while nobody answers where the events come from."""

    def progress(self) -> tuple[int, int] | None:
        """(done, total) in units of the source's own, for a progress bar; None when there is no end."""

    def commit(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Tell where the offsets are kept, if anywhere, what has been counted (`Batch.offsets`); does not wait."""

    def close(self) -> None:
        """Let go of connections and files. May be called twice."""
