"""Text for a terminal: rows in columns, durations, and untrusted names without control characters."""

from __future__ import annotations

from collections.abc import Sequence


def printable(text: str) -> str:
    """The text with terminal control characters replaced."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def duration(seconds: float) -> str:
    """Whole units, as on the page: "90 s", "3 min", "20 h", "10 d"."""
    for most, unit, size in ((120, "s", 1), (7_200, "min", 60), (172_800, "h", 3_600)):
        if seconds < most:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds // 86_400:.0f} d"


def columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """A line per row; all but the last column padded to the widest."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    return ["  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[-1]]) for row in rows]
