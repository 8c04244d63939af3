"""The dashboards as they are in their files, and what is in them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "dashboards"
FILES = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
_SELECTOR = re.compile(r"(?P<name>[A-Za-z_:][\w:]*)\{(?P<matchers>[^{}]*)\}(?:\[(?P<range>[^\]]+)\])?")
_NO_SELECTOR = re.compile(
    r'"[^"]*"|\[[^\]]*\]|\{[^{}]*\}|\b(?:by|on|ignoring|group_left|group_right)\s*\([^)]*\)|\$\w+'
)
_WORDS = {"and", "or", "unless", "offset", "bool", "by", "on", "ignoring", "group_left", "group_right", "without"}


@dataclass(frozen=True, slots=True)
class Selector:
    """A selector in a query: its metric, matchers, range (or ""), and the function around it (or "")."""

    name: str
    matchers: str
    range: str
    call: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A query of a dashboard; `place` says where it is."""

    place: str
    panel: Mapping[str, Any]
    expr: str
    legend: str
    instant: bool


def panels(dashboard: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """All panels, those in rows too, without the rows themselves."""
    for one in dashboard["panels"]:
        if one["type"] == "row":
            yield from one["panels"]
        else:
            yield one


def queries(name: str) -> Iterator[Asked]:
    """The queries of a dashboard's panels."""
    for panel in panels(FILES[name]):
        for target in panel.get("targets", []):
            place = f"{name} / {panel['type']} {panel['title']} / {target['refId']}"
            yield Asked(place, panel, target["expr"], target["legendFormat"], target["instant"])


def annotations(name: str) -> Iterator[Asked]:
    """The queries of its annotations."""
    for one in FILES[name]["annotations"]["list"]:
        yield Asked(
            f"{name} / annotation {one['name']}", one, one["expr"], one["titleFormat"] + one["textFormat"], False
        )


def variables(name: str) -> dict[str, dict[str, Any]]:
    """Its variables by name."""
    return {variable["name"]: variable for variable in FILES[name]["templating"]["list"]}


def label_values(query: str) -> tuple[str, str]:
    """Selector and label of `label_values(selector, label)`."""
    found = re.fullmatch(r"label_values\((.*),\s*(\w+)\)", query)
    assert found, query
    return found[1], found[2]


def selectors(expr: str) -> list[Selector]:
    """Its selectors; all of ours have braces, which `bare` makes sure of."""
    found = []
    for match in _SELECTOR.finditer(expr):
        around = re.search(r"(\w+)\($", expr[: match.start()])
        found.append(Selector(match["name"], match["matchers"], match["range"] or "", around[1] if around else ""))
    return found


def bare(expr: str) -> set[str]:
    """Names of metrics that are asked for without a matcher."""
    rest = _NO_SELECTOR.sub(" ", _SELECTOR.sub(" ", expr))
    return set(re.findall(r"\b[a-zA-Z_:][\w:]*\b(?!\s*\()", rest)) - _WORDS
