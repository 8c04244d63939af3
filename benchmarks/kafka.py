"""From Kafka to numbers (JSON, 8 features), with both clients: beside a plain loop of the same client that only counts messages.

Rounds alternate. The limit is that plain loop, in the same round; `wire` is the share of bytes that a socket of this machine moves
in the same time.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks.events import Events
from benchmarks.pipeline import middle, settings
from streameval.app import make_decoder
from streameval.events.batch import Batch
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings
from streameval.sources.dead_letters import JsonlDeadLetters
from streameval.sources.kafka.source import KafkaSource
from streameval.sources.kafka.writer import KafkaWriter
from streameval.testing import readers_see

EVENTS = 1_000_000
ROUNDS = 5
CLIENTS = ("confluent", "kafka-python")
_AT_ONCE = 10_000  # messages
_WIRE = 1 << 30  # bytes


def fill(address: str, impressions: str, clicks: str, events: Events) -> int:
    """Writes the events as JSON, one object per message, to one partition; returns the bytes of all messages."""
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
    return sum(map(len, values)) + sum(map(len, taps))


def drain(tree: Settings, events: Events, full: bool) -> float:
    """Seconds from the first batch to the last; `full`: to the final report, and not only decoded."""
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
    return time.perf_counter() - begin


def plain_confluent(address: str, topics: list[str], want: int) -> float:
    """Seconds in which confluent-kafka's own consumer brings all messages."""
    from confluent_kafka import Consumer

    given: dict[str, Any] = {
        "bootstrap.servers": address,
        "group.id": uuid.uuid4().hex,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(given)
    consumer.subscribe(topics)
    return _counted(lambda: len(consumer.consume(_AT_ONCE, 0.2)), want, consumer.close)


def plain_python(address: str, topics: list[str], want: int) -> float:
    """Seconds in which kafka-python's own consumer brings all messages."""
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        *topics, bootstrap_servers=address, group_id=uuid.uuid4().hex, auto_offset_reset="earliest"
    )
    return _counted(lambda: sum(map(len, consumer.poll(200, max_records=_AT_ONCE).values())), want, consumer.close)


PLAIN: dict[str, Callable[[str, list[str], int], float]] = {"confluent": plain_confluent, "kafka-python": plain_python}


def _counted(poll: Callable[[], int], want: int, close: Callable[[], object]) -> float:
    done, begin = 0, 0.0
    while done < want:
        found = poll()
        if found:
            begin = begin or time.perf_counter()
            done += found
    end = time.perf_counter()
    close()
    return end - begin


def wire() -> float:
    """Bytes a second through a socket of this machine, from one thread to another."""
    ours, theirs = socket.socketpair()
    block = bytes(1 << 20)

    def send() -> None:
        for _ in range(_WIRE // len(block)):
            ours.sendall(block)
        ours.close()

    sender = threading.Thread(target=send)
    begin = time.perf_counter()
    sender.start()
    into = bytearray(1 << 20)
    while theirs.recv_into(into):
        pass
    took = time.perf_counter() - begin
    sender.join()
    theirs.close()
    return _WIRE / took


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
        events, limit = Events(EVENTS), wire()
        name = uuid.uuid4().hex[:8]
        topics = {"impressions_topic": f"i-{name}", "clicks_topic": f"c-{name}"}
        nbytes = fill(address, topics["impressions_topic"], topics["clicks_topic"], events)
        want = events.n + int(events.clicked.sum())

        def tree(client: str, models: bool) -> Settings:
            given = settings(models).model_dump(mode="json", exclude={"kafka", "files"})
            kafka = {
                "bootstrap_servers": address,
                "client": client,
                "start": "earliest",
                "dead_letter_topic": "",
                **topics,
            }
            return Settings.model_validate({**given, "kafka": kafka})

        print(f"{want:,} messages, {nbytes / 1e6:.0f} MB, lz4, one partition; the wire moves {limit / 1e9:.1f} GB/s.\n")
        print(
            "| client: what | impressions/s | its rate of the plain loop's: median (least, most) | of the wire | goal |"
        )
        print("|---|---|---|---|---|")
        for client in CLIENTS:
            with_ftrl, logged, plain = tree(client, True), tree(client, False), PLAIN[client]
            measures: dict[str, tuple[Callable[[], float], str]] = {
                "messages counted by a plain loop": (lambda: plain(address, [*topics.values()], want), ""),  # noqa: B023  (called within the round)
                "read and decoded": (lambda: drain(with_ftrl, events, False), ""),  # noqa: B023
                "to numbers, logged pClick": (lambda: drain(logged, events, True), "700,000"),  # noqa: B023
                "to numbers, with ftrl": (lambda: drain(with_ftrl, events, True), "500,000"),  # noqa: B023
            }
            for measure, _ in measures.values():
                measure()  # compiles, and has the broker's files in memory
            rounds = [{what: measure() for what, (measure, _) in measures.items()} for _ in range(ROUNDS)]
            first = next(iter(measures))
            for what, (_, goal) in measures.items():
                took = [one[what] for one in rounds]
                ratios = sorted(one[first] / one[what] for one in rounds)
                print(
                    f"| {client}: {what} | {events.n / middle(took):,.0f} | {middle(ratios):.2f} ({ratios[0]:.2f}, {ratios[-1]:.2f}) | "
                    f"{nbytes / middle(took) / limit:.1%} | {goal} |"
                )
