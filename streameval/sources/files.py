"""Event files: JSONL (.gz, .zst), CSV (.gz, .zst), Parquet and Arrow IPC, on disk or in an object store, in bounded memory.

Several files are one partition, read one after another in the given order.
"""

from __future__ import annotations

import time
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from streameval.events.batch import Batch
from streameval.events.views import without_views
from streameval.settings.tree import ConfigError, Files
from streameval.sources import object_store
from streameval.sources.ahead import Lookahead, ahead
from streameval.sources.file_format import format_of_file
from streameval.sources.formats import lines as json_lines
from streameval.sources.formats.arrow_column import SchemaError
from streameval.sources.formats.cell_spans import NotPlainError, TextRows
from streameval.sources.formats.csv import CsvReader, Rows
from streameval.sources.formats.decode import Decoder
from streameval.sources.formats.line_text import Lines
from streameval.sources.formats.lines import LineRun
from streameval.sources.formats.mapped_lines import MappedLines
from streameval.sources.formats.mapping import ColumnMap
from streameval.sources.formats.raw import Rejection
from streameval.sources.formats.row_json import rows_as_json
from streameval.sources.packed import CountedFile, unpacked
from streameval.sources.protocol import DeadLetter, DeadLetterSink, Source, SourceError
from streameval.sources.tables import not_text, rebatched

_READ_ERRORS = (OSError, EOFError, zlib.error, pa.ArrowException, UnicodeDecodeError)  # the last one: from column names
_Read = tuple[Batch, Sequence[DeadLetter]]  # a batch, and the dead letters that belong to it
_MOST_BYTES = 256 << 20  # bytes of lines in a batch: with longer lines it has fewer than `max_events`


