"""Every query of every dashboard and every rule, asked of a real Prometheus that watches the demo and two workers.

The demo is what people see first; it has no store and short windows. The worker has a store and the windows that the
rules ask for. `ads` has what only some log (candidates, values, propensities): it is asked for the dashboard about those. As Grafana would, the test takes each variable's values from Prometheus, one instance at a time. A query
must have had data once until `SECONDS` after both are ready, or stand in may_be_empty.yml with the reason.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from streameval.simulate.runner import run as run_traffic
from streameval.simulate.scenario import Scenario, Version
from streameval.simulate.traffic import Traffic
from streameval.sources.kafka.embedded import EmbeddedBroker
from streameval.sources.kafka.writer import KafkaWriter
from tests import asking
from tests.ads import Event, events
from tests.dashboards.files import FILES, Asked, annotations, label_values, queries, selectors, variables
from tests.dashboards.test_names import EVERY_RULE
from tests.integration.alerting import Service, need, prometheus
from tests.integration.test_run_process import Run, running, until
from tests.ports import free_port

pytestmark = [pytest.mark.promtool, pytest.mark.slow, pytest.mark.timeout(1_200)]

SECONDS = 480.0  # the demo's verdict on its bad deploy falls 75 s after its start; later on a slow machine
MAY_BE_EMPTY: dict[str, dict[str, str]] = yaml.safe_load((Path(__file__).parent / "may_be_empty.yml").read_text())
PATIENCE = 60.0  # seconds for what was there before
BUILT_IN = {"__rate_interval": "15s", "__range": "120s"}

CONFIG = """\
[join]
attribution_window = "5s"
allowed_lateness = "1s"
correction_horizon = "{horizon}"
request_gap = "2s"
[windows]
pane = "{pane}"
sliding = ["5m", "1h"]
[slices]
dimensions = ["country"]
[[models]]
name = "ftrl"
kind = "ftrl"
bits = 16
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
snapshot_interval = "1s"
[compare]
count = 200
min_duration = "20s"
min_clicks = 200
gauc_window = "20s"
"""


ADS = """\
[metrics]
value = true
[ranking]
k = [1, 3, 10]
by_user = ["ndcg_3", "mrr"]
[strata]
count = 3
[[objectives]]
name = "long"
value_at_least = 30
[auction]
mainline = 2
slots = 4
[[auction.points]]
name = "now"
mainline_reserve = 0.3
[[auction.points]]
name = "strict"
mainline_reserve = 0.5
"""
BOARDS = {"demo": FILES.keys() - {"lists"}, "worker": FILES.keys() - {"lists"}, "ads": {"lists"}}


@dataclass
class World:
    """What runs, and what has been seen of it: by instance the places of queries that had data, and wrong legends."""

    prometheus: Service
    instances: dict[str, str]
    seen: dict[str, set[str]] = field(default_factory=lambda: {name: set() for name in BOARDS})
    unlabelled: set[str] = field(default_factory=set)

    def values(self, query: str) -> list[str]:
        """What `label_values(...)` of a variable finds, sorted."""
        selector, label = label_values(query)
        found = self.prometheus.get(f"/api/v1/label/{label}/values", **{"match[]": selector})["data"]
        return sorted(found)

    def series(self, asked: Asked, expr: str) -> list[dict[str, str]]:
        """The labels of its series, over the range or at its end, as the panel asks."""
        now = time.time()
        if asked.instant:
            found = self.prometheus.get("/api/v1/query", query=expr, time=str(now))
        else:
            found = self.prometheus.get(
                "/api/v1/query_range", query=expr, start=str(now - 120), end=str(now), step="5s"
            )
        return [one["metric"] for one in found["data"]["result"]]


def chosen(world: World, dashboard: str, instance: str) -> dict[str, str]:
    """The variables as Grafana would choose them when this instance is picked; those without a value are absent."""
    taken = dict(BUILT_IN)
    for name, variable in variables(dashboard).items():
        if variable["type"] != "query":
            continue
        found = world.values(put(variable["query"], taken))
        if name == "instance":
            assert world.instances[instance] in found
            taken[name] = re.escape(world.instances[instance])
        elif found and variable["multi"]:
            taken[name] = variable.get("allValue") or "|".join(map(re.escape, found))
        elif found:
            default = variable["current"].get("value")
            taken[name] = default if default in found else found[-1 if variable["sort"] == 2 else 0]
    return taken


def put(text: str, taken: dict[str, str]) -> str:
    """With variables replaced; one without a value becomes empty, as in Grafana."""

    def value(found: re.Match[str]) -> str:
        return taken.get(found[1], "").replace("\\", "\\\\")

    return re.sub(r"\$\{?(\w+)\}?", value, text)


def look(world: World, instance: str) -> None:
    """Ask everything that has not answered yet."""
    for name in BOARDS[instance]:
        taken = chosen(world, name, instance)
        world.seen[instance] |= {f"{name} / variable {one}" for one in taken.keys() - BUILT_IN.keys()}
        for asked in (*queries(name), *annotations(name)):
            if asked.place in world.seen[instance]:
                continue
            found = world.series(asked, put(asked.expr, taken))
            if found:
                world.seen[instance].add(asked.place)
            for label in re.findall(r"\{\{(\w+)\}\}", asked.legend):
                if any(label not in series for series in found):
                    world.unlabelled.add(f"{asked.place}: {label}")


def wanted(instance: str) -> set[str]:
    """All that should have data: queries, annotations, variables."""
    boards = BOARDS[instance]
    asked = {one.place for name in boards for one in (*queries(name), *annotations(name))}
    return asked | {
        f"{name} / variable {one['name']}"
        for name in boards
        for one in variables(name).values()
        if one["type"] == "query"
    }


@contextmanager
def demo() -> Iterator[str]:
    """host:port of a demo."""
    command = [sys.executable, "-m", "streameval", "demo", "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert process.stderr is not None
    lines: list[str] = []
    read = threading.Thread(target=lambda: lines.extend(process.stderr or ()), daemon=True)
    read.start()
    try:
        found = until(lambda: re.search(r"page\s+http://(\S+)/\n", "".join(lines)) or process.poll() is not None)
        assert isinstance(found, re.Match), "".join(lines)
        yield found[1]
    finally:
        process.terminate()
        process.wait(60)
        read.join(10)
        process.stderr.close()


@contextmanager
def worker(folder: Path) -> Iterator[Run]:
    """A `streameval run` with a store, and traffic with a bad deploy to half of the users."""
    name = f"w-{uuid.uuid4().hex[:8]}"
    with EmbeddedBroker() as broker:
        config = folder / "worker.toml"
        config.write_text(
            CONFIG.format(servers=broker.bootstrap_servers, name=name, store=folder / "store", horizon="1m", pane="5s")
        )
        scenario = Scenario(
            start_ms=int(time.time() * 1000), duration_s=3_600.0, rate=250.0, ctr=0.2, click_delay_s=1.0, window_s=4.0,
            users=1_000, malformed=0.01, shadow=True,
            versions=(Version("v1", noise=0.3), Version("v2", noise=1.5, bias=0.7, start_s=10.0, share=0.5)),
        )  # fmt: skip
        writer, stop = KafkaWriter(broker.bootstrap_servers), threading.Event()

        def send(kind: str, keys: list[bytes], values: list[bytes]) -> None:
            writer.write(f"{name}-{kind}s", keys, values)

        producer = threading.Thread(
            target=run_traffic, args=(Traffic(scenario), send), kwargs={"speed": 1.0, "stop": stop}, daemon=True
        )
        producer.start()
        try:
            with running(config) as run:
                until(lambda: run.get("/readyz").status_code == 200, run)
                yield run
        finally:
            stop.set()
            producer.join(10)
            writer.close()


@contextmanager
def ads(folder: Path) -> Iterator[Run]:
    """A `streameval run` for which two hours are on record already, and that goes on."""
    name = f"ads-{uuid.uuid4().hex[:8]}"
    with EmbeddedBroker() as broker:
        config = folder / "ads.toml"
        # a user comes every few minutes: what is dated further ahead than the horizon is quarantined
        common = CONFIG.format(
            servers=broker.bootstrap_servers, name=name, store=folder / "ads", horizon="30m", pane="20s"
        )
        config.write_text(common + ADS)
        writer, stop = KafkaWriter(broker.bootstrap_servers), threading.Event()

        def send(some: Iterator[Event]) -> None:
            for event in some:
                kind = event.pop("type")
                writer.write(f"{name}-{kind}s", [event["user_id"].encode()], [json.dumps(event).encode()])

        def go_on() -> None:
            while not stop.wait(1.0):
                now = int(time.time() * 1000)
                send(events(now - 1_000, now, 10, seed=now // 1000 % 1000))

        now = int(time.time() * 1000)
        send(events(now - 7_200_000, now - 1_000, 1_000))
        producer = threading.Thread(target=go_on, daemon=True)
        producer.start()
        try:
            with running(config) as run:
                until(lambda: run.get("/readyz").status_code == 200, run)
                yield run
        finally:
            stop.set()
            producer.join(10)
            writer.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Both, watched, and everything asked until it has answered or time is up."""
    need("prometheus")
    folder = tmp_path_factory.mktemp("dashboards")
    nobody = Service(f"http://127.0.0.1:{free_port()}", folder / "nobody")  # alerts are not delivered here
    with demo() as one, worker(folder) as run, ads(folder) as other:
        instances = {"demo": one} | {
            name: r.url.removeprefix("http://") for name, r in (("worker", run), ("ads", other))
        }
        with prometheus(folder, list(instances.values()), nobody) as service:
            made = World(service, instances)
            until(lambda: set(made.values("label_values(streameval_build_info, instance)")) == set(instances.values()))
            deadline = time.monotonic() + SECONDS
            while time.monotonic() < deadline:
                for instance in instances:
                    look(made, instance)
                if all(wanted(i) - made.seen[i] <= MAY_BE_EMPTY[i].keys() for i in instances):
                    break
                time.sleep(5)  # as often as Prometheus looks
            assert run.process.poll() is None, run.errors
            assert other.process.poll() is None, other.errors
            assert asking.get(f"http://{one}/livez", timeout=60).status_code == 200
            yield made


