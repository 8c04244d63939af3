"""The benchmarks are no part of a test, but a change of the program must not leave one behind that cannot even begin."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.against import compared, run, tree_of
from benchmarks.printed import Place, numbers

ROOT = Path(__file__).parents[2]
PRINTED = """
== speed
| what | events/s | ratio (least, most) |
|---|---|---|
| with 8 features | 1,234,567 | 1.25 (1.1, 1.3) |
| without | 2.5 M | skipped |

| form | of | took |
|---|---|---|
| a | first | 250 ms |
| a | first | 3 s |
"""


def test_tables_are_read_as_numbers() -> None:
    assert numbers(PRINTED) == {
        Place("speed", "with 8 features", "events/s"): 1_234_567.0,
        Place("speed", "with 8 features", "ratio (least, most)"): 1.25,
        Place("speed", "without, skipped", "events/s"): 2.5e6,
        Place("speed", "a, first", "took"): 0.25,
        Place("speed", "a, first (2)", "took"): 3.0,
    }


def test_a_commit_is_compared_with_the_tree_that_stands_there(tmp_path: Path) -> None:
    """In a repository whose benchmark prints what its program says."""
    (tmp_path / "benchmarks").mkdir()
    code = "import streameval\nprint('== b\\n| what | n |\\n|---|---|\\n| it |', streameval.SPEED, '|')\n"
    (tmp_path / "benchmarks" / "__init__.py").touch()
    (tmp_path / "benchmarks" / "__main__.py").write_text(code)
    (tmp_path / "streameval.py").write_text("SPEED = 10\n")
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t.example", "-C", str(tmp_path)]
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *arguments], check=True)
    (tmp_path / "streameval.py").write_text("SPEED = 15\n")
    with tree_of("HEAD", tmp_path) as base:
        rounds = [(run(base, "b"), run(tmp_path, "b")) for _ in range(2)]
        (tmp_path / "streameval.py").write_text("raise SystemExit('no')\n")
        with pytest.raises(RuntimeError, match="no"):
            run(tmp_path, "b")
    assert not base.exists()
    assert compared(rounds) == ["| b | it | n | 10 | 15 | 1.500 (1.500, 1.500) |"]


def test_every_benchmark_can_be_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "nothing"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stderr.strip().startswith("unknown benchmark 'nothing'; there are pipeline,"), done.stderr
    for path in sorted((ROOT / "benchmarks").glob("*.py")):
        if not path.stem.startswith("_") and "def main() -> None:" in path.read_text():
            assert path.stem in done.stderr
