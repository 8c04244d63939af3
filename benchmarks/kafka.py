"""Kafka end to end (JSON, 8 features) against a loop that only reads and decodes the topic."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.events import Events
from benchmarks.pipeline import settings
from streameval.app import make_decoder
from streameval.events.batch import Batch
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings
from streameval.sources.dead_letters import JsonlDeadLetters
from streameval.sources.kafka.source import KafkaSource
from streameval.sources.kafka.writer import KafkaWriter
from streameval.testing import readers_see

EVENTS = 1_000_000


def fill(address: str, impressions: str, clicks: str, events: Events) -> None:
    """Writes the events as JSON, one object per message, to one partition."""
    writer = KafkaWriter(address, {"compression.type": "lz4", "linger.ms": 50})
    writer.create_topics([impressions, clicks], 1)
    encode = msgspec.json.Encoder().encode
    names = np.array([f"v{v}" for v in range(1000)])
    values = [
        encode(
            {
                "impression_id": f"imp-{i}", "ts": int(events.ts[i]), "user_id": f"user-{int(events.user[i]) % 20000}",
                "model": "ctr", "model_version": "v1", "pclick": float(events.pclick[i]),
                "slices": {"country": str(events.country[i]), "device": str(events.device[i])},
                "features": {f"f{k}": str(names[j % 1000]) for k, j in enumerate(events.pick[i].tolist())},
            }
        )
        for i in range(events.n)
    ]  # fmt: skip
    writer.write(impressions, [b"k"] * len(values), values, 0)
    of = np.flatnonzero(events.clicked)
    order = np.argsort(events.click_ts, kind="stable")
    taps = [encode({"impression_id": f"imp-{of[j]}", "ts": int(events.click_ts[j])}) for j in order]
    writer.write(clicks, [b"k"] * len(taps), taps, 0)
    writer.close()


def drain(tree: Settings, events: Events, full: bool) -> float:
    """Impressions a second, from the first batch to the last."""
    pipeline = Pipeline(tree, time.time)
    tree = tree.model_copy(update={"kafka": tree.kafka.model_copy(update={"group_id": uuid.uuid4().hex})})
    source = KafkaSource(tree.kafka, make_decoder(tree, pipeline), JsonlDeadLetters(""), tree.batch.max_events)
    want, begin = events.n + int(events.clicked.sum()), 0.0
    done = 0

    def take(batch: Batch) -> None:
        nonlocal begin, done
        begin = begin or time.perf_counter()
        done += len(batch)
        if full:
            pipeline.take(batch)

    try:
        while done < want:
            source.deliver(1.0, take)
        if full:
            pipeline.finish()
            readers_see(pipeline, with_history=False)
    finally:
        source.close()
    return events.n / (time.perf_counter() - begin)


@contextmanager
def broker() -> Iterator[str | None]:
    """The address of a real Apache Kafka: STREAMEVAL_TEST_KAFKA, or one started for the block; None without Java."""
    given = os.environ.get("STREAMEVAL_TEST_KAFKA")
    if given:
        yield given
        return
    script = Path(__file__).parent.parent / "deploy" / "kafka" / "kafka.py"
    with tempfile.TemporaryDirectory() as folder:
        started = subprocess.run(
            [sys.executable, str(script), "start", folder], capture_output=True, text=True, check=False
        )
        if started.returncode:
            print(f"skipped: no Apache Kafka here ({started.stderr.strip().splitlines()[-1:]})")
            yield None
            return
        try:
            yield started.stdout.strip().splitlines()[-1]
        finally:
            subprocess.run([sys.executable, str(script), "stop", folder], check=False)


def main() -> None:
    """Prints the table."""
    with broker() as address:
        if address is None:
            return
        events = Events(EVENTS)
        name = uuid.uuid4().hex[:8]
        topics = {"impressions_topic": f"i-{name}", "clicks_topic": f"c-{name}"}
        fill(address, topics["impressions_topic"], topics["clicks_topic"], events)
        kafka = {"bootstrap_servers": address, "start": "earliest", "dead_letter_topic": "", **topics}
        tree = Settings.model_validate(
            {**settings(True).model_dump(mode="json", exclude={"kafka", "files"}), "kafka": kafka}
        )
        drain(tree, events, True)
        only = sorted(drain(tree, events, False) for _ in range(3))[1]
        full = sorted(drain(tree, events, True) for _ in range(3))[1]
        print("| what | impressions/s | share |")
        print("|---|---|---|")
        print(f"| drain + decode only | {only:,.0f} | 1 |")
        print(
            f"| end to end: + join, FTRL, all sketches, 2 slice dimensions | {full:,.0f} | {full / only:.2f} (goal 0.5) |"
        )
