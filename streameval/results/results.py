"""All results of a snapshot: the overall ones, and those of slices, of which there may be tens of thousands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Protocol, overload

from streameval.events.batch import Series
from streameval.results.result import Result
from streameval.results.window_slices import SliceRow


class Slices(Protocol):
    """Results of slices: see `WindowSlices`."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Result]: ...
    def rows(self) -> Iterator[SliceRow]:
        """Every slice, in order, without its result."""
        ...

    def names(self) -> Iterable[tuple[str, str]]:
        """The (dimension, value) of each."""
        ...

    def undefined(self) -> Iterable[tuple[Mapping[str, str], int]]:
        """Why metrics are undefined, and in how many results each."""
        ...


class MadeSlices(tuple[Result, ...]):
    """Results of slices that were made already."""

    __slots__ = ()

    def rows(self) -> Iterator[SliceRow]:
        """Every slice."""
        for r in self:
            yield SliceRow(r.series, r.window, r.slice or ("", ""), r.totals.impressions, r.reasons, partial(_same, r))

    def names(self) -> list[tuple[str, str]]:
        """The (dimension, value) of each."""
        return [r.slice for r in self if r.slice is not None]

    def undefined(self) -> list[tuple[Mapping[str, str], int]]:
        """Why metrics are undefined in each."""
        return [(r.reasons, 1) for r in self]


class Results(Sequence[Result]):
    """First the overall ones, then those of slices by window. A slice's result is made when it is read: ask for those you need."""

    __slots__ = ("overall", "sliced")

    def __init__(self, overall: Iterable[Result], sliced: Iterable[Slices]) -> None:
        self.overall, self.sliced = tuple(overall), tuple(sliced)

    @classmethod
    def of(cls, results: Iterable[Result]) -> Results:
        """These, which were made already."""
        if isinstance(results, Results):
            return results
        every = tuple(results)
        return cls((r for r in every if r.slice is None), [MadeSlices(r for r in every if r.slice is not None)])

    def __len__(self) -> int:
        return len(self.overall) + sum(map(len, self.sliced))

    def __iter__(self) -> Iterator[Result]:
        return chain(self.overall, *self.sliced)

    @overload
    def __getitem__(self, at: int) -> Result: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Result]: ...
    def __getitem__(self, at: int | slice) -> Result | Sequence[Result]:
        return tuple(self)[at]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # as a list

    def names(self) -> list[tuple[str, str]]:
        """The (dimension, value) of all slices, in order."""
        return list(dict.fromkeys(name for some in self.sliced for name in some.names()))

    def rows(self) -> Iterator[SliceRow]:
        """Every slice, in order, without its result."""
        return chain.from_iterable(some.rows() for some in self.sliced)

    def slices(
        self, series: Collection[Series], window: str | None, dimension: str | None = None, value: str | None = None
    ) -> list[SliceRow]:
        """Those of these series; of one window, one dimension, one value of it, None: of all."""
        return [
            row
            for row in self.rows()
            if window in (None, row.window)
            and (dimension is None or row.slice[0] == dimension)
            and value in (None, row.slice[1])
            and row.series in series
        ]

    def undefined(self) -> dict[str, int]:
        """By "metric:reason", in how many results a metric is undefined."""
        alike: dict[int, Mapping[str, str]] = {}  # most results have theirs in common
        times: Counter[int] = Counter()
        overall = ((result.reasons, 1) for result in self.overall)
        for reasons, n in chain(overall, *(some.undefined() for some in self.sliced)):
            alike[id(reasons)] = reasons
            times[id(reasons)] += n
        counts: Counter[str] = Counter()
        for key, n in times.items():
            for name, why in alike[key].items():
                counts[f"{name}:{why}"] += n
        return dict(counts)


def _same(result: Result) -> Result:
    return result
