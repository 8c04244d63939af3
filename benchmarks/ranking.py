"""The cost of ranking metrics in the loop, and their memory by pane: 3 versions, one serving and two in shadow, lists of 6 to 12."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchmarks.compare import name_everything
from benchmarks.events import Events
from benchmarks.paired import HEAD, Took, cells, on_one_core, took
from streameval.events.batch import Batch, Shadow
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings
from streameval.testing import readers_see

EVENTS = 1_500_000
BATCH = 20_000
LIMIT = 1.15
MOST_BYTES = 8_000  # of a pane and version
SNAPSHOT = 30  # batches between two snapshots: a loop with a backlog spends a twentieth of its time on them
K = (1, 5, 10)
SHADOWS = ("v2", "v3")


def settings(k: Sequence[int]) -> Settings:
    """Settings with one dimension; requests close during the run."""
    return Settings.model_validate(
        {
            "join": {"correction_horizon": "1h"},
            "slices": {"dimensions": ["country"]},
            "ranking": {"k": list(k)} if k else {"k": [], "by_user": []},
        }
    )


def batches(events: Events, requests: bool) -> list[Batch]:
    """Decoded columns, every impression with the pClicks of two shadow versions; `requests`: in lists of 6 to 12, each of
    one user, with positions given by an older model."""
    rng = np.random.default_rng(1)
    sizes = rng.integers(6, 13, events.n // 6)
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
    starts = starts[starts < events.n]
    number = np.repeat(np.arange(starts.size), np.diff(starts, append=events.n))
    users = events.user[starts][number]
    place = np.arange(events.n) - starts[number]
    row_of = {int(key): row for row, key in enumerate(events.id.tolist())}
    pipeline = Pipeline(settings(K), time.time)
    name_everything(pipeline, events)
    codes = [pipeline.catalog.series_code("ctr", version) for version in SHADOWS]
    out = []
    for batch in events.batches(pipeline.catalog, BATCH, learn=False):
        p = batch.impressions.pclick
        logit = np.log(p / (1 - p))[:, None] + rng.normal(0, 0.2, (p.size, 2))
        shadow = Shadow(
            np.arange(p.size + 1) * 2, np.tile(np.array(codes, np.int32), p.size), 1 / (1 + np.exp(-logit.ravel()))
        )
        impressions = replace(batch.impressions, shadow=shadow)
        if requests:
            rows = np.array([row_of[int(key)] for key in impressions.id.tolist()])
            impressions = replace(
                impressions,
                request=(number[rows] + 1).astype(np.uint64),
                user=users[rows],
                fields={"position": place[rows].astype(np.float64)},
            )
        out.append(replace(batch, impressions=impressions))
    return out


def run(given: Sequence[Batch], k: Sequence[int]) -> Took:
    """Takes batches through the loop."""
    begin, _ = took(), through(given, k)
    return took().since(begin)


def through(given: Sequence[Batch], k: Sequence[int]) -> Pipeline:
    """The loop at its end."""
    pipeline = Pipeline(settings(k), time.time)
    name_everything(pipeline, Events(1))
    for number, batch in enumerate(given):
        pipeline.take(batch)
        if number % SNAPSHOT == SNAPSHOT - 1:
            readers_see(pipeline, with_history=False)
    pipeline.finish()
    readers_see(pipeline, with_history=False)
    return pipeline


def bytes_a_pane(pipeline: Pipeline) -> float:
    """Bytes of ranking sums, by pane and version."""
    layout = pipeline.partitions[0].scoreboard.overall_layout
    panes = pipeline.partitions[0].scoreboard.overall
    ours = [panes.get(number).cells % layout.size >= layout.tallies for number in panes.numbers()]
    return 16 * float(np.mean([cells.sum() for cells in ours])) / (1 + len(SHADOWS))


def main() -> None:
    """Prints the table."""
    on_one_core()
    events = Events(EVENTS)
    print(f"| the loop, 3 versions, 3 cuts, an impression | {HEAD} limit | bytes of a pane and version | limit |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, requests in (("lists of 6 to 12", True), ("without request ids", False)):
        given = batches(events, requests)
        found, size = cells(run, (given, ()), (given, K), events.n), bytes_a_pane(through(given, K))
        print(f"| {name} | {found} | {LIMIT} | {size:.0f} | {MOST_BYTES} |", flush=True)