@pytest.mark.parametrize("instance", BOARDS)
def test_every_query_has_data_or_a_reason_not_to(world: World, instance: str) -> None:
    assert sorted(wanted(instance) - world.seen[instance] - MAY_BE_EMPTY[instance].keys()) == []


def test_every_query_has_data_somewhere_unless_nothing_may_go_wrong_for_it(world: World) -> None:
    """What is empty everywhere is there for trouble only."""
    trouble = MAY_BE_EMPTY["demo"].keys() & MAY_BE_EMPTY["worker"].keys() | MAY_BE_EMPTY["ads"].keys()
    every = set[str]().union(*map(wanted, BOARDS))
    assert sorted(every - set[str]().union(*world.seen.values()) - trouble) == []


def test_every_legend_has_its_label(world: World) -> None:
    assert sorted(world.unlabelled) == []


@pytest.mark.parametrize("rule", EVERY_RULE, ids=lambda rule: rule.get("record") or rule["alert"])
def test_every_rule_can_be_evaluated_and_what_it_rests_on_is_there(world: World, rule: dict[str, Any]) -> None:
    """An alert is silent when all is well, so what it selects is asked for, one by one, now and without ranges."""

    def there(one: str) -> bool:
        """Now, or soon: what was not scraped in time is not there until the next scrape."""
        deadline = time.monotonic() + PATIENCE
        while not (found := world.prometheus.value(one, time.time())) and time.monotonic() < deadline:
            time.sleep(0.5)
        return bool(found)

    world.prometheus.value(rule["expr"], time.time())
    if "record" in rule:
        if rule["record"] not in MAY_BE_EMPTY["rules"]:
            assert there(rule["record"]), rule["expr"]
        return
    names = re.findall(r"(?<![\w:\"])(?:\w+:)?streameval_\w+(?::\w+)?(?:\{[^}]*\})?", rule["expr"])
    asked = {*names, *(f"{one.name}{{{one.matchers}}}" for one in selectors(rule["expr"]))}
    assert asked
    assert {one for one in asked if one not in MAY_BE_EMPTY["rules"] and not there(one)} == set()


def test_prometheus_could_evaluate_all_of_them(world: World) -> None:
    groups = world.prometheus.get("/api/v1/rules")["data"]["groups"]
    assert [(r["name"], r.get("lastError")) for g in groups for r in g["rules"] if r["health"] != "ok"] == []


def test_the_list_of_what_may_be_empty_is_not_stale() -> None:
    for instance in BOARDS:
        assert MAY_BE_EMPTY[instance].keys() - wanted(instance) == set()
    text = " ".join(f"{rule.get('record', '')} {rule['expr']}" for rule in EVERY_RULE)
    assert {one for one in MAY_BE_EMPTY["rules"] if one not in text} == set()
    assert all(len(reason) > 10 for part in MAY_BE_EMPTY.values() for reason in part.values())
