"""Custom field names of live topics: messages under the mapping of `[files.columns]`, one event each.

Like for files, except that no message can end the program: a missing field is absent, and unusable content makes the
message a dead letter. A field of an object within the message is named with a dot: `geo.country`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streameval.settings.tree import ConfigError
from streameval.sources.formats import arrow, map_columns
from streameval.sources.formats.arrow_column import SchemaError
from streameval.sources.formats.cell_spans import NotPlainError
from streameval.sources.formats.csv_columns import CellGetter
from streameval.sources.formats.line_text import Lines
from streameval.sources.formats.lines import MOST_FIELDS, column_of, object_of
from streameval.sources.formats.mapped_lines import MappedLines
from streameval.sources.formats.mapping import ColumnMap
from streameval.sources.formats.merge_raw import PlacedRows, by_message
from streameval.sources.formats.raw import RawEvents, Rejection, Wants, too_large

_DEEPEST = 8  # levels of nested objects from which fields are taken
_MOST_NAMES = 100_000  # names of fields that are remembered
TRY_AGAIN = 100  # batches after one with fields within others, which the next ones will probably have, too
_MOST_BYTES = 1 << 30  # of messages that are read as one text


class LiveColumns:
    """One mapping. Raises ConfigError if it is invalid."""

    def __init__(self, columns: Mapping[str, Any], section: str) -> None:
        self._map = ColumnMap(columns, section, live=True)
        self._wanted = self._map.wanted()
        self._used: dict[str, bool] = {}  # by the name of a field: whether the mapping reads it
        self._tries = 0  # left until kernels are tried again

    def __call__(self, table: pa.Table) -> pa.Table:
        """Returns the table with our columns. Raises arrow.SchemaError for a column that cannot be used."""
        columns = dict(zip(table.column_names, table.columns, strict=True))
        for name in sorted(self._wanted - columns.keys()):
            columns[name] = pa.chunked_array([_within(columns, name, table.num_rows)])
        try:
            return self._map.apply(pa.table(columns), 0)
        except ConfigError as error:
            raise SchemaError(("wrong_schema", "", str(error))) from None

    def tries_kernels(self) -> bool:
        """Whether kernels may be able to read the next messages; to be asked once for each batch."""
        self._tries -= 1
        return self._tries < 0

    def cells(self, rows: MappedLines, dimensions: Sequence[str], wants: Wants) -> CellGetter:
        """Returns our columns of rows of text. Raises NotPlainError if they must be a table: for what is wrong with a
        column, and fields within others.
        """
        inside = {name[:at] for name in self._wanted for at, c in enumerate(name) if c == "."}
        for name in rows.nested:
            if self._map.has_features or name in inside or self.uses(name):
                self._tries = TRY_AGAIN
                raise NotPlainError
        rows.has_also(sorted(self._wanted))
        try:
            return CellGetter(rows, self._map, 0, dimensions, hashed=wants.hashed, names=wants.names)
        except ConfigError:
            raise NotPlainError from None

    def uses(self, name: str) -> bool:
        """Whether a field of this name is read."""
        found = self._used.get(name)
        if found is None:
            if len(self._used) >= _MOST_NAMES:
                self._used.clear()
            found = self._used[name] = name in self._wanted or self._map.is_feature(name)
        return found

    def is_plain(self, name: str) -> bool:
        """Whether it is one of the fields that have a single value."""
        return name in self._wanted


def _within(columns: Mapping[str, Any], name: str, n: int) -> pa.Array:
    """Returns the entry of a map of texts with the rest of a dotted name; nulls if there is none."""
    for at in (i for i, c in enumerate(name) if c == "."):
        column = columns.get(name[:at])
        if column is not None and map_columns.is_plain_map(column):
            whole = column.combine_chunks()
            whole = whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)
            found = map_columns.values(whole, name[at + 1 :])
            if found is not None:
                return found
    return pa.nulls(n, pa.string())


class MappedJson:
    """JSON messages, one object each, with a mapping by the kind of their topic. Used by a single thread."""

    def __init__(self, maps: Mapping[int, LiveColumns], kernels: Callable[[], bool]) -> None:
        """`kernels`: whether they may be used now."""
        self._maps, self._kernels = maps, kernels

    def to_raw(
        self,
        values: Sequence[bytes | None],
        kinds: Sequence[int],
        dimensions: Sequence[str],
        wants: Wants,
        max_message: int,
    ) -> RawEvents:
        """Returns one row per message."""
        of_kind = np.asarray(kinds, np.int8)
        problems: dict[int, Rejection] = {}
        parts: list[PlacedRows] = []
        for kind in np.unique(of_kind).tolist():
            rows = np.flatnonzero(of_kind == kind).tolist()
            read = (
                by_kernels(self._maps[kind], values, rows, kind, dimensions, wants, max_message)
                if self._kernels()
                else None
            )
            if read is not None:
                parts.append(read.rows)
                problems |= read.problems
                continue
            table, at = self._table(self._maps[kind], values, rows, max_message, problems)
            if not at.size:
                continue
            try:
                parts.append(
                    (arrow.to_raw(self._maps[kind](table), kind, dimensions, wants.hashed, wants.dicts, True), at)
                )
            except SchemaError as error:
                problems |= dict.fromkeys(at.tolist(), error.problem)
            except (pa.ArrowException, UnicodeDecodeError) as error:
                what = f"a field that cannot be used: {str(error)[:200]}"
                problems |= dict.fromkeys(at.tolist(), ("wrong_type", "", what))
        return by_message(parts, problems, of_kind, dimensions, wants)

    @staticmethod
    def _table(
        mapped: LiveColumns,
        values: Sequence[bytes | None],
        rows: Sequence[int],
        max_message: int,
        problems: dict[int, Rejection],
    ) -> tuple[pa.Table, NDArray[np.int64]]:
        """Returns (the fields read from messages that are objects, their indexes)."""
        found: list[dict[str, Any]] = []
        places: list[int] = []
        names: dict[str, None] = {}
        for row in rows:
            fields = _fields(mapped, values[row], max_message)
            if not isinstance(fields, dict):
                problems[row] = fields
            elif len(names.keys() | fields.keys()) > MOST_FIELDS:
                problems[row] = ("wrong_schema", "", f"messages now have more than {MOST_FIELDS} different fields")
            else:
                names |= dict.fromkeys(fields)
                found.append(fields)
                places.append(row)
        columns = {name: column_of([fields.get(name) for fields in found]) for name in names}
        columns = columns or {"": pa.nulls(len(found))}
        return pa.table(columns), np.array(places, np.int64)


class _Read(NamedTuple):
    rows: PlacedRows
    problems: dict[int, Rejection]


def by_kernels(
    mapped: LiveColumns,
    values: Sequence[bytes | None],
    rows: Sequence[int],
    kind: int,
    dimensions: Sequence[str],
    wants: Wants,
    max_message: int,
) -> _Read | None:
    """Reads messages of one kind without an object each, like lines of files; None if they must be objects."""
    if not mapped.tries_kernels():
        return None
    lines, at = _lines(values, rows, max_message)
    if not len(lines):
        return None
    try:
        found = MappedLines(lines, at)
        raw = arrow.raw_of(mapped.cells(found, dimensions, wants), kind, dimensions, wants.hashed, False)
    except (NotPlainError, SchemaError, pa.ArrowException, UnicodeDecodeError):
        return None
    good = set(found.numbers.tolist())
    refused = ((row, _fields(mapped, values[row], max_message)) for row in rows if row not in good)
    return _Read((raw, found.numbers), {row: cast(Rejection, problem) for row, problem in refused})


def _lines(values: Sequence[bytes | None], rows: Sequence[int], max_message: int) -> tuple[Lines, NDArray[np.int64]]:
    """Returns (the messages that are neither empty nor too long, as one text, their indexes); none if they are too much."""
    at = np.array(rows, np.int64)
    if isinstance(values, Lines):
        sizes, some = values.sizes[at], values
        at = at[(sizes > 0) & (sizes <= max_message)]
        lines = some.take(at) if len(some.text) < _MOST_BYTES else some[:0]
    else:
        kept = [row for row in rows if 0 < len(values[row] or b"") <= max_message]
        at = np.array(kept, np.int64)
        packed = Lines.packed([values[row] for row in kept])
        lines = Lines.joined([packed] if packed is not None and len(packed.text) < _MOST_BYTES else [])
    return lines, at


def _fields(mapped: LiveColumns, value: bytes | None, max_message: int) -> dict[str, Any] | Rejection:
    """Returns the fields of a message that are read, by dotted names, or why there are none."""
    if not value:
        return "empty", "", "no bytes; an event is a JSON object"
    if len(value) > max_message:
        return too_large(len(value), max_message)
    given = object_of(value, "a message must be one JSON object")
    if not isinstance(given, dict):
        return given
    out: dict[str, Any] = {}
    wrong = _collect(mapped, given, "", out, 0)
    return wrong or out


def _collect(
    mapped: LiveColumns, given: dict[str, Any], prefix: str, out: dict[str, Any], depth: int
) -> Rejection | None:
    for name, value in given.items():
        whole = prefix + name
        kind = type(value)
        if kind is dict:
            if mapped.is_plain(whole):
                return "wrong_type", whole[:50], f"{whole[:50]} is an object: must be a text, a number or a boolean"
            if depth < _DEEPEST and (wrong := _collect(mapped, value, f"{whole}.", out, depth + 1)):
                return wrong
        elif mapped.uses(whole):
            if kind is list and (mapped.is_plain(whole) or not all(type(v) is str for v in value)):
                return "wrong_type", whole[:50], f"{whole[:50]} is a list: must be a text, a number or a boolean"
            out[whole] = value
    return None
