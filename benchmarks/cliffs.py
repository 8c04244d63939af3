"""Cost must be proportional to work: many versions, many slice values, short panes; against the ordinary case in the same rounds."""

from __future__ import annotations

import gc
import logging
import time
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.events import SERIES, Events
from benchmarks.pipeline import middle
from streameval.events.batch import Batch, Shadow
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings
from streameval.testing import readers_see

ROUNDS = 3
BATCH = 20_000
SNAPSHOTS = 4
HALF = 0.5  # the least acceptable share of the ordinary case's rate


@dataclass(frozen=True)
class World:
    """A stream over three hours of event time."""

    impressions: int
    shadows: int = 0  # versions that score everything that is served
    values: int = 20  # of a slice dimension
    pane: str = "1m"

    @property
    def scores(self) -> int:
        """The number of scores to count."""
        return self.impressions * (1 + self.shadows)


ORDINARY = World(2_000_000)
WORLDS = {
    "one version that serves, one in shadow": World(2_000_000, shadows=1),
    "63 versions in shadow": World(100_000, shadows=63),
    "60 versions, 50 slice values": World(100_000, shadows=59, values=50),
    "1,000 slice values": World(2_000_000, values=1_000),
    "panes of a second": World(2_000_000, pane="1s"),
}


def settings(world: World) -> Settings:
    """Settings with one dimension, and defaults otherwise."""
    return Settings.model_validate(
        {
            "join": {"correction_horizon": "1h", "attribution_window": "10m"},
            "slices": {"dimensions": ["country"], "max_values": world.values},
            "windows": {"pane": world.pane},
        }
    )


def pipeline_of(world: World) -> Pipeline:
    """A pipeline in which names have the codes that `batches` uses."""
    pipeline = Pipeline(settings(world), time.time)
    for value in range(world.values):
        pipeline.catalog.value_code(0, str(value))
    pipeline.catalog.series_code(*SERIES)
    for number in range(world.shadows):
        pipeline.catalog.series_code("ctr", f"s{number}")
    return pipeline


def batches(world: World) -> list[Batch]:
    """Decoded columns."""
    events, rng = Events(world.impressions), np.random.default_rng(1)
    events.country = rng.integers(0, world.values, world.impressions) + 2
    catalog = pipeline_of(world).catalog
    codes = np.array([catalog.series_code("ctr", f"s{number}") for number in range(world.shadows)], np.int32)
    out = []
    for batch in events.batches(catalog, max(BATCH // (1 + world.shadows), 1_000), learn=False):
        p = batch.impressions.pclick
        if world.shadows:
            logit = np.log(p / (1 - p))[:, None] + rng.normal(0, 0.2, (p.size, world.shadows))
            shadow = Shadow(
                np.arange(p.size + 1) * world.shadows, np.tile(codes, p.size), 1 / (1 + np.exp(-logit.ravel()))
            )
            batch = replace(batch, impressions=replace(batch.impressions, shadow=shadow))  # noqa: PLW2901
        out.append(batch)
    return out


@dataclass(frozen=True)
class Run:
    """The result of a run of a world."""

    rate: float  # scores a second, without snapshots
    snapshot: float  # seconds for one, of an hour's replay


def run(world: World, given: list[Batch]) -> Run:
    """Runs at full speed, with a few snapshots in between."""
    pipeline = pipeline_of(world)
    gc.collect()
    begin, snapshots = time.perf_counter(), []
    for number, batch in enumerate(given, 1):
        pipeline.take(batch)
        if number % -(-len(given) // SNAPSHOTS) == 0:
            pipeline.history_rows([])  # waits until everything is counted
            now = time.perf_counter()
            readers_see(pipeline, with_history=False)
            snapshots.append(time.perf_counter() - now)
    pipeline.finish()
    pipeline.history_rows([])
    took = time.perf_counter() - begin - sum(snapshots)
    return Run(world.scores / took, snapshots[-1])


def main() -> None:
    """Prints the table. Rounds alternate."""
    logging.getLogger("streameval").setLevel(logging.ERROR)
    given = {name: (world, batches(world)) for name, world in {"ordinary": ORDINARY, **WORLDS}.items()}
    for name in ("ordinary", "63 versions in shadow"):
        run(*given[name])  # compile
    gc.collect()
    gc.freeze()  # as the program does with what it imports (`process.start`): each full collection would look at all of it
    rounds = [{name: run(*some) for name, some in given.items()} for _ in range(ROUNDS)]
    print(
        "| one version, 20 slice values, panes of a minute, but | scores/s counted | of the ordinary case's: median (least, most) |"
        " at least | a snapshot with everything changed, s |"
    )
    print("|---|---|---|---|---|")
    for name in given:
        ratios = sorted(one[name].rate / one["ordinary"].rate for one in rounds)
        rates, snapshot = (middle([getattr(one[name], of) for one in rounds]) for of in ("rate", "snapshot"))
        limit = "" if name == "ordinary" else f"{HALF}"
        print(
            f"| {name} | {rates:,.0f} | {middle(ratios):.2f} ({ratios[0]:.2f}, {ratios[-1]:.2f}) | {limit} | "
            f"{snapshot:.2f} |"
        )
