"""Sends letters for as long as it takes: until a broker answers for the first time, and until there is a topic to take them.

kafka-python connects when its producer is made, and asks for a topic when the first message is sent: both wait for the
brokers, and give up. Either client gives up a message whose topic does not exist. Here a thread does all this again and
again; what is sent in the meantime waits.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from streameval.sources.kafka.options import NoBrokerError
from streameval.sources.kafka.sender import NO_TOPIC, Headers, NoTopicError, Sender
from streameval.sources.protocol import SourceError

MOST_BYTES = 33_554_432  # that wait, as many as in kafka-python's own queue
ROOM_TIMEOUT = 60.0  # seconds that they may wait when there are as many; kafka-python's own limit
_TRY = 5.0  # seconds of an attempt, which a stop need not await
_AGAIN = 5.0  # seconds between attempts at a topic that takes nothing
_OBJECT_BYTES = 500  # of a letter, beside its value


class PatientSender:
    """The part of a `Sender` that dead letters need. Used by a single thread, but for `serve`, `late` and `unusable`."""

    def __init__(
        self,
        make: Callable[[], Sender],
        *,
        at_once: bool = False,
        most_bytes: int = MOST_BYTES,
        room_timeout: float = ROOM_TIMEOUT,
    ) -> None:
        """`at_once`: the client waits for its first broker by itself, and without holding up anybody."""
        self.unusable = ""  # why the topic takes nothing now
        self._make = make
        self._sender = make()
        self._at_once = at_once
        self._most_bytes, self._room_timeout = most_bytes, room_timeout
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()  # size, how to send it
        self._bytes = 0  # of them
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None  # that sends them; None: there is nothing to do
        self._open = self._used = at_once  # nothing waits; the client has taken something
        self._closed = False
        self._failed: SourceError | None = None

    def send(
        self,
        topic: str,
        value: bytes,
        *,
        headers: Headers = (),
        stored: Callable[[], None] | None = None,
        refused: Callable[[], None] | None = None,
    ) -> None:
        """See `Sender.send`."""
        size = len(value) + _OBJECT_BYTES

        def arrived() -> None:
            if self.unusable:
                with self._changed:
                    self.unusable = ""
                    self._changed.notify_all()
            if stored is not None:
                stored()

        def again(why: str) -> None:
            self.unusable = why
            with self._changed:
                self._wait(size, send)

        def send() -> None:
            self._sender.send(topic, value, headers=headers, stored=arrived, refused=refused, unusable=again)

        with self._changed:
            settled = self._changed.wait_for(
                lambda: self._settled() or self._bytes < self._most_bytes, self._room_timeout
            )
            self._check()
            if not settled:
                why = self.unusable or "no broker answered"
                raise SourceError(f'topic "{topic}": {why} for {self._room_timeout:.0f} s, and no more can wait')
            if not self._open:
                self._wait(size, send)
                return
        try:
            send()
        except NoTopicError:  # it was deleted
            again(NO_TOPIC)

    def serve(self, timeout: float) -> None:
        """See `Sender.serve`."""
        with self._changed:
            self._check()
        self._sender.serve(timeout)

    def late(self, left: int, timeout: float) -> SourceError:
        """See `Sender.late`."""
        return self._sender.late(left, timeout)

    def close(self) -> None:
        """See `Sender.close`."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            if self._thread is not None:
                return  # it closes
        self._sender.close()

    def _settled(self) -> bool:
        return self._open or self._failed is not None

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failed

    def _wait(self, size: int, send: Callable[[], None]) -> None:
        """Has the thread send it; `_changed` is held."""
        self._waiting.append((size, send))
        self._bytes += size
        self._open = False
        if self._thread is None and not self._closed and self._failed is None:
            self._thread = threading.Thread(target=self._send_waiting, name="waiting-letters", daemon=True)
            self._thread.start()

    def _send_waiting(self) -> None:
        """Sends what waits, in order, once the brokers answer and the topic takes it."""
        while not self._closed:
            try:
                if self.unusable:
                    self._pause()
                if not self._at_once:
                    self._sender.connect(_TRY)
                self._waiting[0][1]()  # the first one also waits for what the brokers say of its topic
            except SourceError as error:
                if self._hopeless(error):
                    break
                continue
            with self._changed:
                self._used = True
                self._bytes -= self._waiting.popleft()[0]
                self._open = not self._waiting
                self._changed.notify_all()
                if self._open:
                    self._thread = None
                    return
        self._sender.close()

    def _pause(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or not self.unusable, _AGAIN)
        self._sender.serve(0.0)

    def _hopeless(self, error: SourceError) -> bool:
        """Notes why an attempt was in vain; whether others would be too, as neither brokers nor topic are missing."""
        if isinstance(error, NoBrokerError) or self._away():
            return False
        if isinstance(error, NoTopicError):
            self.unusable = NO_TOPIC
            return False
        with self._changed:
            self._failed, self._thread = error, None
            self._changed.notify_all()
        return True

    def _away(self) -> bool:
        """Whether no broker answers a new sender, which then takes the place of one that has taken nothing yet."""
        new = self._make()
        try:
            new.connect(_TRY)
            away = False
        except SourceError as error:
            away = isinstance(error, NoBrokerError)
        if not self._used:
            self._sender, new = new, self._sender
        new.close()
        return away
