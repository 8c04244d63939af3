"""Scores of one partition that have not been placed yet (see `placements`): as codes, by pane, until their stratum
closes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.compare.ledger.placements import ScoreCodes, renumbered
from streameval.compare.ledger.waiting_codes import split


@dataclass(slots=True)
class _Row:
    """The open scores of one row, by pane."""

    codes: dict[int, ScoreCodes] = field(default_factory=dict)
    clicks: dict[int, int] = field(default_factory=dict)
    all_scores: int = 0
    all_clicks: int = 0
    first: int | None = None  # pane; None: not computed


class OpenScores:
    """Codes by row of the ledger and pane."""

    def __init__(self) -> None:
        self._rows: dict[int, _Row] = {}

    def add(self, pane: int, row: int, codes: ScoreCodes, clicks: int) -> None:
        """Adds codes of a row in a pane, `clicks` of them clicks."""
        some = self._rows.setdefault(row, _Row())
        if not some.codes:
            some.first = pane
        elif some.first is not None:
            some.first = min(some.first, pane)
        some.codes[pane] = np.concatenate((some.codes[pane], codes)) if pane in some.codes else codes
        some.clicks[pane] = some.clicks.get(pane, 0) + clicks
        some.all_scores, some.all_clicks = some.all_scores + codes.size, some.all_clicks + clicks

    def rows(self) -> list[int]:
        """Returns the rows that have any codes."""
        return sorted(self._rows)

    def total(self, row: int) -> tuple[int, int]:
        """Returns (scores, clicks) of a row that has codes."""
        return self._rows[row].all_scores, self._rows[row].all_clicks

    def many(self, pane: int, row: int) -> tuple[int, int]:
        """Returns (scores, clicks) of a row that has codes in a pane."""
        some = self._rows[row]
        return some.codes[pane].size, some.clicks[pane]

    def first(self, row: int) -> int:
        """Returns the oldest pane of a row that has codes."""
        some = self._rows[row]
        if some.first is None:
            some.first = min(some.codes)
        return some.first

    def panes(self, row: int) -> list[tuple[int, int, int]]:
        """Returns (pane, scores, clicks) of a row that has codes, oldest first."""
        some = self._rows[row]
        return [(pane, some.codes[pane].size, some.clicks[pane]) for pane in sorted(some.codes)]

    def of(self, pane: int, row: int) -> ScoreCodes:
        """Returns the codes of one row in a pane."""
        return self._rows[row].codes[pane]

    def take(self, pane: int, row: int) -> ScoreCodes:
        """Removes and returns the codes of one row in a pane."""
        some = self._rows[row]
        codes = some.codes.pop(pane)
        some.all_scores, some.all_clicks = some.all_scores - codes.size, some.all_clicks - some.clicks.pop(pane)
        some.first = None
        if not some.codes:
            del self._rows[row]
        return codes

    def renumber(self, row: NDArray[np.int64]) -> None:
        """Replaces row r by `row[r]`; -1: dropped."""
        old, self._rows = self._rows, {}
        for number, some in old.items():
            if row[number] >= 0:
                some.codes = {pane: renumbered(codes, row) for pane, codes in some.codes.items()}
                self._rows[int(row[number])] = some

    @property
    def nbytes(self) -> int:
        """Size of the codes in bytes."""
        return 8 * sum(row.all_scores for row in self._rows.values())

    def state(self) -> list[list[Any]]:
        """Returns everything, for `restore`: codes by pane."""
        by_pane: dict[int, list[ScoreCodes]] = {}
        for number in sorted(self._rows):
            for pane, codes in self._rows[number].codes.items():
                by_pane.setdefault(pane, []).append(codes)
        return [[pane, np.concatenate(parts)] for pane, parts in sorted(by_pane.items())]

    @classmethod
    def restore(cls, state: list[list[Any]]) -> OpenScores:
        """Restores what `state` returned."""
        out = cls()
        for pane, codes in state:
            for row, some, clicks in split(codes):
                out.add(pane, row, some, clicks)
        return out
