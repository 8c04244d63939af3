"""Writes messages to Kafka: traffic of `simulate` and the demo, and dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from streameval.sources.kafka.options import START_TIMEOUT
from streameval.sources.kafka.sender import Sender

FLUSH_TIMEOUT = 150.0  # seconds; longer than the clients themselves try to deliver a message


def open_sender(client: str, bootstrap_servers: str, client_options: Mapping[str, Any], oauth: str = "") -> Sender:
    """Returns a sender of the client library that `kafka.client` names."""
    if client == "confluent":
        from streameval.sources.kafka.confluent_sender import ConfluentSender

        return ConfluentSender(bootstrap_servers, client_options, oauth)
    from streameval.sources.kafka.python_sender import KafkaPythonSender

    return KafkaPythonSender(bootstrap_servers, client_options, oauth)


class KafkaWriter:
    """Writes keyed messages."""

    def __init__(
        self,
        bootstrap_servers: str,
        client_options: Mapping[str, Any] | None = None,
        client: Literal["confluent", "kafka-python"] = "confluent",
        oauth: str = "",
    ) -> None:
        self._sender = open_sender(client, bootstrap_servers, client_options or {}, oauth)

    def write(self, topic: str, keys: Sequence[bytes], values: Sequence[bytes], partition: int | None = None) -> None:
        """Queues messages, in order; see `Sender.send` for the partition and the errors."""
        send = self._sender.send
        for key, value in zip(keys, values, strict=True):
            send(topic, value, key, partition)

    def connect(self, timeout: float = START_TIMEOUT) -> None:
        """Returns once a broker has answered; raises SourceError if none has after `timeout` s."""
        self._sender.connect(timeout)

    def create_topics(self, names: Sequence[str], partitions: int, timeout: float = 30.0) -> None:
        """Creates topics on a real broker; the embedded one has its own method."""
        self._sender.create_topics(names, partitions, timeout)

    def flush(self, timeout: float = FLUSH_TIMEOUT) -> None:
        """Returns once everything written is stored. Raises SourceError if that fails."""
        self._sender.flush(timeout)

    def close(self) -> None:
        """Flushes and closes. May be called twice."""
        try:
            self._sender.flush(FLUSH_TIMEOUT)
        finally:
            self._sender.close()
