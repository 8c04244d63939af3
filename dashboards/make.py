"""Writes the dashboards beside this file: `python -m dashboards.make`. Same program, same bytes."""

from __future__ import annotations

import json
from pathlib import Path

from dashboards import calibration, comparisons, lists, models, overview, pipeline
from dashboards.grafana import Json

FOLDER = Path(__file__).parent


def dashboards() -> dict[str, Json]:
    """Every dashboard by the name of its file."""
    return {
        "models.json": models.dashboard(),
        "overview.json": overview.dashboard(),
        "calibration.json": calibration.dashboard(),
        "comparisons.json": comparisons.dashboard(),
        "lists.json": lists.dashboard(),
        "pipeline.json": pipeline.dashboard(),
    }


def text(dashboard: Json) -> str:
    """As it stands in the file."""
    return json.dumps(dashboard, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for name, dashboard in dashboards().items():
        (FOLDER / name).write_text(text(dashboard), encoding="utf-8")
