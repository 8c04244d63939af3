"""Which fields of an event a plain Protobuf schema has, and how `protobuf_kernel` writes them as Avro.

`avro_events` then reads them: what is a valid event is said there alone. Plain schemas have fields of the contract, each
of a type that needs no conversion, and any other fields, which are only checked. Events of a schema with anything else
(a message of slices, texts in a `oneof`, required fields) are read by Google's library, and so is each message that is
unusual.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streameval.events.fields import Field
from streameval.sources.formats.avro_plan import ReadingPlan, plan_of
from streameval.sources.formats.event_layout import EventLayout

# how a field is encoded, as far as it is checked
OF_NOTHING, OF_VARINT, OF_FIXED64, OF_FIXED32, OF_TEXT, OF_BYTES, OF_MESSAGE = range(7)
ENCODING, INNER_TYPE, IS_REPEATED, READ_AS = range(
    4
)  # columns of a field: encoding, type of a message, whether repeated, see below
# how a value is written
AS_TEXT, AS_ENUM, AS_BOOLEAN, AS_LONG, AS_ULONG, AS_INT, AS_ZIGZAG, AS_UINT = range(8)
AS_FIXED64, AS_SFIXED64, AS_FIXED32, AS_SFIXED32, AS_DOUBLE, AS_FLOAT, AS_STAMP, AS_MAP = range(8, 16)
# columns of a step: how it is written; whether it is in a wrapper; whether it is there if it is not in the message; the first
# symbol of an enum, or how values of a map are written; the number of symbols, or whether an empty text is absent
WRITTEN_AS, IN_WRAPPER, EVEN_ABSENT, FIRST_SYMBOL, SYMBOLS = range(5)

_MOST_NUMBERS = 1_000  # of a type's fields
_MOST_TYPES = 200
_MOST_SYMBOLS = 1_000
# of descriptor.proto's FieldDescriptorProto.Type: encoding, how it is written, Avro's type
_SCALARS = {
    1: (OF_FIXED64, AS_DOUBLE, "double"), 2: (OF_FIXED32, AS_FLOAT, "float"), 3: (OF_VARINT, AS_LONG, "long"), 4: (OF_VARINT, AS_ULONG, "long"),
    5: (OF_VARINT, AS_INT, "long"), 6: (OF_FIXED64, AS_FIXED64, "long"), 7: (OF_FIXED32, AS_FIXED32, "long"), 8: (OF_VARINT, AS_BOOLEAN, "boolean"),
    9: (OF_TEXT, AS_TEXT, "string"), 12: (OF_BYTES, -1, ""), 13: (OF_VARINT, AS_UINT, "long"), 14: (OF_VARINT, AS_ENUM, "string"),
    15: (OF_FIXED32, AS_SFIXED32, "long"), 16: (OF_FIXED64, AS_SFIXED64, "long"), 17: (OF_VARINT, AS_ZIGZAG, "long"), 18: (OF_VARINT, AS_ZIGZAG, "long"),
}  # fmt: skip
_MESSAGE, _ENUM, _REQUIRED, _STRING = 11, 14, 2, 9
_STAMP = "google.protobuf.Timestamp"
_STAMP_TYPE = {"type": "long", "logicalType": "timestamp-millis"}


class WritingPlan(NamedTuple):
    """A step for every field that is read, int64[n, 5], in the order in which they are written.

    `fields`, int64[m, 4], has the fields of all types: the one with a number of type t is row first[t] + number, if it is
    less than first[t + 1]; `READ_AS` is its step, or -1. Symbols, int64[k, 3]: number, start and end in `text`.
    """

    reading: ReadingPlan  # of what is written
    steps: NDArray[np.int64]
    fields: NDArray[np.int64]
    first: NDArray[np.int64]
    symbols: NDArray[np.int64]
    text: NDArray[np.uint8]


class _NotPlainError(Exception):
    """The schema has no plan."""


def writing_plan(
    kind: Any, maps: set[str], wrappers: set[str], table: Sequence[Field], required: Sequence[str], layout: EventLayout
) -> WritingPlan | None:
    """Returns the plan of a message type (a descriptor of Google's); None: it is not plain. `maps`, `wrappers`: the full
    names of types that are entries of maps, or wrappers.
    """
    try:
        return _Planner(maps, wrappers, table).plan(kind, required, layout)
    except Exception:  # a plan is only for speed
        return None


class _Planner:
    def __init__(self, maps: set[str], wrappers: set[str], table: Sequence[Field]) -> None:
        self._maps, self._wrappers, self._ours = maps, wrappers, {field.name for field in table}
        self._table = table
        self._types: dict[str, int] = {}  # by full name
        self._kinds: list[Any] = []
        self._steps: list[tuple[int, int, int, int, int]] = []
        self._symbols: list[tuple[int, int, int]] = []
        self._text = b""
        self._avro: list[dict[str, Any]] = []

    def plan(self, kind: Any, required: Sequence[str], layout: EventLayout) -> WritingPlan:
        self._type(kind)
        read = {one.name: self._step(one) for one in kind.fields if one.name in self._ours}
        blocks, t = [], 0
        while t < len(self._kinds):  # grows
            blocks.append(self._fields(self._kinds[t], read if t == 0 else {}))
            t += 1
        record = {"type": "record", "name": "event", "fields": self._avro}
        reading = plan_of(record, {}, self._table, required, layout)
        if reading is None or reading.text:
            raise _NotPlainError
        return WritingPlan(
            reading,
            np.array(self._steps, np.int64).reshape(-1, 5),
            np.concatenate(blocks),
            np.cumsum([0, *map(len, blocks)]),
            np.array(self._symbols, np.int64).reshape(-1, 3),
            np.frombuffer(self._text + b"\0" * 8, np.uint8),
        )

    def _type(self, kind: Any) -> int:
        """Returns the number of a type, which may be new."""
        if kind.full_name not in self._types:
            if len(self._types) == _MOST_TYPES:
                raise _NotPlainError
            self._types[kind.full_name] = len(self._kinds)
            self._kinds.append(kind)
        return self._types[kind.full_name]

    def _fields(self, kind: Any, read: dict[str, int]) -> NDArray[np.int64]:
        most = max((one.number for one in kind.fields), default=0)
        if most > _MOST_NUMBERS:
            raise _NotPlainError
        out = np.zeros((most + 1, 4), np.int64)
        out[:, READ_AS] = -1
        for one in kind.fields:
            if (one.type != _MESSAGE and one.type not in _SCALARS) or _is_required(one):
                raise _NotPlainError
            out[one.number, IS_REPEATED] = one.is_repeated
            out[one.number, READ_AS] = read.get(one.name, -1)
            if one.type == _MESSAGE:
                out[one.number, ENCODING], out[one.number, INNER_TYPE] = OF_MESSAGE, self._type(one.message_type)
            else:
                out[one.number, ENCODING] = _SCALARS[one.type][0]
        return out

    def _step(self, one: Any) -> int:
        """Returns the number of the step for a field that is read."""
        if one.containing_oneof is not None and len(one.containing_oneof.fields) > 1:
            raise _NotPlainError  # the last one of them would count
        wrapped, always, value = 0, int(not one.has_presence), one
        if one.type == _MESSAGE:
            name = one.message_type.full_name
            if one.is_repeated:
                return self._map(one) if name in self._maps else self._none()
            if name == _STAMP:
                return self._add(one.name, _STAMP_TYPE, (AS_STAMP, 0, 0, 0, 0))
            if name not in self._wrappers:
                return self._none()
            wrapped, value = 1, one.message_type.fields_by_name["value"]
        elif one.is_repeated:
            return self._none()
        written, kind = self._scalar(value)
        first, count = self._enum(value.enum_type) if written == AS_ENUM else (0, 0)
        if written == AS_TEXT and always:
            always, count = 0, 1
        return self._add(one.name, kind, (written, wrapped, always, first, count))

    def _map(self, one: Any) -> int:
        entry = one.message_type.fields_by_name
        if entry["key"].type != _STRING or entry["value"].type in (_MESSAGE, _ENUM):
            return self._none()
        written, kind = self._scalar(entry["value"])
        return self._add(one.name, {"type": "map", "values": kind}, (AS_MAP, 0, 0, written, 0))

    def _scalar(self, one: Any) -> tuple[int, str]:
        _, written, kind = _SCALARS.get(one.type, (0, -1, ""))
        return (written, kind) if written >= 0 else self._none()

    def _enum(self, kind: Any) -> tuple[int, int]:
        """Returns the first of an enum's symbols, and their number."""
        if len(kind.values_by_number) != len(kind.values) or len(kind.values) > _MOST_SYMBOLS:
            raise _NotPlainError  # a number with several names
        first = len(self._symbols)
        for one in kind.values:
            text = one.name.encode()
            self._symbols.append((one.number, len(self._text), len(self._text) + len(text)))
            self._text += text
        return first, len(kind.values)

    def _add(self, name: str, kind: Any, step: tuple[int, int, int, int, int]) -> int:
        self._avro.append({"name": name, "type": ["null", kind]})
        self._steps.append(step)
        return len(self._steps) - 1

    @staticmethod
    def _none() -> Any:
        raise _NotPlainError


def _is_required(one: Any) -> bool:
    return bool(getattr(one, "is_required", False) or (hasattr(one, "label") and one.label == _REQUIRED))
