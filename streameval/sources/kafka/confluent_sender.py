"""Sends messages with the confluent-kafka client."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from streameval.sources.kafka.confluent_client import RESERVED, make_client, with_oauth
from streameval.sources.kafka.options import check_options, no_broker
from streameval.sources.kafka.sender import NO_TOPIC, Headers, Sender
from streameval.sources.protocol import SourceError

log = logging.getLogger(__name__)

# Options of the reader that the same client_options may contain: a producer warns about each.
CONSUMER_ONLY = (
    "group.", "session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms", "fetch.", "queued.",
    "isolation.level", "check.crcs", "max.partition.fetch.bytes", "coordinator.query.interval.ms", "auto.commit.",
    "offset.store.", "consume.callback.",
)  # fmt: skip

_NO_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
FULL_TIMEOUT = 300.0  # seconds that a full queue may take to have room again


class ConfluentSender(Sender):
    """Sends with confluent-kafka."""

    def __init__(self, bootstrap_servers: str, client_options: Mapping[str, Any], oauth: str = "") -> None:
        super().__init__(bootstrap_servers, client_options)
        check_options(client_options, {"bootstrap.servers": RESERVED["bootstrap.servers"]})
        options = {
            "client.id": "streameval",
            "linger.ms": 20,
            "partitioner": "murmur2_random",  # like Java's and kafka-python's: equal keys, equal partitions
            "queue.buffering.max.kbytes": 65_536,
            "message.max.bytes": 1_000_000_000,  # the topic's own limit decides
            "enable.idempotence": True,  # no duplicates and no reordering when a broker goes away
            "reconnect.backoff.max.ms": 2_000,
            "delivery.report.only.error": True,
            **{name: value for name, value in client_options.items() if not name.startswith(CONSUMER_ONLY)},
            "bootstrap.servers": bootstrap_servers,
            "error_cb": self._on_error,
        }
        self._producer = make_client(Producer, with_oauth(options, oauth), client_options)
        self._oauth = oauth
        self._sent = 0

    def connect(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while True:
            try:
                self._producer.list_topics(timeout=max(0.1, min(2.0, deadline - time.monotonic())))
                return
            except KafkaException as error:
                self._producer.poll(0)  # serves error_cb, which knows more than "timed out"
                if time.monotonic() >= deadline:
                    why = f"{error.args[0].str()}; {self._last_error or 'no answer'}"
                    raise no_broker(self._bootstrap_servers, timeout, self._redacted(why)) from None
                time.sleep(0.1)  # a refused connection answers at once

    def send(
        self,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        partition: int | None = None,
        *,
        headers: Headers = (),
        stored: Callable[[], None] | None = None,
        refused: Callable[[], None] | None = None,
        unusable: Callable[[str], None] | None = None,
    ) -> None:
        self._check()

        def delivered(error: KafkaError | None, _: Message | None = None) -> None:
            if error is not None:
                self._undelivered(topic, error.str(), self._heard(error, refused, unusable))
            elif stored is not None:
                stored()

        place = {} if partition is None else {"partition": partition}
        deadline = time.monotonic() + FULL_TIMEOUT
        while True:
            try:
                self._producer.produce(topic, value, key, headers=list(headers), on_delivery=delivered, **place)
                break
            except BufferError:  # full: wait for deliveries
                self._producer.poll(0.1)
                if time.monotonic() > deadline:
                    raise SourceError(
                        f'topic "{topic}": no message was delivered for {FULL_TIMEOUT:.0f} s, and no more can wait'
                        f"{f' ({self._last_error})' if self._last_error else ''}; check that the brokers run"
                    ) from None
            except KafkaException as error:  # known without asking the brokers
                delivered(error.args[0])
                break
        self._sent += 1
        if self._sent % 1_000 == 0:
            self._producer.poll(0)

    def flush(self, timeout: float) -> None:
        left = self._producer.flush(timeout)
        self._check()
        if left:
            raise self.late(left, timeout)

    def serve(self, timeout: float) -> None:
        self._producer.poll(timeout)
        self._check()

    def create_topics(self, names: Sequence[str], partitions: int, timeout: float) -> None:
        options = {**self._client_options, "bootstrap.servers": self._bootstrap_servers}
        admin = make_client(AdminClient, with_oauth(options, self._oauth), self._client_options)
        for name, future in admin.create_topics(
            [NewTopic(name, num_partitions=partitions) for name in names], operation_timeout=timeout
        ).items():
            try:
                future.result(timeout)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise self._not_created(name, error.args[0].str()) from None

    def close(self) -> None:
        self._producer.purge()
        self._producer.flush(1.0)

    def _heard(
        self, error: KafkaError, refused: Callable[[], None] | None, unusable: Callable[[str], None] | None
    ) -> Callable[[], None] | None:
        """Who is to hear of a failure; None: nobody in particular."""
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return refused
        if unusable is not None and error.code() in (*_NO_TOPIC, KafkaError.TOPIC_AUTHORIZATION_FAILED):
            return partial(unusable, NO_TOPIC if error.code() in _NO_TOPIC else self._redacted(error.str()))
        return None

    def _on_error(self, error: KafkaError) -> None:
        self._last_error = self._redacted(error.str())
        log.warning("kafka: %s", self._last_error)
