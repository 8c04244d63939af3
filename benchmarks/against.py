"""Compares the benchmarks of this tree with those of another commit, alternating on one machine.

    python -m benchmarks against BASE [--rounds 5] NAME ...       or: make bench-compare BASE=main~5 NAMES="pipeline compare"

Each tree runs its own benchmarks with its own program, in separate processes; in every round the two run one after the other, in
alternating order, so that a lasting disturbance of the machine affects both. Prints every number that both print, and the
ratio of this tree's to that of BASE: the median over rounds, the least and the greatest.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.printed import Place, numbers

ROOT = Path(__file__).parents[1]


@contextmanager
def tree_of(commit: str, root: Path = ROOT) -> Iterator[Path]:
    """A temporary checkout of the commit."""
    with tempfile.TemporaryDirectory(prefix="streameval-base-") as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(root), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=False)


def run(tree: Path, name: str) -> dict[Place, float]:
    """Runs a benchmark of a tree; returns what it prints. Raises RuntimeError if it fails."""
    environment = os.environ | {"PYTHONPATH": str(tree)}
    command = [sys.executable, "-m", "benchmarks", name]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{tree}: {' '.join(command)}: status {done.returncode}\n{done.stderr[-2000:]}")
    return numbers(done.stdout)


def compared(rounds: Sequence[tuple[dict[Place, float], dict[Place, float]]]) -> list[str]:
    """The rows of the table, from rounds of (BASE, this tree): the numbers that every round of both has."""
    places = [place for place in rounds[0][0] if all(place in side for pair in rounds for side in pair)]
    out = []
    for place in places:
        base, here = ([pair[side][place] for pair in rounds] for side in (0, 1))
        ratios = sorted(b / a for a, b in zip(base, here, strict=True) if a)
        if ratios:
            spread = f"{statistics.median(ratios):.3f} ({ratios[0]:.3f}, {ratios[-1]:.3f})"
            out.append(
                f"| {place.benchmark} | {place.row} | {place.column} | {statistics.median(base):.6g} | "
                f"{statistics.median(here):.6g} | {spread} |"
            )
    return out


def main(arguments: Sequence[str]) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks against", description=__doc__)
    parser.add_argument("base", metavar="BASE", help="a commit")
    parser.add_argument("names", metavar="NAME", nargs="+", help="benchmarks")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args(arguments)
    with tree_of(given.base) as base:
        print(f"| benchmark | row | column | {given.base} | here | here / {given.base}: median (least, most) |")
        print("|---|---|---|---|---|---|")
        for name in given.names:
            rounds = []
            for number in range(given.rounds):
                sides = {tree: run(tree, name) for tree in ((base, ROOT) if number % 2 == 0 else (ROOT, base))}
                rounds.append((sides[base], sides[ROOT]))
                print(f"{name}: round {number + 1} of {given.rounds}", file=sys.stderr)
            print("\n".join(compared(rounds)), flush=True)
