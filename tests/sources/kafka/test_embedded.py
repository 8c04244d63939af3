"""The embedded broker."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest
from confluent_kafka import Consumer, TopicPartition

from streameval.sources.kafka.embedded import PARTITIONS, EmbeddedBroker
from streameval.sources.kafka.writer import KafkaWriter


def test_a_topic_comes_into_being_with_its_first_message_and_has_the_promised_partitions():
    with EmbeddedBroker() as broker:
        writer = KafkaWriter(broker.bootstrap_servers, broker.client_options("confluent"))
        writer.write("t", [b"k"] * 3, [b"1", b"2", b"3"], partition=PARTITIONS - 1)
        writer.close()
        reader = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
        assert len(reader.list_topics("t", timeout=120).topics["t"].partitions) == PARTITIONS
        reader.assign([TopicPartition("t", PARTITIONS - 1, 0)])
        assert [message.value() for message in reader.consume(3, 120)] == [b"1", b"2", b"3"]
        reader.close()


def test_another_process_can_use_it():
    with EmbeddedBroker() as broker:
        code = (
            "import sys; from streameval.sources.kafka.writer import KafkaWriter; w = KafkaWriter(sys.argv[1]); "
            "w.write('t', [b'k'], [b'from outside'], 0); w.close()"
        )
        subprocess.run([sys.executable, "-c", code, broker.bootstrap_servers], check=True, timeout=480)
        reader = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
        reader.assign([TopicPartition("t", 0, 0)])
        assert [message.value() for message in reader.consume(1, 120)] == [b"from outside"]
        reader.close()


def test_it_listens_on_this_machine_only_and_stops():
    with EmbeddedBroker() as broker:
        host, port = broker.bootstrap_servers.split(":")
        assert host == "127.0.0.1"
        socket.create_connection((host, int(port)), timeout=120).close()
    broker.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=120)
    with pytest.raises(RuntimeError, match="with statement"):
        _ = broker.bootstrap_servers
