"""Avro messages of one schema to a table of columns, without a Python object per message or field.

A field of a record within the event is a column with a dotted name. In a union, null means absent; numbers of several
types share one column of numbers; other types become text (at the top level) or a union (in maps and lists). A field
that is not ours, and has one of our names as an alias, was called so in an older schema: it is read as that one. If
events are a union of records, each is read by its own.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streameval.events.fields import FIELDS, required_of_all, scalars
from streameval.sources.formats import avro_kernel as kernel
from streameval.sources.formats.avro_events import events
from streameval.sources.formats.avro_plan import ReadingPlan, plan_of
from streameval.sources.formats.avro_program import (
    Choice,
    Items,
    Leaf,
    Members,
    Node,
    Program,
    UnusableSchemaError,
    compiled,
)
from streameval.sources.formats.event_layout import EventLayout, layout_of
from streameval.sources.formats.framed import Branch, EventReader, Read, Reader, Schema
from streameval.sources.formats.raw import RawEvents, Rejection

_TIMES = {
    "timestamp-millis": "ms", "timestamp-micros": "us", "timestamp-nanos": "ns",
    "local-timestamp-millis": "ms", "local-timestamp-micros": "us", "local-timestamp-nanos": "ns",
}  # fmt: skip


_MOST_TYPES = 64  # of a union: the branch is one byte, twice its number


def reader(schema: Schema) -> Reader:
    """Returns the reader for a schema. Raises UnusableSchemaError."""
    try:
        from fastavro.schema import parse_schema
    except ImportError:
        raise UnusableSchemaError("Avro needs fastavro: pip install 'streameval[avro]'") from None
    if schema.type != "AVRO":
        raise UnusableSchemaError(f"its schema is {schema.type}: must be AVRO")
    named: dict[str, Any] = {}
    try:
        for text in schema.references.values():
            parse_schema(json.loads(text), named_schemas=named)
        parsed = parse_schema(json.loads(schema.text), named_schemas=named)
        return UnionReader(parsed, named) if isinstance(parsed, list) else AvroReader(parsed, named)
    except UnusableSchemaError:
        raise
    except Exception as error:  # whatever fastavro raises for an invalid schema
        raise UnusableSchemaError(f"its schema cannot be used: {str(error)[:200]}") from None


class AvroReader(EventReader):
    """Reads messages of one schema."""

    def __init__(self, schema: Any, named: Mapping[str, Any]) -> None:
        """`schema`: as parsed by fastavro; `named`: types by their full names. Raises UnusableSchemaError."""
        self._program: Program = compiled(schema, named)
        record = _record(schema, named)
        ours = _renamed(record["fields"])
        self._schema = {**record, "fields": [{**one, "name": ours[one["name"]]} for one in record["fields"]]}
        self._named = named
        self._renamed = Members([(ours[name], node) for name, node in self._program.tree.fields])
        self._plan: ReadingPlan | None = None
        self._planned_for: EventLayout | None = None

    @property
    def types(self) -> Mapping[str, Collection[str]]:
        """See `Reader.types`."""
        return {self._schema["name"]: [name for name, _ in self._renamed.fields]}

    def plain(
        self,
        data: bytes,
        bounds: NDArray[np.int64],
        kind: int,
        dimensions: Sequence[str],
        hashed: bool,
    ) -> tuple[RawEvents, NDArray[np.bool_]] | None:
        """See `EventReader.plain`."""
        table = tuple(FIELDS.values())
        layout = layout_of(table, tuple(dimensions))
        if layout is None:
            return None
        if layout is not self._planned_for:
            self._plan = plan_of(self._schema, self._named, table, required_of_all(), layout)
            self._planned_for = layout
        return None if self._plan is None else events(data, bounds, kind, self._plan, layout, hashed)

    def __call__(self, data: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64], renamed: bool) -> list[Read]:
        """Reads the messages data[starts[k]:ends[k]]: a table of the readable ones, and the problems of the others."""
        program = self._program
        buffer = np.frombuffer(data, np.uint8)
        why, where = np.zeros(starts.size, np.int64), np.zeros(starts.size, np.int64)
        count = np.zeros(program.depth, np.int64)
        room = np.full(program.depth, int((ends - starts).sum()) + 1, np.int64)  # an item has at least one byte
        room[0] = starts.size
        base = np.concatenate((np.zeros(1, np.int64), np.cumsum(room[program.levels])))
        cells = int(base[-1])  # their memory is not used before it is written
        slots = kernel.Slots(base, np.zeros(cells, np.int64), np.zeros(cells, np.int64), np.zeros(cells, np.uint8))
        kernel.run(
            buffer,
            starts,
            ends,
            program.ops,
            program.jumps,
            program.levels,
            count=count,
            slots=slots,
            why=why,
            where=where,
        )
        good = np.flatnonzero(why == kernel.READABLE)
        sizes = count[program.levels]
        problems: dict[int, Rejection] = {}
        for k in np.flatnonzero(why != kernel.READABLE).tolist():
            name = program.names[int(where[k])]
            problems[k] = (
                "malformed",
                name,
                f"{name or 'message'}: not of its Avro schema: {kernel.WORDS[int(why[k])]}",
            )
        made = _Columns(buffer, slots, sizes, count)
        columns: dict[str, pa.Array] = {}
        made.members(self._renamed if renamed else program.tree, "", columns)
        table = pa.table(columns) if columns else pa.table({"": pa.nulls(good.size)})
        return [Read(table, good, problems)]


class UnionReader(Reader):
    """Reads messages of a schema that is a union: of the several types of events in a topic, say."""

    def __init__(self, kinds: Sequence[Any], named: Mapping[str, Any]) -> None:
        """`kinds`: as parsed by fastavro; `named`: types by their full names. Raises UnusableSchemaError."""
        if len(kinds) > _MOST_TYPES:
            raise UnusableSchemaError(f"its schema is a union of {len(kinds)} types: at most {_MOST_TYPES} are read")
        self._readers: list[EventReader | Rejection] = []
        for number, kind in enumerate(kinds):
            try:
                self._readers.append(AvroReader(kind, named))
            except UnusableSchemaError as error:
                self._readers.append(("wrong_schema", "", f"type {number} of its union: {error}"))
        if not any(isinstance(one, EventReader) for one in self._readers):
            raise UnusableSchemaError("its schema is a union without a record: an event must be one")

    @property
    def types(self) -> Mapping[str, Collection[str]]:
        """See `Reader.types`."""
        return {name: of for one in self._readers if isinstance(one, EventReader) for name, of in one.types.items()}

    def branches(self, data: bytes, bounds: NDArray[np.int64]) -> list[Branch]:
        """See `Reader.branches`."""
        twice = np.frombuffer(data, np.uint8)[bounds[:, 0]].astype(np.int64)
        number = np.where((twice & 1 == 0) & (bounds[:, 0] < bounds[:, 1]), twice >> 1, len(self._readers))
        inner = bounds + np.array([1, 0])
        none: Rejection = ("malformed", "", f"message: not of its Avro schema: {kernel.WORDS[kernel.BRANCH]}")
        out = []
        for k, one in enumerate([*self._readers, none]):
            rows = np.flatnonzero(number == k if k < len(self._readers) else number >= k)
            if rows.size:
                out.append(Branch(one, rows, inner[rows]))
        return out


def _renamed(fields: Sequence[Any]) -> dict[str, str]:
    """Returns what every field is read as: one of ours that is its alias, if no field has that name, or its own name."""
    out = {one["name"]: str(one["name"]) for one in fields}
    for one in fields:
        for alias in one.get("aliases") or ():
            if one["name"] not in FIELDS and alias in FIELDS and alias not in out.values():
                out[one["name"]] = alias
                break
    return out


def _record(schema: Any, named: Mapping[str, Any]) -> Any:
    """Returns a record that may be named, or written as the type of a type."""
    while isinstance(schema, str) or isinstance(schema["type"], dict):
        schema = named[schema] if isinstance(schema, str) else schema["type"]
    return schema


class _Columns:
    """Arrow arrays from the cells that the kernel has filled."""

    def __init__(
        self, data: NDArray[np.uint8], slots: kernel.Slots, sizes: NDArray[np.int64], count: NDArray[np.int64]
    ) -> None:
        self._data = data
        self._slots = slots
        self._sizes = sizes
        self._count = count

    def members(self, node: Members, prefix: str, out: dict[str, pa.Array]) -> None:
        """Adds the fields of a record, and of those within it, under dotted names."""
        for name, inner in node.fields:
            whole = f"{prefix}{name}"
            if isinstance(inner, Members):
                self.members(inner, f"{whole}.", out)
            elif inner is not None and (column := self.array(inner, whole)) is not None:
                out[whole] = column

    def array(self, node: Node, name: str | None) -> pa.Array | None:
        """Returns the array of a node; None if no column can represent it. `name`: of a column, None within lists and
        maps.
        """
        if isinstance(node, Leaf):
            return self._leaf(node)
        if isinstance(node, Choice):
            return self._choice(node, name)
        return self._items(node) if isinstance(node, Items) else None

    def _cells(self, column: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        a, b = int(self._slots.base[column]), int(self._slots.base[column] + self._sizes[column])
        return self._slots.value[a:b], self._slots.length[a:b], self._slots.there[a:b].astype(np.bool_)

    def _leaf(self, leaf: Leaf) -> pa.Array:
        value, length, there = self._cells(leaf.column)
        if leaf.type in ("string", "bytes", "fixed"):
            is_text = leaf.type == "string"
            texts = self._texts(value, length, there, pa.string() if is_text else pa.binary())
            return _decimals(texts, leaf.scale) if leaf.logical == "decimal" else texts
        if leaf.type == "enum":
            codes = pa.array(value.astype(np.int32), mask=~there)
            return pa.DictionaryArray.from_arrays(codes, pa.array(leaf.symbols, pa.string()))
        if leaf.type == "double":
            return pa.array(value.view(np.float64), mask=~there)
        if leaf.type == "float":
            return pa.array(value.astype(np.uint32).view(np.float32).astype(np.float64), mask=~there)
        if leaf.type == "boolean":
            return pa.array(value.astype(np.bool_), mask=~there)
        numbers = pa.array(value, mask=~there)
        return numbers.cast(pa.timestamp(_TIMES[leaf.logical])) if leaf.logical in _TIMES else numbers

    def _texts(
        self, start: NDArray[np.int64], length: NDArray[np.int64], there: NDArray[np.bool_], kind: pa.DataType
    ) -> pa.Array:
        offsets = np.zeros(start.size + 1, np.int32)
        np.cumsum(length, out=offsets[1:])
        data = np.empty(int(offsets[-1]), np.uint8)
        kernel.gather(self._data, start, offsets, data)
        return pa.Array.from_buffers(
            kind, start.size, [_bitmap(there), pa.py_buffer(offsets), pa.py_buffer(data)], int((~there).sum())
        )

    def _items(self, node: Items) -> pa.Array | None:
        _, length, there = self._cells(node.column)
        item = self.array(node.item, None)
        if item is None and node.keys is None:
            return None
        if item is None:
            item = pa.nulls(int(self._count[node.items_level]))
        offsets = np.zeros(length.size + 1, np.int32)
        np.cumsum(length, out=offsets[1:])
        buffers = [_bitmap(there), pa.py_buffer(offsets)]
        if node.keys is None:
            return pa.Array.from_buffers(pa.list_(item.type), length.size, buffers, children=[item])
        kind = pa.map_(pa.string(), item.type)
        entries = pa.StructArray.from_arrays([self._leaf(node.keys), item], fields=list(kind_fields(kind)))
        return pa.Array.from_buffers(kind, length.size, buffers, children=[entries])

    def _choice(self, node: Choice, name: str | None) -> pa.Array | None:
        arrays = [self.array(branch, None) for branch in node.branches]
        usable = [one for one in arrays if one is not None]
        if all(_is_number(one.type) for one in usable) and usable:
            whole = all(pa.types.is_integer(one.type) or pa.types.is_boolean(one.type) for one in usable)
            return pc.coalesce(*(one.cast(pa.int64() if whole else pa.float64(), safe=False) for one in usable))
        if name is not None and (name in _SCALARS or name.startswith("slices.")):
            return pc.coalesce(*(_as_text(one) for one in usable)) if usable else None
        branch, _, there = self._cells(node.column)
        children = [pa.nulls(branch.size) if one is None else one for one in arrays]
        codes = pa.array(np.where(there, branch, 0).astype(np.int8))
        return pa.UnionArray.from_sparse(codes, children) if len(children) < 128 else None


_SCALARS = {field.name for field in scalars()}


def kind_fields(kind: pa.MapType) -> tuple[pa.Field, pa.Field]:
    """Returns the fields of a map's entries."""
    return kind.key_field, kind.item_field


def _bitmap(there: NDArray[np.bool_]) -> pa.Buffer | None:
    return None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)


def _as_text(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(pa.string())


def _decimals(column: pa.Array, scale: int) -> pa.Array:
    values = (None if v is None else int.from_bytes(v, "big", signed=True) / 10**scale for v in column.to_pylist())
    return pa.array(values, pa.float64())
