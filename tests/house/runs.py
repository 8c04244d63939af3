"""The runs of the record: two replays, an hour live, and a shorter stream whose first half an older program has read."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from streameval.compare.explain.explanations import EARLY_SECONDS
from tests.house import questions, traffic
from tests.house.monitor import HERE, Monitor, broker, produce, replay
from tests.house.traffic import Message

GOLDEN = HERE / "golden"
STORE = GOLDEN / "store.tar.xz"  # a monitor's folder, written half-way through `short()`
SHORT_S = 600.0

# Nothing learns from two logs that are read live: what a model has learned when it scores depends on how they came.
NO_MODELS = "models = []\n"
OTHER = """[join]
attribution_window = "90s"
allowed_lateness = "10s"
correction_horizon = "6m"
request_gap = "40s"
score_at = "label"
[slices]
dimensions = ["placement"]
max_values = 2
[users]
weighting = "value"
memory = "1MB"
[[models]]
name = "ftrl"
kind = "ftrl"
bits = 8
[[models]]
name = "lr"
kind = "river"
factory = "river.linear_model.LogisticRegression"
[compare]
strict = true
count = 50
min_duration = "5m"
min_clicks = 30
min_blocks = 10
horizon = "20m"
keep = "1h"
gauc_window = "5m"
learning_window = "5m"
"""
# one message at a time: each partition's one log is the order in which its model scores and learns
ONE_LOG = """[slices]
dimensions = ["country"]
[[models]]
name = "ftrl"
kind = "ftrl"
bits = 6
[batch]
max_events = 1
"""
ONE_TOPIC = {"STREAMEVAL_KAFKA__IMPRESSIONS_TOPIC": "events", "STREAMEVAL_KAFKA__CLICKS_TOPIC": "events"}


def short() -> tuple[Message, ...]:
    """Ten minutes."""
    return traffic.stream(SHORT_S, seed=15)


def hour_replayed(folder: Path, **environment: str) -> dict[str, Any]:
    """Report, dead letters, and a hash of every column of the predictions."""
    return _replayed(folder, traffic.stream(), "hour.jsonl", "", environment)


def hour_replayed_otherwise(folder: Path, **environment: str) -> dict[str, Any]:
    """The same with as many other settings as there are."""
    return _replayed(folder, traffic.stream(), "hour.jsonl", OTHER, environment)


def hour_live(folder: Path, **environment: str) -> dict[str, Any]:
    """Two topics read while they are written, a deploy that was announced, and everything that can be asked."""
    messages = traffic.stream()
    with broker() as address:
        monitor = Monitor(folder, address, NO_MODELS, **environment)
        try:
            at = _rfc(traffic.START_MS + int(1000 * traffic.DEPLOY * traffic.HOUR_S) + 3_000)
            announced = {
                "model": "ctr",
                "version": "v2",
                "at": at,
                "note": "wider <tower>",
                "link": "https://ci.example/42",
            }
            status, _, _ = monitor.post("/api/v1/deploys", announced)
            assert status == 201
            monitor.wait_until(lambda: any(d["id"] for d in _asked(monitor, "/api/v1/deploys")["deploys"]), "announced")
            produce(address, messages)
            return _taken_down(monitor, folder, messages, traffic.HOUR_S)
        finally:
            monitor.kill()


def first_half(folder: Path, **environment: str) -> None:
    """Leaves in `folder` what a monitor has on disk that was stopped half-way."""
    messages = short()[: len(short()) // 2]
    with broker() as address:
        produce(address, messages, ("events", "events"))
        monitor = Monitor(folder, address, ONE_LOG, **ONE_TOPIC, **environment)
        try:
            _wait_for_all(monitor, messages, ended=False)
            monitor.stop()
        finally:
            monitor.kill()


def second_half(folder: Path, store: Path, **environment: str) -> dict[str, Any]:
    """A monitor that goes on from `store`, and everything that can be asked; `folder` is its own."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(store, folder / "store")
    with broker() as address:
        produce(address, short(), ("events", "events"))
        monitor = Monitor(folder, address, ONE_LOG, **ONE_TOPIC, **environment)
        try:
            return _taken_down(monitor, folder, short(), SHORT_S)
        finally:
            monitor.kill()


def pack(store: Path) -> None:
    """Keeps a monitor's folder as the fixture; the same bytes for the same files."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        return info

    with tarfile.open(STORE, "w:xz", preset=9) as tar:
        tar.add(store, "store", filter=plain)


def unpack(folder: Path) -> Path:
    """The fixture, in `folder`."""
    with tarfile.open(STORE) as tar:
        tar.extractall(folder, filter="data")
    return folder / "store"


RUNS: dict[str, Callable[..., dict[str, Any]]] = {
    "hour, replayed": hour_replayed,
    "hour, replayed with other settings": hour_replayed_otherwise,
    "hour, live": hour_live,
}


# -- inside ----------------------------------------------------------------------------------------------------------


def _replayed(
    folder: Path, messages: Sequence[Message], name: str, more: str, environment: dict[str, str]
) -> dict[str, Any]:
    found = replay(folder, messages, name, more, **environment)
    table = pq.read_table(folder / "predictions.parquet")
    columns = {
        c: f"{table.num_rows} rows {sha256(json.dumps(table[c].to_pylist()).encode()).hexdigest()[:16]}"
        for c in table.column_names
    }
    return {**questions.settled(found), "predictions": columns}


def _taken_down(monitor: Monitor, folder: Path, messages: Sequence[Message], seconds: float) -> dict[str, Any]:
    _wait_for_all(monitor, messages)
    first, last = (_rfc(traffic.START_MS + int(1000 * share * seconds) // 60_000 * 60_000) for share in (0.2, 0.8))
    answers = questions.ask(monitor, first, last)
    report = questions.settled(monitor.stop())
    return {**answers, "report": report, "history": questions.history(folder / "store" / "history.sqlite")}


def _wait_for_all(monitor: Monitor, messages: Sequence[Message], ended: bool = True) -> None:
    """Until everything was read, then written to disk, and a snapshot is newer than both.

    `ended`: the stream's last events are among the messages, so that all before them is final.
    """
    read_at: list[float] = []

    def settled() -> bool:
        numbers = dict(
            line.rsplit(" ", 1) for line in monitor.get("/metrics")[2].decode().splitlines() if line[0] != "#"
        )
        if not read_at:
            partitions = _asked(monitor, "/api/v1/status")["partitions"]
            if sum(o["value"] for p in partitions for o in p["offsets"]) == len(messages):
                read_at.append(float(numbers["streameval_snapshot_timestamp_seconds"]))
            return False
        # of each partition one pane stays open, that of the last events
        if ended and float(numbers["streameval_history_unwritten_panes"]) > traffic.PARTITIONS:
            return False
        # early readings are gathered at times of their own, the last ones when nothing comes any more
        if float(numbers["streameval_snapshot_timestamp_seconds"]) < read_at[0] + 2 * EARLY_SECONDS:
            return False
        return float(numbers.get("streameval_checkpoint_last_success_timestamp_seconds", 0)) > read_at[0]

    monitor.wait_until(settled, "everything read and written")


def _asked(monitor: Monitor, path: str) -> dict[str, Any]:
    return dict(json.loads(monitor.get(path)[2]))


def _rfc(ms: int) -> str:
    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
