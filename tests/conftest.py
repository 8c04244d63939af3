"""Order of the tests among several processes; no example of Hypothesis has a deadline: other jobs want the processor too.

What modules make is left out of garbage collection, which else looks through millions of objects again and again: while they
are imported, too, for nearly all of it stays. Memory that tests free goes back to the system, as it does in the program: without
that, a process that had run many pipelines held 4 GB, seven eighths of them free.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator

import pytest
from hypothesis import settings

from streameval.process import memory

gc.disable()
memory.settle()
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

LONG = {"laws", "fuzz"}  # folders
# about 15 to 36 s of processor time each; the last of them must not begin when the others are at their ends
LONGEST = {
    "compare/test_lost_clicks.py", "server/test_fuzz.py", "laws/test_restart_laws.py", "compare/test_detection.py",
    "cold/test_cold_rows.py", "tracking/test_before_after_tracked.py", "compare/test_worlds.py", "laws/test_two_logs.py",
    "formats/test_mapped_lines.py", "formats/test_csv_columns.py", "formats/test_live_columns.py", "compare/test_further.py",
}  # fmt: skip


def pytest_collection_finish() -> None:
    """Everything is imported."""
    gc.freeze()
    gc.set_threshold(20_000)
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest files come first, then those with slow tests: in the end, no process is left alone with one of them."""
    if not hasattr(config, "workerinput"):
        return
    slow = {item.path for item in items if item.get_closest_marker("slow") or LONG.intersection(item.path.parts)}
    items.sort(key=lambda item: ("/".join(item.path.parts[-2:]) not in LONGEST, item.path not in slow))


@pytest.fixture(autouse=True)
def own_log_handlers() -> Iterator[None]:
    """A command that a test calls sets up the log, whose limit on like lines rewrites those that later tests read."""
    before, level = [*logging.root.handlers], logging.root.level
    yield
    logging.root.handlers[:] = before
    logging.root.setLevel(level)
