"""Options of kafka-python that it would take in silence for something else."""

from __future__ import annotations

import pytest
from kafka import KafkaConsumer

from streameval.sources.kafka.python_client import known_options
from streameval.sources.kafka.python_sender import KafkaPythonSender
from streameval.sources.protocol import SourceError


def test_a_security_protocol_that_does_not_exist_is_an_error_and_no_plain_connection() -> None:
    for protocol in ("ssl_sasl", "ssl", "TLS", "", None):
        with pytest.raises(
            SourceError, match=r"kafka\.client_options\.security_protocol: .* is none of PLAINTEXT, SSL, "
        ):
            known_options({"security_protocol": protocol}, KafkaConsumer.DEFAULT_CONFIG)
    taken = known_options({"security_protocol": "SASL_SSL"}, KafkaConsumer.DEFAULT_CONFIG)
    assert taken == {"security_protocol": "SASL_SSL"}
    assert known_options({}, KafkaConsumer.DEFAULT_CONFIG) == {}


@pytest.mark.parametrize("acks", ["some", "ALL", 2, None])
def test_acks_that_do_not_exist_are_an_error_before_anything_is_sent(acks: object) -> None:
    with pytest.raises(SourceError, match=r'^kafka\.client_options\.acks: .* is none of 0, 1, -1 and "all"$'):
        KafkaPythonSender("127.0.0.1:1", {"acks": acks})


def test_acks_that_exist_are_taken() -> None:
    for acks in (0, 1, -1, "all"):
        KafkaPythonSender("127.0.0.1:1", {"acks": acks})
