"""Sends with kafka-python even if no broker has answered yet, as the other client does by itself.

kafka-python connects when its producer is made, and asks for a topic when the first message is sent: both wait for the
brokers, and give up. Here a thread does both, for as long as it takes; what is sent in the meantime waits.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from streameval.sources.kafka.options import NoBrokerError
from streameval.sources.kafka.sender import Headers, Sender
from streameval.sources.protocol import SourceError

MOST_BYTES = 33_554_432  # that wait, as many as in kafka-python's own queue
ROOM_TIMEOUT = 60.0  # seconds that they may wait when there are as many; kafka-python's own limit
_TRY = 5.0  # seconds of an attempt, which a stop need not await


class PatientSender:
    """The part of a `Sender` that dead letters need. Used by a single thread, but for `serve` and `late`."""

    def __init__(self, make: Callable[[], Sender]) -> None:
        self._make = make
        self._sender = make()
        self._early: deque[tuple[int, Callable[[], None]]] = deque()  # sent too early: size, how to send it
        self._bytes = 0  # of them
        self._changed = threading.Condition()
        self._opening: threading.Thread | None = None
        self._open = self._closed = False
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

        def send() -> None:
            self._sender.send(topic, value, headers=headers, stored=stored, refused=refused)

        with self._changed:
            settled = self._changed.wait_for(lambda: self._settled() or self._bytes < MOST_BYTES, ROOM_TIMEOUT)
            self._check()
            if not settled:
                raise SourceError(f'topic "{topic}": no broker answered for {ROOM_TIMEOUT:.0f} s, and no more can wait')
            if not self._open:
                self._early.append((len(value), send))
                self._bytes += len(value)
                if self._opening is None:
                    self._opening = threading.Thread(target=self._send_early, name="first-letters", daemon=True)
                    self._opening.start()
                return
        send()

    def serve(self, timeout: float) -> None:
        """See `Sender.serve`."""
        with self._changed:
            self._check()
            is_open = self._open
        if is_open:
            self._sender.serve(timeout)
        else:
            time.sleep(timeout)

    def late(self, left: int, timeout: float) -> SourceError:
        """See `Sender.late`."""
        return self._sender.late(left, timeout)

    def close(self) -> None:
        """See `Sender.close`."""
        with self._changed:
            self._closed = True
            if self._opening is not None and not self._settled():
                return  # its thread closes
        self._sender.close()

    def _settled(self) -> bool:
        return self._open or self._failed is not None

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failed

    def _send_early(self) -> None:
        """Sends what was sent too early, in order, once the brokers answer."""
        while not (self._closed or self._settled()):
            try:
                self._sender.connect(_TRY)
                self._early[0][1]()  # the first one also waits for what the brokers say of its topic
            except SourceError as error:
                if not (isinstance(error, NoBrokerError) or self._away()):
                    with self._changed:
                        self._failed = error
                        self._changed.notify_all()
                continue
            with self._changed:
                self._bytes -= self._early.popleft()[0]
                self._open = not self._early
                self._changed.notify_all()
        if self._closed:
            self._sender.close()

    def _away(self) -> bool:
        """Whether no broker answers a new sender, which then takes the place of the other."""
        self._sender.close()
        self._sender = self._make()
        try:
            self._sender.connect(_TRY)
        except SourceError as error:
            return isinstance(error, NoBrokerError)
        return False
