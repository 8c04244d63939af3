"""Plots how cost grows: the newest stored numbers of `scaling`, a panel for everything that grows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from html import escape
from typing import Any

from benchmarks.plot import COLOURS, ticks

WIDTH, HEIGHT = 290, 210  # of a panel
LEFT, RIGHT, TOP, BOTTOM = 52, 16, 44, 44
ACROSS = 3
COLUMN = "ns a score"


def curves(kept: Sequence[dict[str, Any]]) -> dict[str, list[tuple[int, float]]]:
    """By what grows: its sizes and the median ns a score, of the last measured commit."""
    ours = [line for line in kept if line["benchmark"] == "scaling" and line["column"] == COLUMN]
    found: dict[str, dict[int, list[float]]] = {}
    for line in ours:
        if line["commit"] == ours[-1]["commit"]:
            what, size = line["row"].split(": ")
            found.setdefault(what, {}).setdefault(int(size.replace(",", "")), []).append(line["value"])
    return {
        what: [(size, statistics.median(values)) for size, values in sorted(points.items())]
        for what, points in found.items()
    }


def draw(kept: Sequence[dict[str, Any]]) -> str:
    """An SVG of all panels."""
    found = curves(kept)
    width, height = WIDTH * ACROSS, HEIGHT * -(-len(found) // ACROSS)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="system-ui, sans-serif" font-size="12" fill="#222">',
        "  <title>Processor time per score, by what grows</title>",
        f'  <rect width="{width}" height="{height}" rx="8" fill="#fff"/>',
    ]
    most = max((ns for points in found.values() for _, ns in points), default=1.0) * 1.15
    for number, (what, points) in enumerate(found.items()):
        out += _panel(what, points, most, WIDTH * (number % ACROSS), HEIGHT * (number // ACROSS))
    return "\n".join([*out, "</svg>", ""])


def _panel(what: str, points: Sequence[tuple[int, float]], most: float, left: int, top: int) -> list[str]:
    first, last = math.log10(points[0][0]), math.log10(points[-1][0])
    bottom, high = top + HEIGHT - BOTTOM, HEIGHT - TOP - BOTTOM

    def x(size: int) -> float:
        return left + LEFT + 14 + (WIDTH - LEFT - RIGHT - 34) * (math.log10(size) - first) / (last - first or 1.0)

    def y(ns: float) -> float:
        return bottom - high * ns / most

    out = [f'  <text x="{left + LEFT}" y="{top + 24}" font-weight="600">{escape(what)}: ns a score</text>']
    for tick in ticks(most):
        out.append(f'  <path d="M{left + LEFT} {y(tick):.1f}H{left + WIDTH - RIGHT}" stroke="#ddd"/>')
        out.append(f'  <text x="{left + LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>')
    way = " L".join(f"{x(size):.1f} {y(ns):.1f}" for size, ns in points)
    out.append(f'  <path d="M{way}" fill="none" stroke="{COLOURS[0]}" stroke-width="2"/>')
    for size, ns in points:
        out.append(f'  <circle cx="{x(size):.1f}" cy="{y(ns):.1f}" r="3.5" fill="{COLOURS[0]}"/>')
        out.append(f'  <text x="{x(size):.1f}" y="{y(ns) - 9:.1f}" text-anchor="middle" font-size="11">{ns:.0f}</text>')
        out.append(
            f'  <text x="{x(size):.1f}" y="{bottom + 18}" text-anchor="middle" font-size="11">{_short(size)}</text>'
        )
    return out


def _short(size: int) -> str:
    for unit, letter in ((1_000_000, "M"), (1_000, "k")):
        if size >= unit:
            return f"{size / unit:g} {letter}"
    return str(size)
