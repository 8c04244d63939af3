"""The cost of weighting by propensity, and of strata, in the loop: 3 versions, one serving and two in shadow."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks import ranking
from benchmarks.compare import name_everything
from benchmarks.events import Events
from benchmarks.paired import BLOCKS, HEAD, Took, cells, on_one_core, took
from streameval.events.batch import Batch
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings
from streameval.testing import readers_see

EVENTS = 1_500_000
LIMITS = {"exposure": 1.05, "strata": 1.0, "lists": 1.05}


def settings(strata: bool, lists: bool) -> Settings:
    """Settings with one dimension; requests close during the run."""
    more: dict[str, Any] = {"strata": {"count": 4}} if strata else {"strata": {"by": ""}}
    more["ranking"] = {"k": list(ranking.K)} if lists else {"k": [], "by_user": []}
    return Settings.model_validate(
        {"join": {"correction_horizon": "1h"}, "slices": {"dimensions": ["country"]}, **more}
    )


def batches(events: Events, requests: bool) -> tuple[list[Batch], list[Batch]]:
    """The batches of `ranking`, without and with propensities from 0.008 to 1; a 20th of the weights are above 100."""
    rng = np.random.default_rng(2)
    without = ranking.batches(events, requests)
    having = []
    for batch in without:
        propensity = 10 ** rng.uniform(-2.1, 0, len(batch.impressions))
        fields = {**batch.impressions.fields, "propensity": propensity}
        having.append(replace(batch, impressions=replace(batch.impressions, fields=fields)))
    return without, having


def run(given: Sequence[Batch], config: Settings) -> Took:
    """Takes batches through the loop."""
    pipeline = Pipeline(config, time.time)
    name_everything(pipeline, Events(1))
    gc.collect()
    begin = took()
    for number, batch in enumerate(given):
        pipeline.take(batch)
        if number % ranking.SNAPSHOT == ranking.SNAPSHOT - 1:
            readers_see(pipeline, with_history=False)
    pipeline.finish()
    readers_see(pipeline, with_history=False)
    return took().since(begin)


def main(events_count: int = EVENTS, blocks: int = BLOCKS) -> None:
    """Prints the table."""
    on_one_core()
    events = Events(events_count)
    print(f"| the loop, 3 versions, an impression | {HEAD} limit |")
    print("|---|---|---|---|---|---|---|---|")
    plain, weighed = batches(events, requests=False)
    off, strata = settings(strata=False, lists=False), settings(strata=True, lists=False)
    given, having = batches(events, requests=True)
    lists = settings(strata=False, lists=True)
    for name, limit, without, with_it in (
        ("propensities", "exposure", (plain, off), (weighed, off)),
        ("strata, beside propensities", "strata", (weighed, off), (weighed, strata)),
        ("propensities, lists of 6 to 12 at 3 cuts", "lists", (given, lists), (having, lists)),
    ):
        print(f"| {name} | {cells(run, without, with_it, events.n, blocks)} | {LIMITS[limit]} |", flush=True)
