"""JSON lines as rows of cells, for `[files.columns]`: what `lines.objects` makes a table of, without an object per line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streameval.events.words64 import PADDING
from streameval.sources.formats.cell_spans import (
    IS_INTEGER,
    IS_LARGE,
    IS_OTHER,
    IS_REAL,
    IS_TEXT,
    IS_TRUTH,
    CellSpans,
    NotPlainError,
    columns_of,
)
from streameval.sources.formats.event_layout import BEGINS, ENDS
from streameval.sources.formats.json_cells import MEMBER, MOST_COLUMNS, ROW, find_members
from streameval.sources.formats.line_text import Lines
from streameval.sources.formats.lines import object_of
from streameval.sources.formats.raw import Rejection
from streameval.sources.formats.scan_features import is_utf8

_EXACT = 10**15  # below it, an integer is a double
_INT64 = 1 << 63


class MappedLines:
    """The lines that are objects. Columns are in the order in which their names appear."""

    def __init__(self, lines: Lines, numbers: NDArray[np.int64]) -> None:
        """`numbers`: of the lines in the file. Raises NotPlainError for lines with too many different names."""
        n = len(lines)
        self._text = lines.text
        self._kinds = np.zeros(MOST_COLUMNS + 1, np.int64)
        self._spans = np.zeros((MOST_COLUMNS + 1, 2, n), np.int32)  # the last column is never written to: all nulls
        names, hard = np.empty((MOST_COLUMNS, 4), np.int64), np.zeros(n, np.bool_)
        address = np.frombuffer(lines.text, np.uint8).ctypes.data
        used = find_members(
            address,
            lines.bounds,
            not is_utf8(lines.text),
            names,
            kinds=self._kinds[:-1],
            spans=self._spans[:-1],
            hard=hard,
        )
        if used < 0:
            raise NotPlainError
        self._number: dict[str, int] = {}
        self._first: dict[str, tuple[int, int]] = {}  # where a name was first: row and place in it
        for column, one in enumerate(names[:used].tolist()):
            name = lines.text[one[BEGINS] : one[ENDS]].decode()
            self._number[name], self._first[name] = column, (one[ROW], one[MEMBER])
        problems = self._add(lines, np.flatnonzero(hard).tolist()) if hard.any() else {}
        self.bad = [(int(numbers[row]), lines[row], problem) for row, problem in problems.items()]
        self.names: Sequence[str] = sorted(self._first, key=lambda name: self._first[name])
        self.lines, self.numbers = lines, numbers
        if problems:
            good = np.delete(np.arange(n), list(problems))
            self.lines, self.numbers = lines.take(good), numbers[good]
            self._spans = self._spans[: len(self._number)][:, :, good]
            self._spans = np.concatenate((self._spans, np.zeros((1, 2, good.size), np.int32)))

    def __len__(self) -> int:
        return len(self.numbers)

    def has_also(self, names: Iterable[str]) -> None:
        """Adds columns of nulls for those of these names that no line has."""
        self.names = [*dict.fromkeys((*self.names, *names))]

    @property
    def nested(self) -> list[str]:
        """The names of columns with objects, lists, or numbers that no column can hold."""
        return [name for name, column in self._number.items() if int(self._kinds[column]) & IS_OTHER]

    def cells(self, columns: Sequence[str]) -> CellSpans:
        """See `TextRows`."""
        if not set(columns) <= set(self.names):
            raise NotPlainError
        return self._cells({name: self._number.get(name, -1) for name in columns})

    def some(self, rows: Sequence[int]) -> pa.Table:
        """See `TextRows`; without columns of several types, which nobody reads."""
        kinds = np.array([self._kinds[self._number.get(name, -1)] for name in self.names])
        names = [name for name, _ in columns_of(kinds, self.names)]
        cells, at = self.cells(names), np.array(rows, np.int64)
        return pa.table({name: cells.values(name, at) for name in names})

    def _cells(self, number: dict[str, int]) -> CellSpans:
        return CellSpans(self._text, number, self._spans, self._kinds)

    def _add(self, lines: Lines, rows: Sequence[int]) -> dict[int, Rejection]:
        """Reads lines that the kernel has left; returns the problems of those that are no objects."""
        problems: dict[int, Rejection] = {}
        more: list[bytes] = []
        at = len(self._text)
        for row in rows:
            given = object_of(lines[row])
            if not isinstance(given, dict):
                problems[row] = given
                continue
            for place, (name, value) in enumerate(given.items()):
                column = self._number.setdefault(name, len(self._number))
                if column == MOST_COLUMNS:
                    raise NotPlainError
                self._first[name] = min((row, place), self._first.get(name, (row, place)))
                kind, text = _cell(value)
                self._kinds[column] |= kind
                if text is not None:
                    self._spans[column, :, row] = at, at + len(text)
                    more.append(text)
                    at += len(text)
        if at + len(PADDING) >= 1 << 31:  # positions have 32 bits
            raise NotPlainError
        self._text = b"".join([self._text, *more, PADDING])
        return problems


def _cell(value: Any) -> tuple[int, bytes | None]:
    """Returns (what a value is, its text); None: it has none."""
    if value is None:
        return 0, None
    if isinstance(value, str):
        return IS_TEXT, value.encode()
    if isinstance(value, bool):
        return IS_TRUTH, b"true" if value else b"false"
    if isinstance(value, int) and -_INT64 <= value < _INT64:
        return IS_INTEGER if abs(value) < _EXACT else IS_LARGE, b"%d" % value
    if isinstance(value, float) and isfinite(value):
        return IS_REAL, msgspec.json.encode(value)
    return IS_OTHER, None
