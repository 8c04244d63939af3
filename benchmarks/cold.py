"""A day of rows that late clicks can still correct, in memory and on disk: time, memory, checkpoints, a restart, a late click.

python -m benchmarks cold                  20 million impressions
python -m benchmarks.cold 500000000        500 million
"""

from __future__ import annotations

import logging
import mmap
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.app import open_store
from streameval.events.batch import Batch, Catalog, Clicks, Impressions, empty_impressions
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings
from streameval.sketches.directory import mix
from streameval.sources.dead_letters import JsonlDeadLetters

BUILD = Path("build")
ROWS = 20_000_000
SIZES = (0, 262_144)  # of segments
SIZE = 50_000
START = 1_760_000_000_000
DAY = 22 * 3_600_000  # ms of event time, all of which can be corrected
USERS = 20_000
CLICKED = 20  # one impression in this many is clicked
LATE_CLICKS, TOGETHER = 1_000, 1_000  # one batch each; in one batch
INTERVAL = 30_000  # ms of event time between the last two checkpoints, as by default


@numba.njit(nogil=True)
def hashes(first: int, count: int) -> NDArray[np.uint64]:
    """Ids of impressions, by number."""
    out = np.empty(count, np.uint64)
    for i in range(count):
        out[i] = mix(np.uint64(first + i + 1))
    return out


def settings(path: str, segment_rows: int) -> Settings:
    """Defaults, except for the store, room for all rows in memory, and little memory for users, which are not measured here."""
    store = {"path": path, "segment_rows": segment_rows, "checkpoint_interval": "1h", "drain_timeout": "10m"}
    return Settings.model_validate(
        {
            "store": store,
            "join": {"max_pending": 1_000_000_000},
            "users": {"memory": "100MB"},
        }
    )


