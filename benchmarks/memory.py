"""Bytes per user, per pending impression, and per (version x slice x pane)."""

from __future__ import annotations

import time

import numpy as np

from benchmarks.events import Events
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings
from streameval.sketches.directory import Directory
from streameval.sketches.grid import score_keys
from streameval.sketches.ranks import GroupRanks
from streameval.sketches.sorted_lists import entries


def users(count: int = 1_000_000, each: int = 20) -> tuple[int, int]:
    """(bytes, impressions) of the run's ranks for `count` users with `each` impressions on average."""
    rng = np.random.default_rng(0)
    directory, ranks = Directory(), GroupRanks()
    ids = rng.integers(1, 2**63, count).astype(np.uint64)
    for _ in range(each):
        p = 1 / (1 + np.exp(-rng.normal(-4, 1, count)))
        label = (rng.random(count) < p).astype(np.int8)
        entry = entries(directory.slots(rng.permutation(ids)), score_keys(p), label)
        entry.sort()
        ranks.apply(entry, np.empty(0, np.uint64), len(directory))
    return ranks.nbytes + directory.nbytes, ranks.impressions


def main() -> None:
    """Prints the table."""
    total, impressions = users()
    events = Events(1_000_000)
    pipeline = Pipeline(Settings.model_validate({"slices": {"dimensions": ["country", "device"]}}), time.time)
    events.name_slices(pipeline.catalog)
    for batch in events.batches(pipeline.catalog, 10_000, learn=False):
        pipeline.take(batch)
    joiner = pipeline.partitions[0].joiner
    rows = joiner.known
    board = pipeline.partitions[0].scoreboard
    panes = len(board.overall.numbers())
    overall = sum(board.overall.get(n).nbytes for n in board.overall.numbers()) / panes
    slices = sum(board.slices.get(n).nbytes for n in board.slices.numbers()) / panes / 24
    print("| what | measured | limit |")
    print("|---|---|---|")
    print(f"| 1,000,000 users x {impressions // 1_000_000} impressions | {total / 1e6:.0f} MB | 200 MB |")
    print(f"| a pending or correctable impression, indexes included | {joiner.nbytes / rows:.0f} bytes | ~64 |")
    print(f"| a version's pane, {events.n / 180:.0f} impressions | {overall / 1e3:.1f} kB | |")
    print(f"| a (version x slice) pane, {events.n / 180 / 12:.0f} impressions | {slices / 1e3:.1f} kB | |")
    for what, sums in (("version", board.overall.total), ("slice", board.slices.total)):
        each, most = sums.nbytes / sums.rows, 8 * sums.row_cells
        print(f"| a {what}'s sums in one window | {each / 1e3:.1f} kB | {most / 1e3:.1f} |")
