"""Which fields of an event a plain Avro schema has, and where `avro_events` puts them: a row for each, in the order of
the encoding.

Plain schemas have fields of the contract, each of a type that needs no conversion, and any other fields, which are
skipped. A schema with anything else (records of slices or features, lists of texts, times as floats) has no plan, and
its messages go through `avro_kernel` and Arrow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streameval.events.fields import Field
from streameval.sources.formats.avro_kernel import BOOLEAN, BYTES, DOUBLE, ENUM, FLOAT, INT, LONG, NULL_VALUE
from streameval.sources.formats.avro_program import passing_over
from streameval.sources.formats.event_layout import (
    BY_VERSION,
    FEATURES,
    ID,
    INTEGER,
    KIND,
    LABEL,
    NUMBER,
    OF_SLICES,
    PLACE,
    TIME,
    WORD,
    EventLayout,
)

NOTHING = -1  # the target of a skipped field
# encodings besides the plain operations of `avro_kernel`; UNFIT: a value of a map that makes its message not plain
STRING, MAP_OF, FOREIGN, UNFIT = range(100, 104)
TARGET, GOES_TO, NUMBERED, BEGINS_AT, BRANCHES = range(5)  # columns of a step
WIRE, ARGUMENT, EXTENT = range(3)  # columns of a branch

_PLAIN = {
    "null": NULL_VALUE, "string": STRING, "long": LONG, "int": INT, "double": DOUBLE, "float": FLOAT, "boolean": BOOLEAN, "bytes": BYTES,
}  # fmt: skip
_NUMBERS = {INT, LONG, FLOAT, DOUBLE}
_HOLDS = {
    NOTHING: {STRING, BOOLEAN, BYTES, *_NUMBERS}, ID: {STRING, ENUM, INT, LONG}, WORD: {STRING, ENUM}, TIME: {STRING, INT, LONG},
    NUMBER: _NUMBERS, INTEGER: _NUMBERS, LABEL: {BOOLEAN, *_NUMBERS},
}  # fmt: skip
_HOLDS_IN_MAPS = {
    OF_SLICES: {STRING}, BY_VERSION: _NUMBERS, FEATURES: {STRING, BOOLEAN, *_NUMBERS},
}  # fmt: skip
_UNITS = {"timestamp-millis": 1, "timestamp-micros": 1_000, "timestamp-nanos": 1_000_000}
_MOST_BRANCHES = 100


class ReadingPlan(NamedTuple):
    """A step for every field, int64[n, 5]: target (a kind of `event_layout`), slot, number of the field, its first
    branch, number of branches.

    For a field that is not a union the number of branches is 0, and the first is its only one. Branches, int64[k, 3]:
    the encoding; an argument: units per ms for a time, the first symbol for an enum, the first branch of the values for
    a map, the program for a skipped field; and the number of symbols, or of branches of values (0: no union). Symbols,
    int64[m, 2]: their start and end in `text`.
    """

    steps: NDArray[np.int64]
    branches: NDArray[np.int64]
    symbols: NDArray[np.int64]
    ops: NDArray[np.int64]  # programs that skip unknown fields, see `avro_program`
    jumps: NDArray[np.int64]
    text: bytes


class _NotPlainError(Exception):
    """The schema has no plan."""


def plan_of(
    schema: Any, named: Mapping[str, Any], table: Sequence[Field], required: Sequence[str], layout: EventLayout
) -> ReadingPlan | None:
    """Returns the plan of a record that fastavro has parsed; `named`: types by their full names. None: it is
    not plain.
    """
    try:
        return _Planner(named, table, layout).plan(schema, required)
    except Exception:  # a plan is only for speed: anything else that is odd about a schema is handled by `avro_program`
        return None


class _Planner:
    def __init__(self, named: Mapping[str, Any], table: Sequence[Field], layout: EventLayout) -> None:
        self._named = named
        self._fields = {field.name: number for number, field in enumerate(table)}
        self._layout = layout
        self._steps: list[tuple[int, int, int, int, int]] = []
        self._branches: list[tuple[int, int, int]] = []
        self._symbols: list[tuple[int, int]] = []
        self._text = b""
        self._foreign: list[Any] = []  # types that are skipped by a program

    def plan(self, schema: Any, required: Sequence[str]) -> ReadingPlan:
        if not isinstance(schema, dict) or schema["type"] != "record":
            raise _NotPlainError
        if not {field["name"] for field in schema["fields"]}.issuperset(required):
            raise _NotPlainError
        for field in schema["fields"]:
            self._step(field["name"], field["type"])
        ops, jumps, begins = passing_over(self._foreign, self._named)
        branches = [(wire, begins[a] if wire == FOREIGN else a, size) for wire, a, size in self._branches]
        return ReadingPlan(
            np.array(self._steps, np.int64).reshape(-1, 5),
            np.array(branches, np.int64).reshape(-1, 3),
            np.array(self._symbols, np.int64).reshape(-1, 2),
            ops,
            jumps,
            self._text,
        )

    def _step(self, name: str, kind: Any) -> None:
        number = self._fields.get(name, -1)
        target, slot = NOTHING, 0
        if number >= 0:
            target, slot = (int(self._layout.names[number, column]) for column in (KIND, PLACE))
        branches = kind if isinstance(kind, list) else [kind]
        if target == NOTHING and not all(self._is_plain(one) for one in branches):
            self._foreign.append(kind)
            made, count = [(FOREIGN, len(self._foreign) - 1, 0)], 0
        else:
            made = [self._branch(one, target) for one in branches]
            count = len(branches) if isinstance(kind, list) else 0
            if target == TIME and any(a != 1 for wire, a, _ in made if wire in (INT, LONG)) and len(made) > 2:
                raise _NotPlainError  # including a union with texts
        self._steps.append((target, slot, number, self._add(made), count))

    def _add(self, branches: list[tuple[int, int, int]]) -> int:
        if len(branches) > _MOST_BRANCHES:
            raise _NotPlainError
        self._branches += branches
        return len(self._branches) - len(branches)

    def _resolved(self, kind: Any) -> Any:
        """Returns a type as a dict."""
        while True:
            if isinstance(kind, str):
                kind = {"type": kind} if kind in _PLAIN else self._named.get(kind, {"type": "unknown"})
            elif isinstance(kind["type"], (dict, list)):
                kind = kind["type"]
            else:
                return kind

    def _is_plain(self, kind: Any) -> bool:
        return not isinstance(kind, list) and self._resolved(kind)["type"] in _PLAIN

    def _branch(self, kind: Any, target: int) -> tuple[int, int, int]:
        found = self._resolved(kind)
        name = found["type"]
        if name == "null":
            return NULL_VALUE, 0, 0
        if target in _HOLDS_IN_MAPS:
            return self._map(found, target)
        wire = ENUM if name == "enum" else _PLAIN.get(name, FOREIGN)
        if wire not in _HOLDS[target]:
            raise _NotPlainError
        if wire == ENUM:
            first = len(self._symbols)
            for symbol in found["symbols"]:
                text = symbol.encode()
                self._symbols.append((len(self._text), len(self._text) + len(text)))
                self._text += text
            return ENUM, first, len(found["symbols"])
        if target == NOTHING:
            return wire, 0, 0
        return wire, self._unit(found, target), 0

    @staticmethod
    def _unit(found: Any, target: int) -> int:
        """Returns the number of units per ms; only times may need a conversion."""
        logical = found.get("logicalType", "").removeprefix("local-")
        if logical == "decimal" or (logical in _UNITS and target != TIME):
            raise _NotPlainError
        return _UNITS.get(logical, 1)

    def _map(self, found: Any, target: int) -> tuple[int, int, int]:
        if found["type"] != "map":
            raise _NotPlainError
        kinds = found["values"] if isinstance(found["values"], list) else [found["values"]]
        made = []
        for kind in kinds:
            value = self._resolved(kind)
            wire = _PLAIN.get(value["type"], UNFIT)
            if wire != NULL_VALUE and wire not in _HOLDS_IN_MAPS[target]:
                wire = UNFIT
            self._unit(value, target)
            made.append((wire, 0, 0))
        if all(wire in (NULL_VALUE, UNFIT) for wire, _, _ in made):
            raise _NotPlainError
        return MAP_OF, self._add(made), len(kinds) if isinstance(found["values"], list) else 0
