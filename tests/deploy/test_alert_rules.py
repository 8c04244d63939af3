"""deploy/prometheus/: the rules load, do what their own tests say, ask for what exists, and lead to a runbook."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from streameval.results.publish import Publisher
from streameval.results.snapshot import empty_snapshot
from streameval.server.http.app import create_app
from streameval.server.prometheus.families import FAMILIES
from streameval.settings.server import Server
from tests.integration.alerting import FILES, need

ROOT = Path(__file__).parents[2]
RUNBOOKS = ROOT / "docs" / "runbooks"
RULES = sorted(FILES.glob("*.rules.yml"))
TESTS = sorted((FILES / "tests").glob("*.yml"))
GROUPS = [group for path in RULES for group in yaml.safe_load(path.read_text())["groups"]]
ALERTS = [rule for group in GROUPS for rule in group["rules"] if "alert" in rule]
NAMES = {rule["alert"] for rule in ALERTS}
RECORDED = {rule["record"] for group in GROUPS for rule in group["rules"] if "record" in rule}
EXPOSED = {f.exposed: f for f in FAMILIES if f.kind != "histogram"} | {
    f.exposed + part: f for f in FAMILIES if f.kind == "histogram" for part in ("_bucket", "_sum", "_count")
}
CASES = [case for path in TESTS for case in yaml.safe_load(path.read_text())["tests"]]


def ran(*command: str) -> str:
    """What it prints; fails when it fails."""
    need(command[0])
    environment = {**os.environ, "GOGC": "400"}  # a fifth less of its time for 70 MB more
    done = subprocess.run(command, cwd=FILES, env=environment, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.promtool
def test_prometheus_takes_the_configuration_and_the_rules() -> None:
    assert f"{len(RULES)} rule files found" in ran("promtool", "check", "config", "prometheus.yml")
    ran("promtool", "check", "rules", "--lint=all", "--lint-fatal", *map(str, RULES))


@pytest.mark.promtool
@pytest.mark.slow
@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_the_rules_fire_when_they_should_and_only_then(path: Path) -> None:
    assert "SUCCESS" in ran("promtool", "test", "rules", str(path))


@pytest.mark.promtool
def test_alertmanager_takes_its_configuration_and_tells_whom_it_should() -> None:
    assert "SUCCESS" in ran("amtool", "check-config", "alertmanager.yml")
    for severity, receiver in {"critical": "page", "warning": "ticket", "info": "channel"}.items():
        ran(
            "amtool", "config", "routes", "test", "--config.file=alertmanager.yml",
            f"--verify.receivers={receiver}", f"severity={severity}",
        )  # fmt: skip


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_says_how_grave_it_is_what_it_means_and_where_to_read_on(rule: dict[str, Any]) -> None:
    assert rule["alert"].startswith("Streameval")
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert rule["labels"]["about"] in {"deploy", "model", "stream", "state", "process"}
    notes = rule["annotations"]
    assert set(notes) == {"summary", "description", "runbook_url", "page_url"}
    assert "streameval_page_info{job=%q}" in notes["page_url"]
    assert re.fullmatch(r"[A-Z][^{}]*\.", notes["summary"]), "a sentence that is the same for every such alert"
    assert "{{" in notes["description"], "the numbers"
    assert notes["runbook_url"].endswith(f"/docs/runbooks/{rule['alert']}.md")


@pytest.mark.parametrize("name", sorted(NAMES))
def test_an_alert_is_seen_to_fire_and_to_keep_quiet(name: str) -> None:
    asked = [t for case in CASES for t in case.get("alert_rule_test", []) if t["alertname"] == name]
    assert any(t.get("exp_alerts") for t in asked), "never seen to fire"
    assert any(not t.get("exp_alerts") for t in asked), "never seen to be silent"


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    assert {path.stem for path in RUNBOOKS.glob("*.md")} - {"README"} == NAMES
    index = (RUNBOOKS / "README.md").read_text()
    for name in NAMES:
        text = (RUNBOOKS / f"{name}.md").read_text()
        assert text.startswith(f"# {name}\n")
        for part in ("**What it means.**", "**How sure.**", "## Look", "## Do", "**Silence**"):
            assert part in text, (name, part)
        assert f"({name}.md)" in index
        summary = next(rule["annotations"]["summary"] for rule in ALERTS if rule["alert"] == name)
        assert summary in index, (name, summary)


@pytest.mark.parametrize(
    "path", [*RULES, *TESTS, *sorted(RUNBOOKS.glob("*.md"))], ids=lambda path: str(path.relative_to(ROOT))
)
def test_what_is_asked_for_exists(path: Path) -> None:
    """Names with a colon are recorded by a rule; all others are families of streameval."""
    asked = set(re.findall(r"(?<![\w:/-])(?:\w+:)?streameval_\w+(?::\w+)?", path.read_text()))
    known = EXPOSED.keys() | RECORDED
    assert {name for name in asked if name not in known} == set()


def test_the_series_of_the_tests_have_the_labels_of_real_ones() -> None:
    for case in CASES:
        for one in case["input_series"]:
            name, _, labels = one["series"].partition("{")
            if name in EXPOSED:
                found = set(re.findall(r"(\w+)=", labels))
                assert found == {"job", "instance", *EXPOSED[name].labels}, one["series"]


@pytest.mark.promtool
def test_the_queries_in_the_runbooks_can_be_asked(tmp_path: Path) -> None:
    queries = [
        query
        for path in RUNBOOKS.glob("*.md")
        for query in re.findall(r"```promql\n(.*?)```", path.read_text(), re.DOTALL)
    ]
    assert len(queries) > 40
    rules = [{"record": f"q{i}", "expr": query} for i, query in enumerate(queries)]
    path = tmp_path / "queries.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    ran("promtool", "check", "rules", str(path))


def test_the_addresses_in_the_runbooks_exist() -> None:
    paths = create_app(Publisher(empty_snapshot(0.0)), Server(), version="1").openapi()["paths"]
    for path in RUNBOOKS.glob("*.md"):
        for route, _, query in re.findall(r"127\.0\.0\.1:8080(/[\w/]+)(\?([^' ]*))?", path.read_text()):
            assert route in paths, (path.name, route)
            known = {p["name"] for p in paths[route]["get"].get("parameters", [])}
            assert {part.partition("=")[0] for part in query.split("&") if part} <= known, (path.name, route, query)


def test_what_is_inhibited_exists() -> None:
    config = yaml.safe_load((FILES / "alertmanager.yml").read_text())
    for rule in config["inhibit_rules"]:
        for matcher in [*rule["source_matchers"], *rule["target_matchers"]]:
            label, operator, value = re.fullmatch(r'(\w+)\s*(=~|!=|=)\s*"?(.*?)"?', matcher).groups()
            if label == "alertname":
                matched = {
                    name for name in NAMES if re.fullmatch(value if operator == "=~" else re.escape(value), name)
                }
                assert matched, matcher
                for alternative in re.findall(r"\w+", value.removeprefix("Streameval")) if operator == "=~" else ():
                    assert any(alternative in name for name in matched), (matcher, alternative)


def test_the_job_that_the_rules_ask_for_is_the_one_that_is_scraped() -> None:
    (scrape,) = yaml.safe_load((FILES / "prometheus.yml").read_text())["scrape_configs"]
    asked = {job for rule in ALERTS for job in re.findall(r'up\{job="(\w+)"\}', rule["expr"])}
    assert asked == {scrape["job_name"]}
