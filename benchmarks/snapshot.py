"""The cost of a snapshot: 4 versions, 6 countries, 3 windows, so 84 results. Processor time of all threads."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from prometheus_client import generate_latest
from prometheus_client.registry import CollectorRegistry

from benchmarks.events import SERIES, Events
from streameval.app import new_publisher
from streameval.events.batch import Batch, Catalog, Shadow
from streameval.loop.pipeline import Pipeline
from streameval.results.snapshot import Snapshot
from streameval.server.api.answers import encode
from streameval.server.api.overview import overview
from streameval.server.prometheus.collector import SnapshotCollector
from streameval.settings.tree import Settings
from streameval.testing import readers_see

EVENTS = 400_000
BATCH = 10_000
COUNTRIES = 6
SHADOWS = ("v2", "v3", "v4")
LIMIT = 61.0  # ms, of a snapshot without new events


def _settings() -> Settings:
    return Settings.model_validate(
        {
            "join": {"correction_horizon": "15m", "attribution_window": "2m"},
            "windows": {"sliding": ["5m", "1h"]},
            "slices": {"dimensions": ["country"]},
        }
    )


def _batches(events: Events, catalog: Catalog) -> Iterator[Batch]:
    """Every impression with the pClicks of three shadow versions."""
    rng = np.random.default_rng(0)
    catalog.series_code(*SERIES)
    codes = np.array([catalog.series_code("ctr", version) for version in SHADOWS], np.int32)
    for batch in events.batches(catalog, BATCH, learn=False):
        p = batch.impressions.pclick
        logit = np.log(p / (1 - p))[:, None] + rng.normal(0, 0.2, (p.size, codes.size))
        indptr = np.arange(p.size + 1) * codes.size
        shadow = Shadow(indptr, np.tile(codes, p.size), 1 / (1 + np.exp(-logit.ravel())))
        yield replace(batch, impressions=replace(batch.impressions, shadow=shadow))


def main() -> None:
    """Prints the table: the best and the median of a stream's second half, since disturbances only ever add time."""
    events = Events(EVENTS)
    events.country = (events.country - 2) % COUNTRIES + 2
    tree = _settings()
    pipeline = Pipeline(tree, time.time)
    for value in range(COUNTRIES):
        pipeline.catalog.value_code(0, str(value))
    batches = list(_batches(events, pipeline.catalog))
    half = len(batches) // 2
    for batch in batches[:half]:
        pipeline.take(batch)
    publisher = new_publisher(tree)
    collector = CollectorRegistry()
    collector.register(SnapshotCollector(publisher, version="0", version_ttl=1e18, max_series=100_000))
    seen: dict[str, list[float]] = {}

    def timed(what: str, begin: float) -> None:
        seen.setdefault(what, []).append((time.process_time() - begin) * 1e3)

    snapshot: Snapshot | None = None
    for further in [None, *batches[half:]]:
        if further is not None:
            pipeline.take(further)
        pipeline.history_rows(())
        for part in pipeline.partitions.values():
            part.show()
        pipeline._background.wait()  # counting is not part of the snapshot
        begin = time.process_time()
        readers_see(pipeline)
        timed("windows moved on by 10,000 impressions", begin)
        begin = time.process_time()
        snapshot = readers_see(pipeline)
        timed("nothing new", begin)
        publisher.publish(snapshot)
        begin = time.process_time()
        generate_latest(collector)
        timed("a scrape of /metrics", begin)
        begin = time.process_time()
        encode(overview(snapshot))
        timed("an event of /api/v1/stream", begin)
        begin = time.process_time()
        json.dumps(snapshot.report(), default=str)
        timed("the whole report as JSON", begin)
    assert snapshot is not None
    print(f"| a snapshot of {len(snapshot.results)} results | CPU ms, least | median | limit |")
    print("|---|---|---|---|")
    for what, taken in seen.items():
        ordered = sorted(taken[1:])  # the first one compiles
        limit = f"{LIMIT:.0f}" if what == "nothing new" else ""
        print(f"| {what} | {ordered[0]:.1f} | {ordered[len(ordered) // 2]:.1f} | {limit} |")
