"""Numbers of the ledger's rows and of their parts, assigned when they are first seen (see `sums`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.compare.ledger.sums import LedgerLabels, LedgerScores, Numbers
from streameval.compare.ledger.unnumbered import new_parts, new_rows

MOST_ROWS = 128  # versions that served, and pairs; any more are counted but not compared
_PARTS_AT_ONCE = 1024  # numbered per call

Key = tuple[int, int]  # (series that served, other series); other -1: the server's own sums
# (served, other, dimension, value); the last dimension: bucket of the serving pClick
TrafficPart = tuple[int, int, int, int]
PAIRS, SERVED, LEVELS = range(3)  # kinds of parts
_GONE = (-2, -2)


class Numbering:
    """The keys by number and, for kernels, tables of numbers."""

    def __init__(self, dimensions: int, values: int, buckets: int) -> None:
        """`values`: the maximum number of values of a dimension, or of buckets of pClick."""
        self._dimensions = dimensions
        self._values = values
        self.rows: list[Key] = []
        self.parts: tuple[list[TrafficPart], list[TrafficPart], list[TrafficPart]] = ([], [], [])  # by kind
        self._row_of = np.full((0, 1), -1, np.int32)  # [served, other + 1]
        self._part_of = np.full((MOST_ROWS, (dimensions + 1) * values), -1, np.int32)
        self._level_of = np.full((MOST_ROWS, buckets), -1, np.int32)  # [row of the server, bucket]

    @property
    def nbytes(self) -> int:
        """Size in bytes of the tables that may be large."""
        return self._part_of.nbytes + self._level_of.nbytes

    @property
    def columns(self) -> Numbers:
        """The tables for kernels."""
        full = len(self.rows) == MOST_ROWS
        return Numbers(self._row_of, self._part_of, self._level_of, self._dimensions * self._values, full)

    def parts_of(self, kind: int, key: Key) -> NDArray[np.int64]:
        """The numbers of the parts of one key, in increasing order."""
        served, other = key
        row = self._row_of[served, other + 1] if served < len(self._row_of) and other < len(self._row_of) else -1
        if row < 0:
            return np.zeros(0, np.int64)
        found = (self._level_of if kind == LEVELS else self._part_of)[row]
        return np.sort(found[found >= 0]).astype(np.int64)

    def reserve(self, series: int) -> None:
        """Makes room for series codes below `series`."""
        have = len(self._row_of)
        if series > have:
            table = np.full((series, series + 1), -1, np.int32)
            table[:have, : self._row_of.shape[1]] = self._row_of
            self._row_of = table

    def give(self, start: int, end: int, first: int, scores: LedgerScores, impressions: LedgerLabels) -> None:
        """Numbers new rows of a batch, and new parts of scores start .. end - 1; scores from `first` on are not the
        server's.
        """
        pairs = start >= first
        rows = np.empty((MOST_ROWS, 2), np.int64)
        made = new_rows(first, scores, self._row_of, len(self.rows), MOST_ROWS, rows)
        self.rows += [(served, other - 1) for served, other in rows[:made].tolist()]
        names = self.parts[PAIRS if pairs else SERVED]
        parts = np.empty((_PARTS_AT_ONCE, 2), np.int64)
        made = new_parts(start, end, pairs, scores, impressions.value, self.columns, len(names), parts)
        for row, column in parts[:made].tolist():
            name = (*self.rows[row], *divmod(column, self._values))
            names.append(name)
            if not pairs and name[2] == self._dimensions:
                self._level_of[row, name[3]] = len(self.parts[LEVELS])
                self.parts[LEVELS].append(name)

    def clear(self, series: int) -> tuple[list[int], list[list[int]]]:
        """Forgets the keys that contain a series; returns the rows, and the parts by kind, that no longer have
        a key.
        """
        gone = [i for i, key in enumerate(self.rows) if series in key]
        for i in gone:
            served, other = self.rows[i]
            self._row_of[served, other + 1] = -1
            self.rows[i] = _GONE
        gone_parts = []
        for names in self.parts:
            gone_parts.append([i for i, name in enumerate(names) if series in name[:2]])
            for i in gone_parts[-1]:
                names[i] = (*_GONE, 0, 0)
        self._part_of[gone] = -1
        self._level_of[gone] = -1
        return gone, gone_parts

    def keep(self, rows: Sequence[int]) -> list[list[int]]:
        """Renumbers these rows from 0, drops the others; returns the parts to keep, by kind."""
        self.rows = [self.rows[i] for i in rows]
        kept = []
        for names in self.parts:
            kept.append([i for i, name in enumerate(names) if name[:2] in self.rows])
            names[:] = [names[i] for i in kept[-1]]
        self._row_of[:] = -1
        self._part_of[:] = -1
        self._level_of[:] = -1
        self._enter()
        return kept

    def state(self) -> dict[str, Any]:
        """Returns everything, for `restore`."""
        return {
            "rows": [list(key) for key in self.rows],
            "part_names": [[list(key) for key in names] for names in self.parts],
        }

    def restore(
        self, rows: list[Key], parts: Sequence[Sequence[Sequence[int]]], part: Callable[..., TrafficPart]
    ) -> None:
        """Restores rows, and parts by kind; `part` converts the key of each part."""
        self.rows = rows
        self.reserve(max((max(key) for key in rows), default=-1) + 1)
        for names, given in zip(self.parts, parts, strict=True):
            names[:] = [part(*key) for key in given]
        self._enter()

    def _enter(self) -> None:
        """Fills the tables."""
        for i, (served, other) in enumerate(self.rows):
            if served >= 0:
                self._row_of[served, other + 1] = i
        for kind, names in enumerate(self.parts):
            for i, (served, other, dimension, value) in enumerate(names):
                if served < 0:
                    continue
                row = self._row_of[served, other + 1]
                if kind == LEVELS:
                    self._level_of[row, value] = i
                else:
                    self._part_of[row, dimension * self._values + value] = i
