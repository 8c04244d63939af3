"""The shapes of the answers that are dataclasses already, for OpenAPI: the same members, and the same words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_
from types import GenericAlias, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin

from pydantic import BaseModel, create_model

from streameval.compare.reading.as_json import members
from streameval.compare.reading.reading import Known, Time

Shape = TypeVar("Shape", bound=type[BaseModel])
_SHAPES: dict[type, Any] = {}  # by dataclass


def shape(of: type, **instead: Any) -> Callable[[Shape], Shape]:
    """Gives a class the members of a dataclass, behind its own; `instead`: types of members that are made of something else."""

    def shaped(cls: Shape) -> Shape:
        known = {name: instead.get(name) or _in_json(hint) for name, hint in members(of).items()}
        _SHAPES[of] = plus(known, cls.__doc__ or of.__doc__)(cls)
        return cast(Shape, _SHAPES[of])

    return shaped


def plus(known: Mapping[str, Any], doc: str | None = None) -> Callable[[Shape], Shape]:
    """Gives a class more members, by their types."""

    def with_them(cls: Shape) -> Shape:
        made: Any = {name: (kind, ...) for name, kind in known.items()}
        words = doc or cls.__doc__
        return cast(Shape, create_model(cls.__name__, __base__=cls, __module__=cls.__module__, __doc__=words, **made))

    return with_them


def _in_json(hint: Any) -> Any:
    """The type that a member has as JSON."""
    if hint == Time:
        return str | None
    if hint == Known:
        return float
    if hint is float:
        return float | None
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return reduce(or_, map(_in_json, args))
    if origin is tuple:
        return GenericAlias(list, (_in_json(args[0]),))
    if origin is Mapping:
        return GenericAlias(dict, (str, _in_json(args[1])))
    return _SHAPES.get(hint, hint)
