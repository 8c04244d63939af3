"""Plots the stored benchmarks: by commit, the ratios that can be compared between machines."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

WIDTH, HEIGHT = 860, 230  # of a panel
LEFT, RIGHT, TOP, BOTTOM = 60, 30, 62, 40
COLOURS = ("#4477aa", "#ee6677", "#228833", "#aa3377")


@dataclass(frozen=True)
class Panel:
    """A ratio to plot: rows of a benchmark and a column, by the beginnings of their names (a renamed column has several)."""

    title: str
    benchmark: str
    column: str | tuple[str, ...]
    rows: dict[str, str]  # beginning of the row's name: its name in the plot


PANELS = (
    Panel(
        "times River, impressions per second, in the same run", "pipeline", "against River",
        {
            "streameval: join, FTRL, users": "with FTRL", "streameval: from Arrow": "from Arrow messages",
            "streameval: the same, logged": "logged pClick only",
        },
    ),
    Panel(
        "what comparisons of 3 versions make of the loop's processor time (1: nothing)", "compare", ("ratio of user", "best to best"),
        {"8,333": "8,333 impressions a minute", "33,333": "33,333 impressions a minute"},
    ),
)  # fmt: skip


def series(kept: Sequence[dict[str, Any]], panel: Panel, begins: str) -> list[tuple[str, str, float]]:
    """(date, commit, median of its runs) of a row, by date; trees with uncommitted changes are left out."""
    found: dict[tuple[str, str], list[float]] = {}
    for line in kept:
        here = line["benchmark"] == panel.benchmark and line["column"].startswith(panel.column)
        if here and line["row"].startswith(begins) and not line["commit"].endswith("+"):
            found.setdefault((line["date"], line["commit"]), []).append(line["value"])
    return [(date, commit, statistics.median(values)) for (date, commit), values in sorted(found.items())]


def draw(kept: Sequence[dict[str, Any]]) -> str:
    """An SVG of all panels, one below the other."""
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT * len(PANELS)}" font-family="system-ui, sans-serif" font-size="13" fill="#222">',
        "  <title>Speed by commit</title>",
        f'  <rect width="{WIDTH}" height="{HEIGHT * len(PANELS)}" rx="8" fill="#fff"/>',
    ]
    for number, panel in enumerate(PANELS):
        out += _panel(
            panel, {name: series(kept, panel, begins) for begins, name in panel.rows.items()}, HEIGHT * number
        )
    return "\n".join([*out, "</svg>", ""])


def _panel(panel: Panel, lines: dict[str, list[tuple[str, str, float]]], top: int) -> list[str]:
    commits = sorted({(date, commit) for line in lines.values() for date, commit, _ in line})
    values = [value for line in lines.values() for _, _, value in line]
    out = [f'  <text x="{LEFT}" y="{top + 24}" font-weight="600">{escape(panel.title)}</text>']
    if not values:
        return [*out, f'  <text x="{LEFT}" y="{top + 60}">nothing is kept</text>']
    most = max(values) * 1.1
    bottom, high = top + HEIGHT - BOTTOM, HEIGHT - TOP - BOTTOM

    def x(number: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (number + 0.5) / len(commits)

    def y(value: float) -> float:
        return bottom - high * value / most

    for tick in ticks(most):
        out.append(f'  <path d="M{LEFT} {y(tick):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        out.append(f'  <text x="{LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for number, (date, commit) in enumerate(commits):
        out.append(
            f'  <text x="{x(number):.1f}" y="{bottom + 16}" text-anchor="middle" font-size="11">{escape(commit[:7])}</text>'
        )
        out.append(
            f'  <text x="{x(number):.1f}" y="{bottom + 30}" text-anchor="middle" font-size="11" fill="#555">{escape(date[:10])}</text>'
        )
    for number, (name, line) in enumerate(lines.items()):
        colour = COLOURS[number]
        beside, anchor = (8, "start") if number % 2 == 0 else (-8, "end")
        places = [(x(commits.index((date, commit))), y(value), value) for date, commit, value in line]
        if places:
            way = " L".join(f"{a:.1f} {b:.1f}" for a, b, _ in places)
            out.append(f'  <path d="M{way}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for a, b, value in places:
            out.append(
                f'  <circle cx="{a:.1f}" cy="{b:.1f}" r="3.5" fill="{colour}"><title>{escape(name)}: {value:.3g}</title></circle>'
            )
            out.append(
                f'  <text x="{a + beside:.1f}" y="{b + 4:.1f}" text-anchor="{anchor}" font-size="11" fill="{colour}">{value:.3g}</text>'
            )
        out.append(f'  <circle cx="{LEFT + 6 + 240 * number}" cy="{top + 42}" r="4" fill="{colour}"/>')
        out.append(f'  <text x="{LEFT + 16 + 240 * number}" y="{top + 46}">{escape(name)}</text>')
    return out


def ticks(most: float) -> list[float]:
    """A few round numbers from 0 to `most`."""
    step = next(s * 10.0**e for e in range(-3, 6) for s in (1, 2, 5) if most / (s * 10.0**e) <= 5)
    return [step * i for i in range(int(most / step) + 1)]
