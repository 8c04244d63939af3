"""What the watch over a group does when the brokers are away; in a process of its own, since librdkafka could end it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

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
