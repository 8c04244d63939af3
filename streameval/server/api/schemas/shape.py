"""The base of all responses, and the shape of an error."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ParameterError(Shape):
    """What is wrong with one parameter; `in` is query, path or body."""

    model_config = ConfigDict(extra="allow", strict=True)
    parameter: str
    value: str
    detail: str


class Problem(BaseModel):
    """An error (RFC 9457); some add members of their own, such as `known`, the names there are."""

    model_config = ConfigDict(extra="allow", strict=True)
    type: str
    title: str
    status: int
    detail: str
    instance: str
    errors: list[ParameterError] | None = None


class Stamped(Shape):
    snapshot: int
    as_of: str


class Named(Shape):
    model: str
    version: str
    source: str
    objective: str | None
