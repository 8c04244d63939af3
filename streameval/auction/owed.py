"""A cache of the tables' entries for pairs that were looked up: their rates, and the contribution of each group of
users (see `rerun.run_through`).

Pairs repeat from minute to minute, so entries are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.auction.rerun import USER_GROUPS
from streameval.sketches.directory import mix

_MOST = 1 << 15  # rows of about 80 bytes, and 4 times as many pairs of about 25; then it starts over
_LINE = 64  # bytes of a cache line: the size of a row


class PairRows(NamedTuple):
    """By row: first one per position, where row 0 is also used for all pairs without a history; then one per pair."""

    rate: NDArray[np.float32]  # `rerun.ClickTables.rate`; NaN: no history
    owed: NDArray[np.float32]  # [rows, USER_GROUPS], the residuals of `rerun.run_through`


class Owed:
    """Rows of pairs, by their keys."""

    def __init__(self, of_position: NDArray[np.float64], like: Owed | None = None) -> None:
        """`of_position` [slots, USER_GROUPS]; `like`: a cache of about the expected size."""
        self._slots = len(of_position)
        self._pairs, self._many = 0, self._slots
        rows, pairs = (self._slots, 0) if like is None else (like._many, like._pairs)
        self._pair, self._row = np.empty(pairs, np.uint64), np.empty(pairs, np.int32)
        self._table = _table(pairs)  # indexes of pairs, by their hash; -1: none
        self._rows = _rows(rows)
        self._rows.rate[: self._slots], self._rows.owed[: self._slots] = np.nan, of_position

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return sum(column.nbytes for column in (self._pair, self._row, self._table, *self._rows))

    def of(self, pair: NDArray[np.uint64], make: Callable[..., int]) -> tuple[PairRows, NDArray[np.int32]]:
        """Returns (rows, the row of each of n pairs).

        `make(pairs, row, rate, owed, first)` writes what is known about distinct ascending pairs to rows from `first`
        on, and each pair's row to `row`, 0: it has none; it returns where the rows end.
        """
        if self._many > _MOST or self._pairs > 4 * _MOST:
            self._pairs, self._many = 0, self._slots
            self._table[:] = -1
        before, at = self._pairs, np.empty(pair.size, np.int32)
        self._reserve(before + pair.size)
        self._pairs = _find(pair, self._pair, self._table, before, at)
        if self._pairs > before:
            new = self._pair[before : self._pairs]
            order = np.argsort(new)
            self._reserve_rows(self._many + new.size)
            row = np.empty(new.size, np.int32)
            self._many = make(_taken(new, order), row, *self._rows, self._many)
            _put(row, order, self._row[before:])
        _read(self._row, at)
        return self._rows, at

    def _reserve_rows(self, room: int) -> None:
        if room > self._rows.rate.size:
            rows = _rows(room + room // 2)
            for column, old in zip(rows, self._rows, strict=True):
                column[: self._many] = old[: self._many]
            self._rows = rows

    def _reserve(self, room: int) -> None:
        """Makes room for `room` pairs."""
        if room > self._pair.size:
            self._pair, self._row = (_longer(column, self._pairs, room) for column in (self._pair, self._row))
            self._table = _table(self._pair.size)
            _find(self._pair[: self._pairs], self._pair, self._table, 0, np.empty(self._pairs, np.int32))


def _rows(room: int) -> PairRows:
    """Returns rows aligned to cache lines."""
    size = room * USER_GROUPS
    owed = np.empty(size + _LINE // 4, np.float32)
    first = -(owed.ctypes.data // 4) % (_LINE // 4)
    return PairRows(np.empty(room, np.float32), owed[first : first + size].reshape(room, USER_GROUPS))


def _table(room: int) -> NDArray[np.int32]:
    return np.full(1 << max(4, (2 * room - 1).bit_length()), -1, np.int32)


def _longer(column: NDArray[Any], n: int, room: int) -> NDArray[Any]:
    """Returns the first n of a column, with room for one and a half times `room`."""
    out = np.empty((room + room // 2, *column.shape[1:]), column.dtype)
    out[:n] = column[:n]
    return out


@numba.njit(cache=True)
def _find(
    wanted: NDArray[np.uint64], pair: NDArray[np.uint64], table: NDArray[np.int32], n: int, found: NDArray[np.int32]
) -> int:
    """Writes each pair's index, appending new ones to the `n` known; returns their new number."""
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


@numba.njit(cache=True)
def _taken(column: NDArray[Any], on: NDArray[np.int64]) -> NDArray[Any]:
    """Returns some rows of a column, without releasing the interpreter lock (see `grouping`)."""
    out = np.empty(on.size, column.dtype)
    for i in range(on.size):
        out[i] = column[on[i]]
    return out


@numba.njit(cache=True)
def _put(column: NDArray[np.int32], to: NDArray[np.int64], out: NDArray[np.int32]) -> None:
    for i in range(to.size):
        out[to[i]] = column[i]


@numba.njit(cache=True)
def _read(row: NDArray[np.int32], at: NDArray[np.int32]) -> None:
    """Replaces indexes of pairs by their rows."""
    for i in range(at.size):
        at[i] = row[at[i]]
