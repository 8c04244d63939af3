"""Reuses results of the last evaluation whose inputs have not changed; for those of slices see `slices`.

A sliding window does not change until its next pane is complete: the cost of a snapshot is proportional to what changed. The
inputs of a result are compared, not guessed from the events; its sums, which take up to a megabyte, by a fingerprint of 256 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.results.result import Result, Span, moved

_ODD = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)
Fingerprint = tuple[np.uint64, np.uint64, np.uint64, np.uint64]


class _Made(NamedTuple):
    sums: Fingerprint
    beside: tuple[object, ...]
    result: Result


class Reuse:
    """Keeps the results of one round for the next; results that a round did not need are dropped."""

    def __init__(self) -> None:
        self._last: dict[Hashable, _Made] = {}
        self._now: dict[Hashable, _Made] = {}

    def begin(self) -> None:
        """Begins a new round."""
        self._last, self._now = self._now, {}

    def result(
        self,
        key: Hashable,
        vector: NDArray[np.int64],
        beside: tuple[object, ...],
        span: Span,
        make: Callable[[], Result],
    ) -> Result:
        """The result of `key` in the last round if its vector, int64[cells], and its other inputs are equal; else `make()`.

        `span` may be another one: it is in a result, and no number follows from it.
        """
        before = self._last.get(key)
        sums = fingerprint(vector)
        if before is not None and before.sums == sums and before.beside == beside:
            result = moved(before.result, span)
        else:
            result = make()
        self._now[key] = _Made(sums, beside, result)
        return result


@numba.njit(cache=True, nogil=True)
def fingerprint(vector: NDArray[np.int64]) -> Fingerprint:
    """Four hashes of 64 bits, each of every fourth cell.

    A step is a bijection of what is added and of what was before, so that a change in one cell of the four always shows; with
    changes in several, two vectors in 2**64 are taken for equal.
    """
    a = b = c = d = np.uint64(vector.size)
    words = vector.view(np.uint64)
    whole = words.size // 4 * 4
    for i in range(0, whole, 4):
        a, b = (a ^ words[i]) * _ODD, (b ^ words[i + 1]) * _ODD
        c, d = (c ^ words[i + 2]) * _ODD, (d ^ words[i + 3]) * _ODD
        a, b, c, d = a ^ (a >> _HALF), b ^ (b >> _HALF), c ^ (c >> _HALF), d ^ (d >> _HALF)
    for i in range(whole, words.size):
        a = (a ^ words[i]) * _ODD
        a ^= a >> _HALF
    return a, b, c, d
