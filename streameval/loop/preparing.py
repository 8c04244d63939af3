"""Compiles or loads kernels before the first event is read, and shows the progress to readers.

The first start on a machine waits only for the kernels that the first batch needs, an eighth of all; helpers compile the
rest while it reads. Labels are usually due later; in a backlog, where they are due immediately, the loop compiles what it
needs together with the helpers.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from streameval.process.compiling import Compiling, Kernel, NotCompiled, read_kernels
from streameval.process.progress import shown
from streameval.results.publish import Publisher
from streameval.sources.formats.decode import Decoder

log = logging.getLogger(__name__)

# the kernels that a start compiles (`python -m tests.kernels --record`), in parts with an empty line between them: for the first
# batch, for what follows, for JSON, and for rows of text (CSV, and mapped JSON lines)
KERNELS = Path(__file__).with_name("kernels.jsonl")
TELL_SECONDS = 1.0  # before the first report of progress; a start from the cache takes less

Show = Callable[[float | None, str], None]


def helped(stop: threading.Event | None = None, json: bool = True, rows: bool = False) -> Compiling:
    """For a block that compiles kernels as it needs them; see `Compiling`. `json`, `rows`: whether it reads JSON, and rows of text.

    The kernels of what it reads come last: this process needs them first, and helpers begin at the other end.
    """
    first, later, of_json, of_rows = kernel_parts()
    return Compiling([*first, *later, *(of_json if json else ()), *(of_rows if rows else ())], stop=stop)


@contextmanager
def ready_to_read(
    warm_up: Callable[[bool], None],
    decoder: Decoder,
    publisher: Publisher,
    stop: threading.Event | None = None,
) -> Iterator[None]:
    """For the block that reads events: prepares the kernels before it, and publishes the progress.

    `warm_up` calls all kernels, or (True) those that the first batch needs. If any has to be compiled, the block waits for these
    alone: helpers compile the others meanwhile, and JSON goes through the slow decoder until they are ready.
    Raises Interrupted if `stop` is set before the block begins.
    """
    first, later, of_json, _ = kernel_parts()
    with Compiling(first, [*later, *of_json], few=0, stop=stop) as compiling:
        publisher.awaited = compiling.awaited
        with _told(compiling, publisher):
            warm_up(True)
            first_start = compiling.begun
            if not first_start:
                try:  # a start that was interrupted has left only the first ones
                    with compiling.refused():
                        warm_up(False)
                except NotCompiled:
                    first_start = True
        if first_start:
            log.info(
                "reading begins; the other kernels are compiled in the background, and JSON is read slowly until they are ready"
            )
            wanted, decoder.json_kernel = decoder.json_kernel, False
            compiling.go_on(partial(_all_ready, decoder, wanted))
        yield


def kernel_parts() -> list[list[Kernel]]:
    """Those for the first batch, for what follows, for JSON, and for rows of text."""
    return [read_kernels(part) for part in KERNELS.read_text().split("\n\n")]


def _all_ready(decoder: Decoder, json_kernel: bool) -> None:
    decoder.json_kernel = json_kernel
    log.info("all kernels are ready")


@contextmanager
def _told(compiling: Compiling, publisher: Publisher) -> Iterator[None]:
    """Publishes the progress, and shows it on a terminal."""
    over = threading.Event()

    def tell(show: Show | None) -> None:
        while not over.wait(TELL_SECONDS):
            words, latest = compiling.words(), publisher.latest()
            told = words or "loading kernels"
            publisher.publish(replace(latest, number=latest.number + 1, taken_at=time.time(), preparing=told))
            if words and show is not None:
                show(compiling.share(), words)

    with shown("preparing") as progress:
        teller = threading.Thread(target=tell, args=(progress,), name="preparing", daemon=True)
        teller.start()
        try:
            yield
        finally:
            over.set()
            teller.join()
