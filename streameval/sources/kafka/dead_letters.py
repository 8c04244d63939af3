"""Dead letters to a Kafka topic: the original bytes, and headers that say what was wrong and where it came from.

Delivery is at least once: the same letter can be written again after a restart; (topic, partition, offset) and the
reason are its identity. A value that the dead-letter topic rejects for its size (raise `max.message.bytes` there) is
replaced by an empty one with a header `value_bytes`, the size; the original is still where the headers point.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from functools import partial

from streameval.settings.tree import Kafka
from streameval.sources.kafka.patient_sender import PatientSender
from streameval.sources.kafka.sender import Sender
from streameval.sources.kafka.writer import FLUSH_TIMEOUT, open_sender
from streameval.sources.protocol import DeadLetter, DeadLetterSink, SourceError

log = logging.getLogger(__name__)

CLOSE_TIMEOUT = 10.0  # seconds; the rest of a stop has its own deadlines
# A letter waits for the brokers for as long as they are away: the clients' own limits, 5 and 2 minutes, ended the process.
_PATIENT = {"confluent": {"message.timeout.ms": 0}, "kafka-python": {"delivery_timeout_ms": 2**31 - 1}}


class KafkaDeadLetters(DeadLetterSink):
    """Writes to `kafka.dead_letter_topic`; with "" it drops the letters.

    A queue of up to 64 MB (32 MB with kafka-python) decouples `write` from the broker; when it is full, `write` waits. A
    letter that the brokers refuse raises SourceError, at the latest in `flush`; so does a queue that stays full.
    """

    def __init__(self, settings: Kafka) -> None:
        self._topic = settings.dead_letter_topic
        self._sender: Sender | PatientSender | None = None
        if self._topic:
            options = {**_PATIENT[settings.client], **settings.client_options}
            make = partial(open_sender, settings.client, settings.bootstrap_servers, options, settings.oauth)
            self._sender = PatientSender(make) if settings.client == "kafka-python" else make()
        self._refused: deque[DeadLetter] = deque()

    def write(self, letters: Sequence[DeadLetter]) -> None:
        if self._sender is None:
            return
        for letter in letters:
            self._sender.send(
                self._topic,
                letter.value,
                headers=_headers(letter),
                refused=partial(self._refused.append, letter),
            )
        self._write_refused()

    def flush(self) -> None:
        self._flush(FLUSH_TIMEOUT)

    def close(self) -> None:
        """Nothing can be done any more about letters that are not delivered now: that is an error in the log."""
        sender = self._sender
        if sender is not None:
            try:
                self._flush(CLOSE_TIMEOUT)
            except SourceError as error:
                log.error("dead letters are lost: %s", error)
            finally:
                self._sender = None
                sender.close()

    def _flush(self, timeout: float) -> None:
        if self._sender is None:
            return
        self._sender.flush(timeout)
        if self._refused:
            self._write_refused()
            self._sender.flush(timeout)

    def _write_refused(self) -> None:
        while self._refused and self._sender is not None:
            letter = self._refused.popleft()
            size = len(letter.value)
            log.warning(
                'topic "%s" rejected a message of %d bytes; only its place is kept: %s [%d] offset %d',
                *(self._topic, size, letter.topic, letter.partition, letter.offset),
            )
            self._sender.send(self._topic, b"", headers=[*_headers(letter), ("value_bytes", str(size).encode())])


def _headers(letter: DeadLetter) -> list[tuple[str, bytes]]:
    return [
        ("reason", letter.reason.encode()),
        ("field", letter.field.encode()),
        ("topic", letter.topic.encode()),
        ("partition", str(letter.partition).encode()),
        ("offset", str(letter.offset).encode()),
        ("message", letter.message.encode(errors="replace")),
    ]
