"""Outlets: a monitor that is killed again and again tells each change once, and its sinks hold each pane and verdict once.

    python -m tests.chaos.outlets [--kills 25] [--seed 1] [--crash]

A stream with a bad deploy is written to an embedded broker while a monitor with a webhook (that refuses three requests in ten)
and five sinks (Parquet on disk and in a store of S3's protocol, SQLite, PostgreSQL, Kafka) gets SIGKILL at random moments.
The two servers are real, crash once each with --crash, and are left out by name where they are not installed. Then another one reads the same stream in peace. The
sinks of the first must hold what those of the second hold, row by row, and its webhook the same messages. A kill between the
webhook's answer and the note of it repeats a message under its id; how often that was is printed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.dataset as pads
from confluent_kafka import Consumer, TopicPartition
from psycopg.rows import dict_row

from streameval.simulate.runner import run as run_traffic
from streameval.simulate.scenario import Scenario, Version
from streameval.simulate.traffic import Traffic
from streameval.sources.kafka.embedded import EmbeddedBroker
from streameval.sources.kafka.writer import KafkaWriter
from tests.foreign import s3
from tests.foreign.postgres import Postgres, programs
from tests.outlets.receiving import Inbox, http_receiver

PATIENCE = 300.0  # seconds, on a slow machine
ROOT = Path(__file__).parents[2]
SECONDS = 150.0  # of event time
RATE = 150.0
CONFIG = """\
[join]
attribution_window = "20s"
allowed_lateness = "2s"
correction_horizon = "10m"
request_gap = "5s"
idle_timeout = "1h"
[windows]
pane = "5s"
sliding = ["30s"]
[compare]
min_duration = "20s"
[kafka]
bootstrap_servers = "{brokers}"
start = "earliest"
group_id = "{name}"
dead_letter_topic = ""
[kafka.client_options]
"session.timeout.ms" = 6000 # a killed member is missed this long
[store]
path = "{folder}/store"
checkpoint_interval = "2s"
[server]
port = 0
snapshot_interval = "250ms"
[[notify]]
kind = "webhook"
url_file = "{folder}/url"
on = ["worse", "not_worse"]
[[sinks]]
kind = "parquet"
to = "{folder}/out"
[[sinks]]
kind = "sql"
to = "sqlite:///{folder}/out.db"
[[sinks]]
kind = "kafka"
to = "out-{name}"
"""


@dataclass
class Servers:
    """Those of others that are installed here."""

    postgres: Postgres | None = None
    store: s3.S3 | None = None

    def sinks(self, name: str, folder: Path) -> str:
        """What a monitor's settings say of them."""
        text = ""
        if self.postgres is not None:
            (folder / "database").write_text(self.postgres.url())
            text += f'[[sinks]]\nname = "postgres"\nkind = "sql"\nto_file = "{folder}/database"\nprefix = "{name}_"\n'
        if self.store is not None:
            text += f'[[sinks]]\nname = "s3"\nkind = "parquet"\nto = "{self.store.address(name)}"\n'
        return text

    def crash(self) -> None:
        """Both, and both come back."""
        for server in (self.postgres, self.store):
            if server is not None:
                server.crash()
                server.start()


def servers(stack: ExitStack, folder: Path, say: Callable[[str], None]) -> Servers:
    """They run until the end of `stack`. Raises AssertionError when one is missing and none may be."""
    missing = []
    found = Servers()
    if (place := programs()) is None:
        missing.append("postgresql")
    else:
        found.postgres = stack.enter_context(Postgres(place))
    if lacks := s3.missing():
        missing.append(f"{lacks} for S3Proxy")
    else:
        found.store = stack.enter_context(s3.S3(folder))
    if missing:
        say(f"skipped: sinks that need {' and '.join(missing)}")
        assert os.environ.get("STREAMEVAL_REQUIRE_ALL") != "1", missing
    return found


