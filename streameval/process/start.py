"""The start of a process: quick imports, and three standard streams whatever the parent has closed."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quick_imports() -> Iterator[None]:
    """For the block that imports the program, in a process that is ours.

    Some 500,000 objects come into being, nearly all of them for good. The collector would scan them again and again,
    then and at each full collection after: a fifth of the time of a short command.
    """
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


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
