"""Event files: JSONL (.gz, .zst), CSV (.gz, .zst), Parquet and Arrow IPC, streamed in bounded memory.

Several files are one partition, read one after the other in the given order.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq
import zstandard

from streameval.config import ConfigError, Files
from streameval.events import Batch
from streameval.sources.columns import ColumnMap
from streameval.sources.decode import Decoder
from streameval.sources.decode_arrow import SchemaError
from streameval.sources.protocol import DeadLetter, DeadLetterSink, SourceError

_FORMATS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".arrow": "arrow"}  # fmt: skip
_READ_ERRORS = (OSError, EOFError, zlib.error, zstandard.ZstdError, pa.ArrowException)


class FileSource:
    """A `Source` over files; every batch has `max_events` events but the last of a file."""

    def __init__(
        self, paths: Sequence[str | Path], decoder: Decoder, files: Files, max_events: int, sink: DeadLetterSink
    ) -> None:
        """Raises SourceError for a file that is missing or whose format cannot be told, ConfigError for a bad mapping."""
        self._paths = [Path(p) for p in paths]
        self._decoder = decoder
        self._max_events = max_events
        self._sink = sink
        self._map = ColumnMap(files.columns)
        self._formats = [_format(path, files.format) for path in self._paths]
        self._sizes = [path.stat().st_size for path in self._paths]
        self._done_bytes = 0
        self._at: _Counted | None = None
        self._finished = False
        self._batches = self._read_all()

    def poll(self, timeout: float) -> list[Batch]:
        """The next batch; [] at the end. Raises SourceError, naming the file, when it cannot be read."""
        del timeout  # a file never makes one wait
        batch = next(self._batches, None)
        if batch is None:
            self._finished = True
            return []
        return [batch]

    @property
    def finished(self) -> bool:
        """Whether everything was read."""
        return self._finished

    def partitions(self) -> frozenset[int]:
        """Files are one partition."""
        return frozenset({0})

    def lag(self) -> Mapping[tuple[str, int], int]:
        """Unknown for files."""
        return {}

    def progress(self) -> tuple[int, int] | None:
        """(bytes read, bytes of all files), as stored."""
        return self._done_bytes + (self._at.count if self._at else 0), sum(self._sizes)

    def commit(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Nothing keeps them: a replay begins at the beginning."""

    def close(self) -> None:
        """Let go of the open file."""
        self._batches.close()

    # -- inside --------------------------------------------------------------------------------------------------

    def _read_all(self) -> Generator[Batch]:
        for path, kind, size in zip(self._paths, self._formats, self._sizes, strict=True):
            try:
                with open(path, "rb") as file:
                    self._at = _Counted(file)
                    yield from self._read_lines(path) if kind == "jsonl" else self._read_tables(path, kind)
            except _READ_ERRORS as error:
                raise SourceError(f"{path}: cannot be read to its end: {error or type(error).__name__}") from None
            except SchemaError as error:
                raise SourceError(f"{path}: {error}") from None
            except ConfigError as error:
                raise SourceError(f"{path}: {error}") from None
            self._at = None
            self._done_bytes += size

    def _emit(self, decoded: tuple[Batch, list[DeadLetter]]) -> Batch:
        batch, letters = decoded
        self._sink.write(letters)
        return batch

    def _read_lines(self, path: Path) -> Iterator[Batch]:
        lines: list[bytes | None] = []
        numbers: list[int] = []
        for number, line in enumerate(_lines(_opened(path, cast(BinaryIO, self._at)), self._decoder.max_message)):
            if not line.strip():
                continue
            lines.append(line)
            numbers.append(number)
            if len(lines) >= self._max_events:
                yield self._emit(self._decode_lines(path, lines, numbers))
                lines, numbers = [], []
        if lines:
            yield self._emit(self._decode_lines(path, lines, numbers))

    def _decode_lines(
        self, path: Path, lines: list[bytes | None], numbers: list[int]
    ) -> tuple[Batch, list[DeadLetter]]:
        if self._map.active:
            table = _objects_table([line or b"" for line in lines])
            if table is not None:
                mapped = self._map.apply(table, numbers[0])
                return self._decoder.table(mapped, topic=str(path), partition=0, first_offset=numbers[0])
        return self._decoder.messages(
            lines, [0] * len(lines), topic=(str(path),), partition=0, offsets=numbers, format="json", shared=True
        )

    def _read_tables(self, path: Path, kind: str) -> Iterator[Batch]:
        first = 0
        text = kind == "csv"
        for table in _rebatched(self._tables(path, kind), self._max_events):
            mapped = self._map.apply(table, first)
            yield self._emit(self._decoder.table(mapped, topic=str(path), partition=0, first_offset=first, text=text))
            first += table.num_rows

    def _tables(self, path: Path, kind: str) -> Iterator[pa.Table]:
        file = cast(BinaryIO, self._at)
        if kind == "parquet":
            with pq.ParquetFile(file) as parquet:
                for batch in parquet.iter_batches(batch_size=self._max_events):
                    yield pa.Table.from_batches([batch])
        elif kind == "arrow":
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
        else:
            yield from self._csv(path, file)

    def _csv(self, path: Path, file: BinaryIO) -> Iterator[pa.Table]:
        stream = _opened(path, file)
        first = stream.readline()
        delimiter = "\t" if path.name.startswith(".tsv") or ".tsv" in path.suffixes else self._map.delimiter
        names = self._map.header or _header(path, first, delimiter)
        bad: list[DeadLetter] = []

        def refuse(row: pyarrow.csv.InvalidRow) -> str:
            what = f"the row has {row.actual_columns} cells, the header {row.expected_columns}"
            offset = row.number if row.number is not None else -1
            bad.append(DeadLetter(row.text.encode(), "malformed", "", what, str(path), 0, offset))
            return "skip"

        body: BinaryIO = cast(BinaryIO, _Prefixed(first, stream)) if self._map.header else cast(BinaryIO, stream)
        reader = pyarrow.csv.open_csv(
            body,
            read_options=pyarrow.csv.ReadOptions(column_names=names, block_size=4 << 20, use_threads=False),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=True, invalid_row_handler=refuse
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False, check_utf8=True
            ),
        )
        for batch in reader:
            yield pa.Table.from_batches([batch])
        self._bad_rows = bad
        self._sink.write(bad)


