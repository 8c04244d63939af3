"""How cost grows: with impressions up to 100 million, users, versions, slice values and partitions, one at a time.

Costs are processor time of all threads, so that the two threads of the loop and their waits do not blur them, without the time
of making the events. A curve is flat if cost follows the work: per impression, or per score where versions score in shadow.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.cold import hashes
from benchmarks.pipeline import middle
from streameval.events.batch import Batch, Catalog, Clicks, Impressions, Shadow
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import BatchSettings, Settings
from streameval.sources.kafka.budget import BATCHES_A_POLL
from streameval.testing import readers_see

SIZE = (
    BatchSettings().max_events
)  # impressions of a batch; of several partitions, a poll takes `BATCHES_A_POLL` times as many
RATE = 100_000  # impressions a minute of event time
START = 1_760_000_000_000
DELAY = 30_000  # ms from an impression to its click
ROUNDS = 3
ONCE = 20_000_000  # scores from which a world runs once


@dataclass(frozen=True)
class World:
    """A stream."""

    impressions: int = 2_000_000
    users: int = 20_000
    versions: int = 1  # one serves, the others score in shadow
    values: int = 20  # of the slice dimension
    partitions: int = 1

    @property
    def scores(self) -> int:
        """The number of scores to count."""
        return self.impressions * self.versions


CURVES = {
    "impressions": [World(n) for n in (1_000_000, 3_000_000, 10_000_000, 30_000_000, 100_000_000)],
    "users": [World(users=n) for n in (1_000, 10_000, 100_000, 1_000_000)],
    "versions": [World(max(3_000_000 // n, 100_000), versions=n) for n in (1, 2, 4, 16, 64)],
    "values": [World(values=n) for n in (1, 10, 100, 1_000)],
    "partitions": [World(partitions=n) for n in (1, 4, 16, 64)],
}
NAMES = {"values": "slice values"}  # where a curve's field is not what people call it


@dataclass(frozen=True)
class Run:
    """What a run of a world took."""

    ns: float  # of processor time per score
    snapshot: float  # s, the last of all
    tables: float  # bytes at the end


def pipeline_of(world: World) -> Pipeline:
    """With defaults, one dimension, and codes for the names that `batches` uses."""
    pipeline = Pipeline(
        Settings.model_validate(
            {
                "join": {"correction_horizon": "1h", "attribution_window": "1m"},
                "slices": {"dimensions": ["country"], "max_values": max(world.values, 20)},
            }
        ),
        time.time,
    )
    for value in range(world.values):
        pipeline.catalog.value_code(0, str(value))
    for version in range(world.versions):
        pipeline.catalog.series_code("ctr", f"v{version}")
    return pipeline


def batches(world: World, catalog: Catalog) -> Iterator[Batch]:
    """Impressions evenly over event time, calibrated, and the clicks on those of some batches before."""
    rng = np.random.default_rng(0)
    codes = np.array([catalog.series_code("ctr", f"v{version}") for version in range(world.versions)], np.int32)
    size = SIZE * min(world.partitions, BATCHES_A_POLL) // world.partitions
    due: list[list[Clicks]] = [[] for _ in range(world.partitions)]  # clicks that have not been sent yet
    later = -(-DELAY * RATE // 60_000 // (size * world.partitions))  # batches of a partition
    for number, at in enumerate(range(0, world.impressions, size)):
        partition, n = number % world.partitions, min(size, world.impressions - at)
        ts = START + np.arange(at, at + n) * 60_000 // RATE
        logit = rng.normal(-3, 1, n)
        pclick, ids = 1 / (1 + np.exp(-logit)), hashes(at, n)
        on = np.flatnonzero(rng.random(n) < pclick)
        due[partition].append(Clicks(np.full(on.size, n, np.int32), ids[on], ts[on] + DELAY))
        shadow = None
        if world.versions > 1:
            others = world.versions - 1
            theirs = logit[:, None] + rng.normal(0, 0.2, (n, others))
            shadow = Shadow(np.arange(n + 1) * others, np.tile(codes[1:], n), 1 / (1 + np.exp(-theirs.ravel())))
        impressions = Impressions(
            order=np.arange(n, dtype=np.int32),
            id=ids,
            ts=ts,
            user=hashes(0, world.users)[rng.integers(0, world.users, n)],
            request=np.zeros(n, np.uint64),
            item=np.zeros(n, np.uint64),
            series=np.full(n, codes[0], np.int32),
            pclick=pclick,
            slices=catalog.combine([rng.integers(0, world.values, n) + 2]),
            label=np.full(n, -1, np.int8),
            shadow=shadow,
        )
        ready = due[partition].pop(0) if len(due[partition]) > later else None
        none = Clicks(np.empty(0, np.int32), np.empty(0, np.uint64), np.empty(0, np.int64))
        yield Batch(partition, impressions, ready or none, True)


def run(world: World) -> Run:
    """At full speed, with a snapshot for every ten million scores and one at the end, which count."""
    pipeline = pipeline_of(world)
    gc.collect()
    begin, made, counted = time.process_time(), 0.0, 0
    given = batches(world, pipeline.catalog)
    while True:
        now = time.thread_time()
        batch = next(given, None)
        made += time.thread_time() - now
        if batch is None:
            break
        pipeline.take(batch)
        counted += len(batch.impressions) * world.versions
        if counted >= 10_000_000:
            counted = 0
            readers_see(pipeline, with_history=False)
    pipeline.finish()  # or the last labels would cost nothing
    pipeline.history_rows([])  # waits until everything is counted
    now = time.process_time()
    snapshot = readers_see(pipeline, with_history=False)
    end = time.process_time()
    return Run((end - begin - made) / world.scores * 1e9, end - now, sum(snapshot.table_bytes.values()))


def main() -> None:
    """Prints the table. The worlds of a curve alternate."""
    logging.getLogger("streameval").setLevel(logging.ERROR)
    run(World(300_000, versions=2))  # compiles
    gc.collect()
    gc.freeze()  # as the program does with what it imports (`process.start`): each full collection would look at all of it
    print(
        f"Otherwise: {World().impressions:,} impressions, {World().users:,} users, one version, {World().values} slice values, one partition.\n"
    )
    print("| what grows | ns a score | of the first of its curve: median (least, most) | a snapshot, ms | tables, MB |")
    print("|---|---|---|---|---|")
    for field, worlds in CURVES.items():
        found: list[list[Run]] = [[] for _ in worlds]
        for number in range(ROUNDS):
            for runs, world in zip(found, worlds, strict=True):
                if number == 0 or world.scores < ONCE:
                    runs.append(run(world))
        for runs, world in zip(found, worlds, strict=True):
            ratios = sorted(one.ns / first.ns for one, first in zip(runs, found[0], strict=False))
            ns, snapshot, tables = (middle([getattr(one, of) for one in runs]) for of in ("ns", "snapshot", "tables"))
            print(
                f"| {NAMES.get(field, field)}: {getattr(world, field):,} | {ns:.0f} | {middle(ratios):.2f} ({ratios[0]:.2f}, {ratios[-1]:.2f}) | "
                f"{snapshot * 1e3:.0f} | {tables / 1e6:.0f} |"
            )
