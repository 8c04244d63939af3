"""Stores what benchmarks print in the repository, by commit, and plots it.

    python -m benchmarks record NAME ...                    appends this commit's numbers to results.jsonl
    python -m benchmarks record --of COMMIT --of COMMIT NAME ...    those of other commits, by their own benchmarks, measured now
    python -m benchmarks plot                               plots results.jsonl again: docs/pictures/speed.svg and scaling.svg

A line is one number, with its commit and date, the time and machine of the measurement, and its place in the table. Numbers of
several runs of a commit are all kept. Only ratios to a rival in the same run can be compared between machines; these are plotted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import curves
from benchmarks.against import ROOT, run, tree_of
from benchmarks.plot import draw
from benchmarks.printed import Place

RESULTS = Path(__file__).parent / "results.jsonl"
PICTURES = {"speed.svg": draw, "scaling.svg": curves.draw}  # in docs/pictures


def machine() -> str:
    """The processor's name and the number of cores."""
    name = "unknown processor"
    information = Path("/proc/cpuinfo")
    if information.exists():
        names = [line.split(":", 1)[1].strip() for line in information.read_text().splitlines() if "model name" in line]
        name = names[0] if names else name
    return f"{name}, {os.cpu_count()} cores"


def commit_of(tree: Path) -> dict[str, str]:
    """A tree's commit, with a "+" if there are uncommitted changes, and its date."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", str(tree), *arguments], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "streameval", "benchmarks/*.py")
    return {
        "commit": git("rev-parse", "--short=10", "HEAD") + ("+" if changed else ""),
        "date": git("log", "-1", "--format=%cI"),
    }


def lines(commit: dict[str, str], found: dict[Place, float]) -> list[dict[str, Any]]:
    """The lines to store of a run."""
    at = {"measured": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine()}
    return [commit | at | place._asdict() | {"value": value} for place, value in found.items()]


def read(path: Path = RESULTS) -> list[dict[str, Any]]:
    """All stored lines, in the order of the file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def keep(some: Iterable[dict[str, Any]], path: Path = RESULTS) -> None:
    """Adds lines to the file."""
    with path.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in some)


def plot() -> None:
    """Plots all stored lines."""
    for name, drawing in PICTURES.items():
        path = ROOT / "docs" / "pictures" / name
        path.write_text(drawing(read()))
        print(f"{path.relative_to(ROOT)}: drawn")


def main(arguments: Sequence[str]) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks record", description=__doc__)
    parser.add_argument("names", metavar="NAME", nargs="+", help="benchmarks")
    parser.add_argument("--of", metavar="COMMIT", action="append", default=[], help="another commit instead")
    given = parser.parse_args(arguments)
    for commit in given.of or [None]:
        for name in given.names:
            if commit is None:
                found = lines(commit_of(ROOT), run(ROOT, name))
            else:
                with tree_of(commit) as tree:
                    found = lines(commit_of(tree), run(tree, name))
            keep(found)
            print(f"{found[0]['commit'] if found else commit}: {len(found)} numbers of {name}", file=sys.stderr)
    plot()
