"""Scores of one partition that are still to be placed (see `placements`): as codes, by pane, until their stratum closes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.compare.ledger.placements import ScoreCodes, by_rows, renumbered, rows_of


@dataclass(slots=True)
class _Row:
    """What one row has open, by pane."""

    codes: dict[int, ScoreCodes] = field(default_factory=dict)
    clicks: dict[int, int] = field(default_factory=dict)
    all_scores: int = 0
    all_clicks: int = 0
    first: int | None = None  # pane; None: to be looked up


class OpenScores:
    """Codes by row of the ledger and pane."""

    def __init__(self) -> None:
        self._rows: dict[int, _Row] = {}

    def add(self, pane: int, codes: ScoreCodes) -> None:
        """Adds a pane's codes, of any rows."""
        ordered, ends, clicks = by_rows(codes)
        start = 0
        for number, end in enumerate(ends.tolist()):
            if end > start:
                row, some, clicked = self._rows.setdefault(number, _Row()), ordered[start:end], int(clicks[number])
                if not row.codes:
                    row.first = pane
                elif row.first is not None:
                    row.first = min(row.first, pane)
                row.codes[pane] = np.concatenate((row.codes[pane], some)) if pane in row.codes else some
                row.clicks[pane] = row.clicks.get(pane, 0) + clicked
                row.all_scores, row.all_clicks = row.all_scores + some.size, row.all_clicks + clicked
            start = end

    def rows(self) -> list[int]:
        """The rows that have any."""
        return sorted(self._rows)

    def total(self, row: int) -> tuple[int, int]:
        """(scores, clicks) of a row that has any."""
        return self._rows[row].all_scores, self._rows[row].all_clicks

    def first(self, row: int) -> int:
        """The oldest pane of a row that has any."""
        some = self._rows[row]
        if some.first is None:
            some.first = min(some.codes)
        return some.first

    def panes(self, row: int) -> list[tuple[int, int, int]]:
        """(pane, scores, clicks) of a row that has any, oldest first."""
        some = self._rows[row]
        return [(pane, some.codes[pane].size, some.clicks[pane]) for pane in sorted(some.codes)]

    def of(self, pane: int, row: int) -> ScoreCodes:
        """The codes of one row in a pane."""
        return self._rows[row].codes[pane]

    def take(self, pane: int, row: int) -> ScoreCodes:
        """Removes and returns them."""
        some = self._rows[row]
        codes = some.codes.pop(pane)
        some.all_scores, some.all_clicks = some.all_scores - codes.size, some.all_clicks - some.clicks.pop(pane)
        some.first = None
        if not some.codes:
            del self._rows[row]
        return codes

    def renumber(self, row: NDArray[np.int64]) -> None:
        """Row r is `row[r]` from now on; -1: forgotten."""
        old, self._rows = self._rows, {}
        for number, some in old.items():
            if row[number] >= 0:
                some.codes = {pane: renumbered(codes, row) for pane, codes in some.codes.items()}
                self._rows[int(row[number])] = some

    @property
    def nbytes(self) -> int:
        """Bytes of the codes."""
        return 8 * sum(row.all_scores for row in self._rows.values())

    def state(self) -> list[list[Any]]:
        """Everything, for `restore`: codes by pane."""
        by_pane: dict[int, list[ScoreCodes]] = {}
        for number in sorted(self._rows):
            for pane, codes in self._rows[number].codes.items():
                by_pane.setdefault(pane, []).append(codes)
        return [[pane, np.concatenate(parts)] for pane, parts in sorted(by_pane.items())]

    @classmethod
    def restore(cls, state: list[list[Any]]) -> OpenScores:
        """From what `state` gave."""
        out = cls()
        for pane, codes in state:
            out.add(pane, codes)
        return out


def used_rows(waiting: Mapping[int, list[ScoreCodes]]) -> set[int]:
    """The rows that codes are of."""
    return {row for parts in waiting.values() for codes in parts for row in np.unique(rows_of(codes)).tolist()}
