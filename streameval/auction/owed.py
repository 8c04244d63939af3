"""A cache of the tables' entries for pairs that were looked up: their rates, and the contribution of each group of
users (`rerun.Residuals`).

Looking a pair up in every hour of its history takes longer than an auction, and pairs repeat from minute to minute.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.auction.rerun import USER_GROUPS
from streameval.sketches.directory import mix

_MOST = 1 << 15  # rows, about 150 bytes each, and four times as many pairs, of about 25; then it starts over


class PairRows(NamedTuple):
    """By row, a pair each; row 0 is of all that have no history."""

    rate: NDArray[np.float32]  # `rerun.ClickTables.rate`
    owed: NDArray[np.float64]  # [rows, USER_GROUPS], `rerun.Residuals.of_pair`


class Owed:
    """Rows of pairs, found by their keys."""

    def __init__(self) -> None:
        self._pairs = 0
        self._pair = np.empty(0, np.uint64)
        self._row = np.empty(0, np.int32)  # of each pair
        self._table = np.full(16, -1, np.int32)  # where pairs stand, by their hash; -1: none
        self._many = 1
        self._rows = PairRows(np.full(1, np.nan, np.float32), np.zeros((1, USER_GROUPS)))

    @property
    def nbytes(self) -> int:
        """Bytes."""
        return sum(column.nbytes for column in (self._pair, self._row, self._table, *self._rows))

    def of(
        self, pair: NDArray[np.uint64], make: Callable[[NDArray[np.uint64]], tuple[NDArray[np.bool_], PairRows]]
    ) -> tuple[PairRows, NDArray[np.int32]]:
        """(rows, which of them is of each of n pairs).

        `make`: (which of some pairs, ascending, each once, have a history, the rows of these).
        """
        if self._many > _MOST or self._pairs > 4 * _MOST:
            self._pairs, self._many = 0, 1
            self._table[:] = -1
        before, at = self._pairs, np.empty(pair.size, np.int32)
        self._reserve(before + pair.size)
        self._pairs = _find(pair, self._pair, self._table, before, at)
        if self._pairs > before:
            new = self._pair[before : self._pairs]
            order = np.argsort(new)
            known, rows = make(new[order])
            self._row[before : self._pairs] = 0
            self._row[before + order[known]] = self._added(rows)
        _read(self._row, at)
        return self._rows, at

    def _added(self, rows: PairRows) -> NDArray[np.int64]:
        """Where rows stand, now that they are kept."""
        first, self._many = self._many, self._many + rows.rate.size
        if self._many > self._rows.rate.size:
            self._rows = PairRows(*(_longer(column, first, self._many) for column in self._rows))
        kept = slice(first, self._many)
        self._rows.rate[kept], self._rows.owed[kept] = rows.rate, rows.owed
        return np.arange(first, self._many)

    def _reserve(self, room: int) -> None:
        """Room to find so many pairs."""
        if room > self._pair.size:
            self._pair, self._row = (_longer(column, self._pairs, room) for column in (self._pair, self._row))
            self._table = np.full(1 << (2 * self._pair.size - 1).bit_length(), -1, np.int32)
            _find(self._pair[: self._pairs], self._pair, self._table, 0, np.empty(self._pairs, np.int32))


def _longer(column: NDArray[Any], n: int, room: int) -> NDArray[Any]:
    """The first n of a column, with room for so many and half as many again."""
    out = np.empty((room + room // 2, *column.shape[1:]), column.dtype)
    out[:n] = column[:n]
    return out


@numba.njit(cache=True, nogil=True)
def _find(
    wanted: NDArray[np.uint64], pair: NDArray[np.uint64], table: NDArray[np.int32], n: int, found: NDArray[np.int32]
) -> int:
    """Writes where each stands, a new one behind the `n` that there are; returns how many there are then."""
    mask = np.uint64(table.size - 1)
    for i in range(wanted.size):
        at = mix(wanted[i]) & mask
        while table[at] >= 0 and pair[table[at]] != wanted[i]:
            at = (at + np.uint64(1)) & mask
        if table[at] < 0:
            table[at] = n
            pair[n] = wanted[i]
            n += 1
        found[i] = table[at]
    return n


@numba.njit(cache=True, nogil=True)
def _read(row: NDArray[np.int32], at: NDArray[np.int32]) -> None:
    """Makes rows of where pairs stand."""
    for i in range(at.size):
        at[i] = row[at[i]]
