"""Protobuf messages of one schema to a table of columns, parsed by Google's library, the schema compiled by its protoc;
plain ones by kernels (see `protobuf_plan`), with the same result.

A field of a message within the event is a column with a dotted name; a map, and `google.protobuf.Struct`, is a map
column. A missing field without presence (proto3's plain ones) has its default: a number is 0, a boolean is false, and
an empty text is absent. So fields that may be absent must be `optional`, or have a wrapper type.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections.abc import Collection, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streameval.events.fields import FIELDS, required_of_all
from streameval.events.words64 import PADDING
from streameval.sources.formats.avro_events import events
from streameval.sources.formats.avro_program import UnusableSchemaError
from streameval.sources.formats.event_layout import EventLayout, layout_of
from streameval.sources.formats.framed import EventReader, Read, Schema
from streameval.sources.formats.protobuf_kernel import written
from streameval.sources.formats.protobuf_plan import WritingPlan, writing_plan
from streameval.sources.formats.raw import RawEvents, Rejection

_MAIN = "streameval_event.proto"
_WRAPPED = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
_WRAPPERS = {f"google.protobuf.{kind}Value" for kind in _WRAPPED}
_MOST_INDEXES = 16  # levels of nesting of an event's type
# descriptor.proto, FieldDescriptorProto.Type
_INTEGERS = dict.fromkeys((3, 5, 7, 13, 15, 16, 17, 18), pa.int64()) | dict.fromkeys((4, 6), pa.uint64())
_PLAIN = {1: pa.float64(), 2: pa.float64(), 8: pa.bool_(), 9: pa.string(), 12: pa.binary(), **_INTEGERS}
_MESSAGE, _ENUM, _STRING, _BYTES = 11, 14, 9, 12
_UNREADABLE = (UnicodeDecodeError, OverflowError, pa.ArrowException)
_FOREVER = 1 << 62  # ms
_preparing: list[threading.Thread] = []  # one, once it has begun; until it is over, the library reads all messages


def reader(schema: Schema) -> ProtobufReader:
    """Returns the reader for a schema. Raises UnusableSchemaError."""
    if find_spec("google") is None or find_spec("google.protobuf") is None or find_spec("grpc_tools") is None:
        raise UnusableSchemaError("Protobuf needs its library and compiler: pip install 'streameval[protobuf]'")
    if schema.type != "PROTOBUF":
        raise UnusableSchemaError(f"its schema is {schema.type}: must be PROTOBUF")
    try:
        return ProtobufReader(schema)
    except UnusableSchemaError:
        raise
    except Exception as error:  # whatever the library raises for an invalid schema
        raise UnusableSchemaError(f"its schema cannot be used: {str(error)[:200]}") from None


class ProtobufReader(EventReader):
    """Reads messages of one schema."""

    def __init__(self, schema: Schema) -> None:
        from google.protobuf import descriptor_pool

        self._pool = descriptor_pool.DescriptorPool()
        self._maps: set[str] = set()  # full names of the messages that are map entries
        for file in _compiled(schema):
            for message in file.message_type:
                self._without_maps(message, file.package)
            self._pool.Add(file)
            self._main = file  # the last one
        self._types: dict[tuple[int, ...], Any] = {}
        self._plans: dict[tuple[int, ...], tuple[EventLayout, WritingPlan | None]] = {}

    @property
    def types(self) -> Mapping[str, Collection[str]]:
        """See `Reader.types`."""
        kinds = [kind.DESCRIPTOR for kind in self._types.values()]
        return {kind.full_name: [one.name for one in kind.fields] for kind in kinds}

    def plain(
        self, data: bytes, bounds: NDArray[np.int64], kind: int, dimensions: Sequence[str], hashed: bool
    ) -> tuple[RawEvents, NDArray[np.bool_]] | None:
        """See `EventReader.plain`: messages of the first one's type."""
        layout = layout_of(tuple(FIELDS.values()), tuple(dimensions))
        if layout is None or not len(bounds):
            return None
        start, end = bounds[0].tolist()
        try:
            indexes, at = _indexes(data, start, end)
            plan = self._plan(indexes, layout)
        except ValueError:
            return None
        if plan is None or not _are_ready(plan, layout):
            return None
        avro, there = written(data, bounds, data[start:at], plan)
        return events(avro, there, kind, plan.reading, layout, hashed)

    def _plan(self, indexes: tuple[int, ...], layout: EventLayout) -> WritingPlan | None:
        """Returns how messages of a type are read quickly, if they can be. Raises ValueError."""
        planned_for, plan = self._plans.get(indexes, (None, None))
        if planned_for is not layout:
            kind = self.message_type(indexes).DESCRIPTOR
            plan = writing_plan(kind, self._maps, _WRAPPERS, tuple(FIELDS.values()), required_of_all(), layout)
            self._plans[indexes] = layout, plan
        return plan

    def __call__(self, data: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64], renamed: bool) -> list[Read]:
        """Reads the messages data[starts[k]:ends[k]]: a table of the readable ones for each type, and the problems of
        the others.
        """
        from google.protobuf.message import DecodeError

        problems: dict[int, Rejection] = {}
        events: dict[Any, list[tuple[int, Any]]] = {}  # by type, with their numbers
        for k, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            try:
                indexes, at = ((0,), start + 1) if data[start : start + 1] == b"\0" else _indexes(data, start, end)
                kind = self.message_type(indexes)
                event = kind.FromString(data[at:end])
            except (DecodeError, ValueError) as error:
                problems[k] = ("malformed", "", f"not of its Protobuf schema: {str(error)[:200]}")
                continue
            events.setdefault(kind, []).append((k, event))
        nothing = Read(pa.table({}), np.empty(0, np.int64), problems)
        return [nothing, *(self._table(kind, some) for kind, some in events.items())]

    def _table(self, kind: Any, some: list[tuple[int, Any]]) -> Read:
        """Reads messages of one type, with their numbers."""
        problems: dict[int, Rejection] = {}
        columns: dict[str, pa.Array] = {}
        try:
            self._take([event for _, event in some], kind.DESCRIPTOR, "", columns, ())
        except _UNREADABLE:  # bad ones must not affect the others
            problems = {k: why for k, event in some if (why := self._why_not(event)) is not None}
            some = [(k, event) for k, event in some if k not in problems]
            columns.clear()
            self._take([event for _, event in some], kind.DESCRIPTOR, "", columns, ())
        table = pa.table(columns) if columns else pa.table({"": pa.nulls(len(some))})
        return Read(table, np.array([k for k, _ in some], np.int64), problems)

    def _why_not(self, event: Any) -> Rejection | None:
        """Returns why a complete message cannot be used, or None."""
        try:
            self._take([event], event.DESCRIPTOR, "", {}, ())
        except _UNREADABLE as error:
            return "malformed", "", f"not of its Protobuf schema: {' '.join(str(error).split())[:200]}"
        return None

    def _without_maps(self, message: Any, scope: str) -> None:
        """Turns maps into lists of entries, as they are encoded. This keeps their order, in which features are
        learned.
        """
        name = f"{scope}.{message.name}" if scope else message.name
        if message.options.map_entry:
            message.options.ClearField("map_entry")
            self._maps.add(name)
        for inner in message.nested_type:
            self._without_maps(inner, name)

    def message_type(self, indexes: tuple[int, ...]) -> Any:
        """Returns the message class that the indexes of a message select. Raises ValueError."""
        from google.protobuf import message_factory

        if indexes not in self._types:
            names, level = [], self._main.message_type
            for index in indexes:
                if not 0 <= index < len(level):
                    raise ValueError(f"a message type {list(indexes)} that the schema does not have")
                names.append(level[index].name)
                level = level[index].nested_type
            scope = [self._main.package] if self._main.package else []
            found = self._pool.FindMessageTypeByName(".".join(scope + names))
            self._types[indexes] = message_factory.GetMessageClass(found)
        return self._types[indexes]

    def _take(
        self, events: Sequence[Any], kind: Any, prefix: str, out: dict[str, pa.Array], within: tuple[str, ...]
    ) -> None:
        """Adds the fields of messages (None: missing) as columns."""
        for one in kind.fields:
            whole = f"{prefix}{one.name}"
            repeated = one.is_repeated
            if one.type == _MESSAGE:
                inner = one.message_type
                if repeated:
                    if inner.full_name in self._maps:
                        out[whole] = _map([None if e is None else getattr(e, one.name) for e in events], inner)
                    continue
                self._message(_given(events, one), inner, whole, out, (*within, kind.full_name))
            elif repeated:
                if one.type in _PLAIN:
                    lists = [None if e is None else list(getattr(e, one.name)) for e in events]
                    out[whole] = pa.array(lists, pa.list_(_PLAIN[one.type]))
            elif one.type == _ENUM:
                out[whole] = _enums(_given(events, one), one)
            elif one.type in _PLAIN:
                values = _given(events, one)
                if not one.has_presence and one.type in (_STRING, _BYTES):
                    values = [v or None for v in values]
                out[whole] = pa.array(values, _PLAIN[one.type])

    def _message(
        self, given: Sequence[Any], kind: Any, name: str, out: dict[str, pa.Array], within: tuple[str, ...]
    ) -> None:
        """Adds the columns of a field that is a message."""
        if kind.full_name == "google.protobuf.Timestamp":
            times = [None if v is None else _milliseconds(v) for v in given]
            out[name] = pa.array(times, pa.int64()).cast(pa.timestamp("ms"))
        elif kind.full_name in _WRAPPERS:
            value = kind.fields_by_name["value"]
            out[name] = pa.array([None if v is None else v.value for v in given], _PLAIN[value.type])
        elif kind.full_name == "google.protobuf.Struct":
            out[name] = _map(
                [None if v is None else v.fields for v in given], kind.fields_by_name["fields"].message_type
            )
        elif kind.full_name not in within:
            self._take(given, kind, f"{name}.", out, within)


