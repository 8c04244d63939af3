"""From a click to a page: real Kafka, `streameval run`, a real Prometheus with our rules, a real Alertmanager.

Four models at once, in real time: `ads` gets a bad version, `feed` a harmless one, `swing`'s click rate jumps by 40%
just as a harmless version comes, and `stale` over-predicts without any deploy. The first and the last must page
somebody, each for its own reason; nobody may be told anything else.
"""

from __future__ import annotations

import heapq
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from streameval.simulate.encode import Message, events
from streameval.simulate.scenario import Scenario, Version
from streameval.simulate.traffic import Traffic
from streameval.sources.kafka.writer import KafkaWriter
from tests import asking
from tests.integration.alerting import Hook, Service, alertmanager, need, prometheus, webhook
from tests.integration.test_run_process import Run, running, until

SECONDS = 80.0
PATIENCE = 240.0  # seconds, on a slow machine
ATTRIBUTION_S = 5.0
PANE_S = 5.0
GOOD, ALSO_GOOD = Version("v1", noise=0.3), Version("v2", noise=0.3, start_s=10.0, share=0.5)
BAD = Version("v2", noise=1.5, start_s=10.0, share=0.5)
OVER_PREDICTS = Version("v1", noise=0.3, bias=0.7)

CONFIG = """\
[join]
attribution_window = "5s"
allowed_lateness = "1s"
correction_horizon = "1m"
request_gap = "2s"
[windows]
pane = "5s"
sliding = ["5m", "1h"]
[kafka]
bootstrap_servers = "{servers}"
group_id = "{name}"
impressions_topic = "{name}-impressions"
clicks_topic = "{name}-clicks"
dead_letter_topic = ""
start = "earliest"
[store]
path = "{store}"
checkpoint_interval = "5s"
[server]
port = 0
snapshot_interval = "500ms"
# evidence of a minute instead of an hour, and differences that it can tell
[compare]
alpha = 0.01
count = 200
min_duration = "20s"
min_clicks = 200
margins = {{ log_loss = 0.01, auc = 0.01, gauc = 0.02, calibration = 0.1 }}
tolerances = {{ log_loss = 0.03, auc = 0.02, gauc = 0.04, calibration = 0.2 }}
"""


def stories(start_ms: int) -> dict[str, list[Scenario]]:
    """What happens to each model: all of its scenarios together."""
    usual = Scenario(
        start_ms=start_ms, duration_s=SECONDS, rate=400.0, ctr=0.2, click_delay_s=1.0, window_s=ATTRIBUTION_S - 1,
        users=4_000, versions=(GOOD,), shadow=True,
    )  # fmt: skip
    half = replace(usual, duration_s=SECONDS / 2, seed=3)
    return {
        "ads": [replace(usual, seed=1, versions=(GOOD, BAD))],
        "feed": [replace(usual, seed=2, versions=(GOOD, ALSO_GOOD))],
        "swing": [
            replace(half, ctr=0.15),
            replace(
                half, ctr=0.2, start_ms=start_ms + int(SECONDS * 500), versions=(GOOD, replace(ALSO_GOOD, start_s=0.0))
            ),
        ],
        "stale": [replace(usual, seed=4, versions=(OVER_PREDICTS,))],
    }


def told(model: str, scenarios: list[Scenario]) -> Iterator[tuple[float, str, bytes, bytes]]:
    """Its events as they arrive: when (ms), kind, key, message; ids are the model's own. The last clicks of one scenario
    come after the next has begun: one after the other, its first impressions would be late.
    """

    def one(number: int, scenario: Scenario) -> Iterator[tuple[float, str, bytes, bytes]]:
        for event in events(Traffic(scenario)):
            yield event.arrives, event.kind, event.key, renamed(event, model, f"{model}-{number}-").json()

    return heapq.merge(*(one(number, scenario) for number, scenario in enumerate(scenarios)))


