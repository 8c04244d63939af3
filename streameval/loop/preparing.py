"""Before the first event is read: kernels are made ready, and readers are told how far that is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from streameval.process.compiling import Compiling, read_kernels
from streameval.results.publish import Publisher

KERNELS = Path(__file__).with_name("kernels.jsonl")  # what starts have compiled (`python -m tests.kernels --record`)
TELL_SECONDS = 1.0  # a warm start is over before


def helped(stop: threading.Event | None = None) -> Compiling:
    """For a block that compiles what it needs as it needs it; see `Compiling`."""
    return Compiling(read_kernels(KERNELS.read_text()), stop=stop)


@contextmanager
def prepared(
    publisher: Publisher,
    show: Callable[[float | None, str], None] | None = None,
    stop: threading.Event | None = None,
) -> Iterator[Compiling]:
    """For the block that makes kernels ready: has helpers for what must be compiled, and publishes how far it is.

    `show` gets the share that is done, and words. Once `stop` is set, the block gets `Interrupted` at its next kernel.
    """
    compiling, over = helped(stop), threading.Event()

    def tell() -> None:
        while not over.wait(TELL_SECONDS):
            words, latest = compiling.words(), publisher.latest()
            told = words or "loading kernels"
            publisher.publish(replace(latest, number=latest.number + 1, taken_at=time.time(), preparing=told))
            if words and show is not None:
                show(compiling.share(), words)

    teller = threading.Thread(target=tell, name="preparing", daemon=True)
    teller.start()
    try:
        with compiling:
            yield compiling
    finally:
        over.set()
        teller.join()
