"""Every metric that a dashboard or a rule asks for is exported by streameval, its process, Prometheus, or recorded."""

from __future__ import annotations

import re
from typing import Any

import prometheus_client
import pytest
import yaml

from streameval.server.prometheus.families import FAMILIES
from tests.dashboards.files import FILES, ROOT, annotations, label_values, queries, selectors, variables

RULES = sorted((ROOT / "deploy" / "prometheus").glob("*.rules.yml"))
EVERY_RULE: list[dict[str, Any]] = [
    rule for path in RULES for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]
]
LABELS = {
    name: {*family.labels, *extra}
    for family in FAMILIES
    for name, extra in (
        [(family.exposed, ())]
        if family.kind != "histogram"
        else [(f"{family.exposed}_bucket", ("le",)), (f"{family.exposed}_sum", ()), (f"{family.exposed}_count", ())]
    )
}
RECORDED = {rule["record"] for rule in EVERY_RULE if "record" in rule}
PROCESS = {
    sample.name for metric in prometheus_client.ProcessCollector(registry=None).collect() for sample in metric.samples
}
PROMETHEUS = {"up", "ALERTS"}
KNOWN = LABELS.keys() | RECORDED | PROCESS | PROMETHEUS


@pytest.mark.parametrize("name", FILES)
def test_a_dashboard_asks_for_metrics_that_exist_by_labels_that_they_have(name: str) -> None:
    asked = [one.expr for one in (*queries(name), *annotations(name))]
    asked += [label_values(v["query"])[0] for v in variables(name).values() if v["type"] == "query"]
    for expr in asked:
        for selector in selectors(expr) if "{" in expr else ():
            assert selector.name in KNOWN, expr
            labels = set(re.findall(r'(\w+)\s*(?:=~|!=|!~|=)\s*"', selector.matchers))
            if selector.name in LABELS:
                assert labels <= LABELS[selector.name] | {"job", "instance"}, expr


@pytest.mark.parametrize("rule", EVERY_RULE, ids=lambda rule: rule.get("record") or rule["alert"])
def test_a_rule_asks_for_metrics_that_exist(rule: dict[str, Any]) -> None:
    found = set(re.findall(r"(?<![\w:])(?:\w+:)?streameval_\w+(?::\w+)?", rule["expr"]))
    assert found <= KNOWN
    assert found or "up{" in rule["expr"]


def test_variables_are_about_labels_that_exist() -> None:
    for name in FILES:
        for variable in variables(name).values():
            if variable["type"] == "query":
                selector, label = label_values(variable["query"])
                assert label in LABELS[selector.partition("{")[0]] | {"job", "instance"}, variable["query"]
