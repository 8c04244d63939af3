"""A partition without a leader, in a cluster of two brokers of which one is away: the others are read on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.conftest import PATIENCE

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def second_kafka(own_kafka: Path, launcher: Callable[..., str], tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of a cluster, and the folder of its second broker, which runs and coordinates no group."""
    address, folder = launcher("start", str(own_kafka)), tmp_path / "second"
    known_to_first(address)
    launcher("join", str(folder), str(own_kafka))
    yield address, folder
    launcher("stop", str(folder))


def test_a_partition_without_a_leader_stops_no_other_and_is_read_once_it_has_one(
    second_kafka, launcher, laboratory, client, impressions, drain
):
    """With kafka-python the monitor ended with a KeyError."""
    address, second = second_kafka
    lab = laboratory(address, client)
    where = {lab.impressions: [[1], [2], [1]], lab.clicks: [[1], [1], [1]]}
    topics = [NewTopic(topic, 3, replica_assignment=brokers) for topic, brokers in where.items()]
    admin = AdminClient({"bootstrap.servers": address})
    for made in admin.create_topics(topics).values():
        made.result(PATIENCE)
    lab.write(lab.impressions, impressions(0, 5), 0)
    lab.write(lab.impressions, impressions(5, 5), 1)
    source = lab.source()
    arrived = drain(source, 10)
    places = {(topic, partition) for topic in (lab.impressions, lab.clicks) for partition in range(3)}
    assert until(lambda: source.caught_up() == places, source)

    launcher("stop", str(second))
    lab.write(lab.impressions, impressions(10, 5), 0)
    drain(source, 15, arrived)
    orphan = (lab.impressions, 1)
    assert until(lambda: source.caught_up() == places - {orphan}, source), "what is idle is known to be at its end"

    launcher("join", str(second), str(second.parent / "kafka"))
    lab.write(lab.impressions, impressions(15, 5), 1)
    drain(source, 20, arrived)
    assert until(lambda: source.caught_up() == places, source)


def known_to_first(address: str) -> None:
    """Has the only broker so far create the topic of offsets, whose partitions have one replica each."""
    consumer, deadline = Consumer({"bootstrap.servers": address, "group.id": "first"}), time.monotonic() + PATIENCE
    while True:
        try:
            consumer.committed([TopicPartition("none", 0)], timeout=PATIENCE)
            break
        except KafkaException:  # it is being created
            assert time.monotonic() < deadline
            time.sleep(0.2)
    consumer.close()


def until(done: Callable[[], bool], source) -> bool:
    """Whether it comes true while the source is polled."""
    deadline = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > deadline:
            return False
        assert source.poll(0.1) == []
    return True
