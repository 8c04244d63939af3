"""A partition without a leader, in a cluster of two brokers of which one is away: the others are read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from streameval.sources.kafka.source import KafkaSource
from tests.integration.conftest import PATIENCE, Arrived
from tests.integration.test_run_process import Run, running
from tests.integration.test_run_process import until as until_seen

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
    made_of(address, {lab.impressions: [[1], [2], [1]], lab.clicks: [[1], [1], [1]]})
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


SOON = 30.0  # seconds, with a group to join; the broker that is away stays away for as long as it takes


def test_a_start_without_a_leader_waits_for_no_other_and_every_partition_begins_where_it_would_have(
    second_kafka, launcher, laboratory, client, impressions, clicks, drain, stored, caplog
):
    """Nothing was read before all had one: the ends of each were asked for."""
    address, second = second_kafka
    lab = laboratory(address, client)
    made_of(address, {lab.impressions: [[1], [2]], lab.clicks: [[1], [1]]})
    places = {(topic, partition) for topic in (lab.impressions, lab.clicks) for partition in range(2)}
    orphan = (lab.impressions, 1)
    for partition in range(2):
        lab.write(lab.impressions, impressions(10 * partition, 5), partition)
        lab.write(lab.clicks, clicks(10 * partition, 5), partition)
    settings = lab.settings()
    first = lab.source(settings)
    first.commit(drain(first, 20).offsets())
    first.close()

    launcher("stop", str(second))
    lab.write(lab.impressions, impressions(5, 1), 0)
    begun = time.monotonic()
    sources = {  # with the impressions of partition 0, then of partition 1 and its clicks
        "the group's offset": (lab.source(settings), [5], [*range(15, 20)], []),
        "a checkpoint's": (lab.source(keeper=stored(dict.fromkeys(places, 3))), [3, 4, 5], [*range(13, 20)], [13, 14]),
        "the earliest": (lab.source(), [*range(6)], [*range(10, 20)], [*range(10, 15)]),
        "the latest": (lab.source(lab.settings(start="latest")), [], [*range(15, 20)], []),
    }
    if client == "confluent":
        incremental = lab.settings(client_options={"group.protocol": "consumer"})
        sources["the earliest, KIP-848"] = (lab.source(incremental), *sources["the earliest"][1:])
    arrived = {name: Arrived() for name in sources}
    for name, (source, zero, _, clicked) in sources.items():
        clicks_of_zero = [one for one in zero if one < 5]
        read(source, arrived[name], len(zero) + len(clicks_of_zero) + len(clicked), places - {orphan})
        assert source.partitions() == {0, 1}
        assert time.monotonic() - begun < SOON * len(sources)
    assert f"no leader answers: {lab.impressions} [1]" in caplog.text

    with ThreadPoolExecutor(1) as producer:  # what it has waited to send comes as soon as there is a leader
        sent = producer.submit(lab.write, lab.impressions, impressions(15, 5), 1)
        launcher("join", str(second), str(second.parent / "kafka"))
        sent.result()
    for name, (source, _, one, _) in sources.items():
        read(source, arrived[name], arrived[name].count() + len(one), places)
    for name, (_, zero, one, clicked) in sources.items():
        found = arrived[name]
        assert (found.impressions.get(0, []), found.impressions[1], found.clicks[1]) == (zero, one, clicked), name
    assert not any(source.lost() for source, *_ in sources.values())


def test_a_restart_without_a_leader_counts_the_others_and_names_it_wherever_one_looks(
    second_kafka, launcher, laboratory, client, impressions, tmp_path
):
    address, second = second_kafka
    lab = laboratory(address, client)
    made_of(address, {lab.impressions: [[1], [2]], lab.clicks: [[1], [1]]})
    for partition in range(2):
        lab.write(lab.impressions, impressions(10 * partition, 5), partition)
    config = tmp_path / "streameval.toml"
    config.write_text(CONFIG.format(address, client, lab.impressions, lab.clicks, tmp_path / "store"))
    with running(config) as run:
        until_seen(lambda: counted(run) == 10, run)
        run.process.terminate()
        assert run.ended() == 0

    launcher("stop", str(second))
    lab.write(lab.impressions, impressions(5, 3), 0)
    with running(config) as run:
        until_seen(lambda: counted(run) == 13, run)
        said = until_seen(lambda: (answer := run.get("/readyz").json())["degraded"] and answer, run)
        orphan = f"{lab.impressions} [1]"
        assert said["degraded"] == [
            f"kafka: nothing comes from {orphan}, and no broker says that this is its end; has it a leader?"
        ]
        assert {name for name, good in said["checks"].items() if not good} == {"caught_up"}
        assert f"no leader answers: {orphan}" in run.errors
        sample = f'streameval_consumer_silent{{partition="1",topic="{lab.impressions}"}} 1.0'
        assert sample in run.get("/metrics").text
        launcher("join", str(second), str(second.parent / "kafka"))
        lab.write(lab.impressions, impressions(15, 5), 1)
        until_seen(lambda: counted(run) == 18 and run.get("/readyz").status_code == 200, run)
        assert run.get("/readyz").json()["degraded"] == []
        assert "streameval_consumer_silent{" not in run.get("/metrics").text


CONFIG = """
[kafka]
bootstrap_servers = "{}"
client = "{}"
group_id = "monitor"
start = "earliest"
impressions_topic = "{}"
clicks_topic = "{}"
dead_letter_topic = ""
[server]
port = 0
snapshot_interval = "100ms"
[store]
path = "{}"
"""


def counted(run: Run) -> int:
    """The impressions that a process has counted, before its restarts, too."""
    return int(run.get("/api/v1/status").json()["events"].get("impressions", 0))


def made_of(address: str, topics: dict[str, list[list[int]]]) -> None:
    """Has topics made of partitions that these brokers have."""
    wanted = [NewTopic(topic, len(brokers), replica_assignment=brokers) for topic, brokers in topics.items()]
    admin = AdminClient({"bootstrap.servers": address})
    for made in admin.create_topics(wanted).values():
        made.result(PATIENCE)


def read(source: KafkaSource, arrived: Arrived, count: int, at_end: set[tuple[str, int]]) -> None:
    """Polls until so many events have come, and these are at their end, no other."""
    deadline = time.monotonic() + PATIENCE
    while arrived.count() < count or source.caught_up() != at_end:
        assert time.monotonic() < deadline, (arrived, source.caught_up(), source.lag())
        arrived.take(source.poll(0.2))
    assert arrived.count() == count, arrived


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
