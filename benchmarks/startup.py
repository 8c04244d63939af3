"""The time from the start of a process to the first batch, with Numba's cache warm and cold."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

_CODE = """
import time
from streameval.testing import readers_see
from streameval.settings.tree import Settings
from streameval.loop.pipeline import Pipeline
from benchmarks.events import Events
settings = Settings.model_validate({"slices": {"dimensions": ["country", "device"]}, "models": [{"name": "ftrl", "kind": "ftrl"}]})
pipeline = Pipeline(settings, time.time)
events = Events(20000)
events.name_slices(pipeline.catalog)
for batch in events.batches(pipeline.catalog, 10000):
    pipeline.take(batch)
pipeline.finish()
readers_see(pipeline)
"""


_START = """
from streameval import app
from streameval.loop.preparing import kernel_parts
from streameval.process.compiling import Compiling
from streameval.settings.tree import Settings
first, later, of_json, _ = kernel_parts()
with Compiling(first, [*later, *of_json], helpers={helpers}, few=0):
    app._warm_up(first={first}, settings=Settings.model_validate({{"slices": {{"dimensions": ["country"]}}, "models": [{{"name": "ftrl", "kind": "ftrl"}}]}}))
"""


def once(cache: str | None, code: str = _CODE) -> float:
    """Seconds that a new process takes."""
    environment = dict(os.environ)
    if cache:
        environment["NUMBA_CACHE_DIR"] = cache
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    return time.perf_counter() - begin


def first_start(helpers: int | None, first: bool = False) -> float:
    """Seconds until every kernel of a start is ready, or those for the `first` batch, with an empty cache.

    `helpers` None: as many as a start uses on this machine.
    """
    with tempfile.TemporaryDirectory() as cache:
        return once(cache, _START.format(helpers=helpers, first=first))


def main() -> None:
    """Prints the table."""
    with tempfile.TemporaryDirectory() as cache:
        cold = once(cache)
        warm = sorted(once(cache) for _ in range(3))[1]
    alone, helped, first = first_start(0), first_start(None), first_start(None, first=True)
    print("| what | seconds | limit |")
    print("|---|---|---|")
    print(f"| import, first batches and a snapshot, cache warm | {warm:.2f} | 3 |")
    print(f"| the same, cache cold (every kernel compiled) | {cold:.1f} | |")
    print(f"| a first start's kernels, compiled by one process | {alone:.1f} | |")
    print(f"| with its helpers ({os.cpu_count()} cores) | {helped:.1f} | |")
    print(f"| of these, until events are read: what the first batch needs | {first:.1f} | 10 |")
