"""The house rules that can be checked: who may import whom, and that nothing undocumented exists."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from streameval.compare.reading import METRICS as COMPARED
from streameval.config import Settings
from streameval.metrics.registry import METRICS
from streameval.report import METRIC_NAMES, WITH_STDERR
from streameval.server.schemas import Row
from streameval.server.schemas_compare import Verdict

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "streameval"
MODULES = sorted(PACKAGE.rglob("*.py"))


def imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def users_of(*libraries: str) -> set[str]:
    return {
        str(path.relative_to(PACKAGE))
        for path in MODULES
        if any(n == lib or n.startswith(lib + ".") for n in imports(path) for lib in libraries)
    }


def test_only_the_kafka_sources_import_a_kafka_client() -> None:
    assert all(name.startswith("sources/kafka/") for name in users_of("confluent_kafka", "kafka"))


def test_only_the_server_imports_fastapi_prometheus_and_uvicorn() -> None:
    assert all(name.startswith("server/") for name in users_of("fastapi", "starlette", "uvicorn", "prometheus_client"))


@pytest.mark.parametrize(
    ("room", "may_know"),
    [
        ("sketches", {"sketches"}),
        ("metrics", {"metrics", "sketches", "report", "events"}),
        ("models", {"models", "events"}),
        ("join", {"join", "sketches", "events", "columns"}),
        ("compare", {"compare", "sketches", "metrics", "events", "units"}),
        ("counting", {"counting", "join", "metrics", "sketches", "events", "columns"}),
        (
            "server",
            {
                "server",
                "store",
                "compare",
                "report",
                "publish",
                "config",
                "events",
                "names",
                "metrics",
                "hashing",
                "sources",
                "logs",
                "units",
            },
        ),
        ("store", {"store", "monitor", "evaluate", "counting", "metrics", "sketches", "report", "events", "units"}),
        ("simulate", {"simulate"}),
        ("sources", {"sources", "events", "config", "hashing", "columns"}),
    ],
)
def test_arrows_of_import_go_down_only(room: str, may_know: set[str]) -> None:
    for path in (PACKAGE / room).rglob("*.py"):
        ours = {name.split(".")[1] for name in imports(path) if name.startswith("streameval.")}
        assert ours - {"__version__"} <= may_know, f"{path.name} imports {ours - may_know}"


def test_the_joiner_and_the_sketches_never_read_a_clock() -> None:
    for path in [path for room in ("join", "counting", "sketches") for path in (PACKAGE / room).glob("*.py")]:
        assert not imports(path) & {"time", "datetime"}, path


def test_only_the_composition_root_and_the_commands_see_every_room() -> None:
    roots = {"app.py", "demo.py", "cli.py"}
    for path in PACKAGE.glob("*.py"):
        if path.name not in roots:
            rooms = {n.split(".")[1] for n in imports(path) if n.startswith("streameval.")} & {"server", "simulate"}
            assert not rooms, f"{path.name} imports {rooms}"


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert not [
        p for p in MODULES if p.stem.strip("_") in {"util", "utils", "helper", "helpers", "common", "misc", "base"}
    ]


def test_every_setting_is_documented() -> None:
    text = (ROOT / "docs" / "reference" / "configuration.md").read_text()
    for section, info in Settings.model_fields.items():
        assert f"[{section}]" in text, section
        for key in getattr(info.annotation, "model_fields", {}):
            assert f"`{key}`" in text, f"{section}.{key}"


def test_every_metric_is_documented_and_named_once() -> None:
    assert tuple(m.name for m in METRICS) == METRIC_NAMES
    text = (ROOT / "docs" / "metrics.md").read_text()
    for metric in METRICS:
        assert f"`{metric.name}`" in text, metric.name
        assert metric.function.__doc__


def test_the_locks_and_docs_name_no_host_of_this_workplace() -> None:
    for path in [*ROOT.glob("*.lock"), *ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        text = path.read_text()
        assert "index-url" not in text
        assert "/work/" not in text, path


def test_the_flat_verdict_has_every_metric_of_a_comparison() -> None:
    fields = set(Verdict.model_fields)
    for metric in COMPARED:
        assert {f"{part}_{metric}" for part in ("difference", "lower", "upper", "margin", "reason")} <= fields


def test_every_metric_with_a_standard_error_has_its_place_in_the_api() -> None:
    assert {f"{name}_stderr" for name in WITH_STDERR} == {f for f in Row.model_fields if f.endswith("_stderr")}
