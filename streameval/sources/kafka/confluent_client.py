"""Creates confluent-kafka clients: the options that we set, and those that users must not set."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException

from streameval.sources.kafka.member import Generation
from streameval.sources.kafka.oauth import token_source
from streameval.sources.kafka.options import redacted
from streameval.sources.protocol import SourceError

log = logging.getLogger(__name__)

TUNING: dict[str, Any] = {
    "client.id": "streameval",
    "isolation.level": "read_committed",
    "check.crcs": True,
    # When its queue (64 MiB) is full, librdkafka waits this long before the next fetch; at its default of 1000 ms the
    # queue runs dry in the meantime and throughput falls from 1.3 million messages/s to 0.4.
    "fetch.queue.backoff.ms": 10,
    "fetch.wait.max.ms": 100,
    # The limit on messages in memory: this queue, however many partitions there are, plus one response of a broker.
    "queued.max.messages.kbytes": 65_536,
    "fetch.max.bytes": 33_554_432,
    "allow.auto.create.topics": False,  # a reader that creates topics would give them the wrong partition count
    "topic.metadata.refresh.interval.ms": 30_000,
    "reconnect.backoff.max.ms": 2_000,
}
OURS: dict[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",  # a start is always resolved to a number here, so that no gap goes unnoticed
    "enable.partition.eof": True,  # advances a position past transaction markers, so that the lag at the end is 0
}
# The only assignor that gives a member the same partition numbers of both topics; under either protocol.
CLASSIC = {"partition.assignment.strategy": "range"}
RESERVED = {
    "bootstrap.servers": "set kafka.bootstrap_servers instead",
    "metadata.broker.list": "set kafka.bootstrap_servers instead",
    "group.id": "set kafka.group_id instead",
    **{name: f"streameval needs {value!r} here; remove it" for name, value in {**OURS, **CLASSIC}.items()},
    "group.remote.assignor": "streameval needs 'range' here; remove it",
    "auto.offset.reset": "set kafka.start instead",
}


def make_client(make: Callable[..., Any], options: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    """Returns a client, or raises a SourceError that names the option it rejects."""
    try:
        return make(dict(options), logger=log.getChild("librdkafka"))  # `logs` distinguishes its lines from ours
    except (KafkaException, TypeError, ValueError) as error:
        text = error.args[0].str() if isinstance(error, KafkaException) else error
        raise SourceError(f"kafka.client_options: {redacted(text, given)}; see librdkafka's CONFIGURATION.md") from None


def with_oauth(options: Mapping[str, Any], oauth: str) -> dict[str, Any]:
    """Returns the options with `kafka.oauth` as the source of tokens, if there is one. Raises SourceError."""
    if not oauth:
        return dict(options)
    source = token_source(oauth)
    return {"sasl.mechanisms": "OAUTHBEARER", **options, "oauth_cb": lambda _: source()}


def generation(consumer: Consumer) -> Generation:
    """Returns the generation of the group, from the metadata that librdkafka writes for transactions.

    Its bytes are "CGMDv2:", the number in four bytes, and names. Unknown bytes give a generation that follows none, so
    that all partitions are restored from their checkpoints, which is slower but always right.
    """
    metadata = consumer.consumer_group_metadata() or b""
    number = int.from_bytes(metadata[7:11], sys.byteorder) if metadata.startswith(b"CGMDv2:") else -1
    return Generation(number, consumer.memberid() or "")
