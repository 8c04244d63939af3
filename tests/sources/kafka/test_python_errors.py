"""Hopeless errors of kafka-python name what helps."""

from __future__ import annotations

import pytest
from kafka import codec, errors

from streameval.settings.tree import Kafka
from streameval.sources.kafka.python_errors import refused


def test_every_compression_that_kafka_has_can_be_read() -> None:
    assert all((codec.has_gzip(), codec.has_snappy(), codec.has_lz4(), codec.has_zstd()))


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (errors.UnsupportedCodecError("snappy not found"), "snappy not found; install the locked packages again, or set kafka.client"),
        (errors.TopicAuthorizationFailedError("t"), "check the access rights of the topics and the group"),
    ],
)  # fmt: skip
def test_an_error_says_what_helps(error: Exception, says: str) -> None:
    assert says in str(refused(error, Kafka()))