def batches(catalog: Catalog, rows: int) -> Iterator[Batch]:
    """Impressions, evenly over the day, and the clicks on those of a minute before."""
    code = catalog.series_code("default", "v1")
    rng = np.random.default_rng(0)
    before = max(SIZE, rows * 60_000 // DAY // SIZE * SIZE)
    for at in range(0, rows, SIZE):
        ts = START + np.arange(at, at + SIZE) * DAY // rows
        of = np.arange(at - before, at - before + SIZE, CLICKED) if at >= before else np.empty(0, np.int64)
        zero = np.zeros(SIZE, np.uint64)
        impressions = Impressions(
            order=np.arange(SIZE, dtype=np.int32),
            id=hashes(at, SIZE),
            ts=ts,
            user=(rng.integers(1, USERS + 1, SIZE).astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15),
            request=zero,
            item=zero,
            series=np.full(SIZE, code, np.int32),
            pclick=1 / (1 + np.exp(-rng.normal(-3, 1, SIZE))),
            slices=np.zeros(SIZE, np.int64),
            label=np.full(SIZE, -1, np.int8),
        )
        ids = hashes(0, 0) if not of.size else hashes(int(of[0]), SIZE)[::CLICKED]
        clicks = Clicks(np.full(of.size, SIZE, np.int32), ids, START + of * DAY // rows + 30_000)
        yield Batch(0, impressions, clicks, True, {("impressions", 0): at + SIZE})


def memory() -> dict[str, float]:
    """Bytes of this process: anonymous memory, and resident pages of files, which the system may drop at any time."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {name: float(lines[name].split()[0]) * 1024 for name in ("RssAnon", "RssFile")}


def late_clicks(pipeline: Pipeline, numbers: NDArray[np.int64], rows: int) -> float:
    """Seconds that a batch of late clicks on impressions, by number, takes."""
    ids = np.concatenate([hashes(number, 1) for number in numbers.tolist()])
    clicks = Clicks(np.zeros(ids.size, np.int32), ids, START + numbers * DAY // rows + 1000)
    begin = time.perf_counter()
    pipeline.take(Batch(0, empty_impressions(), clicks, True))
    return time.perf_counter() - begin


def measure(rows: int, segment_rows: int) -> dict[str, float]:
    """The numbers of one row of the table."""
    logging.disable(logging.INFO)
    BUILD.mkdir(exist_ok=True)  # on the disk of the repository: /tmp may be in memory
    out: dict[str, float] = {}
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        pipeline = Pipeline(settings(folder, segment_rows), time.time)
        keeper, _ = open_store(pipeline.settings, pipeline, JsonlDeadLetters(""))
        assert keeper is not None
        keeper.take(frozenset({0}))
        before, begin, wall = memory(), time.process_time(), time.monotonic()
        for batch in batches(pipeline.catalog, rows):
            pipeline.take(batch)
            keeper.tick()
            if 0 <= rows - max(SIZE, rows * INTERVAL // DAY) - batch.offsets["impressions", 0] < SIZE:
                keeper.release(frozenset({0}))  # writes a first checkpoint
                out["first checkpoint"], out["first checkpoint bytes"] = (
                    keeper.state().write_seconds,
                    keeper.state().bytes,
                )
                keeper.regain(frozenset({0}))
        pipeline.advance(True, True)
        out["ns"] = (time.process_time() - begin) * 1e9 / rows
        out["wall ns"] = (time.monotonic() - wall) * 1e9 / rows
        joiner = pipeline.partitions[0].joiner
        while joiner.cold.due(joiner.front, joiner.waiting):
            keeper.tick()
            time.sleep(0.001)
        after = memory()
        out["own"], out["files"] = (after[name] - before[name] for name in ("RssAnon", "RssFile"))
        out["rows"] = joiner.nbytes
        out["in memory"], out["known"] = joiner.in_memory, joiner.known
        out["filter"] = joiner.cold.nbytes
        out["disk"] = sum(segment.file.size for segment in joiner.cold.segments)
        out["disk"] += sum(index.size for index in joiner.cold.indexes)
        out["segments"], out["indexes"] = len(joiner.cold.segments), len(joiner.cold.indexes)
        out["outside segments"] = joiner.in_memory
        rng = np.random.default_rng(1)
        together = [late_clicks(pipeline, rng.integers(1, rows // 2, TOGETHER), rows) for _ in range(20)]
        out["late clicks"] = float(np.median(together)) / TOGETHER
        usage = resource.getrusage(resource.RUSAGE_SELF)
        took = [late_clicks(pipeline, rng.integers(1, rows // 2, 1), rows) for _ in range(LATE_CLICKS)]
        out["late click"] = float(np.median(took))
        out["late click, 99%"] = float(np.quantile(took, 0.99))
        now = resource.getrusage(resource.RUSAGE_SELF)
        out["waits"] = (now.ru_majflt - usage.ru_majflt) / LATE_CLICKS  # for pages from disk
        out["pages"] = (now.ru_inblock - usage.ru_inblock) * 512 / mmap.PAGESIZE / LATE_CLICKS
        begin = time.monotonic()
        keeper.close()
        state = keeper.state()
        out["checkpoint"], out["checkpoint bytes"], out["pause"] = state.write_seconds, state.bytes, state.pause_seconds
        del pipeline, keeper, joiner
        again = Pipeline(settings(folder, segment_rows), time.time)
        keeper, _ = open_store(again.settings, again, JsonlDeadLetters(""))
        assert keeper is not None
        begin = time.monotonic()
        keeper.take(frozenset({0}))
        out["restore"] = time.monotonic() - begin
        assert again.partitions[0].joiner.known == out["known"]
        keeper.close()
    return out


def main(rows: int = ROWS, sizes: tuple[int, ...] = SIZES) -> None:
    """Prints the table."""
    print(
        "| rows | CPU ns an impression | wall | memory: rows, bytes a row | process, its own | files mapped | disk | first checkpoint, its bytes | the next, its bytes | restore | a batch of one late click, median (99%); of 1,000, each |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for segment_rows in sizes:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            one = pool.submit(measure, rows, segment_rows).result()
        where = f"on disk, {segment_rows:,} at a time" if segment_rows else "in memory"
        print(one, file=sys.stderr)
        print(
            f"| {rows:,} {where} | {one['ns']:.0f} | {one['wall ns']:.0f} | {one['rows'] / 1e9:.2f} GB, {one['rows'] / rows:.1f} | {one['own'] / 1e9:.2f} GB | {one['files'] / 1e9:.2f} GB "
            f"| {one['disk'] / 1e9:.2f} GB | {one['first checkpoint']:.2f} s, {one['first checkpoint bytes'] / 1e6:.0f} MB | {one['checkpoint']:.2f} s, {one['checkpoint bytes'] / 1e6:.0f} MB | {one['restore']:.2f} s "
            f"| {one['late click'] * 1e3:.2f} ms ({one['late click, 99%'] * 1e3:.2f}); {one['late clicks'] * 1e3:.3f} ms |"
        )


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    main(given[0] if given else ROWS, tuple(given[1:]) or SIZES)
