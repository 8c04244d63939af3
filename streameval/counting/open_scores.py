"""Scores of one partition that are still to be placed (see `placements`): as codes, by pane, until their stratum closes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.counting.placements import Codes, by_rows, renumbered, rows_of


class OpenScores:
    """Codes by pane and row of the ledger."""

    def __init__(self) -> None:
        self._codes: dict[int, dict[int, Codes]] = {}
        self._clicks: dict[tuple[int, int], int] = {}

    def add(self, pane: int, codes: Codes) -> None:
        """Adds a pane's codes, of any rows."""
        by_row = self._codes.setdefault(pane, {})
        ordered, ends, clicks = by_rows(codes)
        start = 0
        for row, end in enumerate(ends.tolist()):
            if end > start:
                some = ordered[start:end]
                by_row[row] = np.concatenate((by_row[row], some)) if row in by_row else some
                self._clicks[pane, row] = self._clicks.get((pane, row), 0) + int(clicks[row])
            start = end

    def counts(self) -> Iterator[tuple[int, int, int, int]]:
        """(pane, row, scores, clicks), oldest first."""
        for pane in sorted(self._codes):
            for row, codes in self._codes[pane].items():
                yield pane, row, codes.size, self._clicks[pane, row]

    def of(self, pane: int, row: int) -> Codes:
        """The codes of one row in a pane."""
        return self._codes[pane][row]

    def take(self, pane: int, row: int) -> Codes:
        """Removes and returns them."""
        by_row = self._codes[pane]
        codes = by_row.pop(row)
        del self._clicks[pane, row]
        if not by_row:
            del self._codes[pane]
        return codes

    def renumber(self, row: NDArray[np.int64]) -> None:
        """Row r is `row[r]` from now on; -1: forgotten."""
        old, self._codes, self._clicks = self._codes, {}, {}
        for pane, by_row in old.items():
            for codes in by_row.values():
                kept = renumbered(codes, row)
                if kept.size:
                    self.add(pane, kept)

    @property
    def nbytes(self) -> int:
        """Bytes of the codes."""
        return sum(codes.nbytes for by_row in self._codes.values() for codes in by_row.values())

    def state(self) -> list[list[Any]]:
        """Everything, for `restore`."""
        return [[pane, np.concatenate(list(by_row.values()))] for pane, by_row in sorted(self._codes.items())]

    @classmethod
    def restore(cls, state: list[list[Any]]) -> OpenScores:
        """From what `state` gave."""
        out = cls()
        for pane, codes in state:
            out.add(pane, codes)
        return out


def used_rows(waiting: Mapping[int, list[Codes]]) -> set[int]:
    """The rows that codes are of."""
    return {row for parts in waiting.values() for codes in parts for row in np.unique(rows_of(codes)).tolist()}
