"""The cost of weights of a downsampled log in the loop: the same events, counted once each and as a sample."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.compare import name_everything
from benchmarks.events import Events
from benchmarks.exposure import run
from benchmarks.paired import BLOCKS, HEAD, cells, on_one_core
from streameval.events.batch import Batch
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings

EVENTS = 2_000_000
BATCH = 20_000
LIMIT = 1.05


def settings(sampling: dict[str, Any]) -> Settings:
    """Settings with two dimensions."""
    return Settings.model_validate(
        {
            "join": {"correction_horizon": "1h"},
            "slices": {"dimensions": ["country", "device"]},
            "sampling": sampling,
        }
    )


def batches(events: Events) -> tuple[list[Batch], list[Batch]]:
    """Without and with a field `weight`: 1 of a click, 5 to 50 of a non-click."""
    rng = np.random.default_rng(3)
    pipeline = Pipeline(settings({}), time.time)
    name_everything(pipeline, events)
    plain = list(events.batches(pipeline.catalog, BATCH, learn=False))
    weighed = []
    for batch in plain:
        weight = 10 ** rng.uniform(np.log10(5), np.log10(50), len(batch.impressions))
        weighed.append(replace(batch, impressions=replace(batch.impressions, fields={"weight": weight})))
    return plain, weighed


def main(events_count: int = EVENTS, blocks: int = BLOCKS) -> None:
    """Prints the table."""
    on_one_core()
    events = Events(events_count)
    plain, weighed = batches(events)
    everything = plain, settings({})
    print(f"| the loop, one version, against all of the traffic, an impression | {HEAD} limit |")
    print("|---|---|---|---|---|---|---|---|")
    for name, given, config in (
        ("`negatives = 0.1`", plain, settings({"negatives": 0.1})),
        ("`weights = true`, none given", plain, settings({"weights": True})),
        ("`weights = true`, 5 to 50", weighed, settings({"weights": True})),
    ):
        print(f"| {name} | {cells(run, everything, (given, config), events.n, blocks)} | {LIMIT} |", flush=True)
