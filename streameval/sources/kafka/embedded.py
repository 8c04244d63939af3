"""A Kafka broker inside this process, for the demo and quick tests: librdkafka's own mock cluster.

It speaks the Kafka protocol over TCP on 127.0.0.1, so any process on this machine can use it. Its limits: every topic
has 4 partitions and is created when it is first written to or asked for; it keeps about 5 MB per partition in memory
and drops older messages; nothing is durable; the first member of a group waits 3 seconds for others; there is no topic
administration, no look-up by time, and transactions are only simulated. For anything else, use a real broker
(`deploy/kafka/`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from confluent_kafka import Producer

_NOT_RUNNING = "the embedded broker is not running: use it in a with statement"
PARTITIONS = 4  # of every topic; fixed in librdkafka
_CLIENT_OPTIONS: dict[str, dict[str, Any]] = {
    "confluent": {},
    "kafka-python": {"api_version": (2, 3)},  # only C clients understand its answers to newer version probes
}


class EmbeddedBroker:
    """Runs from `with EmbeddedBroker() as broker:` until the block ends."""

    def __init__(self) -> None:
        self._cluster: Producer | None = None
        self._address = ""

    def __enter__(self) -> EmbeddedBroker:
        # the cluster lives in the client that created it; log_level 4: no notice that it is a mock
        self._cluster = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "unused:1", "log_level": 4})
        brokers = self._cluster.list_topics(timeout=10).brokers.values()
        self._address = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def bootstrap_servers(self) -> str:
        """host:port, while it runs."""
        if self._cluster is None:
            raise RuntimeError(_NOT_RUNNING)
        return self._address

    def client_options(self, client: str) -> dict[str, Any]:
        """Returns what `kafka.client_options` must contain for this broker, by `kafka.client`."""
        return dict(_CLIENT_OPTIONS[client])

    def create_topics(self, names: Sequence[str]) -> None:
        """Creates empty topics."""
        if self._cluster is None:
            raise RuntimeError(_NOT_RUNNING)
        for name in names:
            self._cluster.list_topics(name, timeout=10)  # a producer's metadata request creates them

    def close(self) -> None:
        """Stops the broker; all its messages are lost. May be called twice."""
        self._cluster = None  # its last reference: librdkafka ends the cluster with the client
