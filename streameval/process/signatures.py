"""Signatures of kernels as JSON values, and back, so that one process can compile what another one has needed.

An array is "int64 2C" (dtype, dimensions, layout; "readonly" behind it), a number its dtype, a named tuple a list whose first
entry is "module:Class", any other tuple one whose first entry is "".
"""

from __future__ import annotations

import importlib
from typing import Any

import numba
from numba import types

Text = str | list[Any]


def to_json(kind: types.Type) -> Text:
    """Of the type of an argument. ValueError: it has no form here."""
    if isinstance(kind, types.Array):
        return f"{to_json(kind.dtype)} {kind.ndim}{kind.layout}{'' if kind.mutable else ' readonly'}"
    if isinstance(kind, types.BaseNamedTuple):
        of = kind.instance_class
        return [f"{of.__module__}:{of.__qualname__}", *map(to_json, kind.types)]
    if type(kind) in {types.Tuple, types.UniTuple}:
        return ["", *map(to_json, kind.types)]
    if type(kind) in {types.Integer, types.Float, types.Boolean}:
        return str(kind)
    raise ValueError(f"no form for {kind!r}")


def from_json(text: Text) -> types.Type:
    """The type again."""
    if isinstance(text, str):
        name, *shape = text.split()
        dtype = numba.boolean if name == "bool" else getattr(numba, name)
        if not shape:
            return dtype
        return types.Array(dtype, int(shape[0][:-1]), shape[0][-1], readonly=shape[1:] == ["readonly"])
    name, *members = text
    module, _, qualname = name.partition(":")
    of = getattr(importlib.import_module(module), qualname) if name else None
    return types.BaseTuple.from_types([from_json(member) for member in members], of)
