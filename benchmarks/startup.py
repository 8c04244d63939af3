"""The time from the start of a process to the first batch, with Numba's cache warm and cold."""

from __future__ import annotations

import math
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from statistics import median

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


def until_answers() -> tuple[float, float]:
    """Seconds from the command until the HTTP side answers, and until it does so with the page; without brokers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "streameval.toml")
        config.write_text(f'[kafka]\nbootstrap_servers = "127.0.0.1:1"\n[server]\nport = {port}\n')
        begin, first, page = time.perf_counter(), math.inf, math.inf
        command = [sys.executable, "-m", "streameval", "run", "-c", str(config)]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            while process.poll() is None:
                with suppress(urllib.error.URLError), urllib.request.urlopen(f"http://127.0.0.1:{port}/livez"):
                    first = min(first, time.perf_counter() - begin)
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/"):
                        page = time.perf_counter() - begin
                        break
                time.sleep(0.005)
            process.terminate()
    return first, page


def main() -> None:
    """Prints the table."""
    with tempfile.TemporaryDirectory() as cache:
        cold = once(cache)
        warm = sorted(once(cache) for _ in range(3))[1]
    answers, page = map(median, zip(*(until_answers() for _ in range(5)), strict=True))
    alone, helped, first = first_start(0), first_start(None), first_start(None, first=True)
    print("| what | seconds | limit |")
    print("|---|---|---|")
    print(f"| until HTTP is answered | {answers:.2f} | 1 |")
    print(f"| until it is answered with the page | {page:.2f} | |")
    print(f"| import, first batches and a snapshot, cache warm | {warm:.2f} | 3 |")
    print(f"| the same, cache cold (every kernel compiled) | {cold:.1f} | |")
    print(f"| a first start's kernels, compiled by one process | {alone:.1f} | |")
    print(f"| with its helpers ({os.cpu_count()} cores) | {helped:.1f} | |")
    print(f"| of these, until events are read: what the first batch needs | {first:.1f} | 10 |")
