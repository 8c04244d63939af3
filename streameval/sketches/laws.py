"""The laws that every sketch obeys, as code: the test of a new sketch calls `check_sketch`.

A sketch here is a value with `+`, unary `-`, `==` and an empty value. The laws: the empty sketch is the identity; merging is
associative and commutative and does not modify its arguments; retracting undoes merging; a sketch decoded from its bytes
behaves as the original.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Protocol, Self


class Sketch(Protocol):
    """The algebra."""

    def __add__(self, other: Self, /) -> Self: ...
    def __neg__(self) -> Self: ...


def check_sketch(
    empty: Any, a: Any, b: Any, c: Any, encode: Callable[[Any], bytes], decode: Callable[[bytes], Any]
) -> None:
    """Raises AssertionError naming the law that the three sketches violate."""
    before = [copy.deepcopy(x) for x in (a, b, c)]
    _law("empty + a = a", empty + a, a)
    _law("a + empty = a", a + empty, a)
    _law("a + b = b + a", a + b, b + a)
    _law("(a + b) + c = a + (b + c)", (a + b) + c, a + (b + c))
    _law("(a + b) - b = a", (a + b) + -b, a)
    _law("a - a = empty", a + -a, empty)
    _law("decode(encode(a)) = a", decode(encode(a)), a)
    _law("decode(encode(a)) + b = a + b", decode(encode(a)) + b, a + b)
    for old, now in zip(before, (a, b, c), strict=True):
        _law("merging leaves its arguments alone", now, old)


def _law(name: str, left: Any, right: Any) -> None:
    if not left == right:
        raise AssertionError(f"law broken: {name}")
