"""The house rules that can be checked: who may import whom, and that nothing undocumented exists."""

from __future__ import annotations

import ast
import functools
import io
import tokenize
from pathlib import Path

import pytest

from streameval.compare.reading.reading import COMPARED
from streameval.metrics.registry import METRICS, with_stderr
from streameval.server.api.schemas.comparisons import Verdict
from streameval.server.api.schemas.results import Row
from streameval.settings.tree import Settings

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "streameval"
MODULES = sorted(PACKAGE.rglob("*.py"))


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree(path)):
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


FLOORS = {  # a room may know the rooms named here and itself, and no other: all arrows go down
    "sketches": set(),
    "process": set(),
    "simulate": set(),
    "events": set(),
    "settings": {"events"},
    "sources": {"events", "settings"},
    "join": {"events", "sketches"},
    "models": {"events", "join", "settings"},
    "exposure": set(),
    "metrics": {"sketches"},
    "counting": {"events", "sketches", "join", "metrics", "exposure"},
    "auction": {"events", "sketches", "settings"},
    "compare": {"events", "sketches", "join", "metrics", "counting", "settings"},
    "results": {"events", "sketches", "join", "metrics", "counting", "settings", "models", "compare", "auction"},
    "store": {"events", "sketches", "metrics", "counting", "settings", "compare", "results"},
    "outlets": {"events", "metrics", "settings", "compare", "results", "store", "sources"},
    "loop": {"auction", "events", "sketches", "join", "metrics", "counting", "settings", "models", "compare", "results", "store", "sources", "process"},
    "server": {"auction", "events", "settings", "metrics", "compare", "results", "store", "sources", "process"},
    "face": {"app", "events", "sketches", "models", "metrics", "counting", "settings", "compare", "results", "store", "loop", "process"},
    "commands": {"app", "auction", "outlets", "face", "client", "settings", "sources", "models", "simulate", "compare", "results", "server", "loop", "process"},
}  # fmt: skip


def test_arrows_of_import_go_down_only() -> None:
    upward = set()
    for room, may_know in FLOORS.items():
        for path in (PACKAGE / room).rglob("*.py"):
            ours = {name.split(".")[1] for name in imports(path) if name.startswith("streameval.")}
            upward |= {(str(path.relative_to(PACKAGE)), r) for r in ours - {"__version__", room} - may_know}
    assert not upward


def test_comparisons_stand_behind_one_door() -> None:
    """The modules at the top of compare/, and what readers are told; the rooms behind them are nobody else's."""
    for path in MODULES:
        if path.relative_to(PACKAGE).parts[0] != "compare":
            inside = {n.split(".")[2] for n in imports(path) if n.startswith("streameval.compare.")}
            assert inside <= {"comparisons", "at_once", "counted", "announce", "planning", "reading"}, path


def test_every_room_has_its_floor() -> None:
    assert {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()} == set(FLOORS)
    assert {p.name for p in PACKAGE.glob("*.py")} == {"__init__.py", "__main__.py", "app.py", "testing.py"}


def test_the_joiner_and_the_sketches_never_read_a_clock() -> None:
    for path in [path for room in ("join", "counting", "sketches") for path in (PACKAGE / room).glob("*.py")]:
        assert not imports(path) & {"time", "datetime"}, path


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert not [
        p for p in MODULES if p.stem.strip("_") in {"util", "utils", "helper", "helpers", "common", "misc", "base"}
    ]


# A word may have two owners when its users see it in two places, or when both are one thing done twice.
SHARED_WORDS = {
    "ROWS": "each module of metrics/ has its rows; the registry puts them together",
    "RESERVED": "the options of either Kafka client that are not the user's",
    "TUNING": "the options of either Kafka client that the user may change",
}


def test_one_word_has_one_owner() -> None:
    """Constants and classes; sections of the settings and schemas of the API have the names that users know."""
    owners: dict[str, set[str]] = {}
    for path in MODULES:
        place = str(path.relative_to(PACKAGE))
        if not place.startswith(("settings/", "server/api/schemas")):
            for name in top_level_names(path):
                owners.setdefault(name, set()).add(place)
    several = {name: places for name, places in owners.items() if len(places) > 1}
    assert {name: places for name, places in several.items() if name not in SHARED_WORDS} == {}
    assert set(several) == set(SHARED_WORDS), "no exception is needed for a word with one owner"


