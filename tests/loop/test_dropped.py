"""Whoever makes many monitors in one process gets the memory of those that are dropped back at once.

A cycle of references would keep a run's tables until garbage is collected, which goes by the number of objects: a pipeline
is few objects and tens of megabytes.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import streameval
from streameval.loop.pipeline import Pipeline
from streameval.testing import readers_see
from tests.face.tables import as_clicks, impressions
from tests.laws.streams import PARTITIONS, make_settings
from tests.laws.test_restart_laws import Process, messages


@contextmanager
def cycles() -> Iterator[Callable[[], set[str]]]:
    """The classes of ours of which only a collection of garbage would have freed something."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:

        def found() -> set[str]:
            gc.collect()
            kept = {f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.garbage}
            return {name for name in kept if name.startswith("streameval.")}

        yield found
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def run_and_drop() -> None:
    process = Process(make_settings("value", "impression", models=True, shared=False, valued=True), [])
    for partition in range(PARTITIONS):
        part = messages()[partition][:1_000]
        process.take(partition, part, len(part))
    pipeline: Pipeline = process.pipeline
    assert readers_see(pipeline).report()["results"]


def test_a_pipeline_with_everything_in_it_is_in_no_cycle() -> None:
    run_and_drop()  # what is made once a process
    with cycles() as found:
        run_and_drop()
        assert found() == set()


def watch_and_drop() -> None:
    monitor = streameval.Monitor(slices=["country"], windows=["1h"])
    monitor.update(*as_clicks(impressions(1_000)))
    monitor.finish()
    assert monitor.snapshot().report()["results"]


def test_nor_is_a_monitor_in_somebody_s_own_loop() -> None:
    watch_and_drop()
    with cycles() as found:
        watch_and_drop()
        assert found() == set()
