"""The benchmarks are no part of a test, but a change of the program must not leave one behind that cannot even begin."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import curves, errors, plot, record
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


def test_what_is_kept_of_a_commit_is_read_back_and_drawn(tmp_path: Path) -> None:
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t.example", "-C", str(tmp_path)]
    (tmp_path / "streameval").mkdir()
    (tmp_path / "streameval" / "a.py").write_text("one\n")
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *arguments], check=True)
    clean = record.commit_of(tmp_path)
    (tmp_path / "streameval" / "a.py").write_text("two\n")
    changed = record.commit_of(tmp_path)
    assert changed == {**clean, "commit": clean["commit"] + "+"}

    column = "against River in the same round: median (least, most)"
    file = tmp_path / "results.jsonl"
    for commit, value in ((clean, 20.0), (clean, 22.0), (clean, 30.0), (changed, 99.0)):
        record.keep(record.lines(commit, {Place("pipeline", "streameval: the same, logged", column): value}), file)
    kept = record.read(file)
    assert [line["value"] for line in kept] == [20.0, 22.0, 30.0, 99.0]
    assert plot.series(kept, plot.PANELS[0], "streameval: the same") == [(clean["date"], clean["commit"], 22.0)]
    drawing = ElementTree.fromstring(plot.draw(kept))
    words = [text.text for text in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert "22" in words
    assert clean["commit"][:7] in words
    assert "99" not in words


def test_how_cost_grows_is_drawn_of_the_last_commit() -> None:
    row = {"benchmark": "scaling", "column": curves.COLUMN}
    kept = [
        {**row, "commit": commit, "row": f"{what}: {size:,}", "value": value}
        for commit, what, size, value in (
            ("old", "users", 1_000, 1.0), ("new", "users", 1_000, 300.0), ("new", "users", 1_000, 340.0),
            ("new", "users", 1_000, 310.0), ("new", "users", 100_000, 400.0), ("new", "slice values", 20, 500.0),
        )
    ]  # fmt: skip
    assert curves.curves(kept) == {"users": [(1_000, 310.0), (100_000, 400.0)], "slice values": [(20, 500.0)]}
    words = [text.text for text in ElementTree.fromstring(curves.draw(kept)).iter("{http://www.w3.org/2000/svg}text")]
    assert {"users: ns a score", "310", "1 k", "100 k", "slice values: ns a score"} <= set(words)
    assert curves.draw([])


def test_every_benchmark_can_be_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "nothing"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stderr.strip().startswith("unknown benchmark 'nothing'; there are pipeline,"), done.stderr
    for path in sorted((ROOT / "benchmarks").glob("*.py")):
        if not path.stem.startswith("_") and "def main() -> None:" in path.read_text():
            assert path.stem in done.stderr


def test_standard_errors_are_judged_by_how_values_vary(capsys: pytest.CaptureFixture[str]) -> None:
    errors.main(["--users", "40", "--repetitions", "3"])
    rows = [line.split("|")[1].strip() for line in capsys.readouterr().out.splitlines() if " +- " in line]
    assert tuple(rows[: len(errors.FIRST)]) == errors.FIRST
    assert {"auc", "policy_mean_weight", "dcg_5_ips", "mainline_click_yield", "value_per_user"} <= set(rows)