@dataclass
class Monitor:
    """A monitor of its own group and folder."""

    name: str
    folder: Path
    inbox: Inbox
    brokers: str
    servers: Servers
    starts: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None)

    def start(self) -> None:
        """Starts it."""
        self.folder.mkdir(exist_ok=True)
        (self.folder / "url").write_text(self.inbox.url)
        config = self.folder / "streameval.toml"
        own = CONFIG.format(brokers=self.brokers, name=self.name, folder=self.folder)
        config.write_text(own + self.servers.sinks(self.name, self.folder))
        self.starts += 1
        with self.log.open("wb") as errors:
            command = [sys.executable, "-m", "streameval", "run", "-c", str(config)]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
            if self.servers.store is not None:
                environment |= self.servers.store.environment
            self.process = subprocess.Popen(command, stderr=errors, cwd=self.folder, env=environment)

    @property
    def log(self) -> Path:
        """Of this start."""
        return self.folder / f"{self.starts}.log"

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Ends it."""
        assert self.process is not None
        self.process.send_signal(how)
        self.process.wait(PATIENCE)

    def status(self) -> dict[str, Any]:
        """What it says of itself; {} while it says nothing."""
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(f"{self.name} has ended: {self.log.read_text()[-3000:]}")
        found = re.search(r"http://127\.0\.0\.1:\d+", self.log.read_text())
        if found is None:
            return {}
        try:
            with urllib.request.urlopen(f"{found[0]}/api/v1/status", timeout=PATIENCE) as answer:
                return dict(json.load(answer))
        except OSError:
            return {}

    def done(self, sent: Callable[[], int]) -> bool:
        """Everything is read, told and written."""
        status = self.status()
        if not status or self.read(status) < sent():
            return False
        waiting = [*(r["waiting"] for r in status["receivers"]), *(s["waiting"] for s in status["sinks"])]
        return not any(waiting) and all(s["panes"] or s["last_success"] is None for s in status["sinks"])

    @staticmethod
    def read(status: dict[str, Any]) -> int:
        """Messages that it has read, over all of its life."""
        return sum(offset["value"] for partition in status["partitions"] for offset in partition["offsets"])


Held = dict[tuple[Any, ...], dict[str, Any]]


def held(monitor: Monitor) -> dict[str, tuple[Held, Held]]:
    """By sink: its results and its verdicts; fails when one is there twice."""
    read = {"parquet": _parquet, "sql": _sql, "kafka": _kafka}
    if monitor.servers.postgres is not None:
        read["postgres"] = _postgres
    if monitor.servers.store is not None:
        read["s3"] = _s3
    out = {}
    for sink, rows in read.items():
        results, verdicts = rows(monitor)
        out[sink] = (
            _keyed(results, ("pane_start", "model", "version", "source", "objective")),
            _keyed(verdicts, ("comparison", "at", "kind", "verdict")),
        )
    return out


def _keyed(rows: list[dict[str, Any]], names: tuple[str, ...]) -> Held:
    found: Held = {}
    for row in rows:
        plain = {name: _plain(value) for name, value in row.items() if name not in ("id", "schema", "about", "date")}
        key = tuple(plain[name] for name in names)
        assert key not in found, f"twice: {key}"
        found[key] = {name: value for name, value in plain.items() if value is not None}
    return found


def _plain(value: Any) -> Any:
    """Times as text of seconds, in whatever form a sink has them."""
    if hasattr(value, "astimezone") and value.tzinfo is not None:
        value = value.astimezone(UTC)
    if hasattr(value, "isoformat"):
        value = value.isoformat()
    if isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\d[T ]", value):
        return value[:19].replace(" ", "T")
    return value


def _parquet(monitor: Monitor, folder: Path | None = None) -> tuple[list[Any], list[Any]]:
    out: list[list[Any]] = []
    for what in ("results", "verdicts"):
        names = sorted(map(str, ((folder or monitor.folder / "out") / what).glob("*/*.parquet")))
        out.append(pads.dataset(names, format="parquet").to_table().to_pylist() if names else [])
    return out[0], out[1]


def _s3(monitor: Monitor) -> tuple[list[Any], list[Any]]:
    """By the files of the server."""
    assert monitor.servers.store is not None
    return _parquet(monitor, monitor.servers.store.data / s3.BUCKET / monitor.name)


def _postgres(monitor: Monitor) -> tuple[list[Any], list[Any]]:
    assert monitor.servers.postgres is not None
    url = monitor.servers.postgres.url().replace("+psycopg", "")
    with psycopg.connect(url, row_factory=dict_row) as db:
        results, verdicts = (
            db.execute(f"SELECT * FROM {monitor.name}_{what}").fetchall() for what in ("results", "verdicts")
        )
    return results, verdicts


def _sql(monitor: Monitor) -> tuple[list[Any], list[Any]]:
    with closing(sqlite3.connect(monitor.folder / "out.db")) as db:
        db.row_factory = sqlite3.Row
        tables = [f"streameval_{what}" for what in ("results", "verdicts")]
        results, verdicts = ([dict(row) for row in db.execute(f"SELECT * FROM {table}")] for table in tables)
    return results, verdicts


def _kafka(monitor: Monitor) -> tuple[list[Any], list[Any]]:
    """The newest of every key."""
    options = {
        "bootstrap.servers": monitor.brokers,
        "group.id": "look",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer(options)
    topic = f"out-{monitor.name}"
    partitions = list(consumer.list_topics(topic, timeout=PATIENCE).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
    newest: dict[bytes, Any] = {}
    ended: set[int] = set()
    while len(ended) < len(partitions):
        for message in consumer.consume(1000, 1.0):
            if message.error():
                ended.add(message.partition())
            else:
                newest[message.key()] = json.loads(message.value())
    consumer.close()
    by = {about: [row for row in newest.values() if row["about"] == about] for about in ("result", "verdict")}
    return by["result"], by["verdict"]


def until(true: Callable[[], bool], what: str) -> None:
    """Waits."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > deadline:
            raise AssertionError(f"not in time: {what}")
        time.sleep(0.1)


