"""Order of the tests among several processes."""

from __future__ import annotations

import pytest

LONG = {"laws", "fuzz"}  # folders


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files with slow tests come first: in the end, no process is left alone with one of them."""
    if not hasattr(config, "workerinput"):
        return
    slow = {item.path for item in items if item.get_closest_marker("slow") or LONG.intersection(item.path.parts)}
    items.sort(key=lambda item: item.path not in slow)
