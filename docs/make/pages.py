"""Which pages there are in docs/reference/, and their text as of now."""

from __future__ import annotations

import json
from pathlib import Path

from docs.make import commands, configuration, events, http, metrics, prometheus
from streameval.outlets.sinks.message_schema import message_schema

FOLDER = Path(__file__).parents[1] / "reference"


def made() -> dict[str, str]:
    """File name -> text of every page in `FOLDER`."""
    return {
        "configuration.md": configuration.page(),
        "streameval.schema.json": configuration.schema(),
        "events.md": events.page(),
        "http.md": http.page(),
        "metrics.md": metrics.page(),
        "prometheus.md": prometheus.page(),
        "commands.md": commands.page(),
        "sink-messages.schema.json": json.dumps(message_schema(), indent=1, ensure_ascii=False) + "\n",
    }
