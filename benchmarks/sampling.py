"""The cost of weights of a downsampled log in the loop: the same events, counted once each and as a sample."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.compare import name_everything
from benchmarks.events import Events
from benchmarks.exposure import seconds
from streameval.events.batch import Batch
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings

EVENTS = 2_000_000
BATCH = 20_000
ROUNDS = 9
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


def main(events_count: int = EVENTS, rounds: int = ROUNDS) -> None:
    """Prints the table. Rounds alternate, and ratios are of the best rounds: disturbances only ever add time."""
    events = Events(events_count)
    plain, weighed = batches(events)
    runs: Sequence[tuple[str, list[Batch], Settings]] = (
        ("all of the traffic", plain, settings({})),
        ("`negatives = 0.1`", plain, settings({"negatives": 0.1})),
        ("`weights = true`, none given", plain, settings({"weights": True})),
        ("`weights = true`, 5 to 50", weighed, settings({"weights": True})),
    )
    for _, given, config in runs:
        seconds(events, given[:20], config)  # compile
    found = [[seconds(events, given, config) for _, given, config in runs] for _ in range(rounds)]
    print("| the loop, one version | CPU ns an impression | ratio: best to best (rounds: least, most) | limit |")
    print("|---|---|---|---|")
    for i, (name, _, _) in enumerate(runs):
        best, ratios = min(one[i] for one in found), sorted(one[i] / one[0] for one in found)
        ratio = best / min(one[0] for one in found)
        spread = f"{ratio:.3f} ({ratios[0]:.3f}, {ratios[-1]:.3f})" if i else "1"
        print(f"| {name} | {best * 1e9 / events.n:.0f} | {spread} | {LIMIT if i else ''} |", flush=True)
