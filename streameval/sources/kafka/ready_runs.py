"""Messages that a client has received and that have not been taken yet, in order of arrival."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence, Set

from streameval.sources.kafka.reader import MessageRun
from streameval.sources.protocol import Place


class ReadyRuns:
    """A queue of runs, from which a number of messages can be taken."""

    def __init__(self) -> None:
        self._runs: deque[MessageRun] = deque()

    @property
    def places(self) -> set[Place]:
        """Partitions with messages in the queue."""
        return {run.place for run in self._runs}

    def add(self, run: MessageRun) -> None:
        """Adds a run at the end."""
        self._runs.append(run)

    def take(self, limit: int, paused: Set[Place]) -> list[MessageRun]:
        """Removes and returns the first `limit` messages of partitions that are not paused; the last run may be split."""
        runs: list[MessageRun] = []
        kept: list[MessageRun] = []
        while self._runs and limit > 0:
            run = self._runs.popleft()
            if run.place in paused:
                kept.append(run)
                continue
            if len(run.offsets) > limit:
                self._runs.appendleft(run.part(limit))
                run = run.part(0, limit)
            limit -= len(run.offsets)
            runs.append(run)
        self.put_back(kept)
        return runs

    def put_back(self, runs: Sequence[MessageRun]) -> None:
        """Puts runs that were taken back at the front, in order."""
        self._runs.extendleft(reversed(runs))

    def drop(self, place: Place) -> None:
        """Drops the messages of a partition."""
        self._runs = deque(run for run in self._runs if run.place != place)

    def clear(self) -> None:
        """Drops everything."""
        self._runs.clear()
