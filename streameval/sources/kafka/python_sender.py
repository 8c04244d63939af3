"""Sends messages with the kafka-python client."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from kafka import KafkaAdminClient, KafkaProducer
from kafka import errors as kafka_errors

from streameval.sources.kafka.options import START_TIMEOUT, check_options, no_broker
from streameval.sources.kafka.python_client import (
    RESERVED,
    drop,
    find_again,
    make_client,
    oauth_options,
    shared_options,
    unhurried,
)
from streameval.sources.kafka.sender import NO_TOPIC, Headers, NoTopicError, Sender
from streameval.sources.protocol import SourceError

_ACKS = (0, 1, -1, "all")


class KafkaPythonSender(Sender):
    """Sends with kafka-python."""

    def __init__(self, bootstrap_servers: str, client_options: Mapping[str, Any], oauth: str = "") -> None:
        super().__init__(bootstrap_servers, client_options)
        check_options(client_options, {"bootstrap_servers": RESERVED["bootstrap_servers"]})
        acks = client_options.get("acks", "all")
        if acks not in _ACKS:  # the client takes anything, and fails at every request
            raise SourceError(f'kafka.client_options.acks: {acks!r} is none of 0, 1, -1 and "all"')
        self._options = {
            "linger_ms": 20,
            "batch_size": 262_144,
            "max_request_size": 1_000_000_000,  # the topic's own limit decides
            "reconnect_backoff_max_ms": 2_000,
            # 3.0.12's idempotent producer is unusable after one message was too large for its topic; with one request
            # at a time the order is kept as well, and a message repeated after a lost response is harmless to readers
            "enable_idempotence": False,
            "max_in_flight_requests_per_connection": 1,
            **shared_options(client_options, KafkaProducer.DEFAULT_CONFIG),
            "bootstrap_servers": bootstrap_servers.split(","),
            **oauth_options(oauth),
        }
        self._oauth = oauth
        self._made: Any = None

    def connect(self, timeout: float) -> None:
        if self._made is None:
            self._made = self._make(timeout)

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

        def failed(error: BaseException) -> None:
            self._undelivered(topic, error, self._heard(error, refused, unusable))

        try:
            sent = self._producer.send(topic, value, key, list(headers), partition).add_errback(failed)
            if stored is not None:
                sent.add_callback(lambda _: stored())
        except kafka_errors.KafkaTimeoutError as error:  # no metadata within max_block_ms
            raise NoTopicError(f'topic "{topic}": not sent: {self._redacted(error)}') from None
        except kafka_errors.KafkaError as error:
            raise SourceError(f'topic "{topic}": not sent: {self._redacted(error)}') from None

    def flush(self, timeout: float) -> None:
        if self._made is None:
            return
        try:
            self._producer.flush(timeout=timeout)
        except kafka_errors.KafkaError as error:
            raise SourceError(
                f"{self._bootstrap_servers}: messages not delivered within {timeout:.0f} s "
                f"({self._redacted(error)}); check that the brokers run"
            ) from None
        self._check()

    def serve(self, timeout: float) -> None:
        time.sleep(timeout)  # the client delivers on a thread of its own
        self._check()

    def _heard(
        self, error: BaseException, refused: Callable[[], None] | None, unusable: Callable[[str], None] | None
    ) -> Callable[[], None] | None:
        """Who is to hear of a failure; None: nobody in particular."""
        if isinstance(error, (kafka_errors.MessageSizeTooLargeError, kafka_errors.RecordListTooLargeError)):
            return refused
        if unusable is not None and isinstance(error, kafka_errors.UnknownTopicOrPartitionError):
            return partial(unusable, NO_TOPIC)
        if unusable is not None and isinstance(error, kafka_errors.TopicAuthorizationFailedError):
            return partial(unusable, self._redacted(error))
        return None

    @property
    def _producer(self) -> Any:
        """Created on first use: kafka-python connects when it is created."""
        if self._made is None:
            self._made = self._make(START_TIMEOUT)
        return self._made

    def _make(self, timeout: float) -> Any:
        options = {**self._options, "bootstrap_timeout_ms": int(timeout * 1_000)}
        try:
            made = make_client(KafkaProducer, options, self._client_options)
            unhurried(made)
            find_again(made)
            return made
        except kafka_errors.KafkaError as error:
            raise no_broker(self._bootstrap_servers, timeout, self._redacted(error)) from None

    def create_topics(self, names: Sequence[str], partitions: int, timeout: float) -> None:
        options = {
            **shared_options(self._client_options, KafkaAdminClient.DEFAULT_CONFIG),
            "bootstrap_servers": self._bootstrap_servers.split(","),
            **oauth_options(self._oauth),
        }
        admin = make_client(KafkaAdminClient, options, self._client_options)
        try:
            for name in names:
                wanted = {name: {"num_partitions": partitions, "replication_factor": -1}}
                try:
                    admin.create_topics(wanted, timeout_ms=int(timeout * 1_000))
                except kafka_errors.TopicAlreadyExistsError:
                    continue
                except kafka_errors.KafkaError as error:
                    raise self._not_created(name, error) from None
        finally:
            admin.close()

    def close(self) -> None:
        if self._made is not None:
            drop(self._made)
