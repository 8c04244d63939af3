"""deploy/grafana/: what Grafana finds when it starts agrees with the dashboards and with Prometheus' files."""

from __future__ import annotations

from typing import Any

import yaml

from tests.dashboards.files import ROOT

FOLDER = ROOT / "deploy" / "grafana" / "provisioning"


def read(kind: str) -> dict[str, Any]:
    (path,) = (FOLDER / kind).glob("*.yml")
    tree: dict[str, Any] = yaml.safe_load(path.read_text())
    assert tree["apiVersion"] == 1
    return tree


def test_prometheus_and_alertmanager_are_known_to_each_other() -> None:
    found = {one["type"]: one for one in read("datasources")["datasources"]}
    assert found.keys() == {"prometheus", "alertmanager"}
    assert found["prometheus"]["url"] == "http://prometheus:9090"
    assert found["alertmanager"]["url"] == "http://alertmanager:9093"
    assert found["prometheus"]["jsonData"]["alertmanagerUid"] == found["alertmanager"]["uid"]
    assert found["alertmanager"]["jsonData"]["implementation"] == "prometheus"
    scraped = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    assert found["prometheus"]["jsonData"]["timeInterval"] == scraped["global"]["scrape_interval"]


def test_the_dashboards_are_read_from_where_they_are_mounted_and_not_edited() -> None:
    (provider,) = read("dashboards")["providers"]
    assert provider["options"]["path"] == "/var/lib/grafana/dashboards"
    assert provider["allowUiUpdates"] is False


def test_alerts_made_in_grafana_go_to_alertmanager_too() -> None:
    tree = read("alerting")
    (point,) = tree["contactPoints"]
    (receiver,) = point["receivers"]
    assert receiver["type"] == "prometheus-alertmanager"
    assert receiver["settings"]["url"] == "http://alertmanager:9093"
    (policy,) = tree["policies"]
    assert policy["receiver"] == point["name"]
    routes = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alertmanager.yml").read_text())["route"]
    assert policy["group_by"] == routes["group_by"]