class _Counted(io.RawIOBase):
    """A binary file that counts the bytes read through it, for progress."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.count = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self.count += len(data)
        return len(data)


class _Prefixed(io.RawIOBase):
    """A stream with some bytes put back in front."""

    def __init__(self, head: bytes, rest: io.BufferedIOBase) -> None:
        self._head = head
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._head[: len(buffer)] if self._head else self._rest.read(len(buffer))
        self._head = self._head[len(data) :] if self._head else b""
        buffer[: len(data)] = data
        return len(data)


def _format(path: Path, asked: str) -> str:
    if not path.is_file():
        raise SourceError(f"{path}: no such file")
    if path.stat().st_size == 0:
        raise SourceError(f"{path}: is empty")
    if asked != "auto":
        return asked
    suffixes = [s for s in path.suffixes if s not in (".gz", ".zst")]
    found = _FORMATS.get(suffixes[-1]) if suffixes else None
    if found is None:
        raise SourceError(
            f'{path}: the format cannot be told from the name; set files.format to "jsonl", "csv", "parquet" or "arrow"'
        )
    return found


def _opened(path: Path, file: BinaryIO) -> io.BufferedIOBase:
    if path.suffix == ".gz":
        return cast(io.BufferedIOBase, gzip.GzipFile(fileobj=file))
    if path.suffix == ".zst":
        return io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True), 1 << 20)
    return io.BufferedReader(cast(io.RawIOBase, file), 1 << 20)


def _lines(stream: io.BufferedIOBase, longest: int) -> Iterator[bytes]:
    """Lines without their ends; one that is too long comes cut, one byte over the limit, which marks it."""
    first = True
    while True:
        line = stream.readline(longest + 2)
        if not line:
            return
        if first:
            line = line.removeprefix(b"\xef\xbb\xbf")
            first = False
        if len(line) > longest and not line.endswith(b"\n"):
            kept = line[: longest + 1]
            while line and not line.endswith(b"\n"):
                line = stream.readline(1 << 20)
            yield kept
        else:
            yield line.rstrip(b"\r\n")


def _header(path: Path, line: bytes, delimiter: str) -> list[str]:
    import csv

    text = line.decode("utf-8-sig", "replace").rstrip("\r\n")
    names = next(csv.reader([text], delimiter=delimiter), [])
    if not names or any(not name for name in names):
        raise SourceError(f"{path}: the first line must name the columns; it is {text[:80]!r}")
    return names


def _objects_table(lines: list[bytes]) -> pa.Table | None:
    """The lines' objects as a table; None when a line is no object (then each is judged by itself)."""
    import msgspec

    try:
        rows = [msgspec.json.decode(line) for line in lines]
        names = dict.fromkeys(name for row in rows for name in row)
        return pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})
    except (msgspec.DecodeError, AttributeError, pa.ArrowException, UnicodeDecodeError):
        return None


def _rebatched(tables: Iterator[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Tables of exactly `rows` rows (the last one fewer), however the file was cut."""
    held: list[pa.Table] = []
    have = 0
    for table in tables:
        held.append(table)
        have += table.num_rows
        if have >= rows:
            whole = pa.concat_tables(held)
            at = 0
            while have - at >= rows:
                yield whole.slice(at, rows)
                at += rows
            held, have = [whole.slice(at)], have - at
    if have:
        yield pa.concat_tables(held)
