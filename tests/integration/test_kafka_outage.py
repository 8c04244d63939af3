"""What the watch over a group does when the brokers are away; in a process of its own, since librdkafka could end it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from streameval.events.durations import HOUR
from streameval.sources.kafka.clients import open_reader
from streameval.sources.protocol import DeadLetter
from tests.integration.test_kafka_groups import Anybody
from tests.integration.test_kafka_leader import CONFIG, counted
from tests.integration.test_run_process import running
from tests.integration.test_run_process import until as until_seen
from tests.ports import free_port

SCRIPT = Path(__file__).with_name("group_watcher.py")
TOPIC = "impressions"
PATIENCE = 120.0

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(400)]


class Watcher:
    """tests/integration/group_watcher.py as a process."""

    def __init__(self, address: str) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, SCRIPT, address, TOPIC], stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )

    def ask(self, what: str) -> object:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        said = self.process.stdout.readline()
        assert said, f"it ended with status {self.process.wait()}: {self.process.communicate()[1]}"
        return json.loads(said)

    def until(self, what: str, expected: object) -> None:
        deadline = time.monotonic() + PATIENCE
        while (found := self.ask(what)) != expected:
            assert time.monotonic() < deadline, f"{what}: {found}, not {expected}"


@pytest.mark.parametrize("before", [True, False], ids=["its coordinator was known", "its coordinator was not known"])
def test_a_group_is_described_again_after_an_outage_in_which_it_was_asked_for(own_kafka, launcher, before):
    """Without an answer known before the outage librdkafka ended the process; with one, no answer came for minutes."""
    address = launcher("start", str(own_kafka))
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(PATIENCE)
    watcher = Watcher(address)
    try:
        watcher.until("topics", {TOPIC: 1})
        if before:
            watcher.until("members", ["etl"])
        launcher("stop", str(own_kafka))
        for _ in range(2):
            assert watcher.ask("members") == []
        launcher("start", str(own_kafka))
        watcher.until("members", ["etl"])
    finally:
        watcher.process.kill()
        watcher.process.communicate()


def test_a_cluster_that_comes_back_at_another_address_of_the_list_is_found(
    own_kafka, launcher, laboratory, client, impressions, drain
):
    """kafka-python looked at the addresses that it had last heard of, for good."""
    address = launcher("start", str(own_kafka))
    moved = f"127.0.0.1:{free_port()}"
    lab = laboratory(address, client)
    lab.create(lab.impressions, lab.clicks, lab.dead, partitions=1)
    lab.write(lab.impressions, impressions(0, 10))
    settings = lab.settings(bootstrap_servers=f"{address},{moved}")
    source, letters = lab.source(settings), lab.dead_letters(settings)
    letters.write([DeadLetter(b"before", "malformed", "", "", "impressions", 0, 0)])
    letters.flush(PATIENCE)
    arrived = drain(source, 10)
    launcher("stop", str(own_kafka))
    properties = own_kafka / "server.properties"
    properties.write_text(properties.read_text().replace(address, moved))
    letters.write([DeadLetter(b"during", "malformed", "", "", "impressions", 0, 1)])
    launcher("start", str(own_kafka))
    laboratory(moved, client).write(lab.impressions, impressions(10, 5))
    drain(source, 15, arrived)
    letters.flush(PATIENCE)
    assert source.connected()


def test_a_broker_that_goes_away_just_before_the_group_is_joined_ends_nothing(
    own_kafka, launcher, laboratory, client, impressions
):
    lab = laboratory(launcher("start", str(own_kafka)), client)
    lab.create(lab.impressions, partitions=1)
    lab.write(lab.impressions, impressions(0, 3))
    reader = open_reader(lab.settings())
    deadline = time.monotonic() + PATIENCE
    while lab.impressions not in reader.partition_counts([lab.impressions], 20.0):
        assert time.monotonic() < deadline
    launcher("stop", str(own_kafka))
    reader.subscribe([lab.impressions], Anybody(), committed=False)
    assert reader.poll(0.5, 10) == []
    launcher("start", str(own_kafka))
    found = []
    while len(found) < 3:
        found += [offset for run in reader.poll(0.2, 10) for offset in run.offsets]
        assert time.monotonic() < deadline + PATIENCE
    reader.close()


def test_results_stay_while_the_brokers_are_away_for_longer_than_the_session(
    own_kafka, launcher, laboratory, impressions, tmp_path
):
    """They were empty from the session's end on: a gate that asked for a version found worse was told `undecided`."""
    address = launcher("start", str(own_kafka))
    lab = laboratory(address, "confluent")
    lab.create(lab.impressions, lab.clicks, partitions=1)
    lab.write(lab.impressions, impressions(0, 10, step=HOUR))
    config = tmp_path / "streameval.toml"
    text = CONFIG.format(address, "confluent", lab.impressions, lab.clicks, tmp_path / "store")
    config.write_text(f'{text}[kafka.client_options]\n"session.timeout.ms" = 6000\n"heartbeat.interval.ms" = 1000\n')
    with running(config) as run:
        until_seen(lambda: counted(run) == 10 and run.get("/readyz").status_code == 200, run)
        until_seen(lambda: run.get("/api/v1/models/default/verdict").json().get("reliable"), run)
        shown = run.get("/api/v1/results").json()["results"]
        launcher("stop", str(own_kafka))
        until_seen(lambda: not run.get("/readyz").json()["checks"]["assigned"], run)
        time.sleep(1.0)  # some snapshots later
        assert counted(run) == 10
        assert run.get("/api/v1/results").json()["results"] == shown != []
        (line,) = run.get("/readyz").json()["degraded"]
        assert line.startswith("kafka: the group has dropped this process; the results stay those of ")
        verdict = run.get("/api/v1/models/default/verdict").json()
        assert not verdict["reliable"]
        assert verdict["reason"].startswith("the group has dropped the monitor: the results are those of 20")
        launcher("start", str(own_kafka))
        lab.write(lab.impressions, impressions(10, 5, step=HOUR))
        until_seen(lambda: counted(run) == 15 and run.get("/readyz").status_code == 200, run)
        assert run.get("/readyz").json()["degraded"] == []
        assert run.get("/api/v1/models/default/verdict").json()["reliable"]
