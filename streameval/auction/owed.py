"""What pairs owe to groups of users (`rerun.Residuals`), kept for as long as tables are: of those that were asked for.

Looking a pair up in every hour of its history takes longer than an auction, and a pair of this minute is one of the next.
"""

from __future__ import annotations

from collections.abc import Callable

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.auction.rerun import USER_GROUPS
from streameval.sketches.directory import mix

_MOST = 1 << 14  # pairs, about 150 bytes each; then it begins anew


class Owed:
    """Rows float64[pairs, USER_GROUPS], found by the number of the pair."""

    def __init__(self) -> None:
        self._n = 0
        self._number = np.empty(0, np.int32)  # of each row
        self._table = np.full(16, -1, np.int32)  # rows, by hash of the number; -1: none
        self._rows = np.empty((0, USER_GROUPS))

    @property
    def nbytes(self) -> int:
        """Bytes."""
        return self._number.nbytes + self._table.nbytes + self._rows.nbytes

    def of(
        self, number: NDArray[np.int32], make: Callable[[NDArray[np.int32]], NDArray[np.float64]]
    ) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
        """(rows, which of them is of each of n pairs). `make`: the rows of pairs, ascending, each once."""
        if self._n > _MOST:
            self._n = 0
            self._table[:] = -1
        before = self._n
        self._reserve(before + number.size)
        row = np.empty(number.size, np.int32)
        self._n = _find(number, self._number, self._table, before, row)
        new = self._number[before : self._n]
        if new.size:
            order = np.argsort(new)
            self._rows[before + order] = make(new[order])
        return self._rows, row

    def _reserve(self, room: int) -> None:
        """Room for so many rows."""
        if room <= self._number.size:
            return
        room += room // 2
        number, rows = np.empty(room, np.int32), np.empty((room, USER_GROUPS))
        number[: self._n], rows[: self._n] = self._number[: self._n], self._rows[: self._n]
        self._number, self._rows = number, rows
        self._table = np.full(1 << (2 * room - 1).bit_length(), -1, np.int32)
        _find(number[: self._n], number, self._table, 0, np.empty(self._n, np.int32))


@numba.njit(cache=True, nogil=True)
def _find(
    wanted: NDArray[np.int32], number: NDArray[np.int32], table: NDArray[np.int32], n: int, row: NDArray[np.int32]
) -> int:
    """Writes the row of each, a new one behind the `n` that there are when it has none; returns how many there are then."""
    mask = np.uint64(table.size - 1)
    for i in range(wanted.size):
        at = mix(np.uint64(wanted[i])) & mask
        while table[at] >= 0 and number[table[at]] != wanted[i]:
            at = (at + np.uint64(1)) & mask
        if table[at] < 0:
            table[at] = n
            number[n] = wanted[i]
            n += 1
        row[i] = table[at]
    return n
