"""Alerts in their situations: a real monitor in trouble, one that is well beside it, and a real Prometheus with our rules.

What test_alerts.py tells of deploys and drift is not here; nor are alerts that need a quarter of an hour of it.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streameval.sources.kafka.writer import KafkaWriter
from tests.integration.alerting import Service, need, prometheus
from tests.integration.test_run_process import Run, running, until

SECONDS = 60.0
CLICK_S = 1.0
EXPECTED = {
    "CheckpointFailing",
    "DeadLetters",
    "HistoryFailing",
    "NormalizedEntropyAboveOne",
    "PropensitiesInconsistent",
    "SinkFailing",
    "SliceCalibration",
}
BURNS = {"CalibrationFastBurn", "CalibrationSlowBurn"}  # by the model, not by the monitor

CONFIG = """\
[join]
attribution_window = "3s"
allowed_lateness = "1s"
correction_horizon = "1m"
request_gap = "1s"
[windows]
pane = "5s"
sliding = ["5m", "1h"]
[slices]
dimensions = ["country"]
[compare]
more = ["policy_value"]
[kafka]
bootstrap_servers = "{servers}"
group_id = "{name}"
impressions_topic = "{name}-i"
clicks_topic = "{name}-c"
dead_letter_topic = "{name}-d"
start = "earliest"
[store]
path = "{store}"
checkpoint_interval = "1s"
[server]
port = 0
snapshot_interval = "500ms"
"""
SINK = """\
[[sinks]]
kind = "sql"
to = "sqlite:////no/such/folder/results.db"
"""


class Traffic:
    """Impressions and clicks of one monitor, as time passes."""

    def __init__(self, writer: KafkaWriter, name: str) -> None:
        self._writer, self._name = writer, name
        self._luck = random.Random(name)
        self._taps: list[tuple[float, str, str]] = []
        self.shown = 0

    def show(self, model: str, pclick: float, rate: float, **more: Any) -> None:
        """An impression now, and with probability `rate` a click a second later."""
        self.shown += 1
        which, user = f"{self._name}-{self.shown}", f"u{self._luck.randrange(500)}"
        fields = {
            "impression_id": which,
            "ts": int(time.time() * 1000),
            "user_id": user,
            "model": model,
            "pclick": pclick,
        }
        self._writer.write(f"{self._name}-i", [user.encode()], [json.dumps({**fields, **more}).encode()])
        if self._luck.random() < rate:
            self._taps.append((time.time() + CLICK_S, which, user))

    def junk(self) -> None:
        self._writer.write(f"{self._name}-i", [b"u"], [b"no JSON"])

    def tap(self) -> None:
        """The clicks that are due."""
        now = time.time()
        due, self._taps = [one for one in self._taps if one[0] <= now], [one for one in self._taps if one[0] > now]
        for at, which, user in due:
            click = {"impression_id": which, "ts": int(at * 1000)}
            self._writer.write(f"{self._name}-c", [user.encode()], [json.dumps(click).encode()])


def trouble(traffic: Traffic, luck: random.Random) -> None:
    rate = luck.choice([0.1, 0.3, 0.6])
    traffic.show("inverted", 0.97 if rate < 0.5 else 0.02, rate)
    country = luck.choice(["de", "fr"])
    traffic.show("uneven", rate * (0.4 if country == "fr" else 1.0), rate, slices={"country": country})
    traffic.show("explored", rate, rate, propensity=luck.choice([0.05, 0.9]), policies={"default": 0.5})
    if luck.random() < 0.15:
        traffic.junk()


def lose(store: Path) -> None:
    """The store's disk is gone: a file is in its place. The monitor goes on writing meanwhile, and may make its folder anew."""
    while not store.is_file():
        gone = store.with_name(f"gone-{uuid.uuid4().hex}")
        store.rename(gone)
        with contextlib.suppress(FileExistsError):
            store.open("x").close()
        shutil.rmtree(gone)


@pytest.fixture(scope="module")
def seen(real_kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Run, Run]]:
    """Prometheus, the monitor in trouble and the one that is well, once all of the trouble has come."""
    need("prometheus")
    folder = tmp_path_factory.mktemp("troubles")
    names = [f"{kind}-{uuid.uuid4().hex[:8]}" for kind in ("ill", "well")]
    writer, luck = KafkaWriter(real_kafka), random.Random(1)
    for name, more in zip(names, (SINK, ""), strict=True):
        writer.create_topics([f"{name}-i", f"{name}-c"], 2)
        config = CONFIG.format(servers=real_kafka, name=name, store=folder / name) + more
        (folder / f"{name}.toml").write_text(config)
    ill, well = (Traffic(writer, name) for name in names)
    with running(folder / f"{names[0]}.toml") as one, running(folder / f"{names[1]}.toml") as other:
        targets = [run.url.removeprefix("http://") for run in (one, other)]
        with prometheus(folder, targets, Service("http://127.0.0.1:1", folder)) as watch:
            for run in (one, other):
                until(lambda run=run: run.get("/readyz").status_code == 200, run)
            begin = time.time()
            broken = False
            while (now := time.time()) < begin + SECONDS:
                for _ in range(5):
                    trouble(ill, luck)
                    rate = luck.choice([0.1, 0.3, 0.6])
                    well.show("ads", rate, rate, slices={"country": luck.choice(["de", "fr"])})
                ill.tap()
                well.tap()
                writer.flush()
                if not broken and now > begin + SECONDS / 3:
                    broken = True
                    lose(folder / names[0])
                time.sleep(max(0.0, 0.05 - (time.time() - now)))
            yield watch, one, other
    writer.close()


def firing(watch: Service, run: Run) -> set[str]:
    """The alerts that have fired for a monitor, or for the job, whatever monitor it is."""
    found = watch.value('max_over_time(ALERTS{alertstate="firing"}[1h])', time.time())
    instance = run.url.removeprefix("http://")
    return {
        labels["alertname"].removeprefix("Streameval")
        for labels, _ in found
        if labels.get("instance", instance) == instance
    }


pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def test_every_trouble_raises_its_alert_and_nothing_else(seen: tuple[Service, Run, Run]) -> None:
    watch, ill, _ = seen
    until(lambda: firing(watch, ill) >= EXPECTED, ill)
    # what a disk that is gone, wrong scores and a busy machine mean beside that
    assert firing(watch, ill) - EXPECTED <= BURNS | {"CheckpointMissing", "TargetDown"}


def test_a_monitor_beside_it_raises_none_of_its_own(seen: tuple[Service, Run, Run]) -> None:
    watch, _, well = seen
    of_job = {"DeadLetters"}
    busy = {"TargetDown"}  # a scrape takes longer than 5 s on a machine that has too much to do
    found = watch.value('max_over_time(ALERTS{alertstate="firing"}[1h])', time.time())
    assert not [labels for labels, _ in found if labels.get("model_name") == "ads"]
    assert firing(watch, well) - BURNS - of_job - busy == set()
