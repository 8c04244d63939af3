"""Dead letters to a Kafka topic: the original bytes, and headers that say what was wrong and where it came from.

Delivery is at least once: the same letter can be written again after a restart; (topic, partition, offset) and the
reason are its identity. Letters wait while the brokers are away, and while the topic does not exist or may not be written
to: then the log, and `degraded` of `/readyz`, name `kafka.dead_letter_topic`. A value that the dead-letter topic rejects
for its size (raise `max.message.bytes` there) is replaced by an empty one with a header `value_bytes`, the size; the
original is still where the headers point.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from streameval.settings.tree import Kafka
from streameval.sources.kafka.patient_sender import PatientSender
from streameval.sources.kafka.sender import NO_TOPIC, Headers
from streameval.sources.kafka.writer import open_sender
from streameval.sources.protocol import DeadLetter, DeadLetterSink, LettersError, SourceError

log = logging.getLogger(__name__)

CLOSE_TIMEOUT = 10.0  # seconds; the rest of a stop has its own deadlines
_OPTIONS: dict[str, dict[str, Any]] = {
    # A letter waits for the brokers for as long as they are away: the clients' own limits, 5 and 2 minutes, ended the
    # process. confluent says of every letter that it is stored. A topic that is not there is noticed after 5 s, not 30
    # and 60.
    "confluent": {
        "message.timeout.ms": 0, "delivery.report.only.error": False, "topic.metadata.propagation.max.ms": 5_000,
    },
    "kafka-python": {"delivery_timeout_ms": 2**31 - 1, "max_block_ms": 5_000},
}  # fmt: skip
_PATIENCE: dict[str, dict[str, Any]] = {
    "confluent": {"at_once": True, "most_bytes": 67_108_864, "room_timeout": 300.0},
    "kafka-python": {},
}
_SERVE = 0.05  # seconds between looks at what is still in flight


class KafkaDeadLetters(DeadLetterSink):
    """Writes to `kafka.dead_letter_topic`; with "" it drops the letters.

    A queue of up to 64 MB (32 MB with kafka-python) decouples `write` from the broker; when it is full, `write` waits. A
    letter that the brokers refuse raises SourceError, at the latest in `flush`; so does a queue that stays full. A topic that
    takes nothing is a LettersError of `flush`, and its letters wait on.
    """

    def __init__(self, settings: Kafka) -> None:
        self._topic = settings.dead_letter_topic
        self._sender: PatientSender | None = None
        if self._topic:
            options = {**_OPTIONS[settings.client], **settings.client_options}
            make = partial(open_sender, settings.client, settings.bootstrap_servers, options, settings.oauth)
            self._sender = PatientSender(make, **_PATIENCE[settings.client])
        self._lock = threading.Lock()
        self._written = 0
        self._in_flight: dict[int, None] = {}  # by number, in the order in which they were written
        self._refused: deque[tuple[int, DeadLetter]] = deque()

    def write(self, letters: Sequence[DeadLetter]) -> None:
        if self._sender is None:
            return
        for letter in letters:
            with self._lock:
                self._written += 1
                number = self._written
                self._in_flight[number] = None
            refused = partial(self._refused.append, (number, letter))
            try:
                self._send(number, letter.value, _headers(letter), refused)
            except SourceError as error:
                raise self._unusable() or error from None
        self._sender.serve(0.0)
        self._write_refused()

    def flush(self, timeout: float) -> None:
        sender, last, deadline = self._sender, self._written, time.monotonic() + timeout
        if sender is None:
            return
        while self._oldest() <= last:
            self._write_refused()
            if time.monotonic() > deadline:
                if (unusable := self._unusable()) is not None:
                    raise unusable
                with self._lock:
                    raise sender.late(sum(number <= last for number in self._in_flight), timeout)
            sender.serve(_SERVE)

    def close(self) -> None:
        """Letters that are not delivered now are written again when their events are read again: an error in the log."""
        sender = self._sender
        if sender is not None:
            try:
                self.flush(CLOSE_TIMEOUT)
            except SourceError as error:
                log.error("dead letters, to be written again when their events are read again: %s", error)
            finally:
                self._sender = None
                sender.close()

    def _oldest(self) -> int:
        """The number of the first letter that is not stored yet."""
        with self._lock:
            return next(iter(self._in_flight), self._written + 1)

    def _unusable(self) -> LettersError | None:
        """The error that the topic takes nothing; its text is always the same, so that the log has it once in a while."""
        why = "" if self._sender is None else self._sender.unusable
        if not why:
            return None
        fix = "create the topic" if why == NO_TOPIC else "allow this user to write to it"
        return LettersError(
            f'kafka.dead_letter_topic = "{self._topic}": {why}, so dead letters wait, and checkpoints and commits with them; '
            f'{fix}, or set it to ""'
        )

    def _send(self, number: int, value: bytes, headers: Headers, refused: Callable[[], None] | None = None) -> None:
        sender = self._sender
        if sender is not None:
            stored = partial(self._stored, number)
            sender.send(self._topic, value, headers=headers, stored=stored, refused=refused)

    def _stored(self, number: int) -> None:
        with self._lock:
            self._in_flight.pop(number, None)

    def _write_refused(self) -> None:
        while True:
            try:
                number, letter = self._refused.popleft()  # another thread may be here as well
            except IndexError:
                return
            size = len(letter.value)
            log.warning(
                'topic "%s" rejected a message of %d bytes; only its place is kept: %s [%d] offset %d',
                *(self._topic, size, letter.topic, letter.partition, letter.offset),
            )
            self._send(number, b"", [*_headers(letter), ("value_bytes", str(size).encode())])


def _headers(letter: DeadLetter) -> list[tuple[str, bytes]]:
    return [
        ("reason", letter.reason.encode()),
        ("field", letter.field.encode()),
        ("topic", letter.topic.encode()),
        ("partition", str(letter.partition).encode()),
        ("offset", str(letter.offset).encode()),
        ("message", letter.message.encode(errors="replace")),
    ]
