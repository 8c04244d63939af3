"""Soak: full load for an hour, and the resident set stays flat.

    python -m tests.chaos.soak [--minutes 60] [--warm-up 10] [--rate 0] [--slack 0.02] [--density 10000] [--leak 0]

A minute of simulated traffic, encoded once, is sent to a real Kafka over and over with new ids and later times, as fast
as the monitor takes it (never more than `MOST_LAG` messages ahead of it) or at `--rate` messages a second. The monitor is `streameval run`
with everything that it keeps bounded tightly (horizon, windows, users), so that its state has its full size within the
warm-up: what still grows after that is a leak. Its metrics and results are read all the while, as in production. Exit
status: 0 flat, 1 not (or the monitor ended, or stood still).

The state has its full size after a minute, the heap later: it is as large as what was ever needed at one moment (the
client's queue full, batches waiting, a snapshot under way), and the worst of these coincidences take minutes to come by.
Hence ten minutes of warm-up for a verdict of 2%. `--leak` plants one, of so many bytes a message: the verdict must see it.

The verdict compares the medians of the first and the last quarter of the samples after the warm-up: single peaks (a
snapshot under way, a table that doubles and its old half) do not decide, and neither does where a sawtooth is cut.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from streameval.simulate.encode import events
from streameval.simulate.scenario import Scenario, Version
from streameval.simulate.traffic import Traffic

LAUNCHER = Path(__file__).parents[2] / "deploy" / "kafka" / "kafka.py"
PARTITIONS = 2
PERIOD_MS = 60_000  # of event time, after which the traffic repeats
# Messages: the monitor always has work, and Kafka little to keep. What was read is known from snapshots, and at full load there
# may be 20 s between them.
MOST_LAG = 1_500_000
LAG_S = 3.0  # at a given rate
SAMPLE_S = 2.0
PATIENCE_S = 300.0  # on a slow machine
WARM_PERIODS = (
    45  # of traffic that the monitor has taken before anything counts: what comparisons keep is full after 40
)

# Event time runs several times as fast as the wall clock at full load, so a horizon of 2 minutes is full after one.
CONFIG = """\
[join]
attribution_window = "30s"
allowed_lateness = "2s"
correction_horizon = "2m"
request_gap = "5s"
max_future = "36500d"
[windows]
pane = "5s"
sliding = ["30s", "2m"]
[slices]
dimensions = ["country"]
[users]
memory = "8MB"
[compare]
gauc_window = "30s"
min_duration = "10m"
horizon = "30m"
keep = "40m"
[[models]]
name = "ftrl"
kind = "ftrl"
bits = 18
[kafka]
bootstrap_servers = "{servers}"
group_id = "{name}"
impressions_topic = "{name}-impressions"
clicks_topic = "{name}-clicks"
dead_letter_topic = ""
start = "earliest"
[server]
port = 0
"""


@dataclass(frozen=True, slots=True)
class Message:
    """One event of the repeating traffic, cut where its id and its time go."""

    at: int  # ms in the period at which it is sent
    cycles: int  # how many periods after its impression
    ts: int  # ms since the period's start
    topic: str
    key: bytes
    number: bytes  # of the impression
    tail: bytes

    def value(self, cycle: int, start_ms: int) -> bytes:
        """The message in a cycle: its id is new in every one."""
        cycle -= self.cycles
        return b'{"impression_id":"%d-%s","ts":%d,%s' % (
            cycle,
            self.number,
            start_ms + cycle * PERIOD_MS + self.ts,
            self.tail,
        )


def traffic(rate: float, name: str) -> list[Message]:
    """A period of traffic at `rate` impressions a second of event time, in order of sending."""
    versions = (Version("v1"), Version("v2", noise=1.0, share=0.3))
    scenario = Scenario(
        start_ms=0, rate=rate, duration_s=PERIOD_MS / 1000, users=20_000, window_s=30.0, versions=versions, shadow=True
    )
    pattern = re.compile(rb'\{"impression_id":"([^"]+)","ts":(\d+),(.*)', re.DOTALL)
    out = []
    for event in events(Traffic(scenario)):
        found = pattern.fullmatch(event.json())
        assert found is not None
        ts = int(found[2])
        topic = f"{name}-{event.kind}s"
        out.append(Message(ts % PERIOD_MS, ts // PERIOD_MS, ts, topic, event.key, found[1], found[3]))
    out.sort(key=lambda message: message.at)
    return out


def flat(samples: Sequence[float], slack: float) -> tuple[bool, float]:
    """(whether it is, growth) of samples: the last quarter's median over the first's, less 1."""
    quarter = max(1, len(samples) // 4)
    growth = median(samples[-quarter:]) / median(samples[:quarter]) - 1.0
    return abs(growth) <= slack, growth


class Load:
    """The producer: one thread that repeats the traffic until it is told to stop."""

    def __init__(self, servers: str, messages: list[Message], rate: float) -> None:
        """`rate`: messages a second; 0: as fast as `lag`, which others set, allows."""
        self._producer = Producer(
            {
                "log_level": 0,
                "bootstrap.servers": servers,
                "linger.ms": 20,
                "compression.type": "lz4",
                "partitioner": "murmur2_random",
            }
        )
        self._messages = messages
        self.period = len(messages)
        self._rate = rate
        # at a given rate little waits in the client's queue, whose size would be taken for growth
        self._most_lag = min(MOST_LAG, LAG_S * rate) if rate else MOST_LAG
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.sent = 0
        self.read = 0  # messages that the monitor has taken
        self.start_ms = int(time.time() * 1000)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.flush(10)

    def _run(self) -> None:
        cycle, begin = 0, time.monotonic()
        while not self._stop.is_set():
            for message in self._messages:
                if message.cycles > cycle:  # its impression would be of before the beginning
                    continue
                while True:
                    try:
                        self._producer.produce(message.topic, message.value(cycle, self.start_ms), message.key)
                        break
                    except BufferError:
                        self._producer.poll(0.1)
                self.sent += 1
                if self.sent % 1000 == 0:
                    self._producer.poll(0)
                    self._wait(begin)
                    if self._stop.is_set():
                        return
            cycle += 1

    def _wait(self, begin: float) -> None:
        while self.sent - self.read > self._most_lag and not self._stop.wait(0.01):
            pass
        if self._rate:
            self._stop.wait(max(0.0, self.sent / self._rate - (time.monotonic() - begin)))


@contextmanager
def kafka() -> Iterator[str]:
    """host:port of the Kafka to use."""
    given = os.environ.get("STREAMEVAL_TEST_KAFKA")
    if given:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="streameval-soak-kafka-") as folder:
        command = [sys.executable, str(LAUNCHER)]
        try:
            yield subprocess.run([*command, "start", folder], check=True, capture_output=True, text=True).stdout.strip()
        finally:
            subprocess.run([*command, "stop", folder], check=True)


def create_topics(servers: str, name: str) -> None:
    """The topics; Kafka keeps no more of them than a few hundred MB (it looks every 5 minutes)."""
    keep = {"retention.bytes": str(128 << 20), "segment.bytes": str(32 << 20)}
    admin = AdminClient({"bootstrap.servers": servers})
    topics = [NewTopic(f"{name}-{kind}", num_partitions=PARTITIONS, config=keep) for kind in ("impressions", "clicks")]
    for made in admin.create_topics(topics, operation_timeout=PATIENCE_S).values():
        made.result(PATIENCE_S)


def delete_topics(servers: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for gone in admin.delete_topics([f"{name}-impressions", f"{name}-clicks"], operation_timeout=PATIENCE_S).values():
        gone.result(PATIENCE_S)


def resident(pid: int) -> tuple[float, float]:
    """(resident set, its anonymous part) of a process, MB."""
    text = Path(f"/proc/{pid}/status").read_text()
    whole, anonymous = (int(re.findall(rf"^{key}:\s+(\d+) kB", text, re.MULTILINE)[0]) for key in ("VmRSS", "RssAnon"))
    return whole / 1024, anonymous / 1024


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        body: bytes = answer.read()
        return body


def run(minutes: float, warm_up: float, rate: float, slack: float, density: float, leak: int) -> bool:
    """One soak; whether it was flat. `density`: impressions a second of event time."""
    name = f"soak-{uuid.uuid4().hex[:8]}"
    with kafka() as servers, tempfile.TemporaryDirectory(prefix="streameval-soak-") as folder:
        create_topics(servers, name)
        config, log = Path(folder) / "soak.toml", Path(folder) / "log"
        config.write_text(CONFIG.format(servers=servers, name=name))
        load = Load(servers, traffic(density, name), rate)
        program = ["tests.chaos.leaking", str(leak)] if leak else ["streameval"]
        with log.open("wb") as errors:
            monitor = subprocess.Popen(
                [sys.executable, "-m", *program, "run", "-c", str(config)], stderr=errors, cwd=folder,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )  # fmt: skip
        load.start()
        try:
            return _watch(monitor, log, load, minutes, warm_up, slack)
        finally:
            load.close()
            monitor.terminate()
            try:
                monitor.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                monitor.kill()
                monitor.wait()
            delete_topics(servers, name)


def _watch(
    monitor: subprocess.Popen[bytes], log: Path, load: Load, minutes: float, warm_up: float, slack: float
) -> bool:
    url = _url(monitor, log)
    samples: list[float] = []
    print(
        f"{'minute':>7} {'messages':>12} {'a second':>9} {'behind':>8} {'state':>8} {'resident':>10} {'anonymous':>10}"
    )
    begin = said = time.monotonic()
    said_read, moved = 0, begin
    warm: float | None = None
    while (now := time.monotonic()) < (warm or now) + minutes * 60:
        time.sleep(SAMPLE_S)
        if monitor.poll() is not None:
            print(f"the monitor has ended with status {monitor.returncode}:\n{log.read_text()[-3000:]}")
            return False
        tables = re.findall(r"^streameval_table_bytes\{.*\} (\S+)$", get(f"{url}/metrics").decode(), re.MULTILINE)
        state = sum(map(float, tables)) / 1e6
        get(f"{url}/api/v1/results")
        status = json.loads(get(f"{url}/api/v1/status"))
        read = sum(place["value"] for partition in status["partitions"] for place in partition["offsets"])
        moved = now if read > load.read else moved
        load.read = read
        if now - moved > PATIENCE_S:
            print(f"the monitor has read nothing for {PATIENCE_S:.0f} s:\n{log.read_text()[-3000:]}")
            return False
        whole, anonymous = resident(monitor.pid)
        if warm is None and now - begin >= warm_up * 60 and read >= WARM_PERIODS * load.period:
            warm = now
        if warm is not None:
            samples.append(whole)
        if now - said >= 30:
            speed = (read - said_read) / (now - said)
            mark = "" if samples else "  (warm-up)"
            print(
                f"{(now - begin) / 60:7.1f} {read:12,} {speed:9,.0f} {load.sent - read:8,} {state:5.0f} MB {whole:7.1f} MB"
                f" {anonymous:7.1f} MB{mark}",
                flush=True,
            )
            said, said_read = now, read
    good, growth = flat(samples, slack)
    word = "flat" if good else "NOT flat"
    print(
        f"{word}: {growth:+.2%} from the first to the last quarter of {len(samples)} samples after the warm-up "
        f"(allowed {slack:.0%}); lowest {min(samples):.1f}, median {median(samples):.1f}, highest {max(samples):.1f} MB"
    )
    return good


def _url(monitor: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and monitor.poll() is None:
        found = re.search(r"http://127\.0\.0\.1:\d+", log.read_text(errors="replace"))
        if found:
            return found[0]
        time.sleep(0.2)
    raise SystemExit(f"the monitor has not started:\n{log.read_text()[-3000:]}")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="after the warm-up")
    parser.add_argument("--warm-up", type=float, default=10.0, help="minutes that do not count, at the least")
    parser.add_argument("--rate", type=float, default=0.0, help="messages a second; 0: as fast as they are read")
    parser.add_argument("--slack", type=float, default=0.02, help="how much of the resident set may come or go")
    parser.add_argument("--density", type=float, default=10_000.0, help="impressions a second of event time")
    parser.add_argument(
        "--leak", type=int, default=0, help="bytes of every message that are planted to be kept for good"
    )
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the monitor and the broker are stopped
    sys.exit(0 if run(given.minutes, given.warm_up, given.rate, given.slack, given.density, given.leak) else 1)


if __name__ == "__main__":
    main()
