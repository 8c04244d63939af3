"""Progress of long work: one line on a terminal, redrawn; nothing elsewhere, and nothing for work that ends within two
seconds.

A separate thread draws it, so that work that reports nothing for a while (compiling, fitting) is still seen to be
alive.
"""

from __future__ import annotations

import logging
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

SHOWN_AFTER = 2.0  # seconds before anything is shown
_EVERY = 0.25  # seconds between two drawings
_CELLS = 20  # of the bar
_FIRST = "the first run on a machine compiles for up to a minute"
_CLEAR = "\r\x1b[2K"


class ProgressLine:
    """Call it with what is done, as a share in [0, 1] (None: unknown), and words."""

    def __init__(self, label: str, stream: TextIO, patience: float = SHOWN_AFTER, starting: str = _FIRST) -> None:
        self._label, self._stream, self._patience = label, stream, patience
        self._share: float | None = None
        self._words = starting
        self._begin = time.monotonic()
        self._drawn = False
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def __call__(self, share: float | None, words: str = "") -> None:
        self._share, self._words = share, words

    def clear(self) -> None:
        """Clears the line, for other output; it reappears by itself."""
        with self._lock:
            if self._drawn:
                self._stream.write(_CLEAR)
                self._stream.flush()
                self._drawn = False

    def line(self, seconds: float) -> str:
        """What is shown after so many seconds."""
        share = self._share
        if share is None:
            parts = [f"{self._label}: {seconds:.0f} s", self._words]
        else:
            share = min(1.0, max(0.0, share))
            cells = round(share * _CELLS)
            left = f"about {seconds * (1 - share) / share:.0f} s left" if 0.02 <= share < 1 else ""
            bar = "#" * cells + "-" * (_CELLS - cells)
            parts = [f"{self._label}: [{bar}] {share:4.0%}", self._words, f"{seconds:.0f} s", left]
        return ", ".join(part for part in parts if part)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Clears the line for good."""
        self._over.set()
        self._thread.join()
        self.clear()

    def _run(self) -> None:
        wait = self._patience
        while not self._over.wait(wait):
            wait = _EVERY
            text = self.line(time.monotonic() - self._begin)
            with self._lock:
                self._stream.write(_CLEAR + text[: shutil.get_terminal_size().columns - 1])
                self._stream.flush()
                self._drawn = True


class _Aside(logging.Filter):
    """Clears the line before a line of the log is written."""

    def __init__(self, progress: ProgressLine) -> None:
        super().__init__()
        self._progress = progress

    def filter(self, record: logging.LogRecord) -> bool:
        del record
        self._progress.clear()
        return True


@contextmanager
def shown(label: str, starting: str = _FIRST) -> Iterator[ProgressLine | None]:
    """ProgressLine on standard error for as long as the block runs; None where that is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    progress = ProgressLine(label, sys.stderr, starting=starting)
    aside, handlers = _Aside(progress), list(logging.getLogger().handlers)
    for handler in handlers:
        handler.addFilter(aside)
    progress.start()
    try:
        yield progress
    finally:
        for handler in handlers:
            handler.removeFilter(aside)
        progress.stop()
