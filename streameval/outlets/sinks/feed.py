"""Feeds one sink: finds the panes and verdicts that it does not have yet, and writes them. Nothing queues up.

What is missing is determined from the newest snapshot, which has every pane in memory, also older ones that a sink lacks
(see `results.panes`): a sink that was unavailable for an hour gets that hour when it returns. What it has received is recorded in the outbox after the write, so a kill at any
moment leads to a second write of the same rows, never to a gap; and sinks replace rows. Panes that leave memory before
that are lost, and counted.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping

from streameval.events.batch import Series
from streameval.events.durations import DAY
from streameval.outlets.sinks.protocol import Sink, SinkError
from streameval.outlets.sinks.rows import SinkVerdict, pane_digests, panes_of, verdicts_of
from streameval.results.outlets import SinkState
from streameval.results.snapshot import PaneColumns, Snapshot
from streameval.settings.tree import ConfigError
from streameval.store.errors import StoreError
from streameval.store.outbox import Outbox

log = logging.getLogger(__name__)

AT_ONCE_PANES = 50  # of one write
AGAIN_SECONDS = 60.0  # between two writes of a pane that late clicks keep changing
_LONGEST_BACKOFF = 300.0
_PANE, _VERDICT = "pane", "verdict"


class Feed:
    """One sink and its thread."""

    def __init__(self, name: str, kind: str, sink: Sink, outbox: Outbox, latest: Callable[[], Snapshot]) -> None:
        """`latest`: the newest snapshot. Raises StoreError."""
        self._name, self._kind, self._sink, self._outbox, self._latest = name, kind, sink, outbox, latest
        self._panes = {int(k): int.from_bytes(v) for k, v in outbox.written(name, _PANE).items()}
        self._verdicts = outbox.written(name, _VERDICT)
        self._columns: Mapping[Series, PaneColumns] | None = None  # that `_digests` are of
        self._digests: dict[int, int] = {}
        self._missing: set[int] = set()  # panes at the last look
        self.lacking: int | None = (
            0  # ms: panes that begin then or later are not written yet; None: another process writes
        )
        self._waiting_from: int | None = None  # panes from there on may have been evaluated since the last look
        self._gone: set[int] = set()  # panes that had left memory at the last look
        self._wrote: dict[int, float] = {}  # pane -> monotonic seconds, lately
        self._counts: Counter[str] = Counter()
        self._error, self._success, self._failed, self._waiting = "", None, 0, 0
        self._awake = threading.Event()
        self._last = False
        self._thread = threading.Thread(target=self._run, name=f"sink-{name}", daemon=True)

    _success: float | None

    def start(self) -> None:
        """Begins to write."""
        self._thread.start()

    def wake(self) -> None:
        """There is a new snapshot."""
        self._awake.set()

    def close(self, seconds: float) -> None:
        """Writes what is missing, within `seconds`."""
        self._last = True
        self._awake.set()
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def state(self) -> SinkState:
        """Its state."""
        counts = self._counts
        return SinkState(
            name=self._name,
            kind=self._kind,
            waiting=self._waiting,
            last_success=self._success,
            panes=counts["panes"],
            verdicts=counts["verdicts"],
            failures=counts["failures"],
            lost=counts["lost"],
            error=self._error,
        )

    def _run(self) -> None:
        while True:
            self._awake.wait()
            self._awake.clear()
            last, wait = self._last, 0.0
            try:
                while self._write_some(self._latest(), last) and (last or not self._last):
                    pass
            except (SinkError, StoreError, ConfigError) as error:
                wait = self._note(str(error))
            except Exception as error:
                log.exception("sink %s: unexpected", self._name)
                wait = self._note(type(error).__name__)
            if last:
                self._sink.close()
                return
            deadline = time.monotonic() + wait
            while not self._last and (left := deadline - time.monotonic()) > 0:
                time.sleep(min(left, 0.2))

    def _write_some(self, snapshot: Snapshot, last: bool) -> bool:
        """Writes up to `AT_ONCE_PANES` panes and all verdicts that are missing; returns whether there are more. Raises SinkError, StoreError."""
        if not self._outbox.lease():
            self.lacking = None
            return False
        if not snapshot.whole:  # a part of the partitions would be a part of each pane
            return False
        self._look(snapshot)
        now = time.monotonic()
        self._wrote = {start: at for start, at in self._wrote.items() if at > now - AGAIN_SECONDS}
        due = sorted(start for start in self._missing if last or start not in self._wrote)
        some = due[:AT_ONCE_PANES]
        verdicts = {one.key: (one, _digest(one)) for one in verdicts_of(snapshot)}
        fresh = {key: known for key, known in verdicts.items() if self._verdicts.get(key) != known[1]}
        self._waiting = len(self._missing) + len(fresh)
        if not some and not fresh:
            return False
        self._sink.write(panes_of(snapshot, some), [one for one, _ in fresh.values()])
        done = {start: self._digests[start] for start in some}
        self._outbox.note_written(
            self._name, _PANE, {str(k): v.to_bytes(8) for k, v in done.items()}, self._forgotten()
        )
        self._outbox.note_written(self._name, _VERDICT, {key: digest for key, (_, digest) in fresh.items()})
        self._panes |= done
        self._verdicts |= {key: digest for key, (_, digest) in fresh.items()}
        self._missing.difference_update(some)
        self._note_lacking()
        self._wrote.update(dict.fromkeys(some, now))
        self._counts.update(panes=len(some), verdicts=len(fresh))
        self._waiting = len(self._missing)
        self._success, self._error, self._failed = time.time(), "", 0
        return len(due) > len(some)

    def _look(self, snapshot: Snapshot) -> None:
        """Finds what is missing."""
        if snapshot.panes is self._columns:
            return
        self._digests, self._columns = pane_digests(snapshot.panes), snapshot.panes
        self._waiting_from = snapshot.panes_waiting_from
        if self._digests:
            oldest, gone = min(self._digests), set(snapshot.panes_gone)
            lost = {start for start in self._missing if start < oldest} | (gone - self._gone - self._panes.keys())
            self._gone = gone
            if lost:
                self._counts["lost"] += len(lost)
                log.error(
                    "sink %s: %d panes were evicted from memory before they could be written", self._name, len(lost)
                )
        self._missing = {start for start, digest in self._digests.items() if self._panes.get(start) != digest}
        self._note_lacking()

    def _note_lacking(self) -> None:
        if self._digests:
            since = min(self._missing, default=max(self._digests) + 1)
            self.lacking = since if self._waiting_from is None else min(since, self._waiting_from)

    def _forgotten(self) -> list[str]:
        """Panes that no restart will need again."""
        if not self._digests:
            return []
        gone = [start for start in self._panes if start < min(self._digests) - DAY]
        for start in gone:
            del self._panes[start]
        return [str(start) for start in gone]

    def _note(self, error: str) -> float:
        """Notes a failure, and how long to wait after it."""
        if error != self._error:
            log.warning("sink %s: %s; retrying", self._name, error)
        self._error = error
        self._counts["failures"] += 1
        self._failed += 1
        self._awake.set()
        return min(_LONGEST_BACKOFF, 2.0 ** min(self._failed - 1, 10))


def _digest(one: SinkVerdict) -> bytes:
    return hashlib.blake2b(json.dumps(one.row, sort_keys=True).encode(), digest_size=8).digest()