class FileSource(Source):
    """Events from files; every batch has `max_events` events except the last of a file."""

    def __init__(
        self,
        paths: Sequence[str | Path],
        decoder: Decoder,
        files: Files,
        max_events: int,
        sink: DeadLetterSink,
        *,
        shared: bool = True,
    ) -> None:
        """`shared`: impressions and clicks are one log, otherwise two in the same files.

        Raises SourceError for a file that is missing or of unknown format, ConfigError for a bad mapping.
        """
        self._paths = [Path(p) for p in paths]
        self._decoder = decoder
        self._max_events = max_events
        self._sink = sink
        self._map = ColumnMap(files.columns)
        self._formats = [format_of_file(path, files.format) for path in self._paths]
        self._sizes = [object_store.size(path) for path in self._paths]
        self._done_bytes = 0
        self._at: CountedFile | None = None
        self._shared = shared
        self._seen: dict[str, None] = {}  # names of mapped JSON fields
        self._rows = 0  # of all files so far: `row = true` numbers them continuously, so that no two files share an id
        self._refused: Counter[str] = Counter()  # dead letters that no batch has counted yet
        self._bad: list[DeadLetter] = []  # letters that have not been passed on with a batch yet
        self._read = self._read_all()
        self._lookahead = Lookahead()
        self._decoding = ThreadPoolExecutor(1, "decoding")

    def poll(self, timeout: float) -> list[Batch]:
        """Returns the next batch; [] at the end. Raises SourceError, naming the file, if it cannot be read."""
        del timeout  # a file never needs waiting
        return list(self._delivered(islice(self._read, 1)))

    def deliver(self, timeout: float, take: Callable[[Batch], None]) -> None:
        """See `Source.deliver`."""
        del timeout
        begin = time.monotonic()
        for batch in self._delivered(ahead(islice(self._read, self._lookahead.batches), self._decoding)):
            take(batch)
        self._lookahead.took(time.monotonic() - begin, True)

    @property
    def reads_json(self) -> bool:
        """Whether a file has JSON lines that are decoded like messages."""
        return "jsonl" in self._formats and not self._map.active

    @property
    def reads_rows(self) -> bool:
        """Whether a file is read as rows of text: CSV, or mapped JSON lines."""
        return "csv" in self._formats or ("jsonl" in self._formats and self._map.active)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names that do not depend on the files."""
        return ("files",) if self._shared else ("files", "files")

    def lacks_features(self) -> str:
        """See `Source.lacks_features`; an unreadable file is reported by `poll` instead."""
        if self._map.active:
            return (
                "" if self._map.has_features else 'files.columns maps no features: add features = ["column", ...] to it'
            )
        try:
            may_have = any(map(self._may_have_features, self._paths, self._formats))
        except (*_READ_ERRORS, SchemaError, SourceError):
            return ""
        if may_have:
            return ""
        return "no file has a column `features` or `features.<name>`: add one, or name others in files.columns.features"

    def progress(self) -> tuple[int, int] | None:
        """Returns (bytes read, bytes of all files), as stored."""
        total = sum(self._sizes)  # a Parquet footer is read twice, so the count alone can pass the end
        return min(self._done_bytes + (self._at.count if self._at else 0), total), total

    def close(self) -> None:
        """Closes the open file."""
        self._decoding.shutdown()
        self._read.close()

    # -- inside --------------------------------------------------------------------------------------------------

    def _delivered(self, steps: Iterator[_Read]) -> Iterator[Batch]:
        """Yields the batches after writing their dead letters; if there is none, the source is finished."""
        some = False
        try:
            for batch, letters in steps:
                some = True
                self._sink.write(letters)
                yield replace(batch, shared=self._shared)
        except SourceError:
            self._sink.write(self._bad)
            raise
        self.finished = not some

    def _read_all(self) -> Generator[_Read]:
        for path, kind, size in zip(self._paths, self._formats, self._sizes, strict=True):
            try:
                with object_store.opened(path) as file:
                    self._at = CountedFile(file)
                    if kind == "jsonl":
                        yield from self._read_lines(path)
                    elif kind == "csv":
                        yield from self._read_csv(path)
                    else:
                        yield from self._read_tables(path, kind)
            except _READ_ERRORS as error:
                # for a text file, Arrow's errors quote a line
                quotes = kind in ("csv", "jsonl") and isinstance(error, pa.ArrowException)
                what = type(error).__name__ if quotes else " ".join(str(error).split()) or type(error).__name__
                raise SourceError(
                    f"{object_store.address(path)}: cannot be read to its end: {what}; the file is cut short, damaged or not {kind}: "
                    "copy it again, or give its readable part as a file of its own"
                ) from None
            except (SchemaError, ConfigError, SourceError) as error:
                raise SourceError(f"{object_store.address(path)}: {error}") from None
            self._at = None
            self._done_bytes += size
        if self._refused:
            yield self._emit(self._no_events(), ())

    def _refuse(self, path: Path, bad: Sequence[tuple[int, bytes, Rejection]]) -> None:
        """Sends events that never reach the decoder to the dead letters with the next batch."""
        self._bad += [
            DeadLetter(value, *problem, object_store.address(path), 0, number) for number, value, problem in bad
        ]
        self._refused.update(problem[0] for _, _, problem in bad)

    def _no_events(self) -> Batch:
        return self._decoder.messages([], [], topic=("",), partition=0, offsets=[], format="json", shared=True)[0]

    def _emit(self, batch: Batch, letters: Sequence[DeadLetter]) -> _Read:
        if self._refused:
            invalid = dict(self._refused + Counter(batch.invalid))
            self._refused.clear()
            batch = replace(batch, invalid=invalid)
        bad, self._bad = self._bad, []
        return batch, [*bad, *letters]

    def _read_lines(self, path: Path) -> Iterator[_Read]:
        held: list[Lines] = []
        numbers: list[NDArray[np.int64]] = []  # of the held lines
        count = size = 0  # held lines, their bytes
        longest, most = self._decoder.max_message, self._max_events
        runs = json_lines.runs(unpacked(path, cast(BinaryIO, self._at)), longest)
        faults: list[Exception] = []
        for run in _up_to_fault(runs, faults):
            if run.size:
                what = f"{run.size} bytes: longer than kafka.max_message = {longest}"
                self._refuse(path, [(run.first, run.lines[0], ("too_large", "", what))])
                continue
            kept = np.flatnonzero(~run.lines.blank())
            held.append(run.lines if kept.size == len(run.lines) else run.lines.take(kept))
            numbers.append(run.first + kept)
            count, size = count + kept.size, size + int(held[-1].sizes.sum())
            while count >= most or size > _MOST_BYTES:
                lines, own = Lines.joined(held), np.concatenate(numbers)
                yield self._decode_lines(path, lines[:most], own[:most])
                held, numbers = [lines[most:]], [own[most:]]
                count, size = len(held[0]), int(held[0].sizes.sum())
        if count:
            yield self._decode_lines(path, Lines.joined(held), np.concatenate(numbers))
        if faults:
            raise faults[0]

    def _decode_lines(self, path: Path, lines: Lines, numbers: NDArray[np.int64]) -> _Read:
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
        read = self._decode_members(path, lines, numbers) if self._decoder.reads_cells else None
        if read is not None:
            return read
        table, places, problems = json_lines.objects(lines, self._seen)
        self._refuse(path, [(int(numbers[i]), lines[i], problem) for i, problem in problems.items()])
        if not places:
            return self._emit(self._no_events(), ())
        self._see(table.column_names)
        at = np.array(places, np.int64)
        return self._decode_table(path, table, numbers[at], lines.take(at))

    def _see(self, names: Sequence[str]) -> None:
        """Remembers the names of fields of lines."""
        for name in names:
            if len(self._seen) < json_lines.MOST_FIELDS:
                self._seen.setdefault(name)

    def _decode_members(self, path: Path, lines: Lines, numbers: NDArray[np.int64]) -> _Read | None:
        """Returns a batch of mapped JSON lines, without an object per line; None if some need one."""
        try:
            rows = MappedLines(lines, numbers)
        except NotPlainError:
            return None
        if not len(rows):
            return None
        self._see(rows.names)
        rows.has_also(self._seen)
        return self._decode_cells(path, rows)

    def _read_csv(self, path: Path) -> Iterator[_Read]:
        held: list[Rows] = []
        count = size = 0  # held rows, their bytes
        for rows in self._csv(path):
            if not self._map.knows_one_of(rows.names):
                # and does not quote the names: in a file without a header they may be a user's id
                raise SourceError(
                    "the first line names none of the columns that are wanted; write a header line, or set "
                    "files.columns.header or files.columns.delimiter"
                )
            self._refuse(path, rows.bad)
            held.append(rows)
            count, size = count + len(rows), size + int(rows.lines.sizes.sum())
            while count >= self._max_events or size > _MOST_BYTES:
                whole = Rows.joined(held)
                yield self._decode_csv(path, whole[: self._max_events])
                held = [whole[self._max_events :]]
                count, size = len(held[0]), int(held[0].lines.sizes.sum())
        if count:
            yield self._decode_csv(path, Rows.joined(held))

    def _decode_csv(self, path: Path, rows: Rows) -> _Read:
        read = self._decode_cells(path, rows) if self._decoder.reads_cells else None
        return read or self._decode_table(path, rows.table, rows.numbers, rows.lines)

    def _decode_cells(self, path: Path, rows: TextRows) -> _Read | None:
        """Returns a batch of rows of text; None if they must be read as a table, which also reports faults of columns."""
        try:
            batch, letters = self._decoder.cells(rows, self._map, self._rows, topic=object_store.address(path))
        except (NotPlainError, ConfigError, SchemaError):
            return None
        self._rows += len(rows)
        self._refuse(path, rows.bad)
        values = [rows.lines[letter.offset] for letter in letters]
        return self._emit(batch, _whole(letters, values, rows.numbers))

    def _read_tables(self, path: Path, kind: str) -> Iterator[_Read]:
        for table, numbers in rebatched(self._tables(path, kind), self._max_events):
            yield self._decode_table(path, table, numbers, None)

    def _decode_table(self, path: Path, table: pa.Table, numbers: NDArray[np.int64], lines: Lines | None) -> _Read:
        """Returns a batch of the table's rows; dead letters carry the rows as they were in the file, from `lines` if it
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
        return self._emit(batch, _whole(letters, values, numbers))

    def _tables(self, path: Path, kind: str) -> Iterator[tuple[pa.Table, NDArray[np.int64]]]:
        """Yields (rows, their numbers in the file)."""
        number = 0
        for raw in self._columnar(kind):
            bad, table = not_text(raw), without_views(raw)
            twice = next((name for name in table.column_names if table.column_names.count(name) > 1), None)
            if twice is not None:
                raise SourceError(f'the column "{twice}" appears twice; every column needs its own name')
            numbers = np.arange(number, number + table.num_rows)
            number += table.num_rows
            if bad:
                what: Rejection = ("malformed", "", "a text is not UTF-8")
                self._refuse(
                    path, [(int(numbers[i]), row, what) for i, row in zip(bad, rows_as_json(table, bad), strict=True)]
                )
            good = np.delete(np.arange(table.num_rows), bad)
            yield table.take(good) if bad else table, numbers[good]

    def _csv(self, path: Path) -> Iterator[Rows]:
        delimiter = self._map.delimiter or ("\t" if ".tsv" in object_store.named(path).suffixes else ",")
        stream = unpacked(path, cast(BinaryIO, self._at))
        return CsvReader(stream, self._map.header, delimiter, self._decoder.max_message).rows()

    def _may_have_features(self, path: Path, kind: str) -> bool:
        """Judged by the first rows of a table; every line of JSON has its own fields."""
        if kind == "jsonl":
            return True
        with object_store.opened(path) as file:
            self._at = CountedFile(file)
            names = (
                (rows.names for rows in self._csv(path))
                if kind == "csv"
                else (t.column_names for t in self._columnar(kind))
            )
            first = next(names, None)
            self._at = None
        return first is None or any(name.split(".")[0] == "features" for name in first)

    def _columnar(self, kind: str) -> Iterator[pa.Table]:
        file = cast(BinaryIO, self._at)
        if kind == "parquet":
            with pq.ParquetFile(file) as parquet:
                for batch in parquet.iter_batches(batch_size=self._max_events):
                    yield pa.Table.from_batches([batch])
            return
        head = file.read(6)
        file.seek(0)
        if head == b"ARROW1":
            with pyarrow.ipc.open_file(file) as reader:
                for i in range(reader.num_record_batches):
                    yield pa.Table.from_batches([reader.get_batch(i)])
        else:
            with pyarrow.ipc.open_stream(file) as stream:
                for batch in stream:
                    yield pa.Table.from_batches([batch])


def _up_to_fault(runs: Iterator[LineRun], faults: list[Exception]) -> Iterator[LineRun]:
    """Yields the lines that can be read; the error that ends them goes to `faults`, to be raised once they are
    delivered.
    """
    try:
        yield from runs
    except _READ_ERRORS as error:
        faults.append(error)


def _whole(letters: Sequence[DeadLetter], values: Sequence[bytes], numbers: NDArray[np.int64]) -> list[DeadLetter]:
    """Converts letters of a batch's rows to those of the file's; `values`: the rows as they were there."""
    return [
        replace(letter, value=value, offset=int(numbers[letter.offset]))
        for letter, value in zip(letters, values, strict=True)
    ]
