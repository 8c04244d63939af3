"""The life cycle of this worker's partitions: assigned (restored), written periodically, released, dropped.

The ingest loop calls `tick` between two batches. A checkpoint is a state that `Pipeline.partition_state` returns within
milliseconds and that another thread packs and writes, one partition after another, while ingest continues; the same
thread writes complete panes to the history. A slow disk makes all this less frequent, a full one makes it fail: both
are reported, and ingest does not stop. A checkpoint waits for the dead letters of the events that it has counted: until
they are stored, whoever restores must read these events again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from streameval.join.policy import NEVER
from streameval.join.to_disk import RowsToDisk
from streameval.loop.binding import binding
from streameval.loop.checkpoint import restore_newest, write_checkpoint
from streameval.loop.claims import Claims
from streameval.loop.gone import GonePartitions
from streameval.loop.history_writes import add_to_history, claim_history, last_epoch, panes_wait, state_of
from streameval.loop.ids_on_disk import IdsThread
from streameval.loop.pipeline import Pipeline
from streameval.loop.rows_on_disk import RowsWork, count_rows, files_named, rows_wait, work_on_rows
from streameval.results.snapshot import CheckpointState, HistoryState
from streameval.settings.tree import Settings
from streameval.sources.protocol import DeadLetterSink, LettersError, SourceError, Stopped
from streameval.store.checkpoints import ROWS_FILES, Checkpoints, folder_of
from streameval.store.errors import FencedError, StoreError
from streameval.store.history.writer import HistoryWriter
from streameval.store.thread import WorkThread

log = logging.getLogger(__name__)

FENCED_SECONDS = 120.0  # by then Kafka must have revoked a partition that is not ours (session timeout, rebalance)
BEGIN_SECONDS = 1.0  # between checks for the first offsets of a new partition
HISTORY_SECONDS = 5.0  # between checks for panes to write
FOLD_SECONDS = 300.0  # between two attempts to merge panes into hours, and hours into days
LETTERS_SECONDS, LETTERS_AGAIN_SECONDS = 5.0, 1.0  # that a checkpoint waits for dead letters, and once that was in vain
ROWS_AGAIN_SECONDS = 10.0  # until the next attempt after rows could not be written
HANGS_SECONDS = 120.0  # of one job of the writing thread: then ingest no longer waits for the history


@dataclass(slots=True)
class _Held:
    """A partition of this worker."""

    files: Checkpoints
    due: float  # monotonic seconds
    released: bool = False  # written for its next owner, which is not known yet
    written_at: float | None = None  # wall clock of the state that was last written
    restarts: int = 0  # how often the partition was restored over its lifetime
    failing: bool = False  # the last attempt at a checkpoint failed
    settled: int | None = None  # ms: what the last checkpoint counted before this time can no longer change
    rows_at: float = 0.0  # monotonic seconds when its rows last had a turn on the writing thread


@dataclass(frozen=True, slots=True)
class _Job:
    """Work of the writing thread; `note` is called on the loop's thread when it has ended."""

    future: Future[Any]
    note: Callable[[Future[Any]], None]
    since: float = field(default_factory=time.monotonic)


