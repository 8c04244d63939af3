"""Partitions that the topics no longer have: what they had counted stays in the results.

A topic that is deleted and recreated with fewer partitions leaves checkpoints that nobody is assigned. The worker that has
partition 0 restores them, so that exactly one of a group does. It neither claims nor writes them: if the topics get these
partitions back, whoever is assigned one restores it from the same checkpoint and goes on reading. Until then a gone
partition follows the others: its pending labels become final when theirs do, and no other partition waits for it.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streameval.join.cold.index import Index
from streameval.join.cold.segment import RowsFile
from streameval.loop.checkpoint import restore_newest
from streameval.loop.pipeline import Pipeline
from streameval.loop.rows_on_disk import RowsWork, check_next
from streameval.store.checkpoints import Checkpoints, newest_by_partition
from streameval.store.errors import StoreError

log = logging.getLogger(__name__)

# after a change, for as long as another worker may take to hear of it and to write what it had of these partitions
LOOK_EVERY, LOOK_FOR = 60.0, 600.0  # seconds


@dataclass(frozen=True, slots=True)
class _Gone:
    files: Checkpoints
    path: Path  # the newest checkpoint when it was restored
    settled: int | None  # ms: what its checkpoint counted before this time will never be written again
    unchecked: list[RowsFile | Index]  # files whose checksums have not been verified yet


class GonePartitions:
    """Those that this worker shows. Used by the loop's thread."""

    def __init__(self, pipeline: Pipeline, folder: Path, keep: int, settings: Mapping[str, Any]) -> None:
        """`folder`: of all checkpoints; `settings`: see `binding`."""
        self._pipeline, self._folder, self._keep, self._binding = pipeline, folder, keep, settings
        self._shown: dict[int, _Gone] = {}
        self._refused: dict[int, Path] = {}  # checkpoints that cannot be restored
        self._known: tuple[int, frozenset[int]] | None = None  # as of the last look
        self._changed_at = self._looked_at = -math.inf  # monotonic seconds

    def look(self, count: int | None, held: Collection[int], stopping: Callable[[], bool]) -> None:
        """Restores and drops. `count`: partitions that the topics have now; None: unknown, as while a topic is away, which
        changes nothing. `held`: the partitions of this worker. Once `stopping`, nothing is restored.
        """
        if 0 not in held:  # another worker shows them
            self.drop(self._shown.keys())
            self._known, self._refused = None, {}
            return
        if count is None or not self._is_due(count, frozenset(held)):
            return
        try:
            found = newest_by_partition(self._folder)
        except OSError as error:
            log.warning("%s: cannot be searched for partitions that are gone: %s", self._folder, error.strerror)
            return
        gone = {partition: path for partition, path in found.items() if partition >= count and partition not in held}
        self.drop(p for p, shown in tuple(self._shown.items()) if gone.get(p) != shown.path)
        self._refused = {p: path for p, path in self._refused.items() if gone.get(p) == path}
        self._restore({p: path for p, path in gone.items() if p not in self._shown | self._refused}, stopping)

    def drop(self, partitions: Iterable[int]) -> None:
        """Takes these out of the results: they are back, or another worker shows them."""
        for partition in tuple(partitions):
            if self._shown.pop(partition, None) is not None:
                self._pipeline.forget_partition(partition)

    def check_files(self) -> RowsWork | None:
        """The next job: verify a file that was mapped when its partition was restored."""
        for partition, shown in self._shown.items():
            part = self._pipeline.partitions.get(partition)
            if part is not None and shown.unchecked:
                return check_next(part.to_disk, shown.unchecked)
        return None

    @property
    def epochs(self) -> dict[int, int]:
        """By partition, the epoch in which its panes are written to the history: that of its last owner."""
        return {partition: shown.files.epoch for partition, shown in self._shown.items()}

    @property
    def settled(self) -> dict[int, int]:
        """By partition, the time (ms) before which no pane will be written again, whoever gets it back."""
        return {partition: shown.settled for partition, shown in self._shown.items() if shown.settled is not None}

    @property
    def refused(self) -> tuple[int, ...]:
        """Those that cannot be restored, so that what they had counted is missing from the results."""
        return tuple(sorted(self._refused))

    def _is_due(self, count: int, held: frozenset[int]) -> bool:
        now = time.monotonic()
        if self._known != (count, held):
            self._known, self._changed_at = (count, held), now
        elif now < self._looked_at + LOOK_EVERY or self._looked_at > self._changed_at + LOOK_FOR:
            return False
        self._looked_at = now
        return True

    def _restore(self, new: Mapping[int, Path], stopping: Callable[[], bool]) -> None:
        impressions = 0
        for partition, path in sorted(new.items()):
            if stopping():
                break
            try:
                files = Checkpoints(path.parent, self._keep)
                files.read_on()
                restored = restore_newest(self._pipeline, files, partition, self._binding)
                if restored is None:  # deleted since: it is somebody's again
                    continue
            except StoreError as error:
                self._refused[partition] = path
                log.warning(
                    "partition %d is gone from the topics, and what it had counted is missing from the results: %s",
                    partition,
                    error,
                )
                continue
            settled = self._pipeline.settled(partition)
            self._pipeline.end_reading(partition)
            self._shown[partition] = _Gone(files, path, settled, restored.unchecked)
            if (part := self._pipeline.partitions.get(partition)) is not None:
                impressions += part.fates()["impressions"]
        if shown := sorted(new.keys() & self._shown.keys()):
            log.warning(
                "the topics no longer have partitions %s: what these had counted (%d impressions) stays in the results, from "
                "%s; to leave it out, stop, move their folders away and start again",
                ", ".join(map(str, shown)),
                impressions,
                self._folder,
            )
