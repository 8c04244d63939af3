"""The compose file's wiring, run without Docker: from the simulated bad deploy to the alert at the webhook."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from tests.deploy.manifests import DEPLOY, services
from tests.deploy.native import LEFT_OUT, Stack, stack
from tests.integration.alerting import need
from tests.integration.conftest import need_kafka

PATIENCE = 480.0  # on a slow machine: the deploy comes after 30 s, its verdict 40 s later; scrapes, rules and groups wait 15, 15 and 10 s

pytestmark = [pytest.mark.kafka, pytest.mark.promtool, pytest.mark.slow, pytest.mark.timeout(1_500)]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Everything, started in the order that the compose file asks for."""
    need_kafka()
    need("prometheus", "prometheus-alertmanager", "wget")
    with stack(tmp_path_factory.mktemp("stack")) as running:
        yield running


def until(seen: Callable[[], Any], up: Stack) -> Any:
    """What `seen` says as soon as it is true; fails when that takes too long or a service has ended."""
    deadline = time.monotonic() + PATIENCE
    while not (found := seen()):
        ended = {name: p.poll() for name, p in up.processes.items() if p.poll() is not None and name != "topics"}
        if ended or time.monotonic() > deadline:
            pytest.fail(f"not seen; ended: {ended}; " + "\n".join(up.log(name)[-1500:] for name in up.processes))
        time.sleep(0.5)
    return found


def test_every_service_but_grafana_runs(up: Stack) -> None:
    assert set(up.processes) | {"kafka"} | LEFT_OUT == set(services())
    assert up.processes["topics"].wait() == 0
    assert "impressions, streameval-dead-letters: 4 partitions each" in up.log("topics")


def test_the_monitor_is_up_for_prometheus_and_reads_all_partitions(up: Stack) -> None:
    def targets() -> list[tuple[str, str]]:
        found = up.get("prometheus", "/api/v1/targets")["data"]["activeTargets"]
        return [(t["labels"]["job"], t["health"]) for t in found]

    until(lambda: targets() == [("streameval", "up")], up)
    until(lambda: len(up.get("streameval", "/api/v1/status")["partitions"]) == 4, up)


def test_the_rules_are_loaded_and_can_be_evaluated(up: Stack) -> None:
    wanted = {
        group["name"]
        for path in (DEPLOY / "prometheus").glob("*.rules.yml")
        for group in yaml.safe_load(path.read_text())["groups"]
    }

    def rules() -> list[dict[str, Any]]:
        groups = up.get("prometheus", "/api/v1/rules")["data"]["groups"]
        assert {group["name"] for group in groups} == wanted
        return [rule for group in groups for rule in group["rules"]]

    until(lambda: all(rule["health"] != "unknown" for rule in rules()), up)
    assert [(rule["name"], rule.get("lastError")) for rule in rules() if rule["health"] != "ok"] == []


def test_prometheus_tells_alertmanager(up: Stack) -> None:
    def active() -> list[str]:
        found = up.get("prometheus", "/api/v1/alertmanagers")["data"]["activeAlertmanagers"]
        return [one["url"].rsplit("/api/", 1)[0] for one in found]

    assert until(active, up) == [up.url("alertmanager")]


def test_the_bad_deploy_s_alert_reaches_the_webhook(up: Stack) -> None:
    def alert() -> list[dict[str, Any]]:
        return [a for a in up.get("webhook", "/") if a["labels"]["alertname"] == "StreamevalDeployWorse"]

    (first, *_) = until(alert, up)
    wanted = {"model_name": "ctr", "model_version": "v2", "baseline_version": "v1", "severity": "critical"}
    assert first["labels"].items() >= wanted.items()
    assert (first["receiver"], first["status"]) == ("page", "firing")
    until(lambda: "StreamevalDeployWorse: ctr v2 is worse than v1" in up.log("webhook"), up)  # said after it is kept


def test_nobody_is_told_of_anything_but_the_bad_version(up: Stack) -> None:
    others = [a["labels"] for a in up.get("webhook", "/") if a["labels"].get("model_version") != "v2"]
    assert others == []


def test_a_stop_of_the_monitor_writes_its_checkpoints_in_time(up: Stack) -> None:
    """The last test: it ends the monitor."""
    assert up.stop("streameval") == 0
    assert len(list((up.folder / "state" / "checkpoints").glob("partition-*/*.checkpoint"))) >= 4
