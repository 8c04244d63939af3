"""Cells of text by their positions, whatever the format of the file: what the kernels of `csv_cells` read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streameval.sources.formats import csv_cells
from streameval.sources.formats.line_text import Lines
from streameval.sources.formats.pool import Pool
from streameval.sources.formats.raw import Rejection
from streameval.sources.formats.texts import Words

# what the cells of a column are, one bit each; IS_LARGE: an integer that not every double can be equal to
IS_TEXT, IS_INTEGER, IS_LARGE, IS_REAL, IS_TRUTH, IS_OTHER = 1, 2, 4, 8, 16, 32
_INTEGERS = IS_INTEGER | IS_LARGE
_OF_ONE_TYPE = frozenset((0, IS_TEXT, IS_INTEGER, IS_LARGE, _INTEGERS, IS_REAL, IS_REAL | IS_INTEGER, IS_TRUTH))


class NotPlainError(Exception):
    """These rows must be read by Arrow."""


class TextRows(Protocol):
    """n rows of a text file."""

    @property
    def names(self) -> Sequence[str]:
        """The names of the columns."""

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The numbers of the rows in the file."""

    @property
    def lines(self) -> Lines:
        """The original bytes."""

    @property
    def bad(self) -> Sequence[tuple[int, bytes, Rejection]]:
        """Rows among them that cannot be read: number, original bytes, problem."""

    def __len__(self) -> int: ...

    def cells(self, columns: Sequence[str]) -> CellSpans:
        """Returns the cells of some columns. Raises NotPlainError for a column that does not exist."""

    def some(self, rows: Sequence[int]) -> pa.Table:
        """Returns the rows with these indexes."""


class CellSpans:
    """The positions of the cells of some columns. A cell from 0 to 0 is null."""

    def __init__(
        self,
        text: bytes | bytearray,
        number: dict[str, int],
        spans: NDArray[np.int32],
        kinds: NDArray[np.int64] | None = None,
    ) -> None:
        """`text` is followed by `words64.PADDING`; number: the index of each column in `spans` [., 2, n] and in `kinds`
        (None: all is text). Raises NotPlainError for a column of several types.
        """
        self.n = spans.shape[2]
        self._bytes = text
        self.text = np.frombuffer(text, np.uint8).ctypes.data  # the address
        self._number = number
        self._spans = spans
        self._kinds = kinds
        if kinds is not None and not all(int(kinds[k]) in _OF_ONE_TYPE for k in number.values()):
            raise NotPlainError

    def spans(self, column: str) -> NDArray[np.int32]:
        """Returns [2, n]: start and end of each cell of a column."""
        return self._spans[self._number[column]]

    def several(self, columns: Sequence[str]) -> NDArray[np.int32]:
        """Returns the same for several columns, [columns, 2, n]."""
        return self._spans[[self._number[name] for name in columns]]

    def kind(self, column: str) -> int:
        """Returns what a column contains; 0: only nulls."""
        return IS_TEXT if self._kinds is None else int(self._kinds[self._number[column]])

    def words(self, codes: NDArray[np.int64], pool: Pool) -> Words:
        """Returns a column from the codes of its words."""
        return pool.column(codes, 0, self._bytes)

    def texts(self, column: str, rows: NDArray[np.int64] | None = None) -> pa.Array:
        """Returns the cells of a column as Arrow text, all or those of some rows; a null as ""."""
        spans = self.spans(column)
        rows = np.arange(self.n) if rows is None else rows
        data = np.empty(int((spans[1, rows] - spans[0, rows]).sum()), np.uint8)
        ends = np.zeros(rows.size + 1, np.int32)
        csv_cells.copy_cells(self.text, spans, rows, ends, data)
        return pa.StringArray.from_buffers(rows.size, pa.py_buffer(ends), pa.py_buffer(data))

    def values(self, column: str, rows: NDArray[np.int64] | None = None) -> pa.Array:
        """Returns the cells of a column in its own type."""
        texts, kind = self.texts(column, rows), self.kind(column)
        if self._kinds is None:
            return texts
        ends = self.spans(column)[1]
        texts = pc.if_else(pa.array((ends if rows is None else ends[rows]) > 0), texts, pa.scalar(None, pa.string()))
        if kind & IS_REAL:
            return texts.cast(pa.float64())
        if kind & _INTEGERS:
            return texts.cast(pa.int64())
        return texts.cast(pa.bool_()) if kind & IS_TRUTH else texts


def columns_of(kinds: NDArray[np.int64], names: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Yields the columns of one type, with their indexes."""
    for k, name in enumerate(names):
        if int(kinds[k]) in _OF_ONE_TYPE:
            yield name, k
