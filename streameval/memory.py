"""Freed memory goes back to the system.

glibc keeps what is freed between blocks still in use, and a month of tables that grow and shrink leaves it ever more
such gaps: the resident set creeps up though nothing is leaked (measured: 2.7% in five minutes at full load; after nine
million events 68 of 826 MB were free, and went back when asked for).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable


def _malloc_trim() -> Callable[[int], int] | None:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):  # not glibc: nothing to do
        return None


_trim = _malloc_trim()


def give_back() -> None:
    """Returns free pages of the heap to the system; 2 to 30 ms, other threads that allocate wait."""
    if _trim is not None:
        _trim(0)
