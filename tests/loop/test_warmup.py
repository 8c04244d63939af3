"""What is compiled at the start is what traffic will need."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import numba
import pytest

from streameval import app
from streameval.app import make_decoder, new_publisher
from streameval.loop import preparing
from streameval.loop.pipeline import Pipeline
from streameval.loop.preparing import KERNELS
from streameval.loop.warmup import _MANY, warm_up
from streameval.process.compiling import Compiling, Kernel
from streameval.results.snapshot import BEFORE_FIRST
from streameval.settings.tree import Settings
from streameval.sources.formats.decode import Decoder

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

_SLOW = "app.make_decoder(settings.model_copy(update={'batch': settings.batch.model_copy(update={'json_kernel': False})}), pipeline)"


def printed(code: str, events: Path) -> list[str]:
    """The lines that some code prints, whose traffic goes through a file."""
    command = [sys.executable, "-c", code, str(events)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=850)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_after_the_warm_up_traffic_compiles_nothing_but_what_makes_tables_grow(tmp_path: Path) -> None:
    growth = {"streameval.join.index._enter_all", "streameval.counting.requests._reindex"}
    (compiled,) = printed(_TRAFFIC, tmp_path / "nasty.jsonl")
    assert set(compiled.split()) <= growth


_STARTED = """
import gc
from numba.core.dispatcher import Dispatcher
from streameval import app
from streameval.process.compiling import Compiling, as_line, kernel_of
from streameval.settings.tree import Settings
from tests.kernels import STARTED, read_rows

with Compiling([], helpers=0) as compiling:
    app._warm_up(Settings.model_validate(STARTED))
    read_rows()
ours = [o for o in gc.get_objects() if issubclass(type(o), Dispatcher) and o.py_func.__module__.startswith("streameval")]
print(len(compiling.compiled))
for dispatcher in ours:
    for arguments in dispatcher.signatures:
        if (kernel := kernel_of(dispatcher, arguments)) is not None:
            print(as_line(kernel))
