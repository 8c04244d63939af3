"""CSV text as tables of strings, with the original bytes of every row: a bad row is told apart, never a whole file.

A Numba kernel finds where rows end (as Arrow's parser sees it: a quote opens only at the start of a cell), so rows with
too few or too many cells, or that are no UTF-8, are taken out before Arrow parses the rest. A quote that is never
closed costs the line where it opens, not the rows after it. Memory: a block, plus the longest row.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

import numba
import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from streameval.sources.formats.lines import KEEP
from streameval.sources.formats.raw import Rejection, too_large
from streameval.sources.protocol import SourceError

BLOCK = 4 << 20  # bytes read at a time
_BOM = b"\xef\xbb\xbf"
_OPEN_QUOTE: Rejection = ("malformed", "", "a quote opens in this line and is not closed")
_NO_HEADER = "the first line must name the columns, and it does not; write a header line, or set files.columns.header"


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of the file, in order. Row numbers count from 0, below the header, without blank lines."""

    table: pa.Table  # the good rows, every column text
    origin: pa.Table  # beside it: `number` (int64) and `line` (binary: the original bytes, line end included)
    bad: list[tuple[int, bytes, Rejection]]  # the others: number, original bytes, what is wrong


class CsvReader:
    """Reads a CSV stream once."""

    def __init__(self, stream: io.BufferedIOBase, names: Sequence[str] | None, delimiter: str, longest: int) -> None:
        """`names`: the columns of a file without a header line. `longest`: bytes that a row may have."""
        self._stream = stream
        self._names = list(names or ())  # empty until the header is read
        self._from_header = not names
        self._delimiter = delimiter
        self._longest = longest
        self._number = 0
        self._long: list[bytes] = []  # the parts of a line that is being skipped
        self._long_size = 0

    def rows(self) -> Iterator[Rows]:
        """Raises SourceError for a header that names no columns, or when given names fit no row of the first block."""
        rest = self._stream.read(BLOCK).removeprefix(_BOM)
        final = not rest
        while True:
            rest = yield from self._take(rest, final)
            if final:
                return
            chunk = self._stream.read(BLOCK)
            rest, final = rest + chunk, not chunk

    def _take(self, data: bytes, final: bool) -> Generator[Rows, None, bytes]:
        """The rows of `data`; returns what is left of it, the start of a row."""
        while True:
            if self._long_size:
                data = yield from self._skip(data, final)
            starts, ends, cells, used, quoted = self._scan(data, final)
            if not self._names and len(starts):
                self._names = _header(data[starts[0] : ends[0]], self._delimiter)
                starts, ends, cells = starts[1:], ends[1:], cells[1:]
            if len(starts):
                self._check_fits(cells)
                yield self._judge(data, starts, ends, cells)
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
        """Goes on with a line that is too long; returns what follows it."""
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

    def _scan(
        self, data: bytes, final: bool
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], int, bool]:
        text = np.frombuffer(data, np.uint8)
        most = int(np.count_nonzero(text == 10) + np.count_nonzero(text == 13)) + 1
        starts, ends, cells = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
        n, used, quoted = _find_rows(text, np.uint8(ord(self._delimiter)), final, starts, ends, cells)
        return starts[:n], ends[:n], cells[:n], int(used), bool(quoted)

    def _check_fits(self, cells: NDArray[np.int64]) -> None:
        """A header from the settings that fits no row is a mistake there, not in every row."""
        width = len(self._names)
        if not self._from_header and self._number == 0 and not (cells == width).any():
            raise SourceError(
                f"files.columns.header names {width} columns, the first row has {cells[0]}: "
                "name as many, or set files.columns.delimiter"
            )

    def _judge(self, data: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64], cells: NDArray[np.int64]) -> Rows:
        names = self._names
        numbers = self._number + np.arange(len(starts), dtype=np.int64)
        self._number += len(starts)
        problems: dict[int, Rejection] = {}
        for i in np.flatnonzero(cells != len(names)).tolist():
            problems[i] = ("malformed", "", f"the row has {cells[i]} cells, the header {len(names)}")
        for i in np.flatnonzero(ends - starts > self._longest).tolist():
            problems[i] = too_large(int(ends[i] - starts[i]), self._longest)
        if not _is_utf8(data[starts[0] : ends[-1]]):
            for i in range(len(starts)):
                if i not in problems and not _is_utf8(data[starts[i] : ends[i]]):
                    problems[i] = ("malformed", "", "the row is not UTF-8")
        bad = [(int(numbers[i]), data[starts[i] : ends[i]], problems[i]) for i in sorted(problems)]
        if problems:
            good = np.delete(np.arange(len(starts)), list(problems))
            kept = [data[starts[i] : ends[i]] + b"\n" for i in good]
            numbers, text = numbers[good], b"".join(kept)
            offsets = np.concatenate(([0], np.cumsum([len(line) for line in kept]))).astype(np.int64)
        else:
            text, offsets = data[starts[0] : ends[-1]], np.append(starts, ends[-1]) - starts[0]
        lines = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), len(numbers), [None, pa.py_buffer(offsets), pa.py_buffer(text)]
        )
        return Rows(
            _parse(text, names, self._delimiter, len(numbers)), pa.table({"number": numbers, "line": lines}), bad
        )

    def _refused(self, line: bytes, problem: Rejection) -> Rows:
        """One bad row and no good one."""
        self._number += 1
        origin = pa.table({"number": pa.array([], pa.int64()), "line": pa.array([], pa.large_binary())})
        line = line.removesuffix(b"\r")
        return Rows(_parse(b"", self._names, self._delimiter, 0), origin, [(self._number - 1, line, problem)])


@numba.njit(cache=True, nogil=True)
def _find_rows(
    text: NDArray[np.uint8],
    delimiter: np.uint8,
    final: bool,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    cells: NDArray[np.int64],
) -> tuple[int, int, bool]:
    """(rows found, bytes used up by them, whether the rest ends inside quotes); `final`: the last row needs no end."""
    n, start, count = 0, 0, 1
    at_start, quoted, closing = True, False, False  # at a cell's start; inside quotes; just after a quote inside quotes
    for i in range(text.size):
        c = text[i]
        if quoted:
            if closing:
                closing = False
                if c == 34:  # two quotes are one that is meant
                    continue
                quoted = False
            else:
                closing = c == 34
                continue
        if c == delimiter:
            count += 1
            at_start = True
        elif c in (10, 13):
            if i > start:  # else a blank line, or the second half of CR LF
                starts[n], ends[n], cells[n] = start, i, count
                n += 1
            start, count, at_start = i + 1, 1, True
        elif c == 34 and at_start:
            quoted, at_start = True, False
        else:
            at_start = False
    if quoted and not closing:
        return n, start, True
    if final and start < text.size:
        starts[n], ends[n], cells[n] = start, text.size, count
        return n + 1, text.size, False
    return n, start, False


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
    if not names or any(not name for name in names):
        raise SourceError(_NO_HEADER)
    for place, name in enumerate(names, 1):
        first = names.index(name) + 1
        if first < place:  # without the name: of a file without a header it may be a user's id
            raise SourceError(
                f"the first line gives columns {first} and {place} the same name; every column needs its own name (or "
                "files.columns.header, when the file has no header line)"
            )
    return names


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
