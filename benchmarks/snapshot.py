"""The cost of a snapshot: of a fast replay (4 versions, 6 countries, 3 windows, so 84 results), and of live traffic by
versions and slice values. Processor time of all threads."""

from __future__ import annotations

import gc
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
from streameval.loop.pace import PUBLISH_SHARE
from streameval.loop.pipeline import Pipeline
from streameval.process.start import NEW_OBJECTS
from streameval.results.snapshot import Snapshot
from streameval.server.api.answers import encode
from streameval.server.api.overview import overview
from streameval.server.prometheus.collector import SnapshotCollector
from streameval.settings.tree import Settings
from streameval.testing import readers_see

EVENTS = 400_000
BATCH = 10_000
COUNTRIES = 6
VERSIONS = 4
LIMIT = 61.0  # ms, of a snapshot without new events
LIVE = ((1, 20), (4, 50), (16, 50), (64, 50), (64, 200))  # versions, slice values
MINUTES, WARM = 14, 8  # of live traffic; of which not timed
OF_A_PANE, PARTS = 5_000, 5  # impressions; snapshots in that time
BEHIND = 2.0  # seconds


def _pipeline(values: int, sliding: list[str]) -> tuple[Pipeline, Settings]:
    tree = Settings.model_validate(
        {
            "join": {"correction_horizon": "15m", "attribution_window": "2m"},
            "windows": {"sliding": sliding},
            "slices": {"dimensions": ["country"], "max_values": 200},
        }
    )
    pipeline = Pipeline(tree, time.time)
    for value in range(values):
        pipeline.catalog.value_code(0, str(value))
    return pipeline, tree


def _batches(events: Events, catalog: Catalog, size: int, versions: int) -> Iterator[Batch]:
    """Every impression with the pClicks of all versions, but for one in shadow."""
    rng = np.random.default_rng(0)
    catalog.series_code(*SERIES)
    codes = np.array([catalog.series_code("ctr", f"v{number}") for number in range(2, versions + 1)], np.int32)
    for batch in events.batches(catalog, size, learn=False):
        p = batch.impressions.pclick
        logit = np.log(p / (1 - p))[:, None] + rng.normal(0, 0.2, (p.size, codes.size))
        indptr = np.arange(p.size + 1) * codes.size
        shadow = Shadow(indptr, np.tile(codes, p.size), 1 / (1 + np.exp(-logit.ravel())))
        yield replace(batch, impressions=replace(batch.impressions, shadow=shadow))


def main() -> None:
    """Prints both tables."""
    _replay()
    print()
    _live()


def _counted(pipeline: Pipeline) -> None:
    """Waits until everything is counted: that is not part of the snapshot."""
    for part in pipeline.partitions.values():
        part.show()
    pipeline._background.wait()


def _live() -> None:
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS)
    print(
        f"| live traffic, 4 windows, {PARTS} snapshots a pane, by versions x slice values: CPU ms, median (least) | results |"
        " within a pane | when it is complete | nothing new | page behind while a backlog is read, s | at most |"
    )
    print("|---|---|---|---|---|---|---|")
    for versions, values in LIVE:
        pipeline, _ = _pipeline(values, ["5m", "1h", "1d"])
        events = Events(OF_A_PANE * MINUTES, minutes=MINUTES, countries=values)
        seen: dict[str, list[float]] = {"within": [], "complete": [], "nothing": []}
        windows_end = None
        for number, batch in enumerate(_batches(events, pipeline.catalog, OF_A_PANE // PARTS, versions), 1):
            pipeline.take(batch)
            _counted(pipeline)
            if number < WARM * PARTS:
                continue
            took, snapshot = _timed(pipeline)
            ends = {result.window_end for result in snapshot.results.overall}
            seen["within" if ends == windows_end else "complete"].append(took)
            windows_end = ends
            seen["nothing"].append(_timed(pipeline)[0])
        middle = {what: sorted(some)[len(some) // 2] for what, some in seen.items()}
        look = middle["within"] / 1e3
        behind = max(1.0, PUBLISH_SHARE * look) + look
        texts = " | ".join(f"{middle[what]:.0f} ({min(some):.0f})" for what, some in seen.items())
        print(
            f"| {versions} x {values} | {len(snapshot.results)} | {texts} | {behind:.1f} | {BEHIND:.0f} |", flush=True
        )


def _timed(pipeline: Pipeline) -> tuple[float, Snapshot]:
    begin = time.process_time()
    snapshot = readers_see(pipeline)
    return (time.process_time() - begin) * 1e3, snapshot


def _replay() -> None:
    """The best and the median of a stream's second half, since disturbances only ever add time."""
    events = Events(EVENTS)
    events.country = (events.country - 2) % COUNTRIES + 2
    pipeline, tree = _pipeline(COUNTRIES, ["5m", "1h"])
    batches = list(_batches(events, pipeline.catalog, BATCH, VERSIONS))
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
        _counted(pipeline)
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
