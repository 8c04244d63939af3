"""Kernels that several processes compile at once."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
import pytest
from numba import types
from numba.core import event as events

from streameval.process.compiling import Compiling, Interrupted, _step_back, as_line, read_kernels
from streameval.process.signatures import from_json, to_json

_MODULE = """
import numba

@numba.njit(cache=True)
def first(x):
    return x + 1

@numba.njit(cache=True)
def second(x):
    return x * 2
"""

_RUN = """
import sys, time
sys.path.insert(0, sys.argv[1])
import made
from streameval.process.compiling import Compiling, Interrupted, as_line

kernels = [("made:first", ('"int64"',)), ("made:second", ('"int64"',)), ("made:gone", ('"int64"',))]
with Compiling(kernels, helpers=int(sys.argv[2]), few=0) as compiling:
    assert compiling.words() == ""
    made.first(1)
    deadline = time.monotonic() + float(sys.argv[3])
    while compiling.helped < min(int(sys.argv[2]) * 2, len(kernels) - len(compiling.compiled)) and time.monotonic() < deadline:
        time.sleep(0.05)
    made.second(1)
print(compiling.helped, [name for name, _ in compiling.compiled], compiling.done, compiling.words())
"""


def run(folder: Path, helpers: int, patience: int = 240, code: str = _RUN) -> str:
    """What a process says that needs both kernels, with Numba's cache in the folder; it waits for helpers so many seconds."""
    (folder / "made.py").write_text(_MODULE)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(folder), str(helpers), str(patience)],
        capture_output=True,
        text=True,
        check=False,
        timeout=480,
        env={"NUMBA_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": f"{Path.cwd()}:{folder}", "PATH": ""},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_a_helper_compiles_from_the_far_end_what_this_process_then_finds(tmp_path: Path) -> None:
    # the last one is no longer in its module: it is passed by, and nobody misses it
    assert run(tmp_path, 1) == "2 ['made:first'] 3 compiling kernel 3 of 3, once on a machine"


def test_where_no_thread_may_start_this_process_compiles_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with `ulimit -u`: it was an internal error."""

    class Refused(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading, "Thread", Refused)
    over: list[bool] = []
    with Compiling([], later=[("made:first", ())], helpers=1) as compiling:
        compiling.go_on(lambda: over.append(True))
    assert over == [True]


@pytest.mark.slow
def test_where_everything_is_compiled_nobody_is_asked(tmp_path: Path) -> None:
    assert run(tmp_path, 0).startswith("0 ['made:first', 'made:second'] 2")
    assert run(tmp_path, 3, patience=3) == "0 [] 0"


_GO_ON = """
import sys, threading
sys.path.insert(0, sys.argv[1])
import made
from streameval.process.compiling import Compiling

all_compiled, stop = threading.Event(), threading.Event()
with Compiling([("made:first", ('"int64"',))], [("made:second", ('"int64"',))], int(sys.argv[2]), 0, stop) as compiling:
    made.first(1)
    stop.set()
    compiling.go_on(all_compiled.set)
    assert all_compiled.wait(240)
    made.second(1)
    made.first(1.5)  # on no list: who needs it compiles it, whatever is to stop
print([name for name, _ in compiling.compiled], compiling.total)
"""


@pytest.mark.slow
@pytest.mark.parametrize("helpers", [0, 2])
def test_what_is_needed_later_is_compiled_while_this_process_goes_on(tmp_path: Path, helpers: int) -> None:
    assert run(tmp_path, helpers, code=_GO_ON) == "['made:first', 'made:first'] 1"


@pytest.mark.parametrize(("own", "of_helpers"), [(0, 10), (15, 15)])
def test_helpers_step_back_and_never_before_this_process(
    monkeypatch: pytest.MonkeyPatch, own: int, of_helpers: int
) -> None:
    """As root a helper of a process at 19 was raised to 10."""
    monkeypatch.setattr(os, "getpriority", lambda which, who: own)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True) as process:
        _step_back(process)
        monkeypatch.undo()
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == max(of_helpers, os.getpriority(os.PRIO_PROCESS, 0))
        process.communicate("\n")


def test_a_kernel_that_another_thread_has_begun_before_is_let_pass() -> None:
    with Compiling([], helpers=0) as compiling:
        compiling.on_end(None)
        assert compiling.done == 0


def test_while_a_kernel_is_compiled_that_is_said() -> None:
    """A loop that compiles what labels need takes no snapshot meanwhile."""
    said = []
    with Compiling([], helpers=0) as compiling:

        class Watched(events.Listener):  # type: ignore[misc]  # Numba has no types
            def on_start(self, event: object) -> None:
                said.append(compiling.awaited())

            def on_end(self, event: object) -> None:
                pass

        with events.install_listener("numba:compile", Watched()):
            assert compiling.awaited() == ""
            assert numba.njit(lambda x: x + 1)(1) == 2
            assert compiling.awaited() == ""
    assert set(said) == {"compiling a kernel, once on a machine"}


class Pair(NamedTuple):
    """For a signature."""

    one: int
    other: float


@pytest.mark.parametrize(
    "value",
    [
        1,
        1.5,
        True,
        np.int32(1),
        np.zeros(3),
        np.zeros((2, 3), np.uint8, order="F"),
        np.zeros((4, 4), np.bool_)[::2, ::2],
        (1, 2),
        (1, 2.5, np.zeros(1, np.int8)),
        Pair(1, 2.5),
        Pair(1, 2),
        (Pair(1, 2.5), (1,)),
    ],
)
def test_a_signature_is_what_it_was(value: object) -> None:
    kind = numba.typeof(value)
    assert from_json(to_json(kind)) == kind


def test_arrays_that_are_read_only_stay_so() -> None:
    array = np.zeros(3)
    array.flags.writeable = False
    assert from_json(to_json(numba.typeof(array))) == numba.typeof(array) != numba.typeof(np.zeros(3))


def test_what_has_no_form_is_said() -> None:
    with pytest.raises(ValueError, match="no form"):
        to_json(types.unicode_type)
    with pytest.raises(ValueError, match="no form"):
        to_json(types.Array(types.unicode_type, 1, "C"))


def test_a_line_is_a_kernel() -> None:
    kernel = ("some:kernel", ('"int64"', '["", "int64", "float64 1C"]'))
    assert read_kernels(as_line(kernel) + "\n") == [kernel]


def test_once_it_is_to_stop_nothing_more_is_compiled_and_what_is_compiled_goes_on() -> None:
    ready, wanted = numba.njit(lambda x: x + 1), numba.njit(lambda x: x * 2)
    ready(1)
    stop = threading.Event()
    stop.set()
    with Compiling([], helpers=0, stop=stop) as compiling:
        assert ready(1) == 2
        with pytest.raises(Interrupted):
            wanted(1)
        assert compiling.done == 0
    assert wanted(3) == 6
