"""How the ingest loop publishes snapshots: the writer never waits for a reader.

A reader takes the latest snapshot, or waits for a newer one. Slow readers miss snapshots in
between; nothing queues up for them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from streameval.results.snapshot import Snapshot


class Publisher:
    """Holds the latest snapshot. Thread-safe; locks are held for a few machine words only, never while reading."""

    def __init__(self, first: Snapshot) -> None:
        """`first` is what readers see before anything is published (see `snapshot.empty_snapshot`)."""
        self._latest = first
        self._changed = threading.Condition()
        self._subscribers: dict[object, Callable[[], None]] = {}
        # what the writer waits for at this moment, in words; empty: nothing known
        self.awaited: Callable[[], str] = str

    def latest(self) -> Snapshot:
        """The newest snapshot; never waits."""
        return self._latest

    def publish(self, snapshot: Snapshot) -> None:
        """Makes `snapshot` the latest and wakes those that wait.

        Raises ValueError when its number is not above the latest one: readers tell snapshots apart by number.
        """
        with self._changed:
            if snapshot.number <= self._latest.number:
                raise ValueError(
                    f"snapshot number {snapshot.number} after {self._latest.number}: numbers must increase; "
                    "one publisher has one writer"
                )
            self._latest = snapshot
            self._changed.notify_all()
            wakers = tuple(self._subscribers.values())
        for wake in wakers:
            wake()

    def wait_for(self, number: int, timeout: float | None = None) -> Snapshot | None:
        """The latest snapshot once its number is at least `number`; None after `timeout` seconds."""
        with self._changed:
            arrived = self._changed.wait_for(lambda: self._latest.number >= number, timeout)
            return self._latest if arrived else None

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Calls `wake` after every publish, in the writer's thread, until the returned function is called.

        `wake` must return at once and raise nothing: set an event, then read `latest()` elsewhere.
        """
        key = object()
        with self._changed:
            self._subscribers[key] = wake

        def unsubscribe() -> None:
            with self._changed:
                self._subscribers.pop(key, None)

        return unsubscribe
