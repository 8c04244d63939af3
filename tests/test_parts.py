"""`make test` runs every test once: its parts, which go side by side, leave none out and share none. What it installs, and how."""

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


def test_pandas_is_hidden_from_no_test_that_needs_it() -> None:
    rest = next(part for part in parts() if "tests" not in part and not any(a.startswith("tests/") for a in part))
    for path in (ROOT / "tests").rglob("test_*.py"):
        if path != Path(__file__) and "pandas" in path.read_text():
            assert takes(rest, str(path.relative_to(ROOT)), ""), path


@pytest.mark.parametrize(("uv", "by"), [("", ["pip"]), ("works", ["uv"]), ("fails", ["uv", "pip"])])
def test_uv_installs_where_there_is_one_and_pip_what_it_cannot(tmp_path: Path, uv: str, by: list[str]) -> None:
    if shutil.which("make") is None:
        pytest.skip("needs make")
    said, python, fake = tmp_path / "said", tmp_path / "venv" / "bin" / "python", tmp_path / "uv"
    python.parent.mkdir(parents=True)
    for program, status in ((python, 0), (fake, int(uv == "fails"))):
        program.write_text(f'#!/bin/sh\necho "$0 $*" >> {said}\nexit {status}\n')
        program.chmod(0o755)
    command = ["make", f"VENV={tmp_path / 'venv'}", f"UV={fake if uv else ''}", str(tmp_path / "venv" / ".run")]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    installed = said.read_text().splitlines()
    locked, ours = installed[: len(by)], installed[len(by) :]
    for lines, what in ((locked, "--require-hashes -r requirements.lock"), (ours, "--no-deps -e .")):
        assert ["pip" if line.startswith(f"{python} -m pip install ") else "uv" for line in lines] == by
        assert all(line.endswith(what) for line in lines)
        assert all(f"{fake} pip install --quiet --python {python} {what}" == line for line in lines[: by.count("uv")])
