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
from streameval.events.batch import Batch
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings
from streameval.testing import readers_see

EVENTS = 1_500_000
ROUNDS = 7
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


def seconds(events: Events, given: Sequence[Batch], config: Settings) -> float:
    """Processor time of all threads, s."""
    pipeline = Pipeline(config, time.time)
    name_everything(pipeline, events)
    gc.collect()
    begin = time.process_time()
    for number, batch in enumerate(given):
        pipeline.take(batch)
        if number % ranking.SNAPSHOT == ranking.SNAPSHOT - 1:
            readers_see(pipeline, with_history=False)
    pipeline.finish()
    readers_see(pipeline, with_history=False)
    return time.process_time() - begin


def main(events_count: int = EVENTS, rounds: int = ROUNDS) -> None:
    """Prints the table. Rounds alternate, and ratios are of the best rounds: disturbances only ever add time."""
    events = Events(events_count)
    print("| the loop, 3 versions | CPU ns an impression | ratio: best to best (rounds: least, most) | limit |")
    print("|---|---|---|---|")
    plain, weighed = batches(events, requests=False)
    off, strata = settings(strata=False, lists=False), settings(strata=True, lists=False)
    _print(events, rounds, "propensities", "exposure", ((plain, off), (weighed, off)))
    _print(events, rounds, "strata, beside propensities", "strata", ((weighed, off), (weighed, strata)))
    plain, weighed = batches(events, requests=True)
    lists = settings(strata=False, lists=True)
    _print(events, rounds, "propensities, lists of 6 to 12 at 3 cuts", "lists", ((plain, lists), (weighed, lists)))


def _print(
    events: Events, rounds: int, name: str, limit: str, runs: Sequence[tuple[Sequence[Batch], Settings]]
) -> None:
    for given, config in runs:
        seconds(events, given[:20], config)  # compile
    found = [[seconds(events, given, config) for given, config in runs] for _ in range(rounds)]
    without, having = (min(one[i] for one in found) for i in range(2))
    ratios = sorted(b / a for a, b in found)
    each = 1e9 / events.n
    print(f"| {name}, off | {without * each:.0f} | 1 | |")
    print(
        f"| {name}, on | {having * each:.0f} | {having / without:.3f} ({ratios[0]:.3f}, {ratios[-1]:.3f}) | {LIMITS[limit]} |",
        flush=True,
    )
