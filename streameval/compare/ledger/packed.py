"""Sums of late labels, by pane: nearly all cells are 0, and they wait for the whole correction horizon. So only the others are
kept, except for the pane that was read last.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from streameval.compare.ledger.sums import Matrix
from streameval.sketches.sparse import SparseVector

ByKind = tuple[Matrix, Matrix, Matrix]  # by number of the part, for each of the three kinds of parts
OBJECTS = 540  # bytes of the objects that a packed matrix consists of, measured


@dataclass(frozen=True, slots=True)
class _Packed:
    """A matrix without its zeros."""

    cells: SparseVector
    shape: tuple[int, int]

    @property
    def nbytes(self) -> int:
        return self.cells.nbytes + OBJECTS

    def whole(self) -> Matrix:
        out = np.zeros(self.shape, np.int64)
        self.cells.add_to(out.reshape(-1))
        return out


class PackedSums(MutableMapping[int, Matrix]):
    """Matrices by pane, as in a dict, but the one that was read or set last may be changed in place only until another one
    is read or set.
    """

    def __init__(self) -> None:
        self._kept: dict[int, Matrix | _Packed] = {}
        self._open: int | None = None

    def __getitem__(self, pane: int) -> Matrix:
        kept = self._kept[pane]
        if pane != self._open:
            self._close()
            self._open = pane
        if isinstance(kept, _Packed):
            kept = self._kept[pane] = kept.whole()
        return kept

    def __setitem__(self, pane: int, matrix: Matrix) -> None:
        if pane != self._open:
            self._close()
            self._open = pane
        self._kept[pane] = matrix

    def __delitem__(self, pane: int) -> None:
        del self._kept[pane]

    def __contains__(self, pane: object) -> bool:
        return pane in self._kept

    def __iter__(self) -> Iterator[int]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def nbytes(self) -> int:
        """Size of the sums in bytes."""
        return sum(kept.nbytes for kept in self._kept.values())

    def _close(self) -> None:
        if self._open in self._kept:
            self._kept[self._open] = _packed(self._kept[self._open])


class PackedParts(MutableMapping[int, ByKind]):
    """The same for the three kinds of parts."""

    def __init__(self) -> None:
        self._kinds = (PackedSums(), PackedSums(), PackedSums())

    def __getitem__(self, pane: int) -> ByKind:
        a, b, c = self._kinds
        return a[pane], b[pane], c[pane]

    def __contains__(self, pane: object) -> bool:
        return pane in self._kinds[0]

    def __setitem__(self, pane: int, parts: ByKind) -> None:
        for kept, matrix in zip(self._kinds, parts, strict=True):
            kept[pane] = matrix

    def __delitem__(self, pane: int) -> None:
        for kept in self._kinds:
            del kept[pane]

    def __iter__(self) -> Iterator[int]:
        return iter(self._kinds[0])

    def __len__(self) -> int:
        return len(self._kinds[0])

    @property
    def nbytes(self) -> int:
        """Size of the sums in bytes."""
        return sum(kept.nbytes for kept in self._kinds)


def saved(matrix: Matrix) -> dict[str, Any]:
    """Returns a copy without its zeros, for `restored`."""
    sums = _cells(matrix)
    return {"shape": list(matrix.shape), "cells": sums.cells, "values": sums.values}


def restored(state: Matrix | dict[str, Any]) -> Matrix:
    """Returns a new matrix of what `saved` returned; checkpoints before format 11 have the matrix itself."""
    if isinstance(state, np.ndarray):
        return state.copy()
    rows, width = state["shape"]
    return _Packed(SparseVector(state["cells"], state["values"]), (rows, width)).whole()


def _packed(kept: Matrix | _Packed) -> Matrix | _Packed:
    """Without the zeros, unless that takes more than it saves."""
    if isinstance(kept, _Packed):
        return kept
    packed = _Packed(_cells(kept), (kept.shape[0], kept.shape[1]))
    return packed if packed.nbytes < kept.nbytes else kept


def _cells(matrix: Matrix) -> SparseVector:
    """Without a kernel (`SparseVector.of_dense`), which the first late label would have to wait for."""
    values = matrix.reshape(-1)
    cells = np.flatnonzero(values != 0)  # bools: their search is the faster one
    return SparseVector(cells, values[cells])
