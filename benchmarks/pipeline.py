"""The whole in-memory pipeline against River's `progressive_val_score` on the same events."""

from __future__ import annotations

import gc
import io
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.ipc
from river import evaluate, linear_model, metrics

from benchmarks.events import SERIES, Events
from streameval.app import make_decoder
from streameval.events.batch import Batch
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings
from streameval.testing import readers_see

EVENTS = 3_000_000
BATCH = 20_000
RIVER_EVENTS = 40_000
ROUNDS = 7


def settings(models: bool) -> Settings:
    """Settings with two slice dimensions, default windows, and optionally FTRL."""
    tree: dict[str, object] = {"join": {"correction_horizon": "1h"}, "slices": {"dimensions": ["country", "device"]}}
    if models:
        tree["models"] = [{"name": "ftrl", "kind": "ftrl"}]
    return Settings.model_validate(tree)


def batches(events: Events, models: bool, size: int = BATCH) -> list[Batch]:
    """Decoded columns, with the codes that every pipeline of `settings` assigns."""
    catalog = Pipeline(settings(models), time.time).catalog
    events.name_slices(catalog)
    return list(events.batches(catalog, size, models))


def rate(events: Events, given: list[Batch], models: bool) -> float:
    """Impressions a second: join, (FTRL predict + learn,) all sketches, users, buckets, slices, and the final report."""
    pipeline = Pipeline(settings(models), time.time)
    events.name_slices(pipeline.catalog)
    pipeline.catalog.series_code(*SERIES)
    gc.collect()  # or freeing the previous run would count here
    begin = time.perf_counter()
    for batch in given:
        pipeline.take(batch)
    pipeline.finish()
    readers_see(pipeline, with_history=False)
    return events.n / (time.perf_counter() - begin)


def river_rate(events: Events) -> float:
    """Impressions a second of River on the same features and labels."""
    data = [(x, bool(y)) for x, y in zip(events.dicts or [], events.clicked.tolist(), strict=True)]
    begin = time.perf_counter()
    evaluate.progressive_val_score(data, linear_model.LogisticRegression(), metrics.ROCAUC() + metrics.LogLoss())
    return len(data) / (time.perf_counter() - begin)


def arrow_rate(events: Events) -> float:
    """Impressions a second from Arrow IPC messages of 10,000 (dictionary-encoded strings) through the whole loop."""
    size = 10_000
    user = pa.array((events.user % np.uint64(20_000)).astype(str))
    version, country = (
        pa.array(["v1"] * events.n).dictionary_encode(),
        pa.array(events.country.astype(str)).dictionary_encode(),
    )
    table = pa.table(
        {
            "impression_id": pa.array([f"imp-{i}" for i in range(events.n)]), "ts": events.ts, "user_id": user,
            "model_version": version, "pclick": events.pclick, "slices.country": country,
        }
    )  # fmt: skip
    values = []
    for start in range(0, events.n, size):
        sink = io.BytesIO()
        with pyarrow.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table.slice(start, size))
        values.append(sink.getvalue())
    pipeline = Pipeline(settings(False), time.time)
    decoder = make_decoder(pipeline.settings, pipeline)
    begin = time.perf_counter()
    for value in values:
        batch, _ = decoder.messages([value], [1], topic=("t",), partition=0, offsets=[0], format="arrow", shared=True)
        pipeline.take(batch)
    pipeline.finish()
    readers_see(pipeline, with_history=False)
    return events.n / (time.perf_counter() - begin)


def middle(values: list[float]) -> float:
    """The median."""
    return sorted(values)[len(values) // 2]


def main() -> None:
    """Prints the table. Rounds alternate, and ratios are medians: the machine's speed may change meanwhile."""
    small, big, few = Events(RIVER_EVENTS, dicts=True), Events(EVENTS), Events(50_000)
    for models in (True, False):
        rate(few, batches(few, models), models)  # compile
    learning, plain = batches(big, True), batches(big, False)
    ours: dict[str, Callable[[], float]] = {
        "streameval: join, FTRL, users, buckets, 2 slice dimensions (goal 20 times)": lambda: rate(big, learning, True),
        "streameval: the same, logged pClick only": lambda: rate(big, plain, False),
        "streameval: from Arrow IPC messages, logged pClick (goal 1,000,000)": lambda: arrow_rate(big),
    }
    print("| what | impressions/s | against River in the same round: median (least, most) |")
    print("|---|---|---|")
    river: list[float] = []
    for what, measure in ours.items():
        for _ in range(3):
            measure()  # touches the memory, which costs most the first time
        rounds = [(measure(), river_rate(small)) for _ in range(ROUNDS)]
        ratios = [mine / its for mine, its in rounds]
        river += [its for _, its in rounds]
        rates = middle([mine for mine, _ in rounds])
        print(f"| {what} | {rates:,.0f} | {middle(ratios):.1f} ({min(ratios):.1f}, {max(ratios):.1f}) |")
    print(f"| River progressive_val_score, LogisticRegression, ROCAUC + LogLoss | {middle(river):,.0f} | 1 |")
