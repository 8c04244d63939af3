"""Where the loop's time goes: processor time by stage, next to what the memory alone would need for the bytes of that stage.

The traffic and the settings are those of `pipeline`, with FTRL. Bytes are those that a stage has to move at least: columns
in order at the rate of copying, and single places of tables (ids, weights, users) at the rate of reading whole lines at
random from a table of the same size.
"""

from __future__ import annotations

import gc
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from benchmarks.events import SERIES, Events
from benchmarks.pipeline import BATCH, batches, middle, settings
from streameval.compare.ledger.ledger import Ledger
from streameval.counting.pane_scores import PaneScores
from streameval.counting.scoreboard import Scoreboard
from streameval.counting.users import Users
from streameval.join.joiner import Joiner
from streameval.loop.online import OnlineModels
from streameval.loop.pipeline import Pipeline
from streameval.loop.row_counts import RowCounts
from streameval.testing import readers_see

EVENTS = 3_000_000
ROUNDS = 4
_LINE = 64  # bytes that the memory moves at least
_COPIED = 1 << 26  # bytes
_TABLE = 1 << 27  # bytes of the table that is read at random


class Stage(NamedTuple):
    """A stage, and the least that it moves for an impression."""

    name: str
    where: Callable[..., Any]  # which is replaced by a timed one
    owner: type
    columns: int  # bytes read and written in order
    places: int  # single lines
    why: str


STAGES = (
    Stage("join", Joiner.add, Joiner, 140, 1, "batch read and row written, 70 bytes each; the index of ids"),
    Stage("labels due", Joiner.mature, Joiner, 21, 0, "time, state and list of rows"),
    Stage("predict", OnlineModels.score, OnlineModels, 136, 0, "features and score; the weights of this traffic fit the cache"),
    Stage("learn", OnlineModels.learn, OnlineModels, 136, 0, "the same, later"),
    Stage("gather", RowCounts.count, RowCounts, 100, 0, "columns of the due rows copied for counting"),
    Stage("scores to panes", PaneScores.count, PaneScores, 72, 0, "scores, labels and slices of 2 versions; histograms fit the cache"),
    Stage("users", Users.add, Users, 64, 1, "entries of 2 versions, kept and sorted; a user"),
    Stage("rest of counting", Scoreboard.observe, Scoreboard, 48, 1, "losses and parts of 2 versions; a user's slot"),
    Stage("comparisons", Ledger.observe, Ledger, 80, 1, "placements and sums by user of 2 versions"),
)  # fmt: skip


class Clock:
    """Processor time by stage, without that of stages within it."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._own = threading.local()

    def timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the function with its time measured."""

        def measured(*given: Any, **named: Any) -> Any:
            outer, self._own.within = getattr(self._own, "within", 0.0), 0.0
            begin = time.thread_time()
            try:
                return call(*given, **named)
            finally:
                took = time.thread_time() - begin
                self.seconds[name] += took - self._own.within
                self._own.within = outer + took

        return measured


@contextmanager
def watched() -> Iterator[Clock]:
    """Measures the stages within the block."""
    clock = Clock()
    for stage in STAGES:
        setattr(stage.owner, stage.where.__name__, clock.timed(stage.name, stage.where))
    try:
        yield clock
    finally:
        for stage in STAGES:
            setattr(stage.owner, stage.where.__name__, stage.where)


def once(events: Events, given: list[Any]) -> dict[str, float]:
    """Nanoseconds per impression, by stage."""
    pipeline = Pipeline(settings(True), time.time)
    events.name_slices(pipeline.catalog)
    pipeline.catalog.series_code(*SERIES)
    gc.collect()
    with watched() as clock:
        begin = time.process_time()
        for batch in given:
            pipeline.take(batch)
        pipeline.finish()
        pipeline.history_rows([])  # waits until everything is counted
        counted = time.process_time()
        readers_see(pipeline, with_history=False)
        end = time.process_time()
    out = dict(clock.seconds) | {"report": end - counted}
    out["everything else"] = end - begin - sum(out.values())
    return {name: seconds / events.n * 1e9 for name, seconds in out.items()}


@numba.njit(nogil=True)
def _read(table: NDArray[np.int64], places: NDArray[np.int64]) -> int:
    total = 0
    for place in places:
        total += table[place]
    return total


def memory() -> tuple[float, float]:
    """Returns (ns per byte read or written in order, ns per line read at random)."""
    source, target = np.ones(_COPIED // 8, np.int64), np.zeros(_COPIED // 8, np.int64)
    table = np.ones(_TABLE // 8, np.int64)
    places = np.random.default_rng(1).integers(0, table.size, 2_000_000)
    _read(table, places[:10])
    orderly, random = [], []
    for _ in range(ROUNDS):
        begin = time.process_time()
        target[:] = source
        orderly.append((time.process_time() - begin) / (2 * _COPIED) * 1e9)
        begin = time.process_time()
        _read(table, places)
        random.append((time.process_time() - begin) / places.size * 1e9)
    return min(orderly), min(random)


def main() -> None:
    """Prints the table."""
    events = Events(EVENTS)
    given = batches(events, True, BATCH)
    once(events, given)  # compiles, and touches the memory
    gc.freeze()  # as the program does once it is imported
    rounds = [once(events, given) for _ in range(ROUNDS)]
    byte, line = memory()
    took = {name: middle([one.get(name, 0.0) for one in rounds]) for name in rounds[0]}
    print(f"Memory: {1 / byte:.1f} GB/s in order (read and written), a line at random {line:.1f} ns.\n")
    print("| stage | ns an impression | share | at least, by memory: ns | of what is moved |")
    print("|---|---|---|---|---|")
    whole, least = sum(took.values()), 0.0
    for stage in STAGES:
        limit = stage.columns * byte + stage.places * line
        least += limit
        ns = took[stage.name]
        print(f"| {stage.name} | {ns:.0f} | {ns / whole:.0%} | {limit:.0f} | {stage.why} |")
    for name in ("report", "everything else"):
        print(f"| {name} | {took[name]:.0f} | {took[name] / whole:.0%} | | |")
    print(f"| together, on two threads | {whole:.0f} | 100% | {least:.0f} | |")
