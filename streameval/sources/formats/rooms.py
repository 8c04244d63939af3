"""Arrays that kernels write to, kept from one batch to the next: the system takes as long to make new pages as a kernel to
fill them.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_MOST = 32 << 20  # bytes; a larger one is for once


class _Kept(threading.local):
    def __init__(self) -> None:
        self.arrays: dict[str, NDArray[Any]] = {}


_kept = _Kept()


def room(name: str, size: int, dtype: DTypeLike) -> NDArray[Any]:
    """Returns an array of `size` values, whatever they are, which is this thread's until it asks for that name again: of
    what is needed for longer, make copies. Pages never written to take no memory.
    """
    found = _kept.arrays.get(name)
    if found is None or found.size < size or found.dtype != dtype:
        found = np.empty(size, dtype)
        if found.nbytes <= _MOST:
            _kept.arrays[name] = found
    return found[:size]
