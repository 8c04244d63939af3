"""Messages in Confluent's wire format: a zero byte, the id of a schema in four bytes, and what that schema describes.

Messages of one schema and one kind become a table together, whatever stands between them; what the tables give is put
back into the order of arrival. So every message is read by the schema it was written with, and a schema may change
from one message to the next: a field that a schema does not have is absent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streameval.sources.formats import arrow
from streameval.sources.formats.avro_program import UnusableSchemaError
from streameval.sources.formats.merge_raw import PlacedRows, by_message
from streameval.sources.formats.raw import RawEvents, Rejection, too_large

HEAD = 5  # bytes before what the schema describes
_MOST_BYTES = 8 << 20  # of messages that are read in one go


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as a registry keeps it. `references`: the texts of schemas it refers to, by name, deepest first."""

    id: int
    text: str
    references: Mapping[str, str] = field(default_factory=dict)
    type: str = "AVRO"


class Read(NamedTuple):
    """What messages come to: row k of the table is message `good[k]`; the problems of the others by message."""

    table: pa.Table
    good: NDArray[np.int64]
    problems: dict[int, Rejection]


class Schemas(Protocol):
    """Who knows the schemas."""

    def known(self, id: int) -> Schema | None:
        """A schema that was asked for before; None: there is none of this id."""


Reader = Callable[[bytes, NDArray[np.int64], NDArray[np.int64]], Read]
Mapped = Callable[[pa.Table], pa.Table]


class Framed:
    """Reads messages in Confluent's wire format. One thread uses it."""

    def __init__(self, schemas: Schemas, make: Callable[[Schema], Reader], maps: Mapping[int, Mapped]) -> None:
        """`maps`: by the kind of a topic, what makes our columns out of foreign ones."""
        self._schemas = schemas
        self._make = make
        self._maps = maps
        self._readers: dict[int, Reader | Rejection] = {}  # by id, or why there is none

    def to_raw(
        self,
        values: Sequence[bytes | None],
        kinds: Sequence[int],
        dimensions: Sequence[str],
        wants: tuple[bool, bool],
        max_message: int,
    ) -> RawEvents:
        """One row per message. `wants`: hashed features, features as dicts. The schemas' ids have been asked for."""
        n = len(values)
        there = [value or b"" for value in values]
        data = b"".join(there)
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
            if not callable(reader):
                problems |= dict.fromkeys(rows.tolist(), reader)
                continue
            for some in _pieces(rows, sizes):
                raw, found = self._group(reader, data, starts[some] + HEAD, ends[some], one, dimensions, wants)
                problems |= {int(some[k]): problem for k, problem in found.items()}
                if raw is not None:
                    parts.append((raw[0], some[raw[1]]))
        return by_message(parts, problems, np.asarray(kinds, np.int8), dimensions, wants)

    def _reader(self, id: int) -> Reader | Rejection:
        """The reader of a schema, or why there is none."""
        if id not in self._readers:
            schema = self._schemas.known(id)
            if schema is None:
                return "unknown_schema", "", f"schema {id}: the registry has no schema of this id"
            try:
                self._readers[id] = self._make(schema)
            except UnusableSchemaError as error:
                self._readers[id] = ("wrong_schema", "", f"schema {id}: {error}")
        return self._readers[id]

    def _group(
        self,
        reader: Reader,
        data: bytes,
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        group: int,
        dimensions: Sequence[str],
        wants: tuple[bool, bool],
    ) -> tuple[PlacedRows | None, dict[int, Rejection]]:
        """((raw columns, their messages) or None, problems by message) of messages of one schema and kind."""
        kind, id = group >> 32, group & 0xFFFFFFFF
        read = reader(data, starts, ends)
        problems = {k: (reason, name, f"schema {id}: {what}") for k, (reason, name, what) in read.problems.items()}
        if not read.good.size:
            return None, problems
        try:
            table = self._maps[kind](read.table) if kind in self._maps else read.table
            raw = arrow.to_raw(table, kind, dimensions, *wants, kind in self._maps)
        except arrow.SchemaError as error:
            reason, name, message = error.problem
            why: Rejection = (reason, name, f"schema {id}: {message}")
        except (pa.ArrowException, UnicodeDecodeError) as error:  # a type without a cast
            why = ("wrong_schema", "", f"schema {id}: a field that cannot be used: {str(error)[:200]}")
        else:
            return (raw, read.good), problems
        return None, problems | dict.fromkeys(read.good.tolist(), why)


def ids(values: Sequence[bytes | None]) -> set[int]:
    """The ids of schemas that messages name."""
    heads = {value[:HEAD] for value in values if value}
    return {int.from_bytes(head[1:], "big") for head in heads if len(head) == HEAD and head[0] == 0}


def _heads(
    data: bytes, starts: NDArray[np.int64], sizes: NDArray[np.int64], max_message: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """(the id of every message's schema, whether it has such a head)."""
    framed = (sizes >= HEAD) & (sizes <= max_message)
    octets = np.frombuffer(data or b"\0", np.uint8)
    at = np.where(framed, starts, 0)
    framed &= octets[at] == 0
    id = np.zeros(starts.size, np.int64)
    for k in range(1, HEAD):
        id = id << 8 | octets[np.where(framed, starts + k, 0)]
    return id, framed


def _pieces(rows: NDArray[np.int64], sizes: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Rows in pieces of about `_MOST_BYTES`, so that what a reader makes room for is bounded."""
    piece = np.cumsum(sizes[rows]) // _MOST_BYTES
    return np.split(rows, np.flatnonzero(np.diff(piece)) + 1)


def _unframed(value: bytes, max_message: int) -> Rejection:
    """What is wrong with a message that has no such head."""
    if not value:
        return "empty", "", "no bytes; a message begins with a zero byte and the id of its schema"
    if len(value) > max_message:
        return too_large(len(value), max_message)
    if value[0] != 0:
        return "malformed", "", f"not in Confluent's wire format: its first byte is {value[0]:#04x}, not 0"
    return "malformed", "", "not in Confluent's wire format: shorter than its header of 5 bytes"
