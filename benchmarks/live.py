"""The cost of a second of live traffic and its snapshot as the run grows: 3 versions, 20 slice values, 4 partitions."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median

from benchmarks import compare
from benchmarks.events import Events
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings
from streameval.testing import readers_see

RATE = 400  # impressions a second
PARTITIONS = 4
MINUTES = (10, 30, 60)  # when the seconds of the last minute are timed
GROWTH = 1.5  # the most that a snapshot may cost, over the first one measured


def settings() -> Settings:
    """Settings with one dimension, and labels that are final after a minute."""
    return Settings.model_validate({"join": {"attribution_window": "1m"}, "slices": {"dimensions": ["country"]}})


def main() -> None:
    """Prints the table; processor time of all threads."""
    events = Events(RATE * 60 * MINUTES[-1], minutes=MINUTES[-1])
    pipeline = Pipeline(settings(), time.time)
    compare.name_everything(pipeline, events)
    print(
        f"| {RATE} impressions a second, {PARTITIONS} partitions, after | counting, CPU ms a second: median | snapshot | over the first | limit |"
    )
    print("|---|---|---|---|---|")
    counting: list[float] = []
    looking: list[float] = []
    first = 0.0
    for number, batch in enumerate(compare.batches(events, RATE), 1):
        counting.append(_took(partial(pipeline.take, replace(batch, partition=number % PARTITIONS))))
        if number % 60 == 0 or any(0 < 60 * minutes - number < 60 for minutes in MINUTES):
            looking.append(_took(partial(readers_see, pipeline, with_history=False)))
        if number in [60 * minutes for minutes in MINUTES]:
            look, count = median(looking[-60:]), median(counting[-60:])
            first = first or look
            limit = "" if first == look else str(GROWTH)
            print(f"| {number // 60} minutes | {count:.1f} | {look:.0f} | {look / first:.2f} | {limit} |", flush=True)


def _took(what: Callable[[], object]) -> float:
    begin = time.process_time()
    what()
    return (time.process_time() - begin) * 1e3
