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


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("session_timeout_ms", "30s", "a number"),
        ("session_timeout_ms", True, "a number"),
        ("check_crcs", 1, "true or false"),
        ("client_rack", 3, "a text"),
    ],
)
def test_a_value_of_another_type_is_an_error_that_names_its_option(name: str, value: object, words: str) -> None:
    """The client's own errors name no option, and a session's timeout was a ValueError."""
    with pytest.raises(SourceError, match=rf"^kafka\.client_options\.{name} = {value!r}: must be {words}$"):
        known_options({name: value}, KafkaConsumer.DEFAULT_CONFIG)


def test_values_of_options_whose_defaults_say_nothing_are_passed_on() -> None:
    given = {"session_timeout_ms": 30_000.0, "receive_buffer_bytes": 1 << 20, "ssl_cafile": "ca.pem"}
    assert known_options(given, KafkaConsumer.DEFAULT_CONFIG) == given
