"""Reads the tables that benchmarks print, so that two commits that print the same tables can be compared, whatever they measure."""

from __future__ import annotations

import re
from typing import NamedTuple

_NUMBER = re.compile(r"^[^\d\-|]{0,2}(-?[\d,]*\.?\d+)\s*(ns|us|ms|s|kB|MB|GB|k|M|G|million)?\b")
_UNITS = {
    "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "k": 1e3, "M": 1e6, "G": 1e9, "million": 1e6,
}  # fmt: skip


class Place(NamedTuple):
    """The place of a number in the tables."""

    benchmark: str
    row: str
    column: str


def numbers(text: str) -> dict[Place, float]:
    """The first number of every cell, in plain units; the first cell of a row, and those without a number, are the row's name.

    Rows of the same name are numbered.
    """
    found: dict[Place, float] = {}
    called: dict[tuple[str, str, str], int] = {}
    benchmark, head, before = "", list[str](), list[str]()
    for line in text.splitlines():
        if line.startswith("== "):
            benchmark = line[3:].strip()
        if not (line.startswith("|") and line.rstrip().endswith("|")):
            before = []
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if all(set(cell) <= {"-", ":"} for cell in cells) and before:
            head = before
            continue
        before = cells
        if len(cells) != len(head):
            continue
        values = [None, *(_NUMBER.match(cell) for cell in cells[1:])]
        row = ", ".join(cell for cell, value in zip(cells, values, strict=True) if value is None and cell)
        times = called[benchmark, head[0], row] = called.get((benchmark, head[0], row), 0) + 1
        for column, value in zip(head, values, strict=True):
            if value is not None:
                name = row if times == 1 else f"{row} ({times})"
                found[Place(benchmark, name, column)] = float(value[1].replace(",", "")) * _UNITS.get(value[2], 1.0)
    return found
