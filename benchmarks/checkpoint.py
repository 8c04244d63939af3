"""A checkpoint of 1 million users and 5 million pending impressions: the pause of ingest, the time to write it, and a restart."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from streameval.app import open_store
from streameval.events.batch import Batch, Catalog, Features, Impressions, empty_clicks
from streameval.loop.pipeline import Pipeline
from streameval.models.ftrl import Ftrl
from streameval.settings.tree import Settings
from streameval.sources.dead_letters import JsonlDeadLetters
from streameval.testing import readers_see

BUILD = Path("build")
USERS = 1_000_000
PENDING = 5_000_000
SIZE = 50_000
START = 1_760_000_000_000
WINDOW = 1_800_000


def batches(catalog: Catalog, count: int, start: int, first: int, features: int) -> Iterator[Batch]:
    """`count` impressions spread evenly over half an hour."""
    rng = np.random.default_rng(first)
    code = catalog.series_code("default", "v1")
    indptr = np.arange(SIZE + 1, dtype=np.int64) * features
    for at in range(0, count, SIZE):
        ts = start + (np.arange(at, at + SIZE) * WINDOW) // count
        zero = np.zeros(SIZE, np.uint64)
        impressions = Impressions(
            order=np.arange(SIZE, dtype=np.int32),
            id=rng.integers(1, 1 << 63, SIZE).astype(np.uint64),
            ts=ts,
            user=rng.integers(1, USERS + 1, SIZE).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15),
            request=zero,
            item=zero,
            series=np.full(SIZE, code, np.int32),
            pclick=1 / (1 + np.exp(-rng.normal(-4, 1, SIZE))),
            slices=np.zeros(SIZE, np.int64),
            label=np.full(SIZE, -1, np.int8),
        )
        if features:
            index = rng.integers(0, 1 << 63, SIZE * features).astype(np.uint64)
            columns = Features(indptr, index, np.ones(SIZE * features))
            impressions = replace(impressions, features=columns)
        offset = first + at + SIZE
        yield Batch(0, impressions, empty_clicks(), True, {("impressions", 0): offset})


def measure(features: int) -> list[tuple[str, float, float | None, str]]:
    """(what, measured, limit, unit)."""
    models = [{"name": "ftrl", "kind": "ftrl"}] if features else []
    BUILD.mkdir(exist_ok=True)  # on the disk of the repository: /tmp may be in memory
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        settings = Settings.model_validate(
            {
                "join": {"correction_horizon": "45m"},
                "compare": {
                    "gauc_window": "1m"
                },  # mature rows stay for the horizon plus this; only pending ones matter here
                "store": {"path": folder, "checkpoint_interval": "1h", "drain_timeout": "2m"},
                "users": {"memory": "4GB"},
                "models": models,
            }
        )
        pipeline = Pipeline(settings, time.time)
        keeper, _ = open_store(settings, pipeline, JsonlDeadLetters(""))
        assert keeper is not None
        keeper.take(frozenset({0}))
        for part in range(4):  # mature impressions: 20 a user
            for batch in batches(pipeline.catalog, PENDING, START + part * WINDOW, part * PENDING, 0):
                pipeline.take(batch)
        usual = 0.0
        for number, batch in enumerate(batches(pipeline.catalog, PENDING, START + 4 * WINDOW, 4 * PENDING, features)):
            step = time.perf_counter()
            pipeline.take(batch)
            if number >= PENDING // SIZE // 2:
                usual = max(usual, time.perf_counter() - step)
        for learner in pipeline.partitions[0].learners:  # all coordinates in use, the worst case for the pause
            assert isinstance(learner.model, Ftrl)
            learner.model._zn[:] = 1e-3
        readers_see(pipeline)
        monitor = pipeline.partitions[0]
        pending, users = monitor.joiner.pending, len(monitor.scoreboard.users.columns(0)[0])
        keeper._write_history(fold=False)  # the checkpoint would wait for it, because the same thread writes both
        keeper._history_due = time.monotonic() + 1e6
        while keeper._job is not None:
            time.sleep(0.02)
            keeper._finish(None)
        keeper._held[0].due = time.monotonic()
        began = time.perf_counter()
        keeper.tick()
        pause = time.perf_counter() - began
        longest, taken = 0.0, 0
        more = batches(pipeline.catalog, PENDING, START + 5 * WINDOW, 5 * PENDING, features)
        while keeper.state().written == 0:  # ingest continues meanwhile, at about 1,000,000 a minute
            step = time.perf_counter()
            if taken < 20:
                pipeline.take(next(more))
                taken += 1
            keeper.tick()
            longest = max(longest, time.perf_counter() - step)
            time.sleep(0.02)
        background = time.perf_counter() - began
        state = keeper.state()
        again = Pipeline(settings, time.time)
        other, _ = open_store(settings, again, JsonlDeadLetters(""))
        assert other is not None
        began = time.perf_counter()
        other.take(frozenset({0}))
        restore = time.perf_counter() - began
        assert again.partitions[0].joiner.pending == pending
    return [
        ("pending impressions", pending / 1e6, None, "M"),
        ("users", users / 1e6, None, "M"),
        ("size on disk", state.bytes / 1e6, None, "MB"),
        ("ingest waits", pause * 1000, 250, "ms"),
        ("longest batch of 50,000 before", usual * 1000, None, "ms"),
        ("longest batch of 50,000 meanwhile", longest * 1000, None, "ms"),
        ("written in the background", background, 10, "s"),
        ("restored", restore, 10, "s"),
    ]


def main() -> None:
    """Prints the table."""
    print("| features | what | measured | limit |")
    print("|---|---|---|---|")
    for features in (0, 8):
        for what, value, limit, unit in measure(features):
            bound = "" if limit is None else f"{limit:g} {unit}"
            print(f"| {features} | {what} | {value:.3g} {unit} | {bound} |", flush=True)
