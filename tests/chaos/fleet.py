"""What the chaos scripts share: a Kafka, traffic in it, workers as processes, and what they have counted in the end."""

from __future__ import annotations

import heapq
import itertools
import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from streameval.join.leaps import ENOUGH
from streameval.simulate.encode import Message, events
from streameval.simulate.scenario import Scenario, Version
from streameval.simulate.traffic import Traffic
from streameval.sketches.codec import decode
from streameval.store.history import user_samples

LAUNCHER = Path(__file__).parents[2] / "deploy" / "kafka" / "kafka.py"
PATIENCE_S = 300.0  # on a slow machine
LATENESS_S = 15  # as far as the traffic is out of order
HORIZON_S = 300
START_MS = 1_760_000_040_000

CONFIG = """\
[join]
attribution_window = "60s"
allowed_lateness = "{lateness}s"
correction_horizon = "{horizon}s"
request_gap = "20s"
idle_timeout = "1h"
[windows]
pane = "10s"
sliding = ["1m", "5m"]
[slices]
dimensions = ["country", "device"]
[users]
memory = "1GB"
[compare]
min_duration = "30s"
[batch]
max_events = {batch}
{models}
[kafka]
bootstrap_servers = "{servers}"
client = "{client}"
group_id = "{name}"
impressions_topic = "{impressions}"
clicks_topic = "{clicks}"
dead_letter_topic = ""
start = "earliest"
[kafka.client_options]
{options}
[store]
path = "{store}"
checkpoint_interval = "{interval}"
drain_timeout = "{drain}"
segment_rows = {segment_rows}
[server]
port = 0
snapshot_interval = "{snapshots}"
"""
MODELS = """
[[models]]
name = "ftrl"
kind = "ftrl"
bits = 16
[[models]]
name = "lr"
kind = "river"
factory = "river.linear_model.LogisticRegression"
"""


class Unexpected(Exception):  # noqa: N818  # what a script ends with when something does not hold
    """Something that must hold does not."""


@contextmanager
def kafka(folder: Path) -> Iterator[str]:
    """host:port of the Kafka to use: STREAMEVAL_TEST_KAFKA, or one of its own in `folder`."""
    given = os.environ.get("STREAMEVAL_TEST_KAFKA")
    if given:
        yield given
        return
    try:
        yield launch("start", folder)
    finally:
        launch("stop", folder)


def launch(command: str, folder: Path) -> str:
    """What deploy/kafka/kafka.py says."""
    done = subprocess.run([sys.executable, str(LAUNCHER), command, str(folder)], check=True, capture_output=True)
    return done.stdout.decode().strip()


def scenario(impressions: int, start_ms: int = START_MS) -> Scenario:
    """Traffic with everything in it that can be told from its content alone: duplicates, late and lost clicks, junk."""
    return Scenario(
        start_ms=start_ms,
        rate=200.0,
        duration_s=impressions / 200.0,
        users=3_000,
        late_share=0.03,
        window_s=60.0,
        versions=(Version("v1"), Version("v2", noise=1.0, start_s=impressions / 400.0, share=0.4)),
        shadow=True,
        malformed=0.01,
        duplicate=0.02,
        unmatched=0.02,
        shuffle_s=LATENESS_S - 1.0,
    )


def late_wire(sent: Iterator[Message]) -> Iterator[Message]:
    """Clicks come late, one in twelve of them later than they can be corrected; impressions further out of order than allowed."""
    luck = random.Random(7)
    delays = {"impression": (0.02, (LATENESS_S + 5.0, 60.0)), "click": (0.08, (30.0, 90.0, 1.5 * HORIZON_S))}
    waiting: list[tuple[float, int, Message]] = []
    for number, event in enumerate(sent):
        share, seconds = delays[event.kind]
        late = 1000 * luck.choice(seconds) if luck.random() < share else 0.0
        heapq.heappush(waiting, (event.arrives + late, number, replace(event, arrives=event.arrives + late)))
        while waiting and waiting[0][0] <= event.arrives:
            yield heapq.heappop(waiting)[2]
    while waiting:
        yield heapq.heappop(waiting)[2]


