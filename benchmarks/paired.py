"""What something costs the loop: processor time with it and without it, as a ratio that is known to about 0.01.

Processor time of single runs spreads by a fifth. Most of that is the kernel's: a run leaves the heap in one of two states, so that the
next one touches 60,000 or 150,000 fresh pages, in turn, and a virtual machine may pay 0.5 to 4 us for each. So the ratio is that of
the time in the program itself (user), and the kernel's (system) is printed beside it. Then it matters whether the two threads share a
core: here they always do. And a process has its memory and its kernels where it happens to have them: two processes, each precise to
0.008, differed by 0.025. So every block of runs (without, with, with, without, which cancels whatever drifts) has a process of its own,
and the ratio is the mean over them, with its standard error.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import resource
import statistics
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from streameval.process.memory import settle

BLOCKS = 5
HEAD = "user ns without | system | user with | system, with | ratio of user | standard error |"


class Took(NamedTuple):
    """Processor time of all threads, s."""

    user: float
    system: float

    def since(self, begin: Took) -> Took:
        """The difference."""
        return Took(self.user - begin.user, self.system - begin.system)


def took() -> Took:
    """What the process has taken so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return Took(used.ru_utime, used.ru_stime)


def cells(
    run: Callable[..., Took], without: Sequence[Any], having: Sequence[Any], units: int, blocks: int = BLOCKS
) -> str:
    """Cells of a row, as `HEAD` names them, per unit of which a run has so many.

    `run(*without)` and `run(*having)` return what they took. They are called in other processes, so `run` is a function of a module.
    """
    every = [_in_new_process(run, without, having) for _ in range(blocks)]
    parts = [part for side in zip(*every, strict=True) for part in zip(*side, strict=True)]
    ratios = [on.user / off.user for off, on in every]
    error = statistics.stdev(ratios) / len(ratios) ** 0.5
    means = [f"{statistics.mean(part) / units * 1e9:.0f}" for part in parts]
    return " | ".join([*means, f"{statistics.mean(ratios):.3f}", f"{error:.3f}"])


def on_one_core() -> None:
    """From now on, this process and those that it starts."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def _in_new_process(run: Callable[..., Took], without: Sequence[Any], having: Sequence[Any]) -> tuple[Took, Took]:
    context = multiprocessing.get_context("spawn")
    result, out = context.Pipe(duplex=False)
    child = context.Process(target=_block, args=(run, without, having, out))
    child.start()
    out.close()
    off, on = result.recv()
    child.join()
    return Took(*off), Took(*on)


def _block(run: Callable[..., Took], without: Sequence[Any], having: Sequence[Any], out: Connection) -> None:
    """Sends the means of two runs of either kind."""
    logging.getLogger("streameval").setLevel(logging.ERROR)  # mutes the verdicts of every run
    settle()  # memory as the program has it
    for given in (having, without):
        run(*given)  # compiles, and touches the memory
    gc.freeze()  # as the program does once it is imported
    first, second, third, last = (run(*given) for given in (without, having, having, without))
    out.send([[sum(part) / 2 for part in zip(*pair, strict=True)] for pair in ((first, last), (second, third))])
