"""The first start on a machine: what must be compiled, by several processes at once.

Numba compiles one kernel at a time per process. So while this process compiles what it needs on demand, helpers begin
at the other end of a list of kernels (those that starts needed before) and put theirs into Numba's cache, where this
process finds them. Helpers are started once a few kernels had to be compiled: with a warm cache none is started.

Kernels that are not on the list, or have changed since, are compiled on demand as usual.

A start need not wait for kernels that it needs only later: helpers continue with those at a lower priority (`go_on`).
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from numba.core import event as events

from streameval.process.signatures import Text, from_json, to_json

log = logging.getLogger(__name__)

MOST_HELPERS = 3  # processes of some 400 MB
COMPILED_ALONE = 2  # kernels that only some settings need are compiled before a helper is started
_NICE = 10  # of helpers, while this process counts events
_DONE = "done\n"
_WARNING = "warning: "  # of a helper, for this process's log

Kernel = tuple[str, tuple[str, ...]]  # "module:name", and each argument as JSON


def kernel_of(dispatcher: Any, arguments: Sequence[Any]) -> Kernel | None:
    """What an event of Numba is about; None: it has no form (see `signatures`)."""
    function = dispatcher.py_func
    try:
        return f"{function.__module__}:{function.__qualname__}", tuple(json.dumps(to_json(kind)) for kind in arguments)
    except ValueError:
        return None


def read_kernels(text: str) -> list[Kernel]:
    """Of a file with a line a kernel; empty lines are none."""
    lines = map(json.loads, filter(None, text.splitlines()))
    return [(name, tuple(map(json.dumps, arguments))) for name, *arguments in lines]


def as_line(kernel: Kernel) -> str:
    """A line of that file."""
    name, arguments = kernel
    return json.dumps([name, *map(json.loads, arguments)])


class Interrupted(Exception):  # noqa: N818  (nothing went wrong)
    """What was to be compiled is no longer wanted."""


class NotCompiled(Exception):  # noqa: N818  (nothing went wrong)
    """A kernel is needed that was not compiled before."""


class Compiling(events.Listener):  # type: ignore[misc]  # Numba has no types
    """Watches what this process compiles within the block, and has helpers for the rest."""

    def __init__(
        self,
        kernels: Sequence[Kernel],
        later: Sequence[Kernel] = (),
        helpers: int | None = None,
        few: int = COMPILED_ALONE,
        stop: threading.Event | None = None,
    ) -> None:
        """`kernels`: in the order in which a start needs them, and those that it does not wait for, but needs `later`. `helpers`:
        processes; None: one for every further core. They start after a `few` kernels. Once `stop` is set, who needs a
        kernel that is not compiled gets `Interrupted` instead.
        """
        self._open = dict.fromkeys(kernels)
        self._later = dict.fromkeys(later)
        self.total = len(self._open)
        self.done = 0
        self.helped = 0  # of them by helpers
        self.compiled: list[Kernel] = []  # by this process, in that order
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self._helpers = min(cores - 1, MOST_HELPERS) if helpers is None else helpers
        self._processes: list[subprocess.Popen[str]] = []
        self._helping = 0  # threads
        self._then: Callable[[], None] | None = None
        self._depth = threading.local()
        self._lock = threading.Lock()
        self._few, self._over, self._stop, self._refuses = few, False, stop, False
        self._busy = False
        self.begun = False  # there are more than a few to compile

    def __enter__(self) -> Compiling:
        events.register("numba:compile", self)
        return self

    def __exit__(self, *_: object) -> None:
        events.unregister("numba:compile", self)
        with self._lock:
            self._over = True
            self._open.clear()
            self._later.clear()
            self._then = None
            for process in self._processes:
                process.kill()  # Numba renames whole files into its cache: nothing half written stays

    def on_start(self, event: Any) -> None:
        """This process begins to compile a kernel, perhaps within another one. Raises Interrupted or NotCompiled instead."""
        before = getattr(self._depth, "n", 0)
        if before == 0 and self._stop is not None and self._stop.is_set():
            raise Interrupted
        if before == 0 and self._refuses:
            raise NotCompiled
        self._depth.n = before + 1
        if before > 0:
            return
        self._busy = True
        with self._lock:
            kernel = kernel_of(event.data["dispatcher"], event.data["args"])
            if kernel is not None:
                self._open.pop(kernel, None)
                self._later.pop(kernel, None)
                self.compiled.append(kernel)
            if len(self.compiled) > self._few and not self.begun and not self._over:
                self.begun = True
                self._start(min(self._helpers, len(self._open) + len(self._later)))

    def on_end(self, event: Any) -> None:
        """It has compiled it."""
        del event
        depth = getattr(self._depth, "n", 0)
        if depth == 0:  # begun by another thread, before this watched
            return
        self._depth.n = depth - 1
        if depth == 1:
            self._busy = False
            self._count()

    def share(self) -> float:
        """How much is done, in [0, 1]."""
        return min(1.0, self.done / self.total) if self.total else 0.0

    def words(self) -> str:
        """The progress in words; empty: there is little to compile, or nothing."""
        if not self.begun:
            return ""
        return f"compiling kernel {min(self.done + 1, self.total)} of {self.total}, once on a machine"

    def awaited(self) -> str:
        """What this process compiles at this moment, in words; empty: nothing."""
        return "compiling a kernel, once on a machine" if self._busy else ""

    @contextmanager
    def refused(self) -> Iterator[None]:
        """For a block that uses kernels only if all were compiled before: otherwise NotCompiled is raised in it."""
        self._refuses = True
        try:
            yield
        finally:
            self._refuses = False

    def go_on(self, then: Callable[[], None]) -> None:
        """This process has other things to do now: helpers compile what is left, one at least, and step back for it.

        `then` is called once nothing is left to them. What is needed before is compiled by who needs it, in spite of `stop`.
        """
        with self._lock:
            self._stop, self._then = None, then
            self._open, self._later = {}, self._open | self._later
            for process in self._processes:
                _step_back(process)
            if self._later and not self._helping:
                self._start(1)
            idle = not self._helping
        if idle:
            then()

    def _start(self, helpers: int) -> None:
        for number in range(helpers):
            helper = threading.Thread(target=self._help, name=f"compiling-{number}", daemon=True)
            try:
                helper.start()
            except RuntimeError as error:  # a limit of threads: this process compiles alone
                log.debug("no thread for a helper: %s", error)
                return
            self._helping += 1

    def _count(self, helped: int = 0) -> None:
        with self._lock:
            self.done += 1
            self.helped += helped

    def _help(self) -> None:
        try:
            self._keep_busy()
        finally:
            with self._lock:
                self._helping -= 1
                then = None if self._helping else self._then
            if then is not None:
                then()

    def _keep_busy(self) -> None:
        """One helper: from the far end of the list, then with what is needed later."""
        command = [sys.executable, "-P", "-m", "streameval.process.compiling"]  # -P: no module of the current folder
        with self._lock:
            if self._over:
                return
            try:
                # its own session: Ctrl-C is for this process, which ends its helpers
                process = subprocess.Popen(  # noqa: S603  (our own interpreter)
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
                )
            except OSError as error:
                log.debug("no helper process for compiling: %s", error)
                return
            self._processes.append(process)
            if self._then is not None:
                _step_back(process)
        with suppress(OSError, ValueError), process:
            while (kernel := self._next()) is not None:
                print(as_line(kernel), file=process.stdin, flush=True)
                answer = _answer(process)
                if answer != _DONE:
                    log.debug("%s is left to this process: %s", kernel[0], answer.strip() or "the helper has ended")
                if not answer:
                    break
                self._count(helped=1)

    def _next(self) -> Kernel | None:
        with self._lock:
            if self._open:
                return self._open.popitem()[0]
            kernel = next(iter(self._later), None)
            if kernel is not None:
                del self._later[kernel]
            return kernel


def _answer(process: subprocess.Popen[str]) -> str:
    """What a helper answers; its warnings before it go into the log of this process. Empty: it has ended."""
    for line in process.stdout or ():
        if not line.startswith(_WARNING):
            return line
        log.warning("%s", line.removeprefix(_WARNING).rstrip())
    return ""


def _step_back(process: subprocess.Popen[str]) -> None:
    with suppress(OSError):  # it has ended
        os.setpriority(os.PRIO_PROCESS, process.pid, max(_NICE, os.getpriority(os.PRIO_PROCESS, 0)))


def compile_kernel(name: str, arguments: Sequence[Text]) -> None:
    """Compiles a kernel for these arguments, into Numba's cache. Any Exception if it is not there, or has changed."""
    module, _, function = name.partition(":")
    getattr(importlib.import_module(module), function).compile(tuple(map(from_json, arguments)))


def main() -> None:
    """A helper: compiles what is on each line of its input, and answers when it has."""
    logging.basicConfig(level=logging.WARNING, format=f"{_WARNING}%(message)s", stream=sys.stdout)
    with suppress(BrokenPipeError):  # the parent is gone
        for line in sys.stdin:
            name, *arguments = json.loads(line)
            try:
                compile_kernel(name, arguments)
            except Exception as error:  # the list is older than the code: compiled on demand
                print(repr(error), flush=True)
            else:
                print(_DONE, end="", flush=True)


if __name__ == "__main__":
    main()
