"""The history on disk: bytes of a part, and the time of writing, folding and queries."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.events import Events
from streameval.events.batch import Series
from streameval.events.durations import DAY
from streameval.loop.options import options_of
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings
from streameval.store.history.format import HistoryFormat
from streameval.store.history.reader import HistoryReader
from streameval.store.history.rows import encode_pane, pane_rows
from streameval.store.history.writer import HistoryWriter, Retention
from streameval.testing import Scores, counted_pane, readers_see

START = 19_000 * DAY
MINUTES = 360
VALUES = 20
NAMES = (Series("a", "v1", "logged"), Series("a", "v2", "logged"))
KEEP = Retention(2 * DAY, 30 * DAY, 400 * DAY, 1 << 40)


def timed(function: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def minute(number: int, each: int, users: np.ndarray, form: HistoryFormat) -> Scores:
    """`each` impressions of each of two versions at a CTR of 5 %; a few users have many."""
    rng = np.random.default_rng(number)
    n = 2 * each
    p = 1 / (1 + np.exp(-rng.normal(-3.5, 1.2, n)))
    return Scores(
        np.repeat(np.arange(2), each).astype(np.int32),
        users[(rng.random(n) ** 2 * users.size).astype(np.int64)],
        p,
        (rng.random(n) < p).astype(np.int8),
        rng.integers(0, VALUES, n).astype(np.int32),
    )


def sizes(path: Path, level: int) -> tuple[float, float, float]:
    """Mean bytes of a version's vector, of a slice's vector, and of a version's sample of users."""
    db = sqlite3.connect(path)
    queries = (
        "SELECT avg(bytes) FROM vectors WHERE slice = 0 AND level = ?",
        "SELECT avg(bytes) FROM vectors WHERE slice > 0 AND level = ?",
        "SELECT avg(length(entries)) FROM samples WHERE level = ?",
    )
    whole, sliced, sample = (float(db.execute(query, (level,)).fetchone()[0]) for query in queries)
    db.close()
    return whole, sliced, sample


def pages(path: Path) -> int:
    """Bytes of the database without its journal."""
    db = sqlite3.connect(path)
    count, size = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    db.close()
    return int(count * size)


def measure(each: int) -> None:
    """Prints the rows of one rate of traffic."""
    form = HistoryFormat(60_000, options_of(Settings()), "impressions")
    users = np.random.default_rng(1).integers(1, 2**63, 1_000_000).astype(np.uint64)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "history.sqlite"
        writer = HistoryWriter(path, form, KEEP)
        encoding = writing = 0.0
        for number in range(MINUTES):
            rows = counted_pane(START // 60_000 + number, NAMES, minute(number, each, users, form), form)
            encoding += timed(partial(encode_pane, rows, form))
            writing += timed(partial(writer.write, 0, 1, [rows]))
        of_day = pages(path) / MINUTES * 1440
        reader = HistoryReader(path, form, 20)
        overall = timed(lambda: reader.range(NAMES, None, None, [None]))
        everything = timed(lambda: reader.range(NAMES, None, None))
        points = timed(lambda: reader.series("log_loss", NAMES, None, None))
        parts = [sizes(path, 0)]
        hours = timed(lambda: writer.fold({0: START + 40 * DAY}, START + 4 * DAY)) / (MINUTES // 60)
        parts.append(sizes(path, 1))
        day = timed(lambda: writer.fold({0: START + 40 * DAY}, START + 40 * DAY))
        parts.append(sizes(path, 2))
        writer.close()
    for what, column in (("a version's vector", 0), ("the same in a slice", 1), ("a version's sampled users", 2)):
        print(f"| {each}: {what}: minute / hour / day | {' / '.join(f'{p[column] / 1e3:.1f}' for p in parts)} kB |")
    print(f"| {each}: the file, per day of minutes, {2 * VALUES} slices | {of_day / 1e6:.0f} MB |")
    print(
        f"| {each}: writing a pane, of which compressing | {writing / MINUTES * 1e3:.1f}, {encoding / MINUTES * 1e3:.1f} ms |"
    )
    print(f"| {each}: folding an hour / a day of {MINUTES // 60} hours | {hours:.2f} / {day:.2f} s |")
    print(f"| {each}: {MINUTES // 60} hours of minutes: overall / with slices | {overall:.2f} / {everything:.2f} s |")
    print(f"| {each}: the same as a series of log loss | {points:.2f} s |")


def main() -> None:
    """Prints the table."""
    print("| impressions a minute and version: what | measured |")
    print("|---|---|")
    measure(100)  # compiles
    for each in (5_600, 500):
        measure(each)
    events = Events(1_000_000)
    pipeline = Pipeline(Settings.model_validate({"slices": {"dimensions": ["country", "device"]}}), time.time)
    events.name_slices(pipeline.catalog)
    for batch in events.batches(pipeline.catalog, 10_000, learn=False):
        pipeline.take(batch)
    readers_see(pipeline)
    monitor = pipeline.partitions[0]
    panes = monitor.scoreboard.overall.numbers()
    seconds = timed(lambda: pane_rows(monitor.scoreboard, monitor.panes, pipeline.catalog, pipeline._slice_rows, panes))
    print(f"| taking the rows of a pane, on the loop's thread | {seconds / len(panes) * 1e3:.2f} ms |")
