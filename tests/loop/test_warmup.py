"""What is compiled at the start is what traffic will need."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from streameval.app import make_decoder
from streameval.loop.pipeline import Pipeline
from streameval.loop.warmup import _MANY, warm_up
from streameval.settings.tree import Settings

SETTINGS = {
    "slices": {"dimensions": ["country"]},
    "join": {"attribution_window": "20s", "allowed_lateness": "2s", "correction_horizon": "20m"},
    "models": [{"name": "ftrl", "kind": "ftrl"}],
}

_TRAFFIC = f"""
import gc, pathlib, sys, threading, time
from numba.core.dispatcher import Dispatcher
from streameval import app
from streameval.commands import demo
from streameval.settings.tree import Settings
from streameval.loop.pipeline import Pipeline

def kernels():
    ours = [o for o in gc.get_objects() if issubclass(type(o), Dispatcher) and o.py_func.__module__.startswith("streameval")]
    return {{(o.py_func.__module__, o.py_func.__name__): len(o.signatures) for o in ours}}

settings = Settings.model_validate({SETTINGS!r})
app._warm_up(settings)
before = kernels()
demo.simulate(sys.argv[1], "nasty", 200.0, 100.0, None, 1, settings, threading.Event())
pipeline = Pipeline(settings, time.time)
decoder = app.make_decoder(settings, pipeline)
lines = pathlib.Path(sys.argv[1]).read_bytes().splitlines()
for i in range(0, len(lines), 500):
    part = lines[i : i + 500]
    batch, _ = decoder.messages(
        part, [0] * len(part), topic=("t",), partition=0, offsets=range(len(part)), format="json", shared=True
    )
    pipeline.take(batch)
    pipeline.advance()
pipeline.finish()
events = pipeline.snapshot().events
assert events["corrected"] and events["matured"] > 1000, events
after = kernels()
print(*sorted(".".join(name) for name in after if after[name] != before.get(name, 0)))
"""


@pytest.mark.slow
def test_after_the_warm_up_traffic_compiles_nothing_but_what_makes_tables_grow(tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _TRAFFIC, str(tmp_path / "nasty.jsonl")],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    growth = {"streameval.join.index._enter_all", "streameval.counting.requests._reindex"}
    assert set(done.stdout.split()) <= growth


def test_the_warm_up_goes_the_whole_way_for_any_windows() -> None:
    for tree in ({}, SETTINGS, {"join": {"attribution_window": "24h", "correction_horizon": "48h"}}):
        settings = Settings.model_validate(tree)
        pipeline = Pipeline(settings, time.time)
        warm_up(pipeline, make_decoder(settings, pipeline))
        counts = pipeline.partitions[0].joiner.counts
        assert (counts["impressions"], counts["clicks"], counts["matured"]) == (3 * _MANY, 3, 3 * _MANY)
        assert counts["matched_clicks"] >= 2
