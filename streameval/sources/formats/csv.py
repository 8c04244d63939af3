"""CSV text as rows of cells, with the original bytes of every row: a bad row is rejected by itself, never an entire
file.

A Numba kernel finds where rows and cells end (by the rules of Arrow's parser: a quote opens only at the start of a
cell). Rows with too few or too many cells, or that are not UTF-8, are taken out. A quote that is never closed costs the
line where it opens, not the rows after it. Memory: a block, plus the longest row. The contents of cells are read by
`csv_columns`, or by Arrow.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from streameval.events.words64 import equal_bytes, load8, load64, trailing_zeros
from streameval.sources.formats.cell_spans import CellSpans, NotPlainError
from streameval.sources.formats.csv_cells import find_cells
from streameval.sources.formats.json_text import QUOTE
from streameval.sources.formats.line_text import Lines
from streameval.sources.formats.lines import KEEP
from streameval.sources.formats.raw import Rejection, too_large
from streameval.sources.formats.scan_features import is_utf8
from streameval.sources.protocol import SourceError

BLOCK = 1 << 20  # bytes read at a time
_LF, _CR = 10, 13
_LONGEST = 1 << 30  # bytes that a row may have whatever the settings say: positions in it have 32 bits
_BOM = b"\xef\xbb\xbf"
_OPEN_QUOTE: Rejection = ("malformed", "", "a quote opens in this line and is not closed")
_NO_HEADER = "the first line must name the columns, and it does not; write a header line, or set files.columns.header"


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """n good rows, in order, and the bad ones among them. Numbers count from 0, after the header, without blank
    lines.
    """

    names: Sequence[str]  # of the columns
    delimiter: str
    lines: Lines  # the original bytes, without line ends
    stops: NDArray[np.int32]  # [n, columns]: where each cell ends, from the start of its row
    quoted: NDArray[np.bool_]  # [n]: whether a cell begins with a quote
    numbers: NDArray[np.int64]  # [n]
    bad: Sequence[tuple[int, bytes, Rejection]] = ()  # number, original bytes, problem

    @staticmethod
    def joined(parts: Sequence[Rows]) -> Rows:
        """Returns the good rows of several parts, one after the other."""
        first = parts[0]
        return Rows(
            first.names,
            first.delimiter,
            Lines.joined([part.lines for part in parts]),
            np.concatenate([part.stops for part in parts]),
            np.concatenate([part.quoted for part in parts]),
            np.concatenate([part.numbers for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, some: slice) -> Rows:
        return Rows(
            self.names, self.delimiter, self.lines[some], self.stops[some], self.quoted[some], self.numbers[some]
        )

    @property
    def table(self) -> pa.Table:
        """Returns the rows as Arrow parses them, every column as text."""
        return _parse(b"\n".join(self.lines), list(self.names), self.delimiter, len(self))

    def cells(self, columns: Sequence[str]) -> CellSpans:
        """Returns the cells of some columns. Raises NotPlainError for a column that does not exist."""
        if not set(columns) <= set(self.names):
            raise NotPlainError
        # quotes are removed in place, but the rows must not change
        text = bytearray(self.lines.text) if self.quoted.any() else self.lines.text
        spans = np.empty((len(columns), 2, len(self)), np.int32)
        places = np.array([self.names.index(name) for name in columns], np.int64)
        address = np.frombuffer(text, np.uint8).ctypes.data
        find_cells(address, self.lines.bounds, self.stops, self.quoted, places, spans)
        return CellSpans(text, {name: k for k, name in enumerate(columns)}, spans)

    def some(self, rows: Sequence[int]) -> pa.Table:
        """Returns the rows with these indexes."""
        return _parse(b"\n".join(self.lines[k] for k in rows), list(self.names), self.delimiter, len(rows))


class CsvReader:
    """Reads a CSV stream once."""

    def __init__(
        self,
        stream: io.BufferedIOBase,
        names: Sequence[str] | None,
        delimiter: str,
        longest: int,
        is_cut: Callable[[], bool] = lambda: False,
    ) -> None:
        """`names`: the columns of a file without a header line. `longest`: the largest size of a row in bytes. `is_cut`:
        see `lines.runs`.
        """
        self._stream = stream
        self._is_cut = is_cut
        self._names = list(names or ())  # empty until the header is read
        self._from_header = not names
        self._delimiter = delimiter
        self._longest = min(longest, _LONGEST)
        self._number = 0
        self._long: list[bytes] = []  # the parts of a line that is being skipped
        self._long_size = 0

    def rows(self) -> Iterator[Rows]:
        """Yields the rows. Raises SourceError for a header that names no columns, or if given names fit no row of the
        first block.
        """
        rest = self._stream.read(BLOCK).removeprefix(_BOM)
        final = not rest
        while True:
            rest = yield from self._take(rest, final)
            if final:
                return
            chunk = self._stream.read(BLOCK)
            rest, final = rest + chunk, not chunk
            if final and self._is_cut():
                rest = rest[: rest.rfind(b"\n") + 1]

    def _take(self, data: bytes, final: bool) -> Generator[Rows, None, bytes]:
        """Yields the rows of `data`; returns the rest of it, the start of a row."""
        while True:
            if self._long_size:
                data = yield from self._skip(data, final)
            found, used, quoted = self._scan(data, final)
            if not self._names and len(found.lines):
                self._names = _header(found.lines[0], self._delimiter)
                found = found.without_first()
            if len(found.lines):
                self._check_fits(found.cells)
                yield self._judge(found)
            data = data[used:]
            if not data or not (final or len(data) > self._longest):
                return data
            if not self._names:
                raise SourceError(_NO_HEADER)
            end = data.find(b"\n")
            if quoted and end >= 0:
                yield self._refused(data[:end], _OPEN_QUOTE)
                data = data[end + 1 :]
            elif final:
                yield self._refused(data, _OPEN_QUOTE)
                return b""
            else:
                self._long, self._long_size = [data], len(data)
                return b""

    def _skip(self, data: bytes, final: bool) -> Generator[Rows, None, bytes]:
        """Continues a line that is too long; returns what follows it."""
        end = data.find(b"\n")
        part = data if end < 0 else data[:end]
        if self._long_size < KEEP * self._longest:
            self._long.append(part)
        self._long_size += len(part)
        if end < 0 and not final:
            return b""
        yield self._refused(b"".join(self._long), too_large(self._long_size, self._longest))
        self._long, self._long_size = [], 0
        return data[end + 1 :] if end >= 0 else b""

    def _scan(self, data: bytes, final: bool) -> tuple[_Found, int, bool]:
        """Returns (the rows of the text, the bytes they take, whether the rest ends inside quotes)."""
        text = np.frombuffer(data, np.uint8)
        room = text.size + 1  # most of it is never written to, and takes no memory
        bounds, cells = np.empty((room, 2), np.int64), np.empty(room, np.int64)
        stops, quotes = np.empty(room, np.int32), np.empty(room, np.bool_)
        n, ended, used, quoted = _find_rows(
            text.ctypes.data, text.size, ord(self._delimiter), final, bounds, cells=cells, stops=stops, quotes=quotes
        )
        lines = Lines(data, bounds[:n].copy())
        return _Found(lines, cells[:n].copy(), stops[:ended].copy(), quotes[:n].copy()), int(used), bool(quoted)

    def _check_fits(self, cells: NDArray[np.int64]) -> None:
        """Checks names from the settings: if they fit no row, the mistake is there, not in every row."""
        width = len(self._names)
        if not self._from_header and self._number == 0 and not (cells == width).any():
            raise SourceError(
                f"files.columns.header names {width} columns, the first row has {cells[0]}: "
                "name as many, or set files.columns.delimiter"
            )

    def _judge(self, found: _Found) -> Rows:
        names, lines, cells = self._names, found.lines, found.cells
        numbers = self._number + np.arange(len(lines), dtype=np.int64)
        self._number += len(lines)
        problems: dict[int, Rejection] = {}
        for i in np.flatnonzero(cells != len(names)).tolist():
            problems[i] = ("malformed", "", f"the row has {cells[i]} cells, the header {len(names)}")
        sizes = lines.sizes
        for i in np.flatnonzero(sizes > self._longest).tolist():
            problems[i] = too_large(int(sizes[i]), self._longest)
        if not is_utf8(lines.text[lines.bounds[0, 0] : lines.bounds[-1, 1]]):
            for i, line in enumerate(lines):
                if i not in problems and not is_utf8(line):
                    problems[i] = ("malformed", "", "the row is not UTF-8")
        if not problems:
            stops = found.stops.reshape(len(lines), len(names))
            return Rows(names, self._delimiter, lines, stops, found.quotes, numbers)
        bad = [(int(numbers[i]), lines[i], problems[i]) for i in sorted(problems)]
        good = np.delete(np.arange(len(lines)), list(problems))
        first = np.cumsum(cells) - cells
        stops = found.stops[first[good][:, None] + np.arange(len(names))]
        return Rows(names, self._delimiter, lines.take(good), stops, found.quotes[good], numbers[good], bad)

    def _refused(self, line: bytes, problem: Rejection) -> Rows:
        """Returns a single bad row."""
        self._number += 1
        none = np.empty(0, np.int64)
        return Rows(
            self._names,
            self._delimiter,
            Lines(b"", none.reshape(0, 2)),
            np.empty((0, len(self._names)), np.int32),
            none.astype(bool),
            none,
            [(self._number - 1, line.removesuffix(b"\r"), problem)],
        )


class _Found(NamedTuple):
    """Rows of a text, good and bad."""

    lines: Lines
    cells: NDArray[np.int64]  # per row
    stops: NDArray[np.int32]  # where each cell ends, row by row, from the start of its row
    quotes: NDArray[np.bool_]  # whether a row has any quotes

    def without_first(self) -> _Found:
        return _Found(self.lines[1:], self.cells[1:], self.stops[self.cells[0] :], self.quotes[1:])


@numba.njit(inline="always")
def _next_stop(i: int, end: int, delimiter: int) -> int:
    """Returns the position of the first delimiter or line end from i on; `end`: there is none."""
    while i + 8 <= end:
        word = load64(i)
        found = equal_bytes(word, delimiter) | equal_bytes(word, _LF) | equal_bytes(word, _CR)
        if found:
            return i + (trailing_zeros(found) >> 3)
        i += 8
    while i < end and load8(i) != delimiter and load8(i) != _LF and load8(i) != _CR:
        i += 1
    return i


@numba.njit(cache=True, nogil=True)
def _find_rows(
    text: int,
    size: int,
    delimiter: int,
    final: bool,
    bounds: NDArray[np.int64],
    cells: NDArray[np.int64],
    stops: NDArray[np.int32],
    quotes: NDArray[np.bool_],
) -> tuple[int, int, int, bool]:
    """Returns (rows found, cells found, bytes they take, whether the rest ends inside quotes).

    `text`: its address; `final`: the last row needs no line end. For the arrays see `_Found` and `Lines`.
    """
    end = text + size
    n = ended = before = 0  # rows, cells, cells of the previous rows
    i = start = text
    any_quote = False
    while i < end:  # at the start of a cell
        if load8(i) == QUOTE:
            any_quote = True
            i += 1
            while i < end and not (load8(i) == QUOTE and not (i + 1 < end and load8(i + 1) == QUOTE)):
                i += 2 if load8(i) == QUOTE else 1  # two quotes mean one quote
            if i >= end:
                return n, before, start - text, True
            i += 1
        i = _next_stop(i, end, delimiter)
        if i == end:
            break
        if load8(i) == delimiter:
            stops[ended] = i - start
            ended += 1
        else:
            if i > start:  # otherwise a blank line, or the second half of CR LF
                stops[ended] = i - start
                ended += 1
                bounds[n, 0], bounds[n, 1] = start - text, i - text
                cells[n], quotes[n] = ended - before, any_quote
                n += 1
                before = ended
            start = i + 1
            any_quote = False
        i += 1
    if final and start < end:
        stops[ended] = end - start
        ended += 1
        bounds[n, 0], bounds[n, 1] = start - text, size
        cells[n], quotes[n] = ended - before, any_quote
        return n + 1, ended, size, False
    return n, before, start - text, False


def _parse(text: bytes, names: list[str], delimiter: str, n: int) -> pa.Table:
    schema = pa.schema([(name, pa.string()) for name in names])
    if not n:
        return schema.empty_table()
    table = pyarrow.csv.read_csv(
        pa.BufferReader(text),
        read_options=pyarrow.csv.ReadOptions(column_names=names, block_size=len(text) + 1, use_threads=False),
        parse_options=pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict(zip(names, schema.types, strict=True)), strings_can_be_null=False
        ),
    )
    if table.num_rows != n:
        raise SourceError(f"{n} rows were found but {table.num_rows} parsed; please report this file")
    return table


def _header(line: bytes, delimiter: str) -> list[str]:
    text = line.decode("utf-8", "replace")
    names = next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), [])
    if not any(names):
        raise SourceError(_NO_HEADER)
    for place, name in enumerate(names, 1):
        first = names.index(name) + 1
        if first < place:  # without the name: in a file without a header it may be a user's id
            raise SourceError(
                f"the first line gives columns {first} and {place} the same name; every column needs its own name (or "
                "files.columns.header, when the file has no header line)"
            )
    return names
