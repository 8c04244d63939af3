"""Claims of partitions. Each waits for the disk, so several are made side by side; and a stop waits for none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from itertools import cycle

from streameval.store.checkpoints import Checkpoints
from streameval.store.thread import WorkThread

_SIDE_BY_SIDE = 8
_LOOK_SECONDS = 0.1  # between looks for a stop


class Claims:
    """Claims of the partitions of an assignment, under way."""

    def __init__(
        self, files: Mapping[int, Checkpoints], last_epoch: Callable[[int], int], stopping: Callable[[], bool]
    ) -> None:
        """Begins them. `last_epoch`: of a partition, as the history knows it. Once `stopping`, nothing is claimed."""
        self._last_epoch, self._stopping = last_epoch, stopping
        threads = [WorkThread(f"claims-{number}") for number in range(min(len(files), _SIDE_BY_SIDE))]
        self._made: dict[int, Future[None]] = {
            partition: thread.submit(self._claim, partition, its)
            for (partition, its), thread in zip(files.items(), cycle(threads))
        }
        for thread in threads:
            thread.close(0.0)

    def made(self, partition: int) -> bool:
        """Waits for the claim of a partition; False once `stopping`, whether it was made or not. Raises StoreError."""
        while not self._stopping():
            if wait([self._made[partition]], _LOOK_SECONDS).done:
                self._made[partition].result()
                return not self._stopping()
        return False

    def _claim(self, partition: int, files: Checkpoints) -> None:
        if not self._stopping():
            files.claim(above=self._last_epoch(partition))
