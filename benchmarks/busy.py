"""A server over a pipeline that ingests endless traffic at full speed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.events import Events
from benchmarks.pipeline import settings
from streameval import __version__
from streameval.app import new_publisher, open_store
from streameval.events.batch import Batch
from streameval.loop.pace import PUBLISH_SHARE
from streameval.loop.pipeline import Pipeline
from streameval.server.http.app import create_app
from streameval.server.http.serve import serve
from streameval.settings.store import Store
from streameval.settings.tree import Slices
from streameval.sources.dead_letters import JsonlDeadLetters
from streameval.testing import readers_see

_BEGIN, _SPAN = 1_700_000_000_000, 10_800_000  # of `Events`


@dataclass(slots=True)
class Busy:
    """The server's address, and how many impressions the pipeline has taken."""

    url: str
    port: int
    impressions: int = 0

    def rate(self, seconds: float) -> float:
        """Impressions a second over the next `seconds`."""
        begin, at = time.monotonic(), self.impressions
        time.sleep(seconds)
        return (self.impressions - at) / (time.monotonic() - begin)


@contextmanager
def busy(store: Path | None = None, dense: int = 1, paced: bool = False, countries: int = 20) -> Iterator[Busy]:
    """Runs until the block ends. `dense`: events a minute, as a multiple of those of `Events`; `paced`: requests have a
    budget; `countries`: values of the slice dimension.
    """
    tree = settings(False).model_copy(update={"slices": Slices(dimensions=("country",))})
    if store is not None:
        tree = tree.model_copy(update={"store": Store(path=str(store))})
    events = Events(1_000_000, countries=countries)
    publisher = new_publisher(tree)
    pipeline = Pipeline(tree, time.time)
    keeper, history = open_store(tree, pipeline, JsonlDeadLetters(""))
    if keeper is not None:
        keeper.take(frozenset({0}))
    app = create_app(publisher, tree.server, version=__version__, history=history, paced=paced)
    server = serve(app, "127.0.0.1", 0)
    events.name_slices(pipeline.catalog)
    batches = list(events.batches(pipeline.catalog, 10_000))
    stop = threading.Event()
    out = Busy(server.url, server.port)

    def ingest() -> None:
        due, number = 0.0, 0
        while True:
            for batch in batches:
                if stop.is_set():
                    return
                pipeline.take(_later(batch, number, dense))
                if keeper is not None:
                    keeper.tick()
                out.impressions += len(batch.impressions)
                now = time.monotonic()
                if now >= due:
                    publisher.publish(readers_see(pipeline, history=keeper.history_state() if keeper else None))
                    due = now + max(1.0, PUBLISH_SHARE * (time.monotonic() - now))
            number += 1

    thread = threading.Thread(target=ingest, daemon=True)
    thread.start()
    try:
        yield out
    finally:
        stop.set()
        thread.join()
        server.stop()
        if keeper is not None:
            keeper.close()


def _later(batch: Batch, number: int, dense: int) -> Batch:
    """The same batch again for every `number`, later than all before it and with new ids."""
    other = np.uint64(number) << np.uint64(32)
    imp, clicks = batch.impressions, batch.clicks

    def moved(ts: NDArray[np.int64]) -> NDArray[np.int64]:
        return _BEGIN + (ts - _BEGIN) // dense + number * _SPAN // dense

    return replace(
        batch,
        impressions=replace(imp, ts=moved(imp.ts), id=imp.id ^ other),
        clicks=replace(clicks, ts=moved(clicks.ts), id=clicks.id ^ other),
    )
