"""The cost of comparisons in the loop: 3 versions, one serving and two in shadow, over 20 slice values; at two rates of traffic.

Also where events are JSON, as in a topic, so that decoding is part of the work for each of them.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

import msgspec
import numpy as np

from benchmarks.events import SERIES, Events
from benchmarks.paired import BLOCKS, HEAD, Took, cells, on_one_core, took
from streameval.app import make_decoder
from streameval.compare.comparisons import Comparisons
from streameval.compare.ledger.gauc_rows import GaucRows
from streameval.compare.ledger.ledger import Ledger
from streameval.events.batch import Batch, Shadow
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings
from streameval.sources.formats.decode import Decoder
from streameval.testing import readers_see

EVENTS = 1_500_000
BATCH = 20_000
BLOCKS_OF_JSON = 2
MINUTES = (180, 45)  # of event time over which the events are spread
LIMIT = 1.15
SNAPSHOT = 10  # batches between two snapshots


def settings() -> Settings:
    """Settings with one dimension, and the defaults of comparisons."""
    return Settings.model_validate({"join": {"correction_horizon": "1h"}, "slices": {"dimensions": ["country"]}})


def batches(events: Events, size: int = BATCH) -> list[Batch]:
    """Decoded columns, every impression with the pClicks of two shadow versions."""
    pipeline = Pipeline(settings(), time.time)
    name_everything(pipeline, events)
    codes = [pipeline.catalog.series_code("ctr", version) for version in ("v2", "v3")]
    rng = np.random.default_rng(1)
    out = []
    for batch in events.batches(pipeline.catalog, size, learn=False):
        p = batch.impressions.pclick
        logit = np.log(p / (1 - p))[:, None] + rng.normal(0, 0.2, (p.size, 2))
        shadow = Shadow(
            np.arange(p.size + 1) * 2, np.tile(np.array(codes, np.int32), p.size), 1 / (1 + np.exp(-logit.ravel()))
        )
        out.append(replace(batch, impressions=replace(batch.impressions, shadow=shadow)))
    return out


def name_everything(pipeline: Pipeline, events: Events) -> None:
    """Gives names the codes that `batches` uses."""
    events.name_slices(pipeline.catalog)
    for version in ("v1", "v2", "v3"):
        pipeline.catalog.series_code("ctr", version)


@contextmanager
def comparing(on: bool) -> Iterator[None]:
    """The loop as it is, or without everything that only comparisons need."""
    if on:
        yield
        return
    with (
        patch.object(Ledger, "observe", lambda *args: None),
        patch.object(GaucRows, "due", lambda *args: []),
        patch.object(Comparisons, "advance", lambda *args: None),
        patch.object(Comparisons, "readings", lambda *args: ()),
    ):
        yield


def messages(events: Events) -> list[list[bytes]]:
    """The events of `batches`, one JSON message each."""
    numbered = Pipeline(settings(), time.time)
    name_everything(numbered, events)
    out = []
    for batch in batches(events):
        impressions, clicks = batch.impressions, batch.clicks
        shadow = impressions.shadow.pclick.reshape(-1, 2).tolist() if impressions.shadow is not None else []
        columns = zip(
            impressions.id.tolist(), impressions.ts.tolist(), impressions.user.tolist(), impressions.pclick.tolist(),
            (numbered.catalog.split(impressions.slices, 0) - 2).tolist(), shadow, strict=True,
        )  # fmt: skip
        rows: list[dict[str, object]] = [
            {
                "type": "impression", "impression_id": f"{i:016x}", "ts": ts, "user_id": f"user-{user:016x}",
                "model": SERIES[0], "model_version": SERIES[1], "pclick": p, "predictions": {"v2": v2, "v3": v3},
                "slices": {"country": str(country)},
            }
            for i, ts, user, p, country, (v2, v3) in columns
        ]  # fmt: skip
        rows += [
            {"type": "click", "impression_id": f"{i:016x}", "ts": ts}
            for i, ts in zip(clicks.id.tolist(), clicks.ts.tolist(), strict=True)
        ]
        order = np.argsort(np.concatenate((impressions.order, clicks.order)))
        out.append([msgspec.json.encode(rows[k]) for k in order.tolist()])
    return out


def decoded(decoder: Decoder, values: list[bytes]) -> Batch:
    """A batch of one partition."""
    n = len(values)
    batch, _ = decoder.messages(
        values, [0] * n, topic=("t",), partition=0, offsets=range(n), format="json", shared=True
    )
    return batch


def run(given: Sequence[Batch | list[bytes]], on: bool) -> Took:
    """Takes batches, or messages to decode, through the loop."""
    pipeline = Pipeline(settings(), time.time)
    name_everything(pipeline, Events(1))
    decoder = make_decoder(pipeline.settings, pipeline)
    with comparing(on):
        gc.collect()
        begin = took()
        for number, batch in enumerate(given):
            pipeline.take(batch if isinstance(batch, Batch) else decoded(decoder, batch))
            if number % SNAPSHOT == SNAPSHOT - 1:
                readers_see(pipeline, with_history=False)
        pipeline.finish()
        found = readers_see(pipeline, with_history=False).comparisons
        end = took().since(begin)
    assert len(found) == (2 if on else 0)
    return end


def row(minutes: int, as_json: bool = False) -> str:
    """Cells of a row."""
    events = Events(EVENTS, minutes=minutes)
    given = messages(events) if as_json else batches(events)
    return cells(run, (given, False), (given, True), events.n, BLOCKS_OF_JSON if as_json else BLOCKS)


def main() -> None:
    """Prints the table."""
    on_one_core()
    print(f"| 3 versions, 20 slice values, impressions a minute | {HEAD} limit |")
    print("|---|---|---|---|---|---|---|---|")
    for minutes in MINUTES:
        print(f"| {EVENTS // minutes:,} | {row(minutes)} | {LIMIT} |", flush=True)
    minutes = MINUTES[0]
    print(f"| {EVENTS // minutes:,}, from JSON | {row(minutes, as_json=True)} | {LIMIT} |", flush=True)
