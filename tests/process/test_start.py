"""A start takes no longer than it must."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SAID = """
import gc, json
from streameval.process.start import quick_imports

with quick_imports():
    import pyarrow

    during = gc.isenabled()
print(json.dumps(dict(collected_during=during, collected_after=gc.isenabled(), frozen=gc.get_freeze_count())))
"""


def test_imported_code_is_no_garbage_and_what_comes_after_is_collected() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SAID],
        capture_output=True, text=True, check=False, env={"PYTHONPATH": str(ROOT), "PATH": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert not found["collected_during"]
    assert found["collected_after"]
    assert found["frozen"] > 10_000


OPENED = """
import os, sys
from streameval.process.start import open_standard_streams

open_standard_streams()
print("lost", file=sys.stderr)
with open(sys.argv[1], "w") as own:
    own.write(f"{own.fileno() > 2} {sys.stdin.read()!r} {sys.stderr.isatty()}")
"""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_the_parent_has_closed_is_not_the_next_file(tmp_path: Path, closed: str) -> None:
    script, out = tmp_path / "opened.py", tmp_path / "out"
    script.write_text(OPENED)
    command = f'exec "$@" {closed}' if "<" in closed else f'exec "$@" {closed} </dev/null'
    done = subprocess.run(
        ["/bin/sh", "-c", command, "sh", sys.executable, str(script), str(out)],
        check=False, env={"PYTHONPATH": str(ROOT), "PATH": ""},
    )  # fmt: skip
    assert done.returncode == 0
    assert out.read_text() == "True '' False"


@pytest.mark.slow
def test_a_command_runs_without_any_stream(tmp_path: Path) -> None:
    events, report = tmp_path / "events.jsonl", tmp_path / "report.json"
    events.write_text('{"impression_id": "a", "ts": 1700000000000, "user_id": "u", "pclick": 0.1}\n')
    command = [sys.executable, "-m", "streameval", "replay", str(events), "--report", str(report)]
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command],
        check=False, cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "PATH": ""},
    )  # fmt: skip
    assert done.returncode == 0
    assert json.loads(report.read_text())["events"]["impressions"] == 1
