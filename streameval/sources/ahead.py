"""Decoding one batch ahead: while the loop counts a batch, another thread decodes the next one.

Most of decoding is in kernels that release the interpreter's lock. The order of the batches does not change, one is
decoded at a time, and none is in progress between two calls of `Source.deliver`, so names can be released and
partitions revoked then.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import Executor, wait
from itertools import islice
from typing import TypeVar

_T = TypeVar("_T")
MOST_BATCHES = 16  # per call: the last one of each is counted while nothing is decoded
SLICE_SECONDS = 0.25  # the time they should take, because other things are due then


def ahead(steps: Iterator[_T], worker: Executor) -> Generator[_T]:
    """Yields what `steps` yields, each computed by `worker` (of one thread) while the caller uses the previous one.

    Exceptions of a step are raised here, in its place.
    """
    step = worker.submit(list, islice(steps, 1))  # the next one, or none
    try:
        while made := step.result():
            step = worker.submit(list, islice(steps, 1))
            yield made[0]
    finally:
        wait([step])  # the caller may have stopped early


class Lookahead:
    """How many batches one call should bring while there is a backlog, based on how long the last ones took."""

    def __init__(self) -> None:
        self.batches = 1

    def took(self, seconds: float, full: bool) -> None:
        """Records how long a call took; `full`: there may have been more batches."""
        if seconds > 2 * SLICE_SECONDS:
            self.batches = 1
        elif seconds < SLICE_SECONDS and full:
            self.batches = min(2 * self.batches, MOST_BATCHES)
