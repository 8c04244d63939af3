"""What is said when Kafka cannot be used as configured."""

from __future__ import annotations

import logging
import time
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError

from streameval.settings.tree import Kafka
from streameval.sources.kafka.clients import open_reader
from streameval.sources.kafka.confluent_reader import ConfluentReader
from streameval.sources.kafka.reader import UnreachableError
from streameval.sources.protocol import SourceError

PATIENCE = 180.0  # seconds, on a slow machine


def polled(source):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        source.poll(0.1)


def test_a_broker_that_never_answers_is_named(laboratory, client):
    source = laboratory("127.0.0.1:1", client).source(start_timeout=1.0)
    with pytest.raises(SourceError, match=r'kafka.bootstrap_servers = "127.0.0.1:1": no broker answered within 1 s'):
        polled(source)


def test_that_all_brokers_are_down_does_not_hide_the_cause():
    """The last line of a start said "1/1 brokers are down", of a wrong password."""
    reader = SimpleNamespace(_settings=Kafka(), _last_error="no answer")
    for error in (
        KafkaError(KafkaError._AUTHENTICATION, "Authentication failed: Invalid username or password"),
        KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"),
    ):
        ConfluentReader._on_error(reader, error)
    assert "Invalid username or password" in reader._last_error


@pytest.mark.kafka
def test_different_partition_counts_are_an_error_that_names_both(real_lab):
    real_lab.create(real_lab.impressions, partitions=3)
    real_lab.create(real_lab.clicks, partitions=2)
    with pytest.raises(
        SourceError, match=rf'"{real_lab.impressions}" has 3 partitions but "{real_lab.clicks}" has 2: .*'
    ):
        polled(real_lab.source())


def test_a_topic_that_comes_later_is_waited_for(lab, impressions, clicks, drain, caplog):
    lab.create(lab.impressions)
    source = lab.source()
    deadline = time.monotonic() + PATIENCE
    with caplog.at_level(logging.WARNING, "streameval"):
        while f"waiting for topic '{lab.clicks}', which does not exist yet" not in caplog.text:
            assert time.monotonic() < deadline, caplog.text
            assert source.poll(0.1) == []
        for _ in range(4):
            assert source.poll(0.1) == []
    assert source.partitions() == frozenset()
    lab.create(lab.clicks)
    lab.write(lab.impressions, impressions(0, 3))
    lab.write(lab.clicks, clicks(0, 2))
    assert drain(source, 5).impressions[0] == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "option", "fix"),
    [
        ("confluent", "group.id", "set kafka.group_id instead"),
        ("confluent", "enable.auto.commit", "needs False here; remove it"),
        ("confluent", "auto.offset.reset", "set kafka.start instead"),
        ("confluent", "partition.assignment.strategy", "needs 'range' here; remove it"),
        ("confluent", "group.remote.assignor", "needs 'range' here; remove it"),
        ("kafka-python", "group_id", "set kafka.group_id instead"),
        ("kafka-python", "enable_auto_commit", "needs false here; remove it"),
    ],
)
def test_an_option_that_is_ours_to_set_is_refused_with_the_fix(name, option, fix):
    with pytest.raises(SourceError, match=f"kafka.client_options.{option}: .*{fix}"):
        open_reader(Kafka(client=name, client_options={option: "x"}))


def test_an_option_that_the_client_does_not_have_is_named(client):
    with pytest.raises(SourceError, match="no_such_option"):
        open_reader(Kafka(client=client, client_options={"no_such_option": "x"}))


def test_no_secret_reaches_an_error_message(client):
    secrets = {
        "confluent": {"sasl.password": "hunter2", "security.protocol": "hunter2"},
        "kafka-python": {
            "sasl_plain_password": "hunter2",
            "sasl_mechanism": "hunter2",
            "security_protocol": "SASL_SSL",
        },
    }
    settings = Kafka(client=client, bootstrap_servers="127.0.0.1:1", client_options=secrets[client])
    with pytest.raises((SourceError, UnreachableError)) as caught:
        open_reader(settings).partition_counts(["t"], 0.5)
    assert "hunter2" not in str(caught.value)