def renamed(event: Message, model: str, prefix: str) -> Message:
    fields = dict(event.fields)
    for name in ("impression_id", "request_id"):
        if name in fields:
            fields[name] = prefix + fields[name]
    if event.kind == "impression":
        fields["model"] = model
    return replace(event, fields=fields)


@dataclass
class World:
    """Everything that runs, after the traffic has ended."""

    run: Run
    prometheus: Service
    hook: Hook
    middle: float  # time of day of the swing

    def gate(self, model: str) -> subprocess.CompletedProcess[str]:
        """`streameval gate` on a model's v2."""
        command = [
            sys.executable, "-m", "streameval", "gate", "--model", model, "--candidate", "v2", "--within", "30m",
            "--url", self.run.url,
        ]  # fmt: skip
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.fixture(scope="module")
def world(real_kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """All four stories, told; Prometheus watched from the first to the last."""
    need("prometheus", "prometheus-alertmanager")
    folder = tmp_path_factory.mktemp("alerts")
    name = f"alerts-{uuid.uuid4().hex[:8]}"
    config = folder / "streameval.toml"
    config.write_text(CONFIG.format(servers=real_kafka, name=name, store=folder / "store"))
    writer = KafkaWriter(real_kafka)
    writer.create_topics([f"{name}-impressions", f"{name}-clicks"], 2)
    with (
        running(config) as run,
        webhook() as hook,
        alertmanager(folder, hook) as manager,
        prometheus(folder, [run.url.removeprefix("http://")], manager) as watch,
    ):
        until(lambda: run.get("/readyz").status_code == 200, run)
        start = time.time() + 1.0
        parts = stories(int(start * 1000))
        send(writer, name, heapq.merge(*(told(model, scenarios) for model, scenarios in parts.items())))
        until(lambda: not sum(o["value"] for p in status(run)["partitions"] for o in p["lag"]), run)  # all is counted
        seen = status(run)["snapshot"]
        until(lambda: status(run)["snapshot"] > seen, run)
        time.sleep(10.0)  # and told to Prometheus, whose rules tell Alertmanager
        assert run.process.poll() is None, run.errors
        yield World(run, watch, hook, middle=start + SECONDS / 2)
    writer.close()


def status(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = run.get("/api/v1/status").json()
    return found


def send(writer: KafkaWriter, name: str, messages: Iterable[tuple[float, str, bytes, bytes]]) -> None:
    """As time passes: event time is the time of day."""
    for arrives, kind, key, value in messages:
        ahead = arrives / 1000 - time.time()
        if ahead > 0.05:
            time.sleep(ahead)
        writer.write(f"{name}-{kind}s", [key], [value])
    writer.flush()


pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def test_every_rule_can_be_evaluated_on_what_streameval_exports(world: World) -> None:
    def rules_now() -> list[dict[str, Any]]:
        return [rule for group in world.prometheus.get("/api/v1/rules")["data"]["groups"] for rule in group["rules"]]

    until(lambda: all(rule["health"] != "unknown" for rule in rules_now()), world.run)
    rules = rules_now()
    assert len(rules) > 50
    assert [(r["name"], r.get("lastError")) for r in rules if r["health"] != "ok"] == []


def test_a_model_that_over_predicts_pages_without_a_deploy(world: World) -> None:
    burning = {"alertname": "StreamevalCalibrationFastBurn", "model_name": "stale"}
    alerts = until(lambda: world.hook.firing(**burning), world.run)
    assert {(alert["model_version"], alert["severity"]) for alert in alerts} == {("v1", "critical")}


def test_a_bad_deploy_pages(world: World) -> None:
    until(lambda: world.hook.firing(alertname="StreamevalDeployWorse"), world.run)
    found = [
        (receiver, alert)
        for receiver, alert in list(world.hook.delivered)
        if alert["labels"]["alertname"] == "StreamevalDeployWorse"
    ]
    for receiver, alert in found:
        assert receiver == "page"
        wanted = {"model_name": "ads", "model_version": "v2", "baseline_version": "v1"}
        assert alert["labels"].items() >= wanted.items()
        assert "ads v2 is worse than v1" in alert["annotations"]["description"]
        assert " auc -0." in alert["annotations"]["description"]


def test_nobody_is_told_of_the_harmless_deploy_nor_of_the_swing_nor_of_the_stream(world: World) -> None:
    """Of the two that are bad, other alerts may say so too before they are inhibited."""
    bad = {("ads", "v2"), ("stale", "v1")}
    others = [a for a in world.hook.firing() if (a.get("model_name"), a.get("model_version")) not in bad]
    assert others == []


def test_the_swing_was_one(world: World) -> None:
    """So that the silence means something."""
    (line,) = world.run.get("/api/v1/series?model=swing&version=v1&metric=ctr").json()["series"]
    before, after = [], []
    for point in line["points"]:
        start = datetime.fromisoformat(point["start"]).timestamp()
        if start + PANE_S <= world.middle:
            before.append(point)
        elif start >= world.middle:  # the pane between them has some of both
            after.append(point)
    rates = [sum(p["clicks"] for p in points) / sum(p["impressions"] for p in points) for points in (before, after)]
    assert 1.17 < rates[1] / rates[0] < 1.5  # 4/3; five standard errors of some 15,000 impressions each


@pytest.mark.parametrize(("model", "status"), [("ads", 3), ("feed", 0)])
def test_the_gate_says_the_same_to_a_pipeline(world: World, model: str, status: int) -> None:
    done = world.gate(model)
    assert done.returncode == status, done.stdout + done.stderr


def test_what_explains_another_alert_keeps_it_quiet(tmp_path: Path) -> None:
    def alert(name: str, **labels: str) -> dict[str, Any]:
        return {"labels": {"alertname": "Streameval" + name, "job": "streameval", **labels}}

    v2 = {"model_name": "ads", "model_version": "v2"}
    model = {"about": "model", "severity": "warning"}
    with webhook() as hook, alertmanager(tmp_path, hook) as manager:

        def post(*alerts: dict[str, Any]) -> None:
            assert asking.post(manager.url + "/api/v2/alerts", json=alerts, timeout=PATIENCE).status_code == 200

        post(
            alert("DeployWorse", about="deploy", severity="critical", **v2),
            alert("JoinUnreliable", about="stream", severity="critical", instance="a"),
        )
        wait(lambda: len(hook.delivered) == 2)
        post(
            alert("DeployMaybeWorse", about="deploy", severity="warning", **v2),
            alert("CalibrationFastBurn", **{**model, "severity": "critical"}, **v2),
            alert("AucBelowYesterday", **model, model_name="feed", model_version="v1"),
            alert("Violations", about="model", severity="critical", model_name="feed"),
            alert("DeployMaybeWorse", about="deploy", severity="warning", model_name="feed", model_version="v2"),
            alert("CheckpointFailing", about="state", severity="warning", instance="a"),
        )
        wait(lambda: len(hook.delivered) >= 5)

        def inhibited() -> Any:
            return manager.get("/api/v2/alerts", inhibited="true", active="false", silenced="false")

        wait(lambda: len(inhibited()) >= 3)
        time.sleep(2.0)
        quiet = inhibited()
    assert {(a["labels"]["alertname"], a["labels"]["model_name"]) for a in quiet} == {
        ("StreamevalDeployMaybeWorse", "ads"),
        ("StreamevalCalibrationFastBurn", "ads"),
        ("StreamevalAucBelowYesterday", "feed"),
    }
    assert sorted(
        (receiver, a["labels"]["alertname"].removeprefix("Streameval")) for receiver, a in hook.delivered
    ) == [
        ("page", "DeployWorse"),
        ("page", "JoinUnreliable"),
        ("page", "Violations"),
        ("ticket", "CheckpointFailing"),
        ("ticket", "DeployMaybeWorse"),
    ]


def wait(holds: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)
