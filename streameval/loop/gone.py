"""Partitions that the topics no longer have: what they had counted stays in the results.

A topic that is deleted and recreated with fewer partitions leaves checkpoints that nobody is assigned. The worker that has
partition 0 restores them, so that exactly one of a group does. It neither claims nor writes them: if the topics get these
partitions back, whoever is assigned one restores it from the same checkpoint and goes on reading. Until then a gone
partition follows the others: its pending labels become final when theirs do, and no other partition waits for it.

While a topic is away altogether, deleted and not recreated yet, a group assigns nothing to anybody. Then every worker shows what
it had last, in the same way, until the topic is back and the partition is assigned: to this worker, or to another, which claims it.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streameval.loop.checkpoint import restore_newest
from streameval.loop.pipeline import Pipeline
from streameval.loop.rows_on_disk import RowsWork, check_next
from streameval.store.checkpoints import Checkpoints, newest_by_partition
from streameval.store.errors import StoreError

log = logging.getLogger(__name__)

# after a change, for as long as another worker may take to hear of it and to write what it had of these partitions
LOOK_EVERY, LOOK_FOR = 60.0, 600.0  # seconds
CLAIMS_EVERY = 1.0  # seconds between two looks for claims of what is shown while a topic is away


@dataclass(frozen=True, slots=True)
class _Gone:
    files: Checkpoints
    path: Path  # the newest checkpoint when it was restored
    settled: int | None  # ms: what its checkpoint counted before this time will never be written again
    left: bool  # this worker had it last: shown until somebody claims it


class GonePartitions:
    """Those that this worker shows. Used by the loop's thread."""

    def __init__(self, pipeline: Pipeline, folder: Path, keep: int, settings: Mapping[str, Any]) -> None:
        """`folder`: of all checkpoints; `settings`: see `binding`."""
        self._pipeline, self._folder, self._keep, self._binding = pipeline, folder, keep, settings
        self._shown: dict[int, _Gone] = {}
        self._left: dict[int, Checkpoints] = {}  # what this worker had, and is not shown yet
        self._refused: dict[int, Path] = {}  # checkpoints that cannot be restored
        self._known: tuple[int, frozenset[int], frozenset[int]] | None = None  # as of the last look
        self._changed_at = self._looked_at = self._claims_at = -math.inf  # monotonic seconds

    def leave(self, partition: int, files: Checkpoints) -> None:
        """This worker no longer has a partition: another gets it, or none while a topic is away. `files`: as it had claimed them."""
        self._left[partition] = files

    def look(self, count: int | None, held: Collection[int], stopping: Callable[[], bool]) -> None:
        """Restores and drops. `count`: partitions that the topics have now, 0 while one is away; None: unknown, which changes
        nothing. `held`: the partitions of this worker. Once `stopping`, nothing is restored.
        """
        self._drop_claimed()
        if count is None:
            return
        waiting = {p for p, shown in self._shown.items() if shown.left and (p < count or not count)}
        ours = frozenset(held) | waiting
        if count and 0 not in ours:  # another worker shows them
            self.drop(self._shown.keys() - waiting)
            self._known, self._refused = None, {}
            return
        if not self._is_due(count, ours):
            return
        try:
            found = newest_by_partition(self._folder)
        except OSError as error:
            log.warning("%s: cannot be searched for partitions that are gone: %s", self._folder, error.strerror)
            return
        if not count:
            self._restore_left(found, held, stopping)
            return
        gone = {partition: path for partition, path in found.items() if partition >= count and partition not in held}
        self.drop(p for p, shown in tuple(self._shown.items()) if p not in waiting and gone.get(p) != shown.path)
        self._refused = {p: path for p, path in self._refused.items() if gone.get(p) == path}
        new = {p: path for p, path in gone.items() if p not in self._shown | self._refused}
        if shown := self._restore(new, {}, stopping):
            log.warning(
                "the topics no longer have partitions %s: what these had counted (%d impressions) stays in the results, from "
                "%s; to leave it out, stop, move their folders away and start again",
                ", ".join(map(str, shown)),
                self._impressions(shown),
                self._folder,
            )

    def drop(self, partitions: Iterable[int]) -> None:
        """Takes these out of the results: they are back, or another worker shows them."""
        for partition in tuple(partitions):
            self._left.pop(partition, None)
            if self._shown.pop(partition, None) is not None:
                self._pipeline.forget_partition(partition)

    def check_files(self) -> RowsWork | None:
        """The next job: verify a file that was mapped when its partition was restored."""
        parts = (self._pipeline.partitions.get(partition) for partition in self._shown)
        return next((work for part in parts if part is not None and (work := check_next(part.to_disk))), None)

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

    def _is_due(self, count: int, ours: frozenset[int]) -> bool:
        now, known = time.monotonic(), (count, ours, frozenset(self._left))
        if self._known != known:
            self._known, self._changed_at = known, now
        elif now < self._looked_at + LOOK_EVERY or self._looked_at > self._changed_at + LOOK_FOR:
            return False
        self._looked_at = now
        return True

    def _drop_claimed(self) -> None:
        """Takes those out of the results whose topic is back, and that another worker has got."""
        left = [partition for partition, shown in self._shown.items() if shown.left]
        now = time.monotonic()
        if left and now >= self._claims_at + CLAIMS_EVERY:
            self._claims_at = now
            self.drop(partition for partition in left if self._shown[partition].files.is_claimed())

    def _restore_left(self, found: Mapping[int, Path], held: Collection[int], stopping: Callable[[], bool]) -> None:
        """While a topic is away: shows what this worker had of it. `found`: the newest checkpoints."""
        ours = {p: files for p, files in self._left.items() if p in found and p not in held and not files.is_claimed()}
        shown = self._restore({p: found[p] for p in ours}, ours, stopping)
        self._left.clear()
        if shown:
            log.warning(
                "a topic is away: what partitions %s had counted (%d impressions) stays in the results until it is back",
                ", ".join(map(str, shown)),
                self._impressions(shown),
            )

    def _restore(
        self, new: Mapping[int, Path], left: Mapping[int, Checkpoints], stopping: Callable[[], bool]
    ) -> list[int]:
        """Returns those that are shown now. `left`: the files of those that this worker had."""
        for partition, path in sorted(new.items()):
            if stopping():
                break
            try:
                if (files := left.get(partition)) is None:
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
            self._shown[partition] = _Gone(files, path, settled, partition in left)
        return sorted(new.keys() & self._shown.keys())

    def _impressions(self, partitions: Iterable[int]) -> int:
        parts = [part for p in partitions if (part := self._pipeline.partitions.get(p)) is not None]
        return sum(part.fates()["impressions"] for part in parts)
