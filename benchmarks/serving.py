"""/metrics at about 500 series, while the same process ingests flat out."""

from __future__ import annotations

import threading
import time
import urllib.request
from dataclasses import replace

import numpy as np

from benchmarks.events import Events
from benchmarks.pipeline import settings
from streameval import __version__
from streameval.app import PUBLISH_SHARE, new_publisher
from streameval.config import Slices
from streameval.events import Batch
from streameval.pipeline import Pipeline
from streameval.server.app import create_app
from streameval.server.serve import serve


def later(batch: Batch, number: int) -> Batch:
    """The same batch three hours later for every `number`, with ids of its own: traffic without an end."""
    shift, other = number * 10_800_000, np.uint64(number) << np.uint64(32)
    imp, clicks = batch.impressions, batch.clicks
    return replace(
        batch,
        impressions=replace(imp, ts=imp.ts + shift, id=imp.id ^ other),
        clicks=replace(clicks, ts=clicks.ts + shift, id=clicks.id ^ other),
    )


def main() -> None:
    """Prints the table."""
    tree = settings(False).model_copy(update={"slices": Slices(dimensions=("country",))})
    events = Events(1_000_000)
    publisher = new_publisher(tree)
    server = serve(create_app(publisher, tree.server, version=__version__), "127.0.0.1", 0)
    stop = threading.Event()
    done = [0]

    pipeline = Pipeline(tree, time.time)
    events.name_slices(pipeline.catalog)
    batches = list(events.batches(pipeline.catalog, 10_000))

    def ingest() -> None:
        due, number = 0.0, 0
        while True:
            for batch in batches:
                if stop.is_set():
                    return
                pipeline.take(later(batch, number))
                done[0] += len(batch.impressions)
                now = time.monotonic()
                if now >= due:
                    publisher.publish(pipeline.snapshot())
                    due = now + max(1.0, PUBLISH_SHARE * (time.monotonic() - now))
            number += 1

    thread = threading.Thread(target=ingest, daemon=True)
    thread.start()
    time.sleep(8)
    taken: list[float] = []
    body = b""
    begin, at = time.monotonic(), done[0]
    for _ in range(200):
        t = time.perf_counter()
        with urllib.request.urlopen(f"{server.url}/metrics", timeout=30) as answer:
            body = answer.read()
        taken.append(time.perf_counter() - t)
        time.sleep(0.02)
    rate = (done[0] - at) / (time.monotonic() - begin)
    stop.set()
    thread.join()
    server.stop()
    taken.sort()
    series = sum(1 for line in body.splitlines() if line and not line.startswith(b"#"))
    print("| what | measured | limit |")
    print("|---|---|---|")
    print(f"| /metrics with {series} series, p50 | {taken[100] * 1e3:.1f} ms | |")
    print(f"| /metrics with {series} series, p99 | {taken[197] * 1e3:.1f} ms | 50 ms |")
    print(f"| ingest meanwhile | {rate:,.0f} impressions/s | |")
