"""A backlog stays in Kafka, not in memory, however slowly it is read."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.kafka

SCRIPT = Path(__file__).with_name("group_member.py")
BACKLOG_MB = 300
LIMIT_MB = 220  # more than before the first poll; docs/operations.md says what it is made of
SECONDS = 8.0  # a client that would take all of it is done by then


def test_memory_does_not_grow_with_the_backlog(real_lab, tmp_path, impressions):
    real_lab.create(real_lab.impressions, real_lab.clicks, partitions=4)
    size = 10_000
    each = BACKLOG_MB * 1_000_000 // size // 4
    for p in range(4):
        real_lab.write(real_lab.impressions, [value.ljust(size) for value in impressions(0, each)], p)
    settings = real_lab.settings()
    command = [
        sys.executable, str(SCRIPT), real_lab.client, real_lab.address, settings.group_id, real_lab.impressions,
        real_lab.clicks, str(tmp_path), "{}",
    ]  # fmt: skip
    seen, sizes, answer = 0, [], {"lag": 0}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        begin = time.monotonic()
        # an end is known once something of its partition was fetched
        while not seen or time.monotonic() < begin + SECONDS or answer["lag"] + seen != 4 * each:
            assert time.monotonic() < begin + 120, answer
            process.stdin.write("poll\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            if seen == 0:
                begin = time.monotonic()
            seen += sum(answer["counted"].values())
            sizes.append(answer["rss_mb"])
            time.sleep(0.05)
        process.stdin.write("close\n")
        process.stdin.flush()
    lag = answer["lag"]
    assert lag + seen == 4 * each
    assert seen * size < 20_000_000
    assert max(sizes) - sizes[0] < LIMIT_MB, sizes
