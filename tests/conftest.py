"""Order of the tests among several processes; no example of Hypothesis has a deadline: other jobs want the processor too."""

from __future__ import annotations

import pytest
from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

LONG = {"laws", "fuzz"}  # folders


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files with slow tests come first: in the end, no process is left alone with one of them."""
    if not hasattr(config, "workerinput"):
        return
    slow = {item.path for item in items if item.get_closest_marker("slow") or LONG.intersection(item.path.parts)}
    items.sort(key=lambda item: item.path not in slow)
