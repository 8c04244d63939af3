"""Markdown as this repository writes it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_MADE = "<!-- made by `python -m docs.make`; do not edit -->"


def whole(title: str, introduction: str, parts: Iterable[str]) -> str:
    """A page that says where it comes from."""
    return f"# {title}\n\n{_MADE}\n\n{introduction}\n{''.join(parts)}".rstrip("\n") + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; a `|` within a cell is escaped."""
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"


def code(text: object) -> str:
    """As code; nothing stays nothing."""
    return f"`{text}`" if str(text) else ""


def one_line(text: str) -> str:
    """A docstring without its line breaks."""
    return " ".join(text.split())
