"""Configures glibc's malloc to keep the resident set small and flat: freed memory goes back to the system.

By default it keeps freed blocks for reuse. Blocks never move, so tables of megabytes among small blocks leave gaps that
only grow, in every thread's arena. Hence one arena for all threads, large blocks in their own pages, and free pages
returned periodically.

Pages of its own are new ones each time, and the system clears them: a microsecond or more each in a virtual machine. So
columns of batches, which come and go, are not large. (Measured at full load, in a virtual machine: with blocks from 256 kB
on in pages of their own 820 MB of anonymous memory, from 2 MB on 950, from 8 MB on 1,200 to 1,430; system time a million
messages of Kafka 1.4 to 1.8, 0.9 to 1.2 and 0.7 to 1.1 s with confluent, 2.6 to 3.2, 1.2 to 1.6 and 0.5 to 1.1 s with
kafka-python.)
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -2, -3, -8  # of <malloc.h>
_LARGE = 2 << 20  # from here on pages of its own; fixed, or the first 30 MB table freed raises it to 30 MB for good
# Fixing one fixes all: the rest of what would follow `_LARGE` is set too, or the heap's end moves with every batch.
_SETTINGS = ((_M_MMAP_THRESHOLD, _LARGE), (_M_TRIM_THRESHOLD, 16 << 20), (_M_TOP_PAD, 1 << 20), (_M_ARENA_MAX, 1))


def _glibc() -> Any:
    try:
        library = ctypes.CDLL(None)
        return library if library.malloc_trim and library.mallopt else None
    except (OSError, AttributeError, TypeError):  # not glibc: nothing to do
        return None


_libc = _glibc()


def settle() -> None:
    """Before the first thread: how memory is allocated from now on. Does nothing when the environment sets it."""
    chosen = any(name.startswith("MALLOC_") for name in os.environ) or "glibc.malloc" in os.environ.get(
        "GLIBC_TUNABLES", ""
    )
    if _libc is not None and not chosen:
        for parameter, value in _SETTINGS:
            _libc.mallopt(parameter, value)


def give_back() -> None:
    """Returns free pages of the heap to the system; 2 to 30 ms, other threads that allocate wait."""
    if _libc is not None:
        _libc.malloc_trim(0)
