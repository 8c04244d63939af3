"""Event files: JSONL (.gz, .zst), CSV (.gz, .zst), Parquet and Arrow IPC, on disk or in an object store, in bounded memory.

Several files are one partition, read one after another in the given order.
"""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
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
from streameval.sources.file_rows import Decoded, FileRows
from streameval.sources.formats import lines as json_lines
from streameval.sources.formats.arrow_column import SchemaError
from streameval.sources.formats.csv import CsvReader, Rows
from streameval.sources.formats.decode import Decoder
from streameval.sources.formats.line_text import Lines
from streameval.sources.formats.lines import LineRun
from streameval.sources.formats.mapping import ColumnMap
from streameval.sources.formats.raw import Rejection
from streameval.sources.formats.row_json import rows_as_json
from streameval.sources.packed import PACKED, CountedFile, unpacked
from streameval.sources.protocol import DeadLetterSink, Source, SourceError
from streameval.sources.tables import not_text, rebatched

log = logging.getLogger(__name__)

_READ_ERRORS = (OSError, EOFError, zlib.error, pa.ArrowException, UnicodeDecodeError)  # the last one: from column names
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
        self._paths = _with_something([Path(p) for p in paths])
        self._decoder = decoder
        self._max_events = max_events
        self._sink = sink
        self._map = ColumnMap(files.columns)
        self._formats = [format_of_file(path, files.format) for path in self._paths]
        self._sizes = [object_store.size(path) for path in self._paths]
        self._done_bytes = 0
        self._at: CountedFile | None = None
        self._shared = shared
        self._rows = FileRows(decoder, self._map)
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

    def _delivered(self, steps: Iterator[Decoded]) -> Iterator[Batch]:
        """Yields the batches after writing their dead letters; if there is none, the source is finished."""
        some = False
        try:
            for batch, letters in steps:
                some = True
                self._sink.write(letters)
                yield replace(batch, shared=self._shared)
        except SourceError:
            self._sink.write(self._rows.letters_left())
            raise
        self.finished = not some

    def _read_all(self) -> Generator[Decoded]:
        for path, kind, size in zip(self._paths, self._formats, self._sizes, strict=True):
            try:
                with object_store.opened(path) as file:
                    plain = kind in ("jsonl", "csv") and path.suffix not in PACKED and not object_store.is_remote(path)
                    self._at = CountedFile(file, size if plain else None)
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
        rest = self._rows.rest()
        if rest is not None:
            yield rest

    def _read_lines(self, path: Path) -> Iterator[Decoded]:
        held: list[Lines] = []
        numbers: list[NDArray[np.int64]] = []  # of the held lines
        count = size = 0  # held lines, their bytes
        longest, most = self._decoder.max_message, self._max_events
        runs = json_lines.runs(unpacked(path, cast(BinaryIO, self._at)), longest, partial(self._has_grown, path))
        faults: list[Exception] = []
        for run in _up_to_fault(runs, faults):
            if run.size:
                what = f"{run.size} bytes: longer than kafka.max_message = {longest}"
                self._rows.refuse(path, [(run.first, run.lines[0], ("too_large", "", what))])
                continue
            kept = np.flatnonzero(~run.lines.blank())
            held.append(run.lines if kept.size == len(run.lines) else run.lines.take(kept))
            numbers.append(run.first + kept)
            count, size = count + kept.size, size + int(held[-1].sizes.sum())
            while count >= most or size > _MOST_BYTES:
                lines, own = Lines.joined(held), np.concatenate(numbers)
                yield self._rows.json(path, lines[:most], own[:most])
                held, numbers = [lines[most:]], [own[most:]]
                count, size = len(held[0]), int(held[0].sizes.sum())
        if count:
            yield self._rows.json(path, Lines.joined(held), np.concatenate(numbers))
        if faults:
            raise faults[0]

    def _read_csv(self, path: Path) -> Iterator[Decoded]:
        held: list[Rows] = []
        count = size = 0  # held rows, their bytes
        for rows in self._csv(path):
            if not self._map.knows_one_of(rows.names):
                # and does not quote the names: in a file without a header they may be a user's id
                raise SourceError(
                    "the first line names none of the columns that are wanted; write a header line, or set "
                    "files.columns.header or files.columns.delimiter"
                )
            self._rows.refuse(path, rows.bad)
            held.append(rows)
            count, size = count + len(rows), size + int(rows.lines.sizes.sum())
            while count >= self._max_events or size > _MOST_BYTES:
                whole = Rows.joined(held)
                yield self._rows.csv(path, whole[: self._max_events])
                held = [whole[self._max_events :]]
                count, size = len(held[0]), int(held[0].lines.sizes.sum())
        if count:
            yield self._rows.csv(path, Rows.joined(held))

    def _read_tables(self, path: Path, kind: str) -> Iterator[Decoded]:
        for table, numbers in rebatched(self._tables(path, kind), self._max_events):
            yield self._rows.table(path, table, numbers, None)

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
                self._rows.refuse(
                    path,
                    [(int(numbers[i]), row, what) for i, row in zip(bad, rows_as_json(table, bad), strict=True)],
                )
            good = np.delete(np.arange(table.num_rows), bad)
            yield table.take(good) if bad else table, numbers[good]

    def _csv(self, path: Path) -> Iterator[Rows]:
        delimiter = self._map.delimiter or ("\t" if ".tsv" in object_store.named(path).suffixes else ",")
        stream = unpacked(path, cast(BinaryIO, self._at))
        is_cut = partial(self._has_grown, path)
        return CsvReader(stream, self._map.header, delimiter, self._decoder.max_message, is_cut).rows()

    def _has_grown(self, path: Path) -> bool:
        """Asked once of a file, at its end."""
        if self._at is None or not self._at.has_grown():
            return False
        log.warning(
            "%s grew while it was read: only the whole lines that it had at the start are counted; replay it again when "
            "it is complete",
            path,
        )
        return True

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


def _with_something(paths: Sequence[Path]) -> list[Path]:
    """Returns the files that are not empty, as one may be of an hour without traffic; all of them if all are."""
    full = [path for path in paths if object_store.size(path)]
    for path in paths if full else ():
        if path not in full:
            log.warning("%s is empty: there is nothing to read", object_store.address(path))
    return full or list(paths)
