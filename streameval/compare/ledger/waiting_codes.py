"""Codes of scores (see `placements`) in panes that have not been evaluated yet, by row of the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.compare.ledger.placements import OUT, ScoreCodes, by_rows, renumbered

CODED_AT_ONCE = 1 << 15  # scores encoded per call of a kernel, so that its output stays small
_KEPT = 1 << 17  # size, in codes, up to which the buffer is reused: 1 MB per partition, enough for four versions

CodedRun = tuple[ScoreCodes, int]  # codes of one row, and the number of clicks among them
_Panes = dict[int, dict[int, list[CodedRun]]]  # by pane and row


class WaitingCodes:
    """Codes by pane; those of late labels are kept separately."""

    def __init__(self) -> None:
        self._panes: tuple[_Panes, _Panes] = ({}, {})
        self._room = np.empty(0, np.uint64)
        self.size = 0  # codes

    def room(self, rows: int, scores: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Returns the buffers for the codes of `scores` scores: [row, n-th of the row], and [row, 2] the number of
        codes and of clicks.
        """
        room = self._room
        if room.size < rows * scores:
            room = np.empty(rows * scores, np.uint64)
            if room.size <= _KEPT:
                self._room = room
        return room[: rows * scores].reshape(rows, scores), np.zeros((rows, 2), np.int64)

    def add(self, pane: int, late: int, codes: NDArray[np.uint64], coded: NDArray[np.int64], sign: int) -> None:
        """Adds what was written to `room`; with `sign` -1 as removed again."""
        for row, (n, clicks) in enumerate(coded.tolist()):
            if n:
                some = codes[row, :n].copy() if sign > 0 else codes[row, :n] | OUT
                self._add(pane, late, row, (some, clicks))

    def pop(self, pane: int, late: int) -> list[tuple[int, ScoreCodes, int]]:
        """Removes a pane's codes and returns them: (row, codes, clicks)."""
        out = []
        for row, pieces in self._panes[late].pop(pane, {}).items():
            codes = _whole(pieces)
            self.size -= codes.size
            out.append((row, codes, sum(clicks for _, clicks in pieces)))
        return out

    def rows(self) -> set[int]:
        """Returns the rows that have codes."""
        return {row for panes in self._panes for by_row in panes.values() for row in by_row}

    def renumber(self, row: NDArray[np.int64]) -> None:
        """Replaces row r by `row[r]`; -1: dropped."""
        old, self._panes, self.size = self._panes, ({}, {}), 0
        for late, panes in enumerate(old):
            for pane, by_row in panes.items():
                for number, pieces in by_row.items():
                    for codes, clicks in pieces if row[number] >= 0 else ():
                        self._add(pane, late, int(row[number]), (renumbered(codes, row), clicks))

    @property
    def nbytes(self) -> int:
        """Size in bytes of the codes and of the buffer for new ones."""
        return 8 * self.size + self._room.nbytes

    def state(self) -> list[list[Any]]:
        """Returns everything, for `restore`."""
        return [
            [late, pane, np.concatenate([_whole(pieces) for _, pieces in sorted(panes[pane].items())])]
            for late, panes in enumerate(self._panes)
            for pane in sorted(panes)
        ]

    def restore(self, state: list[list[Any]], look_of: Callable[[int], int]) -> None:
        """Restores what `state` returned. `look_of`: see `LookPanes.of`; older checkpoints have every pane, and their codes
        may be in any order of rows.
        """
        for late, pane, codes in state:
            for row, some, clicks in split(codes):
                self._add(look_of(pane), late, row, (some.copy(), clicks))

    def _add(self, pane: int, late: int, row: int, piece: CodedRun) -> None:
        self._panes[late].setdefault(pane, {}).setdefault(row, []).append(piece)
        self.size += piece[0].size


def split(codes: ScoreCodes) -> Iterator[tuple[int, ScoreCodes, int]]:
    """Yields (row, its codes, the number of clicks among them) for codes of any rows."""
    ordered, ends, clicks = by_rows(codes)
    start = 0
    for row, end in enumerate(ends.tolist()):
        if end > start:
            yield row, ordered[start:end], int(clicks[row])
        start = end


def _whole(pieces: list[CodedRun]) -> ScoreCodes:
    return pieces[0][0] if len(pieces) == 1 else np.concatenate([codes for codes, _ in pieces])