def _are_ready(plan: WritingPlan, layout: EventLayout) -> bool:
    """Whether the kernels have been compiled, or loaded; the first call has a thread of its own do it."""
    if not _preparing:
        _preparing.append(threading.Thread(target=_prepare, args=(plan, layout), name="preparing", daemon=True))
        _preparing[0].start()
    return not _preparing[0].is_alive()


def _prepare(plan: WritingPlan, layout: EventLayout) -> None:
    avro, there = written(PADDING, np.zeros((1, 2), np.int64), b"\0", plan)
    events(avro, there, 0, plan.reading, layout, True)


def _milliseconds(time: Any) -> int:
    """Converts a Timestamp to ms; an impossible one stays out of range."""
    ms: int = time.seconds * 1000 + time.nanos // 1_000_000
    return min(max(ms, -_FOREVER), _FOREVER)


def _given(events: Sequence[Any], field: Any) -> list[Any]:
    """Returns the values of a field; None where it is absent."""
    name = field.name
    if field.has_presence:
        return [getattr(e, name) if e is not None and e.HasField(name) else None for e in events]
    return [None if e is None else getattr(e, name) for e in events]


def _enums(values: Sequence[Any], field: Any) -> pa.Array:
    """Returns the names of a field's values; None stays None."""
    return pa.array([None if v is None else _enum(v, field) for v in values], pa.string())


