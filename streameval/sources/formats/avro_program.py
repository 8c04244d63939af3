"""An Avro schema as a program for `avro_kernel`, and as the tree of columns that the program fills.

Records are unrolled field by field, so their fields are columns with dotted names; a union of null and one type is that
type; the contents of lists and maps have their own level. Recursive types are skipped.

    operation        a        b               c           level
    BOOLEAN LONG ..  column   size or text?               that of the column's cells
    ENUM             column   symbols
    UNION            column   place in jumps  branches
    JUMP             target
    LOOP             column   level of items
    LIST_BLOCK                target at end               of the items
    NEXT             block                                of the items
    CALL                      target
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.sources.formats import avro_kernel as kernel

_PLAIN = {
    "boolean": kernel.BOOLEAN,
    "int": kernel.INT,
    "long": kernel.LONG,
    "float": kernel.FLOAT,
    "double": kernel.DOUBLE,
    "string": kernel.BYTES,
    "bytes": kernel.BYTES,
}
MOST_OPERATIONS = 20_000  # of a schema; every one is a cell in a table that is traversed for each message


class UnusableSchemaError(ValueError):
    """No events can be read with this schema; the message says why."""


@dataclass(slots=True)
class Leaf:
    """A plain value."""

    type: str
    column: int
    level: int
    logical: str = ""
    scale: int = 0  # for a decimal
    symbols: Sequence[str] = ()


@dataclass(slots=True)
class Items:
    """A list, or with `keys` a map; its items are cells of `items_level`."""

    column: int
    level: int
    items_level: int
    item: Node
    keys: Leaf | None = None


@dataclass(slots=True)
class Choice:
    """A union of several types; `column` contains the branch. `branches`: None for null."""

    column: int
    level: int
    branches: list[Node]


@dataclass(slots=True)
class Members:
    """A record."""

    fields: list[tuple[str, Node]]


Node = Leaf | Items | Choice | Members | None  # None: nothing that a column could represent


@dataclass(slots=True)
class Program:
    """`levels[c]`: the level of column c, of `depth` levels in total; `names`: the field that every operation reads."""

    ops: NDArray[np.int64]
    jumps: NDArray[np.int64]
    levels: NDArray[np.int64]
    depth: int
    tree: Members
    names: list[str] = field(default_factory=list)


def compiled(schema: Any, named: Mapping[str, Any]) -> Program:
    """Returns the program of a schema that fastavro has parsed; `named`: types by their full names. Raises
    UnusableSchemaError.
    """
    made = _Compiler(named)
    tree = made.node(schema, "", 0, ())
    if not isinstance(tree, Members):
        raise UnusableSchemaError("its schema is not a record: an event must be one")
    made.emit(kernel.END, name="")
    made.subroutines()
    ops, jumps, levels = (np.array(of, np.int64) for of in (made.ops, made.jumps or [0], made.levels or [0]))
    return Program(ops, jumps, levels, made.depth, tree, made.names)


def passing_over(
    types: Sequence[Any], named: Mapping[str, Any]
) -> tuple[NDArray[np.int64], NDArray[np.int64], list[int]]:
    """Returns (operations, jumps, start of the program that skips each type without storing anything). Raises
    UnusableSchemaError.
    """
    made = _Compiler(named, silent=True)
    begins = []
    for one in types:
        begins.append(len(made.ops))
        made.node(one, "", 0, ())
        made.emit(kernel.END, name="")
    made.subroutines()
    ops = np.array(made.ops, np.int64).reshape(-1, 5)
    return ops, np.array(made.jumps or [0], np.int64), begins


class _Compiler:
    def __init__(self, named: Mapping[str, Any], *, silent: bool = False) -> None:
        self.named = named
        self.ops: list[tuple[int, int, int, int, int]] = []
        self.names: list[str] = []
        self.jumps: list[int] = []
        self.levels: list[int] = []
        self.depth = 1
        self._calls: dict[str, list[int]] = {}  # operations that call the type's subroutine
        self._silent = silent  # nothing is stored, only skipped

    def emit(self, op: int, a: int = -1, b: int = -1, c: int = -1, level: int = 0, *, name: str) -> int:
        if len(self.ops) >= MOST_OPERATIONS:
            raise UnusableSchemaError(f"its schema has more than {MOST_OPERATIONS} parts")
        self.ops.append((op, a, b, c, level))
        self.names.append(name)
        return len(self.ops) - 1

    def column(self, level: int) -> int:
        if self._silent:
            return -1
        self.levels.append(level)
        return len(self.levels) - 1

    def node(self, schema: Any, name: str, level: int, within: tuple[str, ...]) -> Node:
        if isinstance(schema, list):
            return self._union(schema, name, level, within)
        if isinstance(schema, str):
            if schema in _PLAIN or schema == "null":
                schema = {"type": schema}
            elif schema in within or self._silent:
                self._calls.setdefault(schema, []).append(self.emit(kernel.CALL, name=name))
                return None
            elif schema in self.named:
                schema = self.named[schema]
            else:
                raise UnusableSchemaError(f'its schema names a type "{schema}" that it does not define')
        kind = schema["type"]
        if isinstance(kind, (dict, list)):
            return self.node(kind, name, level, within)
        if kind in ("record", "error"):
            inside, before = (*within, schema["name"]), f"{name}." if name else ""
            fields = [(one["name"], one["type"]) for one in schema["fields"]]
            return Members([(own, self.node(type_, before + own, level, inside)) for own, type_ in fields])
        if kind in ("array", "map"):
            return self._items(schema, kind, name, level, within)
        return self._leaf(schema, kind, name, level, within)

    def _leaf(self, schema: Any, kind: str, name: str, level: int, within: tuple[str, ...]) -> Node:
        if kind == "null":
            self.emit(kernel.NULL_VALUE, name=name)
            return None
        if kind not in _PLAIN and kind not in ("fixed", "enum"):
            return self.node(kind, name, level, within)
        column = self.column(level)
        leaf = Leaf(kind, column, level, schema.get("logicalType", ""), schema.get("scale", 0))
        if kind == "fixed":
            self.emit(kernel.FIXED_BYTES, column, int(schema["size"]), level=level, name=name)
        elif kind == "enum":
            leaf.symbols = schema["symbols"]
            self.emit(kernel.ENUM, column, len(leaf.symbols), level=level, name=name)
        else:
            self.emit(_PLAIN[kind], column, int(kind == "string"), level=level, name=name)
        return leaf

    def _union(self, schema: list[Any], name: str, level: int, within: tuple[str, ...]) -> Node:
        several = sum(one != "null" for one in schema) > 1
        column = self.column(level) if several else -1
        place = len(self.jumps)
        self.jumps += [0] * len(schema)
        self.emit(kernel.UNION, column, place, len(schema), level, name=name)
        branches, leaving = [], []
        for k, one in enumerate(schema):
            self.jumps[place + k] = len(self.ops)
            branches.append(self.node(one, name, level, within))
            leaving.append(self.emit(kernel.JUMP, name=name))
        for one in leaving:
            self.ops[one] = (kernel.JUMP, len(self.ops), -1, -1, 0)
        if several:
            return Choice(column, level, branches)
        return next((branch for branch in branches if branch is not None), None)

    def _items(self, schema: Any, kind: str, name: str, level: int, within: tuple[str, ...]) -> Node:
        column = self.column(level)
        inner = 0
        if not self._silent:
            inner, self.depth = self.depth, self.depth + 1
        self.emit(kernel.LOOP, column, inner, level=level, name=name)
        block = self.emit(kernel.LIST_BLOCK, level=inner, name=name)
        keys = None
        if kind == "map":
            keys = Leaf("string", self.column(inner), inner)
            self.emit(kernel.BYTES, keys.column, 1, level=inner, name=name)
        item = self.node(schema["values" if kind == "map" else "items"], name, inner, within)
        self.emit(kernel.NEXT, block, level=inner, name=name)
        self.ops[block] = (kernel.LIST_BLOCK, -1, len(self.ops), -1, inner)
        return Items(column, level, inner, item, keys)

    def subroutines(self) -> None:
        """Adds the subroutines that skip recursive types."""
        self._silent = True
        done: dict[str, int] = {}
        while set(self._calls) - set(done):
            name = min(set(self._calls) - set(done))
            done[name] = len(self.ops)
            self.node(self.named[name], name, 0, ())
            self.emit(kernel.RETURN, name=name)
        for name, calls in self._calls.items():
            for one in calls:
                self.ops[one] = (kernel.CALL, -1, done[name], -1, 0)
