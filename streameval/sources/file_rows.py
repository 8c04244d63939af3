"""Rows of event files to batches, each with the dead letters that belong to it.

Reading the rows is `files`' part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streameval.events.batch import Batch
from streameval.settings.tree import ConfigError
from streameval.sources import object_store
from streameval.sources.formats import lines as json_lines
from streameval.sources.formats.arrow_column import SchemaError
from streameval.sources.formats.cell_spans import NotPlainError, TextRows
from streameval.sources.formats.csv import Rows
from streameval.sources.formats.decode import Decoder
from streameval.sources.formats.line_text import Lines
from streameval.sources.formats.mapped_lines import MappedLines
from streameval.sources.formats.mapping import ColumnMap
from streameval.sources.formats.raw import Rejection
from streameval.sources.formats.row_json import rows_as_json
from streameval.sources.protocol import DeadLetter

Decoded = tuple[Batch, Sequence[DeadLetter]]  # a batch, and the dead letters that belong to it


class FileRows:
    """Decodes the rows of a source's files; `path`, wherever it is asked for, is of the rows' file."""

    def __init__(self, decoder: Decoder, columns: ColumnMap) -> None:
        self._decoder = decoder
        self._map = columns
        self._seen: dict[str, None] = {}  # names of mapped JSON fields
        self._rows = 0  # of all files so far: `row = true` numbers them continuously, so that no two files share an id
        self._refused: Counter[str] = Counter()  # dead letters that no batch has counted yet
        self._bad: list[DeadLetter] = []  # letters that have not been passed on with a batch yet

    def refuse(self, path: Path, bad: Sequence[tuple[int, bytes, Rejection]]) -> None:
        """Sends events that never reach the decoder, (their number in the file, content, reason), to the dead letters
        with the next batch.
        """
        self._bad += [
            DeadLetter(value, *problem, object_store.address(path), 0, number) for number, value, problem in bad
        ]
        self._refused.update(problem[0] for _, _, problem in bad)

    def letters_left(self) -> list[DeadLetter]:
        """Takes the letters that no batch has passed on."""
        bad, self._bad = self._bad, []
        return bad

    def rest(self) -> Decoded | None:
        """Returns a batch without events if there are letters that no batch has counted, after the last one."""
        return self._emit(self._no_events(), ()) if self._refused else None

    def json(self, path: Path, lines: Lines, numbers: NDArray[np.int64]) -> Decoded:
        """Returns the batch of JSON lines; `numbers`: theirs in the file, from 0."""
        if not self._map.active:
            return self._emit(
                *self._decoder.messages(
                    lines,
                    np.zeros(len(lines), np.int8),
                    topic=(object_store.address(path),),
                    partition=0,
                    offsets=numbers,
                    format="json",
                    shared=True,
                )
            )
        read = self._mapped_json(path, lines, numbers) if self._decoder.reads_cells else None
        if read is not None:
            return read
        table, places, problems = json_lines.objects(lines, self._seen)
        self.refuse(path, [(int(numbers[i]), lines[i], problem) for i, problem in problems.items()])
        if not places:
            return self._emit(self._no_events(), ())
        self._see(table.column_names)
        at = np.array(places, np.int64)
        return self.table(path, table, numbers[at], lines.take(at))

    def csv(self, path: Path, rows: Rows) -> Decoded:
        """Returns the batch of rows of CSV."""
        read = self._cells(path, rows) if self._decoder.reads_cells else None
        return read or self.table(path, rows.table, rows.numbers, rows.lines)

    def table(self, path: Path, table: pa.Table, numbers: NDArray[np.int64], lines: Lines | None) -> Decoded:
        """Returns the batch of a table's rows; dead letters carry the rows as they were in the file, from `lines` if it
        is text.
        """
        mapped = self._map.apply(table, self._rows)
        self._rows += table.num_rows
        batch, letters = self._decoder.table(
            mapped,
            topic=object_store.address(path),
            partition=0,
            first_offset=0,
            text=lines is not None or self._map.active,
        )
        rows = [letter.offset for letter in letters]
        values = rows_as_json(table, rows) if lines is None else [lines[row] for row in rows]
        return self._emit(batch, _of_file(letters, values, numbers))

    # -- inside --------------------------------------------------------------------------------------------------

    def _mapped_json(self, path: Path, lines: Lines, numbers: NDArray[np.int64]) -> Decoded | None:
        """Returns a batch of mapped JSON lines, without an object per line; None if some need one."""
        try:
            rows = MappedLines(lines, numbers)
        except NotPlainError:
            return None
        if not len(rows):
            return None
        self._see(rows.names)
        rows.has_also(self._seen)
        return self._cells(path, rows)

    def _cells(self, path: Path, rows: TextRows) -> Decoded | None:
        """Returns a batch of rows of text; None if they must be read as a table, which also reports faults of columns."""
        try:
            batch, letters = self._decoder.cells(rows, self._map, self._rows, topic=object_store.address(path))
        except (NotPlainError, ConfigError, SchemaError):
            return None
        self._rows += len(rows)
        self.refuse(path, rows.bad)
        values = [rows.lines[letter.offset] for letter in letters]
        return self._emit(batch, _of_file(letters, values, rows.numbers))

    def _see(self, names: Sequence[str]) -> None:
        """Remembers the names of fields of lines."""
        for name in names:
            if len(self._seen) < json_lines.MOST_FIELDS:
                self._seen.setdefault(name)

    def _no_events(self) -> Batch:
        return self._decoder.messages([], [], topic=("",), partition=0, offsets=[], format="json", shared=True)[0]

    def _emit(self, batch: Batch, letters: Sequence[DeadLetter]) -> Decoded:
        if self._refused:
            invalid = dict(self._refused + Counter(batch.invalid))
            self._refused.clear()
            batch = replace(batch, invalid=invalid)
        return batch, [*self.letters_left(), *letters]


def _of_file(letters: Sequence[DeadLetter], values: Sequence[bytes], numbers: NDArray[np.int64]) -> list[DeadLetter]:
    """Converts letters of a batch's rows to those of the file's; `values`: the rows as they were there."""
    return [
        replace(letter, value=value, offset=int(numbers[letter.offset]))
        for letter, value in zip(letters, values, strict=True)
    ]
