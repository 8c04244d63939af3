"""The test files that a change is most likely to break: `python -m tests.changed [BASE]`, one a line.

What differs from BASE (default: where this branch left main), committed or not, decides:

- a test file: itself;
- a module or a helper of tests: the tests that import it, or import what imports it, and those in the folder that mirrors its own;
- anything else (page, docs, deploy, ...): the tests of its folder.

It is a choice, not a proof: `make test` runs everything.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("streameval", "tests", "benchmarks", "dashboards", "docs", "deploy")
STEPS = 2  # imports between a module and the tests that are chosen for it; with more, everything comes through app.py
# what no import tells
FOLDERS = {
    "streameval/server/page": ("tests/browser", "tests/server"),
    "docs": ("tests/docs",),
    "deploy": ("tests/deploy",),
    "dashboards": ("tests/dashboards",),
    "README.md": ("tests/docs",),
}


def changed_files(base: str) -> list[str]:
    """Paths that differ from `base` or are new, relative to the repository."""

    def git(*arguments: str) -> list[str]:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    fork = git("merge-base", base, "HEAD")[0]
    return sorted({*git("diff", "--name-only", fork), *git("ls-files", "--others", "--exclude-standard")})


def imports(root: Path = ROOT) -> dict[str, set[str]]:
    """File -> the files of ours that it imports."""
    files = [p.relative_to(root) for room in ROOMS for p in (root / room).rglob("*.py")]
    by_name = {".".join(p.with_suffix("").parts).removesuffix(".__init__"): str(p) for p in files}
    out: dict[str, set[str]] = {}
    for path in files:
        names: set[str] = set()
        for node in ast.walk(ast.parse((root / path).read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        out[str(path)] = {by_name[name] for name in names if name in by_name}
    return out


def choose(changed: Iterable[str], graph: dict[str, set[str]], steps: int = STEPS) -> list[str]:
    """The test files for these changes."""
    users: dict[str, set[str]] = {}
    for user, used in graph.items():
        for one in used:
            users.setdefault(one, set()).add(user)
    tests = {path for path in graph if Path(path).name.startswith("test_")}
    chosen: set[str] = set()
    for path in changed:
        reached = near = {path}
        for _ in range(steps):
            near = {user for one in near for user in users.get(one, ())} - reached
            reached = reached | near
        chosen |= reached & tests
        folders = [of for start, of in FOLDERS.items() if path == start or path.startswith(start + "/")]
        mirror = Path("tests", *Path(path).parent.parts[1:]) if path.startswith("streameval/") else None
        for folder in [f for of in folders for f in of] + (
            [str(mirror)] if mirror not in (None, Path("tests")) else []
        ):
            chosen |= {test for test in tests if test.startswith(f"{folder}/")}
    return sorted(chosen)


if __name__ == "__main__":
    differing = changed_files(sys.argv[1] if len(sys.argv) > 1 else "main")
    if differing:  # else nothing has to be parsed
        print("\n".join(choose(differing, imports())))
