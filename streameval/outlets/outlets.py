"""All outgoing data: notifications, acknowledged and muted verdicts, and sinks."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from streameval.compare.reading.handling import Handling, with_handlings
from streameval.compare.reading.notified import with_told
from streameval.compare.reading.reading import Comparison
from streameval.outlets.notify.notifier import Notifier
from streameval.outlets.notify.receivers import make_receiver
from streameval.outlets.notify.telling import TellingRecord
from streameval.outlets.sinks.feed import Feed
from streameval.outlets.sinks.kinds import make_sink
from streameval.results.outlets import ReceiverState, SinkState
from streameval.results.publish import Publisher
from streameval.settings.section import kind_of
from streameval.settings.tree import Settings
from streameval.store.outbox import Outbox

log = logging.getLogger(__name__)

CLOSE_SECONDS = 5.0  # in which a stop sends messages, and writes to sinks


class Outlets:
    """Follows the snapshots of a publisher on threads of its own; the loop only wakes them."""

    def __init__(self, settings: Settings, publisher: Publisher, clock: Callable[[], float] = time.time) -> None:
        """Opens the outbox, in the store if there is one. Raises StoreError, ConfigError."""
        folder = Path(settings.store.path) if settings.store.path else None
        had_state = folder is not None and any((folder / "checkpoints").glob("*/*.checkpoint"))
        receivers = [make_receiver(one) for one in settings.notify]
        for one in receivers:
            one.check()
        self.external_url = settings.server.external_url
        self._publisher = publisher
        self._outbox = Outbox(folder)
        self.handlings = self._outbox.handlings()  # replaced, never changed: the loop reads it without a lock
        self._saying = threading.Lock()
        self._told = TellingRecord(self._outbox, len(receivers))
        self._notifier = Notifier(receivers, self._outbox, self.external_url, clock, had_state=had_state)
        self._feeds = [
            Feed(one.called, kind_of(type(one)), make_sink(one, settings.kafka), self._outbox, publisher.latest)
            for one in settings.sinks
        ]
        self._awake, self._last = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="outlets", daemon=True)
        follows = settings.notify or settings.sinks or self._notifier.removed
        self._unsubscribe = publisher.subscribe(self._wake) if follows else None
        if receivers and folder is None:
            log.warning("notify: store.path is not set: messages are queued in memory, and a restart loses them")

    def start(self) -> None:
        """From now on messages are sent, and sinks written."""
        if self._unsubscribe is not None:
            self._thread.start()
            self._notifier.start()
            for feed in self._feeds:
                feed.start()

    def receivers(self) -> tuple[ReceiverState, ...]:
        """The state of every receiver."""
        return self._states

    def sinks(self) -> tuple[SinkState, ...]:
        """The state of every sink."""
        return tuple(feed.state() for feed in self._feeds)

    def lacking(self) -> int | None:
        """From which event time on (ms) some sink lacks panes; None: there are no sinks."""
        return min((since for feed in self._feeds if (since := feed.lacking) is not None), default=None)

    def annotated(self, comparisons: tuple[Comparison, ...]) -> tuple[Comparison, ...]:
        """The comparisons with their handling, and who was notified of their changes, or why nobody was. Never waits."""
        return with_told(with_handlings(comparisons, self.handlings), self._told.of)

    def say(self, comparison: str, handling: Handling | None) -> None:
        """See `HandlingBook.say`: on the disk when it returns, with the next snapshot in every answer."""
        with self._saying:
            self._outbox.handle(comparison, handling)
            others = {key: said for key, said in self.handlings.items() if key != comparison}
            self.handlings = others if handling is None else {**others, comparison: handling}

    def close(self) -> None:
        """Sends the changes of the last snapshot, and writes what sinks lack, within `CLOSE_SECONDS`; a message that is on
        its way then is waited for.
        """
        deadline = time.monotonic() + CLOSE_SECONDS
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._last = True
            self._awake.set()
            if self._thread.ident is not None:
                self._thread.join(CLOSE_SECONDS)
            self._notifier.finish(max(0.0, deadline - time.monotonic()))
            for feed in self._feeds:
                feed.close(max(0.0, deadline - time.monotonic()))
            self._notifier.close()
        self._outbox.close()

    _states: tuple[ReceiverState, ...] = ()

    def _wake(self) -> None:
        self._awake.set()

    def _run(self) -> None:
        while not self._last:
            self._awake.wait()
            self._awake.clear()
            try:
                self._notifier.see(self._publisher.latest())
                self._states = self._notifier.states()
                self._told.follow()
            except Exception:
                log.exception("notify: unexpected")
            for feed in self._feeds:
                feed.wake()
