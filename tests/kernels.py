"""Compiles the kernels into Numba's cache, once: `python -m tests.kernels`, before several processes need them.

It replays the golden record's hour, with its settings and with others, which needs nearly all of them. With `--record` it writes
what a start compiles, in that order, to where starts look it up (`loop.preparing.KERNELS`): after a change of a kernel's
arguments, or of what the warm-up sends.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from streameval import app
from streameval.loop.pipeline import Pipeline
from streameval.loop.preparing import KERNELS
from streameval.process.compiling import Compiling, Kernel, as_line
from streameval.settings.tree import Settings
from streameval.sources.dead_letters import JsonlDeadLetters
from streameval.sources.files import FileSource
from tests.house import runs

# what a first look of a comparison calls from Python, once it has evidence, which no warm-up has: their lines stay
OF_A_LOOK = {"streameval.compare.evidence.eprocess:mixture_root", "streameval.compare.evidence.eprocess:t_score"}
STARTED = {"slices": {"dimensions": ["country"]}, "models": [{"name": "ftrl", "kind": "ftrl"}]}


def read_rows() -> None:
    """Reads CSV, and mapped JSON lines."""
    event = {"type": "impression", "impression_id": "i", "ts": 10**12, "user_id": "u", "pclick": 0.5, "features.a": "x"}
    columns = {name: name for name in event} | {"ts": {"column": "ts", "unit": "ms"}, "features": ["features.*"]}
    del columns["features.a"]
    mapped = Settings.model_validate(STARTED | {"files": {"columns": columns}})
    with tempfile.TemporaryDirectory() as folder:
        table, lines = Path(folder) / "t.csv", Path(folder) / "t.jsonl"
        table.write_text(f"{','.join(event)}\n{','.join(map(str, event.values()))}\n")
        lines.write_text(json.dumps(event) + "\n")
        for settings, path in ((Settings.model_validate(STARTED), table), (mapped, table), (mapped, lines)):
            decoder = app.make_decoder(settings, Pipeline(settings, time.time))
            source = FileSource([path], decoder, settings.files, 10, JsonlDeadLetters(""))
            while not source.finished:
                source.poll(0.0)
            source.close()


def started() -> list[Kernel | None]:
    """What a start compiles for itself, in order; all of it where Numba's cache is empty. None stands between the parts that
    `loop.preparing` knows.

    The kernel of JSON comes after all that is needed without it: JSON is read all the same.
    """
    settings = Settings.model_validate(STARTED)
    slowly = settings.model_copy(update={"batch": settings.batch.model_copy(update={"json_kernel": False})})
    with Compiling([], helpers=0) as compiling:
        app._warm_up(settings, first=True)
        ends = [len(compiling.compiled)]
        app._warm_up(slowly)
        ends.append(len(compiling.compiled))
        app._warm_up(settings)
        ends.append(len(compiling.compiled))
        read_rows()
        ends.append(len(compiling.compiled))
    out: list[Kernel | None] = []
    for begin, end in zip([0, *ends], ends, strict=False):
        ours = [kernel for kernel in compiling.compiled[begin:end] if kernel[0].startswith("streameval.")]
        out += [None, *ours] if begin else ours
    return out


def record() -> None:
    """Writes the list anew."""
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, "-m", "tests.kernels", "--started"]
        done = subprocess.run(command, env={**os.environ, "NUMBA_CACHE_DIR": cache}, check=True, stdout=subprocess.PIPE)
    lines = done.stdout.decode().splitlines()
    before = filter(None, KERNELS.read_text().splitlines())
    after_later = lines.index("", lines.index("") + 1)
    lines[after_later:after_later] = [x for x in before if json.loads(x)[0] in OF_A_LOOK and x not in lines]
    KERNELS.write_text("".join(f"{line}\n" for line in lines))
    print(f"{KERNELS.name}: {sum(map(bool, lines))} kernels")


def main() -> None:
    """The command."""
    if "--record" in sys.argv[1:]:
        record()
        return
    if "--started" in sys.argv[1:]:  # what `record` runs in a process of its own
        print("\n".join("" if kernel is None else as_line(kernel) for kernel in started()))
        return
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        runs.hour_replayed(Path(folder) / "a")
        runs.hour_replayed_otherwise(Path(folder) / "b")
    print(f"kernels ready after {time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
