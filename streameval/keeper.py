"""What happens to the partitions of this worker: taken (restored), written now and then, released, dropped.

The ingest loop calls `tick` between two batches. A checkpoint is a state that `Pipeline.partition_state` gives in
milliseconds and that another thread packs and writes, one partition after the other, while ingest goes on. A disk that
is slow makes checkpoints rarer, one that is full makes them fail: both are said, and ingest does not stop.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streameval.config import Settings
from streameval.models.protocol import ModelError
from streameval.pipeline import Pipeline
from streameval.report import CheckpointState
from streameval.store.checkpoints import Checkpoints
from streameval.store.errors import FencedError, StoreError

log = logging.getLogger(__name__)

# What a checkpoint depends on: with another value the counts in it would mean something else.
BINDING = (
    "join.attribution_window", "join.allowed_lateness", "join.correction_horizon", "join.score_at", "join.request_gap",
    "windows", "slices", "users.weighting", "buckets.edges", "models", "kafka.impressions_topic", "kafka.clicks_topic",
)  # fmt: skip

FENCED_SECONDS = 120.0  # Kafka must have told by then (session timeout, rebalance) that a partition is not ours


@dataclass(slots=True)
class _Held:
    """A partition of this worker."""

    files: Checkpoints
    due: float  # monotonic seconds
    written_at: float | None = None  # wall clock of the state that was last written
    restarts: int = 0  # how often the partition was restored, over all of its life


class PartitionKeeper:
    """The partitions of this worker and their checkpoints; see `streameval.sources.protocol.Keeper`. One thread."""

    def __init__(self, settings: Settings, pipeline: Pipeline, clock: Callable[[], float]) -> None:
        """`clock`: wall-clock seconds."""
        self._pipeline = pipeline
        self._clock = clock
        self._folder = Path(settings.store.path) / "checkpoints"
        self._keep = settings.store.keep
        self._interval = settings.store.checkpoint_interval / 1000
        self._drain = settings.store.drain_timeout / 1000
        self._binding = binding(settings)
        self._held: dict[int, _Held] = {}
        self._fenced: dict[int, float] = {}  # partition -> monotonic seconds when another worker was seen to have it
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoints")
        self._writing: tuple[int, float, Future[tuple[int, float]]] | None = None
        self._numbers = CheckpointState()

    # -- what a source calls -------------------------------------------------------------------------------------

    def take(self, partitions: frozenset[int]) -> Mapping[tuple[str, int], int]:
        """See `Keeper.take`. Raises StoreError."""
        offsets: dict[tuple[str, int], int] = {}
        for partition in sorted(partitions - self._held.keys()):
            begin = time.monotonic()
            self._fenced.pop(partition, None)
            files = Checkpoints(self._folder / f"partition-{partition:05}", self._keep)
            files.claim()
            found = files.load()
            held = self._held[partition] = _Held(files, begin + self._interval)
            if found is None:
                log.info("partition %d: no checkpoint in %s: it begins empty", partition, files.folder)
                continue
            tree, apart, path = found
            self._check_binding(tree["settings"], path)
            offsets |= self._restore(partition, tree, apart, path)
            held.written_at, held.restarts = tree["at"], tree["restarts"] + 1
            took = time.monotonic() - begin
            self._numbers.restores += 1
            self._numbers.restore_seconds = took
            log.info("partition %d: restored from %s in %.1f s", partition, path.name, took)
        return offsets

    def release(self, partitions: frozenset[int]) -> None:
        """See `Keeper.release`: written within `store.drain_timeout`, as many as fit into it."""
        deadline = time.monotonic() + self._drain
        for partition in sorted(partitions & self._held.keys()):
            self._finish(deadline)
            if time.monotonic() > deadline or self._writing is not None:
                log.error("partition %d: not written before it goes: store.drain_timeout is over", partition)
                self._numbers.failures += 1
                continue
            self._begin(partition)
            self._finish(deadline)

    def drop(self, partitions: frozenset[int]) -> None:
        """See `Keeper.drop`."""
        for partition in partitions & self._fenced.keys():
            del self._fenced[partition]
        for partition in partitions & self._held.keys():
            del self._held[partition]
            self._pipeline.forget_partition(partition)
            log.info("partition %d: dropped", partition)

    # -- what the loop calls -------------------------------------------------------------------------------------

    def holds(self, partition: int) -> bool:
        """Whether events of a partition are ours to count."""
        return partition in self._held

    def tick(self) -> None:
        """Begins the checkpoint that is due, if no other is under way; never waits for the disk.

        Raises StoreError when another worker has a partition that Kafka goes on to give to this one.
        """
        self._finish(None)
        for partition, since in self._fenced.items():
            if time.monotonic() > since + FENCED_SECONDS:
                raise StoreError(
                    f"{self._folder}: partition {partition} was taken by a worker that is not of this consumer group: "
                    "give every group a store.path of its own"
                )
        if self._writing is None:
            now = time.monotonic()
            due = min(self._held, key=lambda partition: self._held[partition].due, default=None)
            if due is not None and self._held[due].due <= now:
                self._begin(due)

    def close(self) -> None:
        """Writes every partition once more, within `store.drain_timeout`."""
        self.release(frozenset(self._held))
        self._writer.shutdown(wait=False, cancel_futures=True)

    def state(self) -> CheckpointState:
        """The numbers of now."""
        written = [held.written_at for held in self._held.values()]
        self._numbers.oldest = min((at for at in written if at is not None), default=None)
        self._numbers.restarts = max((held.restarts for held in self._held.values()), default=0)
        self._numbers.never_written = sum(at is None for at in written)
        return self._numbers.copy()

    # -- inside --------------------------------------------------------------------------------------------------

    def _begin(self, partition: int) -> None:
        held = self._held[partition]
        begin = time.monotonic()
        held.due = begin + self._interval
        state = self._pipeline.partition_state(partition)
        if state is None:  # nothing came yet
            return
        at = self._clock()
        tree = {"at": at, "settings": self._binding, "restarts": held.restarts, **state}
        self._numbers.pause_seconds = time.monotonic() - begin
        self._writing = partition, at, self._writer.submit(_write, held.files, tree)

    def _finish(self, deadline: float | None) -> None:
        """Takes note of the checkpoint under way when it is written; waits for it until `deadline`, if given."""
        if self._writing is None:
            return
        partition, at, future = self._writing
        if deadline is not None:
            wait([future], max(0.0, deadline - time.monotonic()))
        if not future.done():
            return
        self._writing = None
        self._pipeline.state_written(partition)
        numbers = self._numbers
        try:
            numbers.bytes, numbers.write_seconds = future.result()
        except FencedError as error:
            numbers.fenced += 1
            log.error("%s; partition %d is dropped", error, partition)
            self.drop(frozenset({partition}))
            self._fenced[partition] = time.monotonic()
        except StoreError as error:
            numbers.failures += 1
            log.error("%s", error)
        else:
            numbers.written += 1
            if partition in self._held:
                self._held[partition].written_at = at

    def _restore(
        self, partition: int, tree: dict[str, Any], apart: Mapping[str, bytes], path: Path
    ) -> dict[tuple[str, int], int]:
        monitor = tree["monitor"]
        for name, data in apart.items():
            monitor["learners"][int(name)]["model"]["pickle"] = data
        try:
            return self._pipeline.restore_partition(partition, tree)
        except ModelError as error:
            raise StoreError(f"{path}: {error}") from None

    def _check_binding(self, saved: Mapping[str, Any], path: Path) -> None:
        for key, value in self._binding.items():
            if saved.get(key) != value:
                raise StoreError(
                    f"{path}: was written with {key} = {saved.get(key)!r}, which is now {value!r}: what it has counted "
                    f"would mean something else. Set {key} back, or set another store.path (or move {path.parent.parent} "
                    "away) to start over"
                )


def binding(settings: Settings) -> dict[str, Any]:
    """The settings that a checkpoint depends on, as plain values."""
    tree = settings.model_dump(mode="json")
    out: dict[str, Any] = {}
    for key in BINDING:
        node: Any = tree
        for part in key.split("."):
            node = node[part]
        if isinstance(node, dict):
            out |= {f"{key}.{name}": value for name, value in node.items()}
        else:
            out[key] = node
    return out


def _write(files: Checkpoints, tree: dict[str, Any]) -> tuple[int, float]:
    """(bytes, seconds) of one checkpoint; pickles go apart."""
    begin = time.monotonic()
    apart = {}
    monitor = tree["monitor"]
    for number, learner in enumerate(monitor["learners"] if monitor else ()):
        if "pickle" in learner["model"]:
            apart[str(number)] = learner["model"].pop("pickle")
    return files.save(tree, apart), time.monotonic() - begin