def _enum(value: int, field: Any) -> str:
    """Returns the name of a value; its number if this schema does not have it."""
    found = field.enum_type.values_by_number.get(value)
    return str(value) if found is None else str(found.name)


def _map(given: Sequence[Any], entry: Any) -> pa.Array:
    """Returns a map column from lists of entries; an empty map counts as absent, as in the encoding."""
    value = entry.fields_by_name["value"]
    text = str if entry.fields_by_name["key"].type != _STRING else None
    keys: list[str] = []
    items: list[Any] = []
    ends: list[int | None] = [0]
    for entries in given:
        for one in entries or ():
            keys.append(one.key if text is None else text(one.key))
            items.append(one.value)
        ends.append(len(keys))
    if value.type == _MESSAGE and value.message_type.full_name in _WRAPPERS:
        # by its type, not by what is on the wire, where a wrapper of 0 or false has no field
        value, items = value.message_type.fields_by_name["value"], [one.value for one in items]
    if value.type == _MESSAGE:
        item = _union([_plain_value(one) for one in items])
    elif value.type == _ENUM:
        item = _enums(items, value)
    else:
        item = pa.array(items, _PLAIN[value.type])
    offsets = pa.array(ends, pa.int32())
    absent = np.array([not entries for entries in given], bool)
    return pa.MapArray.from_arrays(offsets, pa.array(keys, pa.string()), item, mask=pa.array(absent))


