"""What a producer is given of options that the reader has, too."""

from __future__ import annotations

from typing import Any

import pytest

from streameval.sources.kafka.confluent_sender import ConfluentSender

OF_THE_READER = {
    "auto.commit.interval.ms": 1_000,
    "check.crcs": True,
    "consume.callback.max.messages": 1,
    "coordinator.query.interval.ms": 1_000,
    "fetch.max.bytes": 1_000_000,
    "fetch.message.max.bytes": 100_000,
    "group.instance.id": "a",
    "heartbeat.interval.ms": 1_000,
    "isolation.level": "read_committed",
    "max.partition.fetch.bytes": 100_000,
    "max.poll.interval.ms": 60_000,
    "offset.store.method": "broker",
    "queued.min.messages": 1_000,
    "session.timeout.ms": 30_000,
}


def warnings(options: dict[str, Any], caplog: pytest.LogCaptureFixture) -> list[str]:
    sender = ConfluentSender("127.0.0.1:1", options)
    sender.serve(0.1)
    sender.close()
    return [message for message in caplog.messages if "property" in message]


def test_a_producer_is_not_given_what_only_a_consumer_has(caplog) -> None:
    """The log warned of one in words of librdkafka, `fetch.message.max.bytes`, which nobody had set."""
    assert warnings(OF_THE_READER, caplog) == []
    (said,) = warnings({"enable.partition.eof": True}, caplog)  # as it is said of those that are given
    assert "consumer property" in said