def run(kills: int, seed: int, folder: Path, say: Callable[[str], None], *, crash: bool = False) -> None:
    """Raises AssertionError."""
    luck = random.Random(seed)
    allowed = [1.0]  # parts of the stream, of `kills` + 1, that may be written
    versions = (Version("v1"), Version("v2", noise=1.5, bias=0.7, start_s=40.0))
    start = int(time.time() * 1000) - 3_600_000
    scenario = Scenario(
        seed=seed, start_ms=start, duration_s=SECONDS, rate=RATE, ctr=0.1, window_s=20.0, versions=versions, shadow=True,
        late_share=0.02,
    )  # fmt: skip
    with EmbeddedBroker() as broker, http_receiver() as inbox, http_receiver() as calm_inbox, ExitStack() as stack:
        others = servers(stack, folder, say)
        inbox.answer = lambda post: (503 if luck.random() < 0.3 else 200, {})
        writer, sent, stop = KafkaWriter(broker.bootstrap_servers), Counter[str](), threading.Event()

        def send(kind: str, keys: list[bytes], values: list[bytes]) -> None:
            while sent["impression"] > SECONDS * RATE * allowed[0] / (kills + 1) and not stop.is_set():
                time.sleep(0.05)
            writer.write("impressions" if kind == "impression" else "clicks", keys, values)
            sent[kind] += len(values)

        traffic = threading.Thread(
            target=run_traffic, args=(Traffic(scenario), send), kwargs={"speed": None, "stop": stop}
        )
        traffic.start()
        shaken = Monitor("shaken", folder / "shaken", inbox, broker.bootstrap_servers, others)
        calm = Monitor("calm", folder / "calm", calm_inbox, broker.bootstrap_servers, others)
        try:
            for number in range(kills):
                shaken.start()
                if luck.random() < 0.6:
                    until(lambda: bool(shaken.status().get("partitions")), "it reads")
                time.sleep(luck.uniform(0.0, 3.0))
                if crash and number == kills // 2:
                    others.crash()
                shaken.kill()
                allowed[0] += 1
                say(f"kill {number + 1} of {kills}: {sent.total()} messages written, {len(inbox.taken)} told")
            allowed[0] = math.inf  # a busy hour of the day has more than RATE
            traffic.join()
            writer.flush()
            for monitor in (shaken, calm):
                monitor.start()
                for _ in range(2):  # at first its sinks have not yet looked what they lack
                    until(lambda m=monitor: m.done(sent.total), f"{monitor.name} is done")  # type: ignore[misc]
                    seen = monitor.status()["snapshot"]
                    time.sleep(5.0)
                    until(lambda m=monitor, s=seen: m.status().get("snapshot", 0) > s + 5, "it goes on")  # type: ignore[misc]
                monitor.kill(signal.SIGTERM)
        finally:
            stop.set()
            traffic.join()
            writer.close()
            for monitor in (shaken, calm):
                if monitor.process is not None and monitor.process.poll() is None:
                    monitor.kill()
        check(shaken, calm, say)


def check(shaken: Monitor, calm: Monitor, say: Callable[[str], None]) -> None:
    """Whether both have told and written the same."""
    found, right = held(shaken), held(calm)
    wrong = []
    for sink, (results, verdicts) in right.items():
        assert results, sink
        assert verdicts, sink
        for mine, theirs, what in ((found[sink][0], results, "results"), (found[sink][1], verdicts, "verdicts")):
            assert mine.keys() == theirs.keys(), (sink, what, mine.keys() ^ theirs.keys())
            wrong += [(sink, what, key, _apart(mine[key], theirs[key])) for key in theirs if mine[key] != theirs[key]]
    assert not wrong, wrong
    ids, expected = Counter(shaken.inbox.ids), Counter(calm.inbox.ids)
    assert expected, "nothing was told"
    assert set(expected.values()) == {1}
    assert ids.keys() == expected.keys(), ids.keys() ^ expected.keys()
    twice = sum(ids.values()) - len(ids)
    assert twice <= shaken.starts
    results, verdicts = right["sql"]
    say(
        f"each once in every sink: {len(results)} results, {len(verdicts)} changes of verdicts; {len(ids)} messages, none "
        f"lost, {twice} repeated under their id, {shaken.inbox.refused} attempts refused"
    )


def _apart(mine: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """What differs, by name."""
    names = sorted(mine.keys() | theirs.keys())
    return {name: (mine.get(name), theirs.get(name)) for name in names if mine.get(name) != theirs.get(name)}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=25)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--crash", action="store_true", help="the two servers crash half-way")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="streameval-outlets-") as folder:
        run(given.kills, given.seed, Path(folder), lambda text: print(text, flush=True), crash=given.crash)


if __name__ == "__main__":
    main()
