"""What runbooks search the log for is something that the program says."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SEARCHES = [
    (path.stem, word)
    for path in sorted((ROOT / "docs" / "runbooks").glob("*.md"))
    for pattern in re.findall(r"journalctl[^\n]*\| grep (?:-\w+ )?['\"]?([^'\"`\n]+)", path.read_text())
    for word in pattern.split("|")
]
OTHERS = {"Traceback", "Killed"}  # of Python and of the kernel


@functools.cache
def texts() -> str:
    """Every text in the code, docstrings apart, as one."""
    found = []
    for path in (ROOT / "streameval").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n\n" not in node.value:
                found.append(node.value)
    return "\n".join(found).lower()


@pytest.mark.parametrize(("runbook", "word"), [one for one in SEARCHES if one[1] not in OTHERS])
def test_what_a_runbook_searches_the_log_for_is_said_there(runbook: str, word: str) -> None:
    assert word.strip().lower() in texts(), f"{runbook}: nothing logs {word!r}"


def test_the_searches_are_found() -> None:
    assert len(SEARCHES) >= 8
