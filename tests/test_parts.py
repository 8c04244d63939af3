"""`make test` runs every test once: its parts, which go side by side, leave none out and share none."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.chaos.test_chaos import SHORT

ROOT = Path(__file__).parents[1]
CHAOS = "tests/chaos/test_chaos.py"


def parts() -> list[list[str]]:
    """The arguments of pytest, part by part."""
    if shutil.which("make") is None:
        pytest.skip("needs make")
    makefile = (ROOT / "Makefile").read_text()
    found = re.search(r"^PARTS\s*:=\s*(.*)$", makefile, re.MULTILINE)
    assert found
    done = subprocess.run(["make", "-n", *found[1].split()], cwd=ROOT, capture_output=True, text=True, check=True)
    lines = [line.split("-m pytest ", 1)[1] for line in done.stdout.splitlines() if "-m pytest " in line]
    assert len(lines) == len(found[1].split())
    return [shlex.split(line) for line in lines]


def takes(arguments: list[str], path: str, name: str) -> bool:
    """Whether a part runs a test of this file and name."""
    ignored = [a.removeprefix("--ignore=") for a in arguments if a.startswith("--ignore=")]
    wanted = [a for a in arguments if a.startswith("tests/")] or ["tests"]
    inside = any(path == w or path.startswith(f"{w}/") for w in wanted)
    words = arguments[arguments.index("-k") + 1].split(" or ") if "-k" in arguments else [""]
    return (
        inside
        and not any(path == one or path.startswith(f"{one}/") for one in ignored)
        and any(word in f"{path} {name}" for word in words)
    )


def test_every_test_file_is_in_exactly_one_part() -> None:
    files = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "tests").rglob("test_*.py"))
    known = parts()
    for path in files:
        if path != CHAOS:
            assert sum(takes(part, path, "") for part in known) == 1, path


def test_so_is_every_test_of_the_chaos_scripts() -> None:
    known = parts()
    for name in [*SHORT, "test_every_fault_has_its_short_form"]:
        assert sum(takes(part, CHAOS, name) for part in known) == 1, name
