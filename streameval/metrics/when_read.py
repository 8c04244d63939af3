"""Parts of a result that are made when they are read: a snapshot has several for each of many results, and readers need few."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar, overload

_Row = TypeVar("_Row")
_Value_co = TypeVar("_Value_co", covariant=True)


class WhenRead(Sequence[_Row]):
    """A table that is made when it is read."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], tuple[_Row, ...]]) -> None:
        self._make = make
        self._made: tuple[_Row, ...] | None = None

    def _rows(self) -> tuple[_Row, ...]:
        if self._made is None:  # two readers at once make the same
            self._made = self._make()
        return self._made

    def __len__(self) -> int:
        return len(self._rows())

    @overload
    def __getitem__(self, at: int) -> _Row: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[_Row, ...]: ...
    def __getitem__(self, at: int | slice) -> _Row | tuple[_Row, ...]:
        return self._rows()[at]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._rows() == tuple(other)

    def __hash__(self) -> int:
        return hash(self._rows())


class MappingWhenRead(Mapping[str, _Value_co]):
    """Values by name that are made when they are read."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], Mapping[str, _Value_co]]) -> None:
        self._make = make
        self._made: Mapping[str, _Value_co] | None = None

    def _values(self) -> Mapping[str, _Value_co]:
        if self._made is None:  # two readers at once make the same
            self._made = self._make()
        return self._made

    def __getitem__(self, name: str) -> _Value_co:
        return self._values()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values())

    def __len__(self) -> int:
        return len(self._values())

    def __repr__(self) -> str:
        return repr(self._values())
