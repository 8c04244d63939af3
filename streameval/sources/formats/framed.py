"""Messages in Confluent's wire format: a zero byte, a schema id in four bytes, and the data that the schema describes.

Messages of one schema and one kind become a table together, even if others are between them; the rows of the tables are
put back into the order of arrival. So every message is read by the schema it was written with, and the schema may
change from one message to the next: a field that a schema does not have is absent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, cast

import numba
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streameval.events.words64 import PADDING
from streameval.sources.formats import arrow, unread
from streameval.sources.formats.arrow_column import SchemaError
from streameval.sources.formats.avro_program import UnusableSchemaError
from streameval.sources.formats.merge_raw import PlacedRows, by_message
from streameval.sources.formats.raw import RawEvents, Rejection, Wants, too_large

HEAD = 5  # bytes before the data
_MOST_BYTES = 8 << 20  # of messages that are read at a time


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as a registry stores it. `references`: the texts of schemas it references, by name, deepest first."""

    id: int
    text: str
    references: Mapping[str, str] = field(default_factory=dict)
    type: str = "AVRO"


class Read(NamedTuple):
    """The result of reading messages: row k of the table is message `good[k]`; the problems of the others are by
    message.
    """

    table: pa.Table
    good: NDArray[np.int64]
    problems: dict[int, Rejection]


class Schemas(Protocol):
    """Provides schemas."""

    def known(self, id: int) -> Schema | None:
        """Returns a schema that was requested before; None if there is none with this id."""


class Reader(ABC):
    """Reads messages of one schema; the data must end with `words64.PADDING`."""

    @property
    @abstractmethod
    def types(self) -> Mapping[str, Collection[str]]:
        """The fields of each type of event that was met so far, by its name; a renamed one is called as ours."""

    @abstractmethod
    def branches(self, data: bytes, bounds: NDArray[np.int64]) -> list[Branch]:
        """Divides the messages data[bounds[k, 0]:bounds[k, 1]] among the readers of the schema's several types."""


class EventReader(Reader):
    """Reads messages of one type, or of types that it tells apart by itself."""

    @abstractmethod
    def __call__(self, data: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64], renamed: bool) -> list[Read]:
        """Reads the messages data[starts[k]:ends[k]]: a table of the readable ones, for each message type in the
        schema, and the problems of the others. `renamed`: a field that says that it was called as ours is ours.
        """

    def branches(self, data: bytes, bounds: NDArray[np.int64]) -> list[Branch]:
        """See `Reader.branches`: there is one."""
        return [Branch(self, np.arange(len(bounds)), bounds)]

    def plain(
        self, data: bytes, bounds: NDArray[np.int64], kind: int, dimensions: Sequence[str], hashed: bool
    ) -> tuple[RawEvents, NDArray[np.bool_]] | None:
        """Reads the messages data[bounds[k, 0]:bounds[k, 1]] in a faster way: returns a row for each, and which ones it
        has left.

        Ids are hashes, features are hashed columns if they are needed. None: there is no faster way for this schema.
        """
        return None


class Branch(NamedTuple):
    """Messages of one type: what reads them, or why they cannot be read; their numbers, and where the type's data are."""

    reader: EventReader | Rejection
    rows: NDArray[np.int64]
    bounds: NDArray[np.int64]


Mapped = Callable[[pa.Table], pa.Table]