def _plain_value(value: Any) -> Any:
    """Returns a text, a number, a boolean or a list of texts from a message with one `oneof`, or with one field; None:
    none of these.
    """
    for kind, given in value.ListFields() or _set_to_default(value):
        if not kind.is_repeated:
            return _plain_item(kind, given)
        found = [_plain_item(kind, one) for one in given]
        return found if all(isinstance(one, str) for one in found) else None
    return None


def _plain_item(kind: Any, given: Any) -> Any:
    """Returns the same from a value of a field."""
    if kind.type == _MESSAGE:
        return _plain_value(given)
    if kind.type == _ENUM:
        return None if kind.enum_type.full_name == "google.protobuf.NullValue" else _enum(given, kind)
    return given


def _set_to_default(value: Any) -> list[tuple[Any, Any]]:
    """Returns the field of a message that is set, or has no presence, and is not on the wire: as 0, false or ""."""
    fields = value.DESCRIPTOR.fields
    if len(fields) == 1 and not fields[0].has_presence and not fields[0].is_repeated:
        return [(fields[0], getattr(value, fields[0].name))]
    for one in value.DESCRIPTOR.oneofs:
        if name := value.WhichOneof(one.name):
            return [(value.DESCRIPTOR.fields_by_name[name], getattr(value, name))]
    return []


def _union(items: Sequence[Any]) -> pa.Array:
    """Returns texts, numbers, lists of texts and booleans in one column."""
    code = {int: 1, float: 1, list: 2, bool: 3}
    codes = [code.get(type(v), 0) for v in items]
    children = [
        pa.array([v if isinstance(v, str) else None for v in items], pa.string()),
        pa.array([float(v) if type(v) in (int, float) else None for v in items], pa.float64()),
        pa.array([v if isinstance(v, list) else None for v in items], pa.list_(pa.string())),
        pa.array([v if isinstance(v, bool) else None for v in items], pa.bool_()),  # as a slice: true, not 1.0
    ]
    return pa.UnionArray.from_sparse(pa.array(codes, pa.int8()), children)


def _compiled(schema: Schema) -> list[Any]:
    """Returns the descriptors of a schema's file, which is the last one, and of its imports. Raises
    UnusableSchemaError.
    """
    from google.protobuf import descriptor_pb2

    with tempfile.TemporaryDirectory(prefix="streameval-proto-") as name:
        folder = Path(name).resolve()
        for path, text in {**schema.references, _MAIN: schema.text}.items():
            file = (folder / path).resolve()
            if not file.is_relative_to(folder):
                raise UnusableSchemaError(f'it imports "{path[:100]}", which is not a file name')
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        out = folder / "descriptors"
        # in its own process, because the compiler reports errors on standard error
        arguments = [
            "-m",
            "grpc_tools.protoc",
            f"-I{folder}",
            "--include_imports",
            f"--descriptor_set_out={out}",
            _MAIN,
        ]
        done = subprocess.run(  # noqa: S603  (our own interpreter)
            [sys.executable, *arguments], capture_output=True, text=True, errors="replace", timeout=60, check=False
        )
        if done.returncode:
            raise UnusableSchemaError(f"its schema cannot be compiled: {' '.join(done.stderr.split())[-300:]}")
        return list(descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file)


def _indexes(data: bytes, at: int, end: int) -> tuple[tuple[int, ...], int]:
    """Returns (indexes that select the message type, start of the message). Raises ValueError."""
    count, at = _zigzag(data, at, end)
    if not 0 <= count <= _MOST_INDEXES:
        raise ValueError(f"{count} indexes of its message type")
    out = []
    for _ in range(count):
        index, at = _zigzag(data, at, end)
        out.append(index)
    return tuple(out) or (0,), at


def _zigzag(data: bytes, at: int, end: int) -> tuple[int, int]:
    raw = shift = 0
    while at < end and shift < 64:
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7
    raise ValueError("the message ends within its header")
