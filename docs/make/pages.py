"""Which pages there are in docs/reference/, and their text as of now."""

from __future__ import annotations

from pathlib import Path

from docs.make import commands, configuration, http, prometheus

FOLDER = Path(__file__).parents[1] / "reference"


def made() -> dict[str, str]:
    """File name -> text of every page in `FOLDER`."""
    return {
        "configuration.md": configuration.page(),
        "streameval.schema.json": configuration.schema(),
        "http.md": http.page(),
        "prometheus.md": prometheus.page(),
        "commands.md": commands.page(),
    }
