"""Ids to slots: 64-bit hashes to small consecutive numbers, in one open-addressing table (about 20 bytes an id)."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

_EMPTY = np.int32(-1)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@numba.njit(inline="always")
def mix(value: np.uint64) -> np.uint64:
    """Mixes the bits of a hash before it is reduced to a table index (the finaliser of SplitMix64)."""
    h = np.uint64(value)
    h = (h ^ (h >> np.uint64(30))) * _MIX_1
    h = (h ^ (h >> np.uint64(27))) * _MIX_2
    return h ^ (h >> np.uint64(31))


@numba.njit(cache=True, nogil=True)
def _slots(
    table: NDArray[np.int32],
    ids: NDArray[np.uint64],
    count: int,
    wanted: NDArray[np.uint64],
    add: bool,
    out: NDArray[np.int32],
) -> int:
    mask = np.uint64(table.size - 1)
    for i in range(wanted.size):
        h = mix(wanted[i]) & mask
        while True:
            slot = table[h]
            if slot == _EMPTY:
                if add:
                    table[h] = count
                    ids[count] = wanted[i]
                    slot = np.int32(count)
                    count += 1
                break
            if ids[slot] == wanted[i]:
                break
            h = (h + np.uint64(1)) & mask
        out[i] = slot
    return count


class Directory:
    """Assigns slots 0, 1, 2, ... to ids in order of first appearance."""

    def __init__(self) -> None:
        self._ids = np.empty(1024, np.uint64)
        self._table = np.full(2048, _EMPTY, np.int32)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def ids(self) -> NDArray[np.uint64]:
        """The ids by slot; a view."""
        return self._ids[: self._count]

    @property
    def nbytes(self) -> int:
        """Bytes of the tables."""
        return self._ids.nbytes + self._table.nbytes

    def slots(self, ids: NDArray[np.uint64]) -> NDArray[np.int32]:
        """The slot of every id; new ids get one."""
        self._reserve(self._count + ids.size)
        out = np.empty(ids.size, np.int32)
        self._count = _slots(self._table, self._ids, self._count, ids, True, out)
        return out

    def find(self, ids: NDArray[np.uint64]) -> NDArray[np.int32]:
        """The slot of every id, -1 if it has none."""
        out = np.empty(ids.size, np.int32)
        _slots(self._table, self._ids, self._count, ids, False, out)
        return out

    def _reserve(self, most: int) -> None:
        if most <= self._ids.size:
            return
        # grow for the likely number of distinct ids, not for every row of a batch: at least by half
        capacity = max(most, self._ids.size + self._ids.size // 2)
        ids = np.empty(capacity, np.uint64)
        ids[: self._count] = self._ids[: self._count]
        self._ids = ids
        size = 1 << int(np.ceil(np.log2(capacity * 1.5)))
        if size > self._table.size:
            self._table = np.full(size, _EMPTY, np.int32)
            _slots(
                self._table,
                np.empty(self._count, np.uint64),
                0,
                ids[: self._count].copy(),
                True,
                np.empty(self._count, np.int32),
            )
