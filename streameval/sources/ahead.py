"""Decoding one batch ahead: while the loop counts a batch, another thread decodes the next one.

Most of decoding is in kernels that release the interpreter's lock. The order of the batches stays what it was, one is decoded at
a time, and none is under way between two calls of `Source.deliver`: then names may be given up, and partitions.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import Executor, wait
from itertools import islice
from typing import TypeVar

_T = TypeVar("_T")
MOST_BATCHES = 4  # batches of one call
SLICE_SECONDS = 0.25  # that they should take: then other things are due


def ahead(steps: Iterator[_T], worker: Executor) -> Generator[_T]:
    """What `steps` gives, each made by `worker` (of one thread) while the caller uses the one before.

    What a step raises is raised here, in its place.
    """
    step = worker.submit(list, islice(steps, 1))  # the next one, or none
    try:
        while made := step.result():
            step = worker.submit(list, islice(steps, 1))
            yield made[0]
    finally:
        wait([step])  # the caller may have stopped in the middle


class Lookahead:
    """How many batches one call should bring while there is a backlog, by what the last ones took to be counted."""

    def __init__(self) -> None:
        self.batches = 1

    def took(self, seconds: float, full: bool) -> None:
        """`full`: there may have been more."""
        if seconds > 2 * SLICE_SECONDS:
            self.batches = 1
        elif seconds < SLICE_SECONDS and full:
            self.batches = min(2 * self.batches, MOST_BATCHES)