class PartitionKeeper:
    """The partitions of this worker and their state on disk; see `streameval.sources.protocol.Keeper`. One thread."""

    def __init__(
        self,
        settings: Settings,
        pipeline: Pipeline,
        clock: Callable[[], float],
        history: HistoryWriter,
        letters: DeadLetterSink,
    ) -> None:
        """`clock`: wall-clock seconds. `history` is closed by `close`; `letters` is where those of the source go."""
        self._letters, self._letters_are_late = letters, False
        self._pipeline = pipeline
        self._clock = clock
        self._history = history
        self._folder = Path(settings.store.path) / "checkpoints"
        self._keep = settings.store.keep
        self._interval = settings.store.checkpoint_interval / 1000
        self._drain = settings.store.drain_timeout / 1000
        self._binding = binding(settings)
        self._held: dict[int, _Held] = {}
        self._gone = GonePartitions(pipeline, self._folder, self._keep, self._binding)
        self._fenced: dict[int, float] = {}  # partition -> monotonic seconds when another worker was found to own it
        self._writer = WorkThread("store")
        self._job: _Job | None = None
        self._ids = IdsThread()
        self._history_due = self._fold_due = self._rows_due = 0.0  # monotonic seconds
        self._numbers = CheckpointState()
        self._history_bytes = history.nbytes
        self.is_behind = False  # nothing more may be read until more panes are in the history
        self._history_was_last = self._rows_were_last = False  # they had the last turn on the writing thread
        pipeline.has_history = True
        self.stopping: Callable[[], bool] = lambda: False  # whether the process is to end: then nothing more is taken

    # -- called by the source ------------------------------------------------------------------------------------

    def take(self, partitions: frozenset[int]) -> Mapping[tuple[str, int], int]:
        """See `Keeper.take`. Raises StoreError, Stopped."""
        self._gone.drop(partitions)
        offsets: dict[tuple[str, int], int] = {}
        empty: list[int] = []
        new = {
            partition: Checkpoints(folder_of(self._folder, partition), self._keep)
            for partition in sorted(partitions - self._held.keys())
        }
        claims = Claims(new, partial(last_epoch, self._history), self.stopping)
        for partition, files in new.items():
            begin = time.monotonic()
            if not claims.made(partition):
                left = ", ".join(str(other) for other in new if other >= partition)
                log.warning("stopping: partitions %s were not taken any more; what is on disk of them stays", left)
                raise Stopped
            self._fenced.pop(partition, None)
            self._writer.submit(claim_history, self._history, partition, files.epoch)
            restored = restore_newest(self._pipeline, files, partition, self._binding)
            held = _Held(files, begin + self._interval)
            if restored is None:
                empty.append(partition)
                held.due = begin  # so that its first offsets are stored as soon as they are known
            else:
                offsets |= restored.offsets
                self._binding |= restored.removed
                path = restored.path
                held.written_at, held.restarts = restored.written_at, restored.restarts
                held.settled = self._pipeline.settled(partition)
                self._numbers.restores += 1
                self._numbers.restore_seconds = time.monotonic() - begin
                log.info("partition %d: restored from %s in %.1f s", partition, path.name, time.monotonic() - begin)
            self._held[partition] = held
        if empty:
            text = "no checkpoint in %s for partitions %s: starting empty"
            log.info(text, self._folder, ", ".join(map(str, empty)))
        return offsets

    def topic_ids(self, partitions: frozenset[int]) -> Mapping[tuple[str, int], str]:
        """See `Keeper.topic_ids`."""
        return {place: known for p in partitions for place, known in self._pipeline.topic_ids(p).items()}

    def release(self, partitions: frozenset[int]) -> None:
        """See `Keeper.release`: writes as many partitions as it can within `store.drain_timeout`."""
        self._release(partitions, time.monotonic() + self._drain)

    def _release(self, partitions: frozenset[int], deadline: float) -> None:
        for partition in sorted(partitions & self._held.keys()):
            self._finish(deadline)
            if partition not in self._held:  # that job has found it taken by another worker
                continue
            if time.monotonic() > deadline or self._job is not None:
                log.error("partition %d: released without a last checkpoint: store.drain_timeout exceeded", partition)
                self._numbers.failures += 1
                continue
            self._checkpoint(partition)
            self._finish(deadline)
            if (held := self._held.get(partition)) is not None:
                held.released = True
                if held.failing:  # a line of its own: those of failed attempts may have been too many to be shown
                    log.error(
                        "partition %d: released without a last checkpoint: a restart reads on from the previous one",
                        partition,
                    )

    def regain(self, partitions: frozenset[int]) -> None:
        """See `Keeper.regain`."""
        for partition in partitions & self._held.keys():
            self._held[partition].released = False

    def drop(self, partitions: frozenset[int]) -> None:
        """See `Keeper.drop`."""
        for partition in partitions & self._fenced.keys():
            del self._fenced[partition]
        for partition in partitions & self._held.keys():
            self._gone.leave(partition, self._held.pop(partition).files)
            self._pipeline.forget_partition(partition)
            log.info("partition %d: dropped", partition)

    # -- called by the loop --------------------------------------------------------------------------------------

    def holds(self, partition: int) -> bool:
        """Whether this worker counts the events of a partition."""
        return partition in self._held

    @property
    def fenced(self) -> Collection[int]:
        """The partitions that were dropped because another worker has claimed them."""
        return self._fenced.keys()

    def tick(self, count: int | None = None) -> None:
        """Starts what is due, if no job is running; waits for the disk at most a second, and only in a fast replay.

        `count`: see `Source.partition_count`; what the partitions beyond it had counted is shown (see `loop.gone`).
        Raises StoreError when another worker has a partition that Kafka continues to assign to this one.
        """
        self._finish(None)
        self._gone.look(count, self._held.keys(), self.stopping)
        now = time.monotonic()
        for partition, since in self._fenced.items():
            if now > since + FENCED_SECONDS:
                raise StoreError(
                    f"{self._folder}: partition {partition} was taken by a worker that is not of this consumer group: "
                    "give every group a store.path of its own"
                )
        written = {partition for partition, held in self._held.items() if not held.released} | self._gone.epochs.keys()
        self.is_behind = self._history_works(now) and panes_wait(self._pipeline, written)
        # a fast replay waits for the disk, unless writing fails
        if self.is_behind or (self._rows_due <= now and self._rows_wait()):
            self._finish(now + 1.0)
        if self._job is not None:
            return
        self._numbers.failures += self._ids.tick(self._rows())
        # never twice in a row: a slow or failing history would leave checkpoints and rows no turn
        turn, self._history_was_last = not self._history_was_last, False
        if turn and (self._history_due <= now or self.is_behind):
            self._write_history(fold=self._fold_due <= now)
            self._history_was_last = True
            return
        ours = [partition for partition, held in self._held.items() if not held.released]
        wanted = [partition for partition in ours if self._held[partition].due <= now]
        if self._rows_due <= now and not (wanted and self._rows_were_last):  # rows and checkpoints alternate
            self._keep_rows(ours)
            if self._job is None and (work := self._gone.check_files()) is not None:
                self._job = _Job(self._writer.submit(work.call), work.done)
        self._rows_were_last = self._job is not None
        if wanted and self._job is None:
            self._checkpoint(min(wanted, key=lambda partition: self._held[partition].due))

    def close(self) -> None:
        """Writes the history and every partition once more, within `store.drain_timeout`, and releases them."""
        deadline = time.monotonic() + self._drain
        self._ids.close(self._drain)
        self._finish(deadline)
        if self._job is None:
            self._write_history(fold=False)
        self._release(frozenset(self._held), deadline)
        if self._job is None and time.monotonic() < deadline:  # folds what the last checkpoint has settled
            self._write_history(fold=True)
            self._finish(deadline)
        self._writer.submit(self._history.close)
        self._writer.close(max(0.0, deadline - time.monotonic()))

    def state(self) -> CheckpointState:
        """The current numbers."""
        written = {partition: held.written_at for partition, held in self._held.items()}
        self._numbers.oldest = min((at for at in written.values() if at is not None), default=None)
        self._numbers.restarts = max((held.restarts for held in self._held.values()), default=0)
        # of one that has no leader nothing can be lost, and `streameval_consumer_silent` says so
        missing = [partition for partition, at in written.items() if at is None and self._pipeline.has_read(partition)]
        self._numbers.never_written = len(missing)
        self._numbers.failing = sum(held.failing for held in self._held.values())
        self._numbers.claimed = len(self._fenced)
        self._numbers.gone_unread = self._gone.refused
        count_rows([part.to_disk for part in self._pipeline.partitions.values()], self._numbers)
        return self._numbers.copy()

    def history_state(self) -> HistoryState:
        """The current numbers."""
        return state_of(self._history, self._history_bytes, self._pipeline)

    # -- internal ------------------------------------------------------------------------------------------------

    def _checkpoint(self, partition: int) -> None:
        held = self._held[partition]
        begin = time.monotonic()
        held.due = begin + self._interval
        state = self._pipeline.partition_state(partition)
        if state is None:  # reading has not begun yet
            held.due = begin + min(BEGIN_SECONDS, self._interval)
            return
        at, settled = self._clock(), self._pipeline.settled(partition)
        rows = {ROWS_FILES: files_named(state["monitor"])}
        tree = {"at": at, "settings": self._binding, "restarts": held.restarts, **rows, **state}
        self._numbers.pause_seconds = time.monotonic() - begin

        def note(future: Future[tuple[int, float]]) -> None:
            if self._held.get(partition) is held:
                self._pipeline.state_written(partition)
            try:
                self._numbers.bytes, self._numbers.write_seconds = future.result()
            except SourceError as error:
                self._letters_are_late = True
                log.warning("partition %d: no checkpoint yet, because its dead letters wait: %s", partition, error)
                if isinstance(error, LettersError):  # of brokers that are away `/readyz` speaks already
                    self._numbers.failures += 1
                    held.failing = True
            except FencedError as error:
                self._fence(partition, held, error)
            except StoreError as error:
                self._numbers.failures += 1
                held.failing = True
                log.error("%s", error)
            else:
                self._numbers.written += 1
                held.failing = self._letters_are_late = False
                held.written_at, held.settled = at, settled

        def write() -> tuple[int, float]:
            self._letters.flush(LETTERS_AGAIN_SECONDS if self._letters_are_late else LETTERS_SECONDS)
            return write_checkpoint(held.files, tree)

        self._job = _Job(self._writer.submit(write), note)

    def _rows(self) -> Iterator[tuple[RowsToDisk, Checkpoints]]:
        """The rows of the partitions that this worker may write."""
        for partition, held in self._held.items():
            if not held.released and partition in self._pipeline.partitions:
                yield self._pipeline.partitions[partition].to_disk, held.files

    def _rows_wait(self) -> bool:
        """Whether the rows of a partition are so far behind that ingest must wait for the disk."""
        return any(rows_wait(rows) for rows, _ in self._rows())

    def _keep_rows(self, partitions: Sequence[int]) -> None:
        """Starts the work on rows of one of the partitions, if there is any: whose last turn was longest ago, first."""
        for partition in sorted(partitions, key=lambda partition: self._held[partition].rows_at):
            part, held = self._pipeline.partitions.get(partition), self._held[partition]
            work = None if part is None else work_on_rows(part.to_disk, held.files)
            if work is not None:
                held.rows_at = time.monotonic()
                self._job = _Job(self._writer.submit(work.call), partial(self._rows_kept, partition, held, work))
                return

    def _rows_kept(self, partition: int, held: _Held, work: RowsWork, future: Future[Any]) -> None:
        try:
            if self._held.get(partition) is held:
                work.done(future)
        except FencedError as error:
            self._fence(partition, held, error)
        except StoreError as error:
            self._rows_due = time.monotonic() + ROWS_AGAIN_SECONDS
            self._numbers.failures += 1
            log.error("%s", error)

    def _history_works(self, now: float) -> bool:
        """Whether the last attempt to write the history did not fail, and none is held up by a disk that hangs."""
        if self._pipeline.history_works and self._job is not None and now > self._job.since + HANGS_SECONDS:
            text = "history: a write in %s has not ended for %.0f s: is the disk there, and is it not overloaded?"
            log.error(text, self._history.path.parent, HANGS_SECONDS)
            self._pipeline.history_works = False
        return self._pipeline.history_works

    def _write_history(self, fold: bool) -> None:
        now = time.monotonic()
        self._history_due = now + HISTORY_SECONDS
        if fold:
            self._fold_due = now + FOLD_SECONDS
        ours = {partition: held for partition, held in self._held.items() if not held.released}
        epochs = {**self._gone.epochs, **{partition: held.files.epoch for partition, held in ours.items()}}
        rows = self._pipeline.history_rows(epochs.keys())
        partitions = {partition: self._pipeline.partitions[partition] for partition in rows}
        settled = {p: held.settled for p, held in self._held.items() if held.settled is not None} | self._gone.settled
        newest = max((m.newest_event for m in self._pipeline.partitions.values()), default=NEVER)

        def note(future: Future[dict[int, StoreError]]) -> None:
            failed = future.result()
            for partition, part in partitions.items():
                part.written(partition not in failed)
            for partition, error in failed.items():
                if not isinstance(error, FencedError):
                    log.error("history: %s", error)
                elif partition in ours:  # a gone one is somebody's again: the next look drops it
                    self._fence(partition, ours[partition], error)
            self._history_bytes = self._history.nbytes
            self._pipeline.history_works = all(isinstance(error, FencedError) for error in failed.values())

        job = self._writer.submit(add_to_history, self._history, rows, epochs, settled if fold else None, newest)
        self._job = _Job(job, note)

    def _finish(self, deadline: float | None) -> None:
        """Completes the job if it has ended; waits for it until `deadline`, if given."""
        if deadline is not None and self._job is not None:
            wait([self._job.future], max(0.0, deadline - time.monotonic()))
        if self._job is not None and self._job.future.done():
            job, self._job = self._job, None
            job.note(job.future)

    def _fence(self, partition: int, held: _Held, error: FencedError) -> None:
        """Drops a partition that another worker has claimed; `held`: its entry when the write began.

        A partition can be lost, reassigned and claimed again while an earlier write is in progress.
        """
        if self._held.get(partition) is held:
            self._numbers.fenced += 1
            log.error("%s; partition %d is dropped", error, partition)
            self.drop(frozenset({partition}))
            self._fenced[partition] = time.monotonic()