"""


@pytest.mark.slow
def test_helpers_have_a_list_of_what_a_start_compiles() -> None:
    """`python -m tests.kernels --record` writes it anew."""
    for _ in range(2):  # where all was compiled before, a process has what it calls, without what is called in there
        done = subprocess.run([sys.executable, "-c", _STARTED], check=True, capture_output=True, text=True, timeout=850)
        compiled, *needed = done.stdout.splitlines()
        if compiled == "0":
            break
    assert compiled == "0"
    listed = list(filter(None, KERNELS.read_text().splitlines()))
    assert set(needed) <= set(listed)
    # what is compiled on behalf of NumPy's functions of arrays (numba.vectorize), which are no kernels of this kind
    within = {"eprocess:mixture_root", "eprocess:t_score", "ratio:ratio_of"}
    assert {json.loads(line)[0].rpartition(".")[2] for line in set(listed) - set(needed)} == within


@pytest.mark.parametrize(
    ("name", "columns", "parts"),
    [
        ("t.jsonl", {}, [0, 1, 2]),
        ("t.csv", {}, [0, 1, 3]),
        ("t.jsonl", {"impression_id": "id", "ts": "at"}, [0, 1, 3]),
        ("t.parquet", {}, [0, 1]),
    ],
)
def test_helpers_of_a_replay_have_the_kernels_of_the_formats_that_it_reads(
    monkeypatch, tmp_path: Path, name: str, columns: dict[str, str], parts: list[int]
) -> None:
    (tmp_path / name).write_bytes(b"{}")
    given: list[list[Kernel]] = []

    class StoppedError(Exception):
        pass

    def compiling(kernels: list[Kernel], stop: object) -> None:
        given.append(kernels)
        raise StoppedError

    monkeypatch.setattr(preparing, "Compiling", compiling)
    with pytest.raises(StoppedError):
        app.replay(Settings.model_validate({"files": {"columns": columns}}), [tmp_path / name])
    every = preparing.kernel_parts()
    assert given == [[kernel for part in parts for kernel in every[part]]]
    assert all(every), "else a part is empty"


def test_while_a_start_compiles_readers_are_told_how_far_it_is(monkeypatch) -> None:
    monkeypatch.setattr(preparing, "TELL_SECONDS", 0.01)
    publisher, shown, words = new_publisher(Settings()), [], [""]
    monkeypatch.setattr(
        preparing, "shown", lambda label: nullcontext(lambda share, words: shown.append((share, words)))
    )
    monkeypatch.setattr(Compiling, "words", lambda self: words[0])
    assert publisher.latest().number == BEFORE_FIRST

    def warm_up(first: bool) -> None:
        deadline = time.monotonic() + 240
        for told, words[0] in (("loading kernels", ""), ("compiling kernel 3 of 80", "compiling kernel 3 of 80")):
            while publisher.latest().preparing != told and time.monotonic() < deadline:
                time.sleep(0.01)

    with preparing.ready_to_read(warm_up, decoder_of(Settings()), publisher):
        told = publisher.latest()
    assert (told.preparing, shown[-1]) == ("compiling kernel 3 of 80", (0.0, "compiling kernel 3 of 80"))
    assert BEFORE_FIRST < told.number < 0  # those that count follow
    assert not told.ready["first_snapshot"]
    assert [t.name for t in threading.enumerate() if t.name == "preparing"] == []


def decoder_of(settings: Settings) -> Decoder:
    return make_decoder(settings, Pipeline(settings, time.time))


@pytest.mark.parametrize("json_kernel", [True, False])
def test_a_first_start_reads_once_the_first_batch_can_be_counted(monkeypatch, json_kernel: bool) -> None:
    settings, asked, then = Settings.model_validate({"batch": {"json_kernel": json_kernel}}), [], []
    decoder = decoder_of(settings)
    monkeypatch.setattr(Compiling, "go_on", lambda self, go: then.append(go))

    def warm_up(first: bool) -> None:
        asked.append(first)
        numba.njit(lambda x: x + 1)(1)  # is not in the cache

    with preparing.ready_to_read(warm_up, decoder, new_publisher(settings)):
        assert (asked, decoder.json_kernel) == ([True], False)
        (ready,) = then
        ready()
        assert decoder.json_kernel is json_kernel


def test_a_start_that_was_interrupted_is_no_slower_the_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """It had left those of the first batch in the cache; then all others were compiled before anything was read."""
    asked, then, compiled, decoder = [], [], [], decoder_of(Settings())
    monkeypatch.setattr(Compiling, "go_on", lambda self, go: then.append(go))

    def warm_up(first: bool) -> None:
        asked.append(first)
        if not first:
            compiled.append(numba.njit(lambda x: x + 2)(1))  # is not in the cache

    with preparing.ready_to_read(warm_up, decoder, new_publisher(Settings())):
        assert (asked, compiled, len(then), decoder.json_kernel) == ([True, False], [], 1, False)
        assert numba.njit(lambda x: x + 3)(1) == 4


def test_where_kernels_were_compiled_before_a_start_waits_for_all_of_them() -> None:
    asked, decoder = [], decoder_of(Settings())
    with preparing.ready_to_read(asked.append, decoder, new_publisher(Settings())):
        assert (asked, decoder.json_kernel) == ([True, False], True)


@pytest.mark.slow
def test_plain_traffic_before_its_first_label_needs_nothing_that_is_compiled_later(tmp_path: Path) -> None:
    code = _TRAFFIC.replace("app._warm_up(settings)", "app._warm_up(settings, first=True)")
    code = code.replace('"nasty", 200.0, 100.0', '"bench", 60.0, 20.0').replace(
        "app.make_decoder(settings, pipeline)", _SLOW
    )
    code = code.replace("pipeline.finish()", "pipeline.snapshot()").replace('events["corrected"] and ', "")
    told = "    pipeline.advance()\n    print(pipeline.snapshot().events['matured'], *sorted('.'.join(n) for n, k in kernels().items() if k != before.get(n, 0)))\n"
    first, *_, last = (
        line.split() for line in printed(code.replace("    pipeline.advance()\n", told), tmp_path / "bench.jsonl")
    )
    lists = "streameval.counting.request"  # which plain traffic may go without
    assert [name for name in first if not name.startswith(lists)] == ["0"]
    assert len(last) > 20, "else all was compiled before, not what is first needed"


def test_the_warm_up_goes_the_whole_way_for_any_windows() -> None:
    for tree in ({}, SETTINGS, {"join": {"attribution_window": "24h", "correction_horizon": "48h"}}):
        settings = Settings.model_validate(tree)
        pipeline = Pipeline(settings, time.time)
        warm_up(pipeline, make_decoder(settings, pipeline))
        counts = pipeline.partitions[0].joiner.counts
        assert (counts["impressions"], counts["clicks"], counts["matured"]) == (4 * _MANY, 3, 4 * _MANY)
        assert counts["matched_clicks"] >= 2
