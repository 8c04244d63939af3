"""Arrays that are too large to be in memory before they are in a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from numpy.typing import DTypeLike, NDArray


class Pieces(NamedTuple):
    """An array that is made while it is written, a piece at a time, when what stands before it in the tree is written."""

    dtype: DTypeLike
    shape: tuple[int, ...]
    make: Callable[[], Iterable[NDArray[Any]]]
