"""The start of a process: quick imports, and three standard streams whatever the parent has closed."""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

NEW_OBJECTS = 20_000  # between two looks of the collector at the youngest
_TURN = 0.0005  # seconds


@contextmanager
def quick_imports() -> Iterator[None]:
    """For the block that imports the program, in a process that is ours.

    Some 500,000 objects come into being, nearly all of them for good. The collector would scan them again and again,
    then and at each full collection after: a fifth of the time of a short command. Later it is to look more rarely than by
    default: a snapshot of many slices is a hundred thousand objects and no cycles, and a third of its time was the collector's.
    """
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.set_threshold(NEW_OBJECTS)
        gc.enable()


def take_short_turns() -> None:
    """Has threads hand on the interpreter after half a millisecond (5 by default): a scrape waits for several turns of the
    loop's.
    """
    sys.setswitchinterval(min(_TURN, sys.getswitchinterval()))


def open_standard_streams() -> None:
    """Opens stdin, stdout and stderr on /dev/null where the parent has closed them, before any other file is opened.

    Otherwise Python's stream is None, and the next file or socket gets the number: what a library writes to stderr would be
    written into a checkpoint.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115  (as long as the process)


class _StandardOutput(io.FileIO):
    """File descriptor 1, whose errors say where they come from: the system's do not, and click prints help by itself."""

    _failed = False

    def write(self, data: Any) -> int:
        if self._failed:  # at the exit Python tries once more to write what it still has
            return len(data)
        try:
            return super().write(data)
        except OSError as error:
            self._failed = True
            if not isinstance(error, BrokenPipeError):  # then the reader has had enough
                error.filename = "standard output"
            raise


def name_standard_output() -> None:
    """From now on a full disk behind standard output is an error with its name."""
    before = sys.stdout
    raw = io.BufferedWriter(_StandardOutput(1, "w", closefd=False))
    sys.stdout = io.TextIOWrapper(raw, before.encoding, before.errors, line_buffering=before.isatty())