class Framed:
    """Reads messages in Confluent's wire format. Used by a single thread."""

    def __init__(self, schemas: Schemas, make: Callable[[Schema], Reader], maps: Mapping[int, Mapped]) -> None:
        """`maps`: by the kind of a topic, the mapping from other columns to ours."""
        self._schemas = schemas
        self._make = make
        self._maps = maps
        self._readers: dict[int, Reader | Rejection] = {}  # by id, or why there is none
        self._told: dict[int, set[str]] = {}  # types by id, see `_tell`

    def to_raw(
        self,
        values: Sequence[bytes | None],
        kinds: Sequence[int],
        dimensions: Sequence[str],
        wants: Wants,
        max_message: int,
    ) -> RawEvents:
        """Returns one row per message. The schemas' ids must have been requested."""
        n = len(values)
        there = [value or b"" for value in values] if None in values else cast(Sequence[bytes], values)
        data = b"".join([*there, PADDING])
        sizes = np.fromiter(map(len, there), np.int64, n)
        ends = np.cumsum(sizes)
        starts = ends - sizes
        id, framed = _heads(data, starts, sizes, max_message)
        problems = {k: _unframed(there[k], max_message) for k in np.flatnonzero(~framed).tolist()}
        group = np.asarray(kinds, np.int64) << 32 | id
        group[~framed] = -1
        parts: list[PlacedRows] = []
        for one in np.unique(group[framed]).tolist():
            rows = np.flatnonzero(group == one)
            reader = self._reader(one & 0xFFFFFFFF)
            if not isinstance(reader, Reader):
                problems |= dict.fromkeys(rows.tolist(), reader)
                continue
            for piece in _pieces(rows, sizes):
                for branch in reader.branches(data, np.column_stack((starts[piece] + HEAD, ends[piece]))):
                    mine = piece[branch.rows]
                    found, wrong = self._branch(branch, data, one, dimensions, wants)
                    parts += [(raw, np.where(at < 0, -1, mine[at])) for raw, at in found]
                    problems |= {int(mine[k]): problem for k, problem in wrong.items()}
            self._tell(reader, one)
        return by_message(parts, problems, np.asarray(kinds, np.int8), dimensions, wants)

    def _reader(self, id: int) -> Reader | Rejection:
        """Returns the reader of a schema, or why there is none."""
        if id not in self._readers:
            schema = self._schemas.known(id)
            if schema is None:
                return "unknown_schema", "", f"schema {id}: the registry has no schema of this id"
            try:
                self._readers[id] = self._make(schema)
            except UnusableSchemaError as error:
                self._readers[id] = ("wrong_schema", "", f"schema {id}: {error}")
        return self._readers[id]

    def _tell(self, reader: Reader, group: int) -> None:
        """Logs the fields that nobody reads, once for each type of a schema; a mapping reads what it names."""
        kind, id = group >> 32, group & 0xFFFFFFFF
        if kind in self._maps:
            return
        told = self._told.setdefault(id, set())
        for name, fields in reader.types.items():
            if name not in told:
                told.add(name)
                unread.tell(fields, f"schema {id}, {name}: ")

    def _branch(
        self, branch: Branch, data: bytes, group: int, dimensions: Sequence[str], wants: Wants
    ) -> tuple[list[PlacedRows], dict[int, Rejection]]:
        """Returns (raw columns with their messages, problems by message) for messages of one type and kind."""
        reader, rows, bounds = branch
        kind, id = group >> 32, group & 0xFFFFFFFF
        if not isinstance(reader, EventReader):
            reason, name, what = reader
            return [], dict.fromkeys(range(rows.size), (reason, name, f"schema {id}: {what}"))
        plain = None
        if kind not in self._maps and not wants.dicts and not wants.names:
            plain = reader.plain(data, bounds, kind, dimensions, wants.hashed)
        number = np.arange(rows.size)
        if plain is None:
            return self._by_table(reader, data, bounds, number, group, dimensions, wants)
        raw, left = plain
        found, problems = self._by_table(reader, data, bounds, number[left], group, dimensions, wants)
        return [(raw, np.where(left, -1, number)), *found], problems

    def _by_table(
        self,
        reader: EventReader,
        data: bytes,
        bounds: NDArray[np.int64],
        some: NDArray[np.int64],
        group: int,
        dimensions: Sequence[str],
        wants: Wants,
    ) -> tuple[list[PlacedRows], dict[int, Rejection]]:
        """Returns the same for some of the messages, by way of a table."""
        if not some.size:
            return [], {}
        parts: list[PlacedRows] = []
        problems: dict[int, Rejection] = {}
        for read in reader(data, bounds[some, 0], bounds[some, 1], group >> 32 not in self._maps):
            found, wrong = self._of_table(read, some, group, dimensions, wants)
            parts += found
            problems |= wrong
        return parts, problems

    def _of_table(
        self, read: Read, some: NDArray[np.int64], group: int, dimensions: Sequence[str], wants: Wants
    ) -> tuple[list[PlacedRows], dict[int, Rejection]]:
        kind, id = group >> 32, group & 0xFFFFFFFF
        problems = {
            int(some[k]): (reason, name, f"schema {id}: {what}") for k, (reason, name, what) in read.problems.items()
        }
        if not read.good.size:
            return [], problems
        good = some[read.good]
        try:
            table = self._maps[kind](read.table) if kind in self._maps else read.table
            raw = arrow.to_raw(table, kind, dimensions, wants.hashed, wants.dicts, kind in self._maps)
        except SchemaError as error:
            reason, name, message = error.problem
            why: Rejection = (reason, name, f"schema {id}: {message}")
        except (pa.ArrowException, UnicodeDecodeError) as error:  # a type without a cast
            why = ("wrong_schema", "", f"schema {id}: a field that cannot be used: {str(error)[:200]}")
        else:
            return [(raw, good)], problems
        return [], problems | dict.fromkeys(good.tolist(), why)


def ids(values: Sequence[bytes | None]) -> set[int]:
    """Returns the schema ids in messages."""
    heads = {value[:HEAD] for value in values if value}
    return {int.from_bytes(head[1:], "big") for head in heads if len(head) == HEAD and head[0] == 0}


def _heads(
    data: bytes, starts: NDArray[np.int64], sizes: NDArray[np.int64], max_message: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Returns (the id of every message's schema, whether it has such a header); the data must end with
    `words64.PADDING`.
    """
    framed = (sizes >= HEAD) & (sizes <= max_message)
    id = np.zeros(starts.size, np.int64)
    _read_heads(np.frombuffer(data, np.uint8), starts, id, framed)
    return id, framed


@numba.njit(cache=True, nogil=True)
def _read_heads(
    data: NDArray[np.uint8], starts: NDArray[np.int64], id: NDArray[np.int64], framed: NDArray[np.bool_]
) -> None:
    """Reads the ids of framed messages; those that do not begin with a zero byte are marked as not framed."""
    for k in range(starts.size):
        at = starts[k]
        framed[k] &= data[at] == 0
        if framed[k]:
            for j in range(at + 1, at + HEAD):
                id[k] = id[k] << 8 | np.int64(data[j])


def _pieces(rows: NDArray[np.int64], sizes: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Splits rows into pieces of about `_MOST_BYTES`, so that a reader's memory is bounded."""
    piece = np.cumsum(sizes[rows]) // _MOST_BYTES
    return np.split(rows, np.flatnonzero(np.diff(piece)) + 1)


def _unframed(value: bytes, max_message: int) -> Rejection:
    """Returns what is wrong with a message without such a header."""
    if not value:
        return "empty", "", "no bytes; a message begins with a zero byte and the id of its schema"
    if len(value) > max_message:
        return too_large(len(value), max_message)
    if value[0] != 0:
        return "malformed", "", f"not in Confluent's wire format: its first byte is {value[0]:#04x}, not 0"
    return "malformed", "", "not in Confluent's wire format: shorter than its header of 5 bytes"