def top_level_names(path: Path) -> set[str]:
    """Public classes and constants that a module defines, type aliases included."""
    names: set[str] = set()
    for node in tree(path).body:
        if isinstance(node, ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}
    return {name for name in names if name[0].isupper()}


def test_every_setting_is_documented() -> None:
    text = (ROOT / "docs" / "reference" / "configuration.md").read_text()
    for section, info in Settings.model_fields.items():
        assert f"[{section}]" in text, section
        for key in getattr(info.annotation, "model_fields", {}):
            assert f"`{key}`" in text, f"{section}.{key}"


def test_every_metric_is_documented() -> None:
    text = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    for metric in METRICS:
        assert f"`{metric.name}`" in text, metric.name


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
    assert {f"{name}_stderr" for name in with_stderr()} == {f for f in Row.model_fields if f.endswith("_stderr")}


def is_kernel(function: ast.AST) -> bool:
    return isinstance(function, ast.FunctionDef) and any(
        name in ast.unparse(decorator) for decorator in function.decorator_list for name in ("njit", "vectorize")
    )


def test_modules_and_functions_are_short_and_calls_name_what_they_pass() -> None:
    """A module: at most 400 lines. A function that is no kernel: at most 60. A call: at most 8 arguments by position."""
    long = []
    for path in MODULES:
        text = path.read_text()
        name = str(path.relative_to(PACKAGE))
        if text.count("\n") > 400:
            long.append(name)
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef) and not is_kernel(node):
                lines = (node.end_lineno or 0) - node.lineno + 1
                long += [f"{name}: {node.name}"] * (lines > 60)
            if isinstance(node, ast.Call):
                long += [f"{name}: {ast.unparse(node.func)}(...)"] * (len(node.args) > 8)
    assert sorted(set(long)) == []


def unformatted(text: str) -> list[int]:
    """Lines where a module turns formatting off for anything but a table at its top."""
    if "fmt:" not in text:  # as nearly everywhere: nothing to take apart
        return []
    tables = {
        node.end_lineno
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and isinstance(node.value, ast.Tuple | ast.List | ast.Set | ast.Dict)
    }
    comments = (t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type == tokenize.COMMENT)
    return [t.start[0] for t in comments if "fmt:" in t.string and not (t.start[0] in tables and "skip" in t.string)]


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("ROWS = (\n  (1,   2),\n)  # fmt: skip\n", []),
        ("ROWS: tuple[int, ...] = (1,   2)  # fmt: skip\n", []),
        ("f(1,   2)  # fmt: skip\n", [1]),
        ("rows = f(\n  1,   2,\n)  # fmt: skip\n", [3]),
        ("def f(\n  a,   b,\n):  # fmt: skip\n    rows = (1,   2)  # fmt: skip\n", [3, 4]),
        ("# fmt: off\nROWS = (1,   2)\n# fmt: on\n", [1, 3]),
        ('ROWS = ("# fmt: skip",)\n', []),
    ],
)
def test_what_turns_formatting_off_is_found(text: str, refused: list[int]) -> None:
    assert unformatted(text) == refused


def test_only_tables_turn_formatting_off() -> None:
    """A call, a signature or a loop that is hard to read formatted wants a name for one of its parts."""
    assert {str(p.relative_to(PACKAGE)): lines for p in MODULES if (lines := unformatted(p.read_text()))} == {}


def test_no_conflict_of_a_merge_was_left() -> None:
    """One stood in a docstring for weeks."""
    folders = ("streameval", "tests", "docs", "benchmarks", "deploy", "dashboards", ".ci")
    files = [path for path in ROOT.iterdir() if path.is_file()]
    files += [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    marks = tuple(f"{sign * 7} ".encode() for sign in "<>")
    left = [path for path in files if any(line.startswith(marks) for line in path.read_bytes().splitlines())]
    assert not left
