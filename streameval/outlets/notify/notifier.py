"""Sends every change once to every receiver. The ingest loop only publishes snapshots; nothing here can delay it.

One thread reads the newest snapshot and puts new changes into the outbox; one thread per receiver delivers its messages
in order, retrying after 1, 2, 4, ... up to 300 s, or as long as the receiver asks. A message that is rejected for its
content is set aside; any other failure delays all messages of that receiver.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from streameval.compare.reading.notified import Told, ToldState, Untold
from streameval.outlets.notify.changes import Change, verdict_changes
from streameval.outlets.notify.message import message_of
from streameval.outlets.notify.receivers import SEND_SECONDS, DeliveryError, Receiver
from streameval.outlets.notify.silence import ClockSteps, silences
from streameval.results.outlets import ReceiverState
from streameval.results.snapshot import Snapshot
from streameval.settings.tree import ConfigError
from streameval.store.errors import StoreError
from streameval.store.outbox import Outbox, Parcel, Waiting

log = logging.getLogger(__name__)

_LONGEST_BACKOFF = 300.0  # seconds
_PRIMED = "primed"  # a condition: changes are sent from then on
_LOOK_SECONDS = 5.0  # between two checks for work that nobody has announced: another worker's, or the lease
_NEVER_SENT = ("no_receivers", "not_subscribed", "serves_nobody", "before_notifications")
ANSWER_SECONDS = SEND_SECONDS + 1.0  # that a stop waits for the answer to a message on its way
_REFUSED_SECONDS = 3600.0  # until a rejected message is tried again, at most


class Notifier:
    """The receivers of this process, their messages and threads."""

    def __init__(
        self,
        receivers: Sequence[Receiver],
        outbox: Outbox,
        external_url: str,
        clock: Callable[[], float] = time.time,
        *,
        elapsed: Callable[[], float] = time.monotonic,
        had_state: bool = False,
    ) -> None:
        """`clock`: wall-clock seconds. `had_state`: the store has checkpoints. If the outbox is new, they were written
        before there were notifications, and what happened by then is no news. Raises StoreError.
        """
        self._outbox, self._clock, self._steps = outbox, clock, ClockSteps(elapsed)
        self._receivers = {one.name: one for one in receivers}
        self._thresholds = {one.no_data_after for one in receivers if "no_data" in one.on}
        self._known = outbox.known()
        self._conditions = outbox.conditions()
        self._dropped: Counter[str] = Counter()
        if receivers and _PRIMED not in self._conditions and not had_state:
            outbox.put((), clock(), (_PRIMED,))
            self._conditions.add(_PRIMED)
        # whose messages wait, though they are no longer configured: until a start has gone well, since it may be a mistake
        self.removed = outbox.queues().keys() - self._receivers.keys()
        self._posts = {one.name: Post(one, outbox, external_url, clock) for one in receivers}

    def start(self) -> None:
        """From now on messages are sent."""
        for post in self._posts.values():
            post.start()

    def see(self, snapshot: Snapshot) -> None:
        """Puts what is new into the outbox; when that fails, the next snapshot has it again. One thread."""
        now = self._clock()
        stepped = self._steps.last(now)
        primes = _PRIMED not in self._conditions
        if primes and not snapshot.whole:  # its past has not been restored yet
            return
        if self.removed and snapshot.whole:
            self._forget_removed()
        changes = [one for one in verdict_changes(snapshot) if one.key not in self._known]
        going_on = self._conditions - {_PRIMED}
        quiet = silences(snapshot, now, self._thresholds, going_on, stepped)
        opens = [*quiet.opens, *([_PRIMED] if primes else [])]
        if not changes and not opens and not quiet.closes:
            return
        try:
            parcels = self._parcels((*changes, *quiet.changes), old=primes)
            self._dropped.update(self._outbox.put(parcels, self._clock(), opens, quiet.closes))
        except StoreError as error:
            log.error("notify: %s; retrying", error)
            return
        self._known.update(one.key for one in changes)
        self._conditions.update(opens)
        self._conditions.difference_update(quiet.closes)
        for post in self._posts.values():
            post.wake()

    def _forget_removed(self) -> None:
        try:
            gone = self._outbox.forget_receivers(self._receivers)
        except StoreError as error:
            log.error("notify: %s; retrying", error)
            return
        names = ", ".join(f'"{name}"' for name in sorted(self.removed))
        log.warning("notify: receivers that are no longer configured had messages, dropped (%d): %s", gone, names)
        self.removed = set()

    def _parcels(self, changes: Iterable[Change], *, old: bool) -> list[Parcel]:
        """What was told while a version served is ended aloud, though it serves nobody now: an incident may be open."""
        every = list(changes)
        untold = self._outbox.untold() if any(one.quiet and one.ends for one in every) else []
        never_sent = {one.key for one in untold if one.why in _NEVER_SENT}
        parcels = []
        for change in every:
            aloud = bool(change.ends) and change.ends not in never_sent
            parcels.append(self._parcel(replace(change, quiet=change.quiet and not aloud), old=old))
            if parcels[-1].untold is not None:
                never_sent.add(change.key)
        return parcels

    def _parcel(self, change: Change, *, old: bool) -> Parcel:
        whom = [
            one.name
            for one in self._receivers.values()
            if not (old or change.quiet) and change.kind in one.on and change.after in (None, one.no_data_after)
        ]
        return Parcel(
            change.key, change.comparison, change.body(), tuple(whom), None if whom else self._untold(change, old=old)
        )

    def _untold(self, change: Change, *, old: bool) -> Untold:
        if not self._receivers:
            return "no_receivers"
        if old:
            return "before_notifications"
        return "serves_nobody" if change.quiet else "not_subscribed"

    def states(self) -> tuple[ReceiverState, ...]:
        """The state of every receiver."""
        try:
            queues = self._outbox.queues()
        except StoreError as error:
            log.error("notify: %s", error)
            queues = {}
        out = []
        for name, post in self._posts.items():
            queue, counts = queues.get(name), post.counts
            out.append(
                ReceiverState(
                    name=name,
                    kind=self._receivers[name].kind,
                    durable=self._outbox.durable,
                    waiting=queue.messages if queue else 0,
                    oldest=queue.oldest if queue else None,
                    delivered=counts["delivered"],
                    failures=counts["failures"],
                    dropped=self._dropped[name],
                    muted=counts["muted"],
                    error=post.error,
                )
            )
        return tuple(out)

    def finish(self, seconds: float) -> None:
        """Sends what can be sent within `seconds`; the rest waits in the outbox. Does not wait for it."""
        deadline = time.monotonic() + seconds
        for post in self._posts.values():
            post.finish(deadline)

    def close(self) -> None:
        """Waits for the end of `finish`, and then for the answers to what is being sent: without them it is sent again."""
        for post in self._posts.values():
            post.close()


class Post:
    """One receiver's thread."""

    def __init__(self, receiver: Receiver, outbox: Outbox, external_url: str, clock: Callable[[], float]) -> None:
        self.counts: Counter[str] = Counter()
        self.error = ""
        self._receiver, self._outbox = receiver, outbox
        self._external_url, self._clock = external_url, clock
        self._awake = threading.Event()
        self._last = False  # no more waiting
        self._until = math.inf  # monotonic seconds: nothing is sent from then on
        self._left = False  # nobody waits for its end
        self._failed = 0  # attempts in a row
        self._sent: dict[int, Told] = {}  # accepted by the receiver, but not yet noted in the outbox
        self._thread = threading.Thread(target=self._run, name=f"notify-{receiver.name}", daemon=True)

    def start(self) -> None:
        """Begins to send."""
        self._thread.start()

    def wake(self) -> None:
        """There may be something to send."""
        self._awake.set()

    def finish(self, deadline: float) -> None:
        """Ends once nothing can be sent at once, and begins nothing after `deadline` (monotonic seconds)."""
        self._until = deadline
        self._last = True
        self._awake.set()

    def close(self) -> None:
        """Waits for the end, and for the answer to a message that is on its way."""
        if self._thread.ident is None:
            return
        self._thread.join(max(0.0, self._until - time.monotonic()) + ANSWER_SECONDS)
        self._left = self._thread.is_alive()
        if self._left:
            log.warning("notify %s: no answer before the end; its message will be sent again", self._receiver.name)

    def _run(self) -> None:
        while True:
            try:
                wait = self._send_all()
            except StoreError as error:
                if self._left:  # the outbox is closed
                    return
                self._note(str(error))
                wait = self._backoff()
            except Exception:
                log.exception("notify %s: unexpected", self._receiver.name)
                wait = self._backoff()
            if self._last:
                return
            self._awake.clear()
            if wait <= 0:
                self._awake.wait(_LOOK_SECONDS)
            else:
                self._sleep(wait)

    def _sleep(self, seconds: float) -> None:
        """New messages do not shorten the wait, since it is the receiver that is unavailable; the end of the process does."""
        deadline = time.monotonic() + seconds
        while not self._last and (left := deadline - time.monotonic()) > 0:
            self._awake.wait(min(left, 1.0))
            self._awake.clear()

    def _send_all(self) -> float:
        """Sends what is due, in order; returns how long to wait before the next attempt, 0 when nothing is left."""
        if not self._outbox.lease():
            return 0.0
        while time.monotonic() < self._until:
            waiting = self._outbox.next_due(self._receiver.name, self._clock())
            if waiting is None:
                break
            if waiting.muted:
                self._outbox.done(waiting.number, self._told("muted"))
                self.counts["muted"] += 1
                continue
            try:
                if waiting.number not in self._sent:
                    self._receiver.send(message_of(waiting.key, waiting.body, self._external_url))
            except (DeliveryError, ConfigError) as error:
                self.counts["failures"] += 1
                self._note(str(error))
                wait = self._put_off(waiting, error)
                if wait > 0:
                    return wait
            else:
                told = self._sent.setdefault(waiting.number, self._told("delivered"))
                self._outbox.done(waiting.number, told)
                del self._sent[waiting.number]
                self.counts["delivered"] += 1
                if self.error:
                    log.info("notify %s: delivering again", self._receiver.name)
                self.error, self._failed = "", 0
        return 0.0

    def _told(self, state: ToldState) -> Told:
        return Told(self._receiver.name, self._receiver.kind, round(self._clock() * 1000), state)

    def _put_off(self, waiting: Waiting, error: Exception) -> float:
        """How long to wait before the next attempt."""
        refused = isinstance(error, DeliveryError) and error.refused
        asked = error.wait if isinstance(error, DeliveryError) else 0.0
        if refused:
            later = min(_REFUSED_SECONDS, 60.0 * 2 ** min(waiting.tries, 10))
            self._outbox.put_off(self._receiver.name, waiting.number, self._clock() + later)
            return 0.0
        self._outbox.put_off(self._receiver.name, waiting.number, 0.0)  # this thread waits, by a clock that nobody sets
        return max(asked, self._backoff())

    def _backoff(self) -> float:
        self._failed += 1
        return min(_LONGEST_BACKOFF, 2.0 ** min(self._failed - 1, 10)) * random.uniform(0.8, 1.0)  # noqa: S311  (no secret)

    def _note(self, error: str) -> None:
        if error != self.error:
            log.warning("notify %s: %s; messages are queued and retried", self._receiver.name, error)
        self.error = error