@dataclass
class Stream:
    """Topics with traffic in them."""

    servers: str
    name: str
    partitions: int
    shared: bool = False
    sent: int = 0

    @property
    def topics(self) -> tuple[str, str]:
        """Of impressions, and of clicks."""
        return (self.name, self.name) if self.shared else (f"{self.name}-impressions", f"{self.name}-clicks")

    def create(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        topics = [NewTopic(topic, num_partitions=self.partitions) for topic in dict.fromkeys(self.topics)]
        for made in admin.create_topics(topics, operation_timeout=PATIENCE_S).values():
            made.result(PATIENCE_S)

    def fill(
        self,
        of: Scenario,
        speed: Callable[[], float] = lambda: 0.0,
        stop: Callable[[], bool] = lambda: False,
        wire: Callable[[Iterator[Message]], Iterator[Message]] = iter,
    ) -> None:
        """Sends all of it (`speed`: seconds of event time a second, now; 0: at once), then the mark of its end.

        `wire` gives the events as they arrive.

        The mark: in every partition and topic events so late that everything before them is final, and too old to be
        corrected; as many as a leap of the clock needs to be believed.
        """
        # idempotent: what is sent again while a broker comes back must be stored once, and in order
        producer = Producer(
            {"bootstrap.servers": self.servers, "linger.ms": 20, "enable.idempotence": True, "log_level": 0}
        )
        due, last = time.monotonic(), float(of.start_ms)
        for number, event in enumerate(wire(events(Traffic(of)))):
            topic = self.topics[event.kind == "click"]
            partition = sum(event.key) % self.partitions
            while True:
                try:
                    producer.produce(topic, event.json(with_type=self.shared), event.key, partition)
                    break
                except BufferError:
                    producer.poll(0.1)
            self.sent += 1
            if number % 100 == 0:
                now = speed()
                due = due + (event.arrives - last) / 1000 / now if now else time.monotonic()
                last = event.arrives
                while (left := due - time.monotonic()) > 0 and speed() and not stop():
                    producer.poll(min(left, 0.05))
                if stop():
                    return
        producer.flush(PATIENCE_S)
        end = of.start_ms + int(of.duration_s * 1000) + 3_600_000
        for partition, number in itertools.product(range(self.partitions), range(ENOUGH)):
            which = f"end-{partition}-{number}"
            shown = {"impression_id": which, "ts": end, "user_id": "end", "pclick": 0.5}
            tapped = {"impression_id": which, "ts": end}
            for kind, topic, fields in zip(("impression", "click"), self.topics, (shown, tapped), strict=True):
                producer.produce(topic, json.dumps({"type": kind, **fields}).encode(), b"end", partition)
                self.sent += 1
        if producer.flush(PATIENCE_S):
            raise Unexpected("Kafka does not take the traffic")


@dataclass
class Worker:
    """`streameval run` as a process."""

    stream: Stream
    folder: Path  # of its config and its log
    store: Path
    group: str = ""  # the stream's name unless given
    interval: str = "300ms"
    snapshots: str = "500ms"
    batch: int = 10_000
    models: bool = False
    client: str = "confluent"
    options: str = ""
    drain: str = "20s"
    segment_rows: int = 16_384  # the least: many rows go to the disk
    program: tuple[str, ...] = ("streameval",)  # module, and arguments before the command
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0
    _url: str = field(default="", repr=False)

    def config(self) -> str:
        """What is in its config file."""
        impressions, clicks = self.stream.topics
        return CONFIG.format(
            lateness=LATENESS_S, horizon=HORIZON_S, batch=self.batch, models=MODELS if self.models else "",
            servers=self.stream.servers, client=self.client, name=self.group or self.stream.name, impressions=impressions,
            clicks=clicks, options=self.options, store=self.store, interval=self.interval,
            drain=self.drain, segment_rows=self.segment_rows, snapshots=self.snapshots,
        )  # fmt: skip

    def start(self) -> None:
        """Starts it; `url` waits for its page."""
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "streameval.toml"
        config.write_text(self.config())
        self.starts += 1
        self._url = ""
        with self.log.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *self.program, "run", "-c", str(config), "--report", str(self.report)],
                stderr=errors, cwd=self.folder, env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )  # fmt: skip
        _started.append(self.process)

    @property
    def log(self) -> Path:
        return self.folder / f"log-{self.starts}"

    @property
    def report(self) -> Path:
        return self.folder / "report.json"

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and gone."""
        if self.running:
            self.signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()

    def stop(self) -> None:
        """SIGTERM, and a clean end; a process that has not yet said a word may also just be gone."""
        assert self.process is not None
        self.signal(signal.SIGTERM)
        try:
            status = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise Unexpected(f"a worker does not stop:\n{self.tail()}") from None
        if status and not (status == -signal.SIGTERM and not self.tail()):
            raise Unexpected(f"a worker ended with status {status}:\n{self.tail()}")

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-6000:]

    def ask(self, path: str) -> tuple[int, str] | None:
        """Status and text of an answer; None while there is no page."""
        if not self._url:
            found = re.search(r"http://127\.0\.0\.1:\d+", self.log.read_text(errors="replace"))
            if not found:
                return None
            self._url = found[0]
        try:
            with urllib.request.urlopen(self._url + path, timeout=PATIENCE_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return None

    def get(self, path: str) -> Any:
        """A JSON answer; None while there is none."""
        answer = self.ask(path)
        return json.loads(answer[1]) if answer is not None and answer[0] == 200 else None

    def read(self) -> int:
        """Messages behind it, by its offsets; 0 while it does not answer."""
        status = self.get("/api/v1/status")
        return 0 if status is None else sum(o["value"] for p in status["partitions"] for o in p["offsets"])

    def check(self) -> None:
        if not self.running:
            raise Unexpected(f"a worker has ended by itself:\n{self.tail()}")


def until(
    what: str,
    holds: Callable[[], bool],
    workers: list[Worker],
    patience: float = PATIENCE_S,
    pause: float = 0.25,
) -> None:
    """Waits until something holds while the workers live.

    They are asked, which takes processor time of theirs: often (a shorter `pause`) only where the moment matters.
    """
    deadline = time.monotonic() + patience
    while not holds():
        for worker in workers:
            worker.check()
        if time.monotonic() > deadline:
            tails = "\n\n".join(worker.tail() for worker in workers)
            raise Unexpected(f"not within {patience:.0f} s: {what}\n{tails}")
        time.sleep(pause)


def history(store: Path) -> dict[tuple[Any, ...], Any]:
    """Everything in the history, by names: vectors, samples of users, and how far the labels are."""
    out: dict[tuple[Any, ...], Any] = {}
    with closing(sqlite3.connect(f"{(store / 'history.sqlite').as_uri()}?mode=ro", uri=True)) as db:
        for key in db.execute(
            "SELECT level, start, partition, panes, seen, matured, clicks, corrected, newest FROM parts"
        ):
            out["part", *key[:3]] = key[3:]
        query = (
            "SELECT model, version, source, dimension, value, level, start, partition, sums, scores FROM vectors"
            " JOIN series ON series.id = vectors.series LEFT JOIN slices ON slices.id = vectors.slice"
        )
        for *names, sums, scores in db.execute(query):
            out["vector", *names] = [(v.cells.tolist(), v.values.tolist()) for v in (decode(sums), decode(scores))]
        query = (
            "SELECT model, version, source, level, start, partition, k, entries FROM samples"
            " JOIN series ON series.id = samples.series"
        )
        for *names, k, entries in db.execute(query):
            sample = user_samples.decode(entries)
            out["sample", *names] = (k, sample.users.tolist(), sample.entries.tolist())
    return out


def compare(what: str, found: Any, expected: Any, where: str = "") -> None:
    """Raises Unexpected with the first few differences."""
    different = list(_differences(found, expected, where))
    if different:
        raise Unexpected(f"{what}: {len(different)} differences:\n" + "\n".join(different[:12]))


def _differences(a: Any, b: Any, where: str) -> Iterator[str]:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted(a.keys() | b.keys(), key=str):
            if key not in a or key not in b:
                yield f"{where}/{key}: only in the {'truth' if key in b else 'disturbed run'}"
            else:
                yield from _differences(a[key], b[key], f"{where}/{key}")
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            yield from _differences(x, y, f"{where}/{i}")
    elif a != b:
        yield f"{where}: {str(a)[:200]} where the truth is {str(b)[:200]}"


_started: list[subprocess.Popen[bytes]] = []


@contextmanager
def workplace(name: str) -> Iterator[Path]:
    """A folder for one script, which leaves neither the folder nor a worker behind, also when SIGTERM ends it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix=f"streameval-{name}-") as folder:
        try:
            yield Path(folder)
        finally:
            for process in _started:
                process.kill()
                process.wait()
