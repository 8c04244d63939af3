"""A live rate spread over many partitions: what a process needs for it, by their number. JSON over a real Kafka, no models.

A batch costs about a millisecond whatever it contains, so at the same rate many partitions cost more than one. Processor
time is that of the whole process, the client's threads and a snapshot every second included.
"""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Iterator

import msgspec
import numpy as np

from benchmarks.events import Events
from benchmarks.kafka import broker
from benchmarks.pipeline import middle, settings
from streameval.app import make_decoder
from streameval.events.batch import Batch
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings
from streameval.sources.dead_letters import JsonlDeadLetters
from streameval.sources.kafka.source import KafkaSource
from streameval.sources.kafka.writer import KafkaWriter
from streameval.testing import readers_see

PARTITIONS = (1, 4, 16, 64)
RATE = 20_000  # messages a second
WARM, SECONDS = 6.0, 12.0  # until it is measured, and for how long
ROUNDS = 3
_STEP = 0.01  # seconds between two writes


def messages(events: Events, partitions: int) -> Iterator[tuple[int, bytes]]:
    """(partition, message), in order of time; a click is where its impression is."""
    encode = msgspec.json.Encoder().encode
    of = np.concatenate((np.arange(events.n), np.flatnonzero(events.clicked)))
    when = np.concatenate((events.ts, events.click_ts))
    for k in np.argsort(when, kind="stable").tolist():
        i, event = int(of[k]), {"impression_id": f"imp-{of[k]}", "ts": int(when[k])}
        if k < events.n:
            event |= {
                "user_id": f"user-{int(events.user[i]) % 20000}", "model": "ctr", "model_version": "v1",
                "pclick": float(events.pclick[i]),
                "slices": {"country": str(events.country[i]), "device": str(events.device[i])},
            }  # fmt: skip
        yield i % partitions, encode(event)


def produce(address: str, topic: str, partitions: int) -> None:
    """Writes at the rate, for as long as is measured and a little longer: a process of its own."""
    count = int(RATE * (WARM + SECONDS + 4.0))
    ready = list(messages(Events(count, minutes=30), partitions))[:count]
    writer = KafkaWriter(address, {"compression.type": "lz4", "linger.ms": 5})
    print("ready", flush=True)
    begin, sent = time.monotonic(), 0
    while sent < len(ready):
        until = min(int((time.monotonic() - begin) * RATE), len(ready))
        for partition, value in ready[sent:until]:
            writer.write(topic, [b"k"], [value], partition)
        sent = until
        time.sleep(_STEP)
    writer.close()


def measured(address: str, partitions: int) -> tuple[float, float, int]:
    """(messages a second, seconds of processor time a message, messages that waited in the end)."""
    topic = f"live-{uuid.uuid4().hex[:8]}"
    writer = KafkaWriter(address)
    writer.create_topics([topic], partitions)
    writer.close()
    kafka = {"bootstrap_servers": address, "impressions_topic": topic, "clicks_topic": topic, "dead_letter_topic": ""}
    given = settings(False).model_dump(mode="json", exclude={"kafka", "files"})
    tree = Settings.model_validate({**given, "kafka": {**kafka, "group_id": topic, "start": "earliest"}})
    pipeline = Pipeline(tree, time.time)
    source = KafkaSource(tree.kafka, make_decoder(tree, pipeline), JsonlDeadLetters(""), tree.batch.max_events)
    read = 0

    def take(batch: Batch) -> None:
        nonlocal read
        read += len(batch)
        pipeline.take(batch)

    command = [sys.executable, "-m", "benchmarks.partitions", address, topic, str(partitions)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as producer:
        assert producer.stdout is not None
        producer.stdout.readline()
        begin = time.monotonic()
        shown, first = begin, (0.0, 0.0, 0)  # when, processor time, messages read: when measuring began
        while (now := time.monotonic()) < begin + WARM + SECONDS:
            if not first[0] and now >= begin + WARM:
                first = now, time.process_time(), read
            source.deliver(0.2, take)
            if now >= shown + 1.0:
                shown = now
                readers_see(pipeline, with_history=False)
        took, busy, n = time.monotonic() - first[0], time.process_time() - first[1], read - first[2]
        lag = sum(source.lag().values())
        producer.terminate()
    source.close()
    return n / took, busy / n, lag


def main() -> None:
    """Prints the table. Rounds alternate."""
    with broker() as address:
        if address is None:
            return
        measured(address, 4)  # compiles
        rounds = [{n: measured(address, n) for n in PARTITIONS} for _ in range(ROUNDS)]
        print(f"{RATE:,} messages a second are written.\n")
        print(
            "| partitions | read/s | processor time, µs a message: median (least, most) | of a core | waiting at the end |"
        )
        print("|---|---|---|---|---|")
        for n in PARTITIONS:
            found = [one[n] for one in rounds]
            each = sorted(busy * 1e6 for _, busy, _ in found)
            rate = middle([rate for rate, _, _ in found])
            print(
                f"| {n} | {rate:,.0f} | {middle(each):.1f} ({each[0]:.1f}, {each[-1]:.1f}) | {rate * middle(each) / 1e4:.0f}% | "
                f"{middle([float(lag) for _, _, lag in found]):,.0f} |"
            )


if __name__ == "__main__":
    produce(sys.argv[1], sys.argv[2], int(sys.argv[3]))
