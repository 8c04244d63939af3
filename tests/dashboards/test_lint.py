"""The rules of grafana/dashboard-linter, with the exclusions of dashboards/.lint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.dashboards.files import FILES, FOLDER, Selector, bare, panels, queries, selectors, variables

UNITS = {"none", "short", "percentunit", "bytes", "s", "eps", "wps", "dateTimeFromNow"}
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
EXCLUDED = {
    (rule, entry["dashboard"], entry["panel"])
    for rule, one in yaml.safe_load((FOLDER / ".lint").read_text())["exclusions"].items()
    for entry in one["entries"]
}


def selector_rule(broken: Callable[[Selector], bool]) -> Callable[[str], bool]:
    return lambda expr: any(broken(one) for one in selectors(expr))


TARGET_RULES: dict[str, Callable[[str], bool]] = {
    "target-promql-rule": lambda expr: bool(bare(expr)) or not selectors(expr),
    "target-job-rule": selector_rule(lambda one: 'job=~"$job"' not in one.matchers),
    "target-instance-rule": selector_rule(lambda one: 'instance=~"$instance"' not in one.matchers),
    "target-rate-interval-rule": selector_rule(
        lambda one: one.call in {"rate", "irate"} and one.range != "$__rate_interval"
    ),
    "target-counter-agg-rule": selector_rule(
        lambda one: one.name.endswith("_total") and not (one.call in {"rate", "irate", "increase"} and one.range)
    ),
}


def panel_faults(panel: dict[str, Any]) -> Iterator[str]:
    if not panel["title"] or not panel["description"]:
        yield "panel-title-description-rule"
    if panel["type"] == "text":
        return
    if panel["datasource"] != DATASOURCE or any(target["datasource"] != DATASOURCE for target in panel["targets"]):
        yield "panel-datasource-rule"
    if not panel["targets"]:
        yield "panel-no-targets-rule"
    defaults = panel["fieldConfig"]["defaults"]
    if panel["type"] in {"stat", "timeseries"} and "mappings" not in defaults and defaults.get("unit") not in UNITS:
        yield "panel-units-rule"
    for target in panel["targets"]:
        yield from (rule for rule, broken in TARGET_RULES.items() if broken(target["expr"]))


@pytest.mark.parametrize("name", FILES)
def test_the_panels_keep_the_rules_but_for_what_is_excluded_with_a_reason(name: str) -> None:
    title = FILES[name]["title"]
    faults = {(rule, title, panel["title"]) for panel in panels(FILES[name]) for rule in panel_faults(panel)}
    assert faults == {one for one in EXCLUDED if one[1] == title}


def test_exclusions_have_a_reason() -> None:
    for one in yaml.safe_load((FOLDER / ".lint").read_text())["exclusions"].values():
        assert len(one["reason"]) > 20


@pytest.mark.parametrize("name", FILES)
def test_the_variables_keep_the_rules(name: str) -> None:
    known = variables(name)
    assert [v["name"] for v in known.values() if v["type"] == "datasource"] == ["datasource"]
    assert (known["datasource"]["query"], known["datasource"]["label"]) == ("prometheus", "Data source")
    for one in ("job", "instance"):
        assert (known[one]["label"], known[one]["multi"], known[one]["allValue"]) == (one.title(), True, ".+")
        assert known[one]["type"] == "query"
    for variable in known.values():
        if variable["type"] == "query":
            assert variable["datasource"] == DATASOURCE
            assert variable["refresh"] == 2, "on a change of the time range"
            assert variable["query"].startswith("label_values(")


@pytest.mark.parametrize("name", FILES)
def test_nobody_edits_it_by_hand(name: str) -> None:
    assert FILES[name]["editable"] is False


@pytest.mark.parametrize(
    ("rule", "expr"),
    [
        ("target-promql-rule", "sum(up)"),
        ("target-promql-rule", "vector(1)"),
        ("target-job-rule", 'up{instance=~"$instance"}'),
        ("target-instance-rule", 'sum by (job) (up{job=~"$job"})'),
        ("target-rate-interval-rule", 'rate(a_total{job=~"$job"}[5m])'),
        ("target-counter-agg-rule", 'sum(a_total{job=~"$job"})'),
        ("target-counter-agg-rule", 'max_over_time(a_total{job=~"$job"}[5m])'),
    ],
)
def test_the_rules_find_what_they_are_for(rule: str, expr: str) -> None:
    assert TARGET_RULES[rule](expr)


def test_the_rules_let_good_queries_pass() -> None:
    scope = '{job=~"$job", instance=~"$instance"}'
    good = f"sum by (a, b) (rate(x_total{scope}[$__rate_interval])) / on (a) group_left (b) max_over_time(y{scope}[$__range])"
    assert [rule for rule, broken in TARGET_RULES.items() if broken(good)] == []


def test_there_are_queries_to_rule_over() -> None:
    assert sum(len(list(queries(name))) for name in FILES) > 100
    assert Path(FOLDER / ".lint").exists()
