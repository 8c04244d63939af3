"""The slices of one window, as of one look: what was counted of them. A result is made when it is read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from streameval.events.batch import Series
from streameval.metrics.tables import ScoreCounts
from streameval.metrics.when_read import MappingWhenRead, WhenRead
from streameval.results.result import Result, Span, of_span, totals_of
from streameval.results.slice_columns import SliceColumns
from streameval.results.slice_numbers import OfAllSlices, SliceNumbers, SliceSums
from streameval.sketches.layout import CORRECTIONS, IMPRESSIONS, NO_OPTIONS, VIOLATIONS, Layout

READ_FOR = 90.0  # seconds: whoever reads numbers of a slice may ask again for so long, as Prometheus every minute


class SummedSlice(NamedTuple):
    """A slice of a series, and the rows whose sum it is."""

    series: Series
    where: tuple[str, str]
    rows: tuple[int, ...]


class LastRead:
    """When somebody last read numbers of each slice of a window; monotonic seconds."""

    __slots__ = ("_at",)

    def __init__(self, at: NDArray[np.float64]) -> None:
        """`at`: float64[slices]."""
        self._at = at

    @classmethod
    def never(cls, n: int) -> LastRead:
        """Of n slices that nobody has read."""
        return cls(np.full(n, -np.inf))

    def now(self, number: int) -> None:
        """Somebody reads this one."""
        self._at[number] = time.monotonic()

    def lately(self) -> list[int]:
        """Those that may be read again."""
        return np.flatnonzero(self._at + READ_FOR > time.monotonic()).tolist()

    def numbered(self, before: NDArray[np.int64]) -> LastRead:
        """Where slice i is that of number before[i]; -1: one that nobody has read."""
        return LastRead(np.append(self._at, -np.inf)[before])


class SliceRow(NamedTuple):
    """What is known of a slice without its result."""

    series: Series
    window: str
    slice: tuple[str, str]
    impressions: int
    reasons: Mapping[str, str]
    result: Callable[[], Result]


class WindowSlices(Sequence[Result]):
    """The results of the slices of a window that have any impression, by series and slice."""

    __slots__ = (
        "_columns",
        "_last_read",
        "_layout",
        "_made",
        "_numbers",
        "_quantiles",
        "_read",
        "_slices",
        "span",
        "wholes",
    )

    def __init__(
        self,
        slices: Sequence[SummedSlice],
        columns: SliceColumns,
        span: Span,
        wholes: Mapping[Series, OfAllSlices],
        last_read: LastRead,
        read: dict[int, SliceSums],
        layout: Layout,
        quantiles: int,
    ) -> None:
        """`columns`: by `slices`; `read`: the sums of those that were read already."""
        self.span, self.wholes = span, wholes
        self._slices, self._columns, self._last_read, self._read = slices, columns, last_read, read
        self._layout, self._quantiles = layout, quantiles
        self._numbers = columns.there().tolist()
        self._made: dict[int, Result] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, at: int) -> Result: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Result]: ...
    def __getitem__(self, at: int | slice) -> Result | Sequence[Result]:
        if isinstance(at, slice):
            return [self._result(number) for number in self._numbers[at]]
        return self._result(self._numbers[at])

    def names(self) -> list[tuple[str, str]]:
        """The (dimension, value) of each."""
        return [self._slices[number].where for number in self._numbers]

    def undefined(self) -> Sequence[tuple[Mapping[str, str], int]]:
        """Why metrics are undefined, and in how many results each."""
        return self._columns.undefined()

    def rows(self) -> Iterator[SliceRow]:
        """Every slice, in order."""
        window, columns = self.span.name, self._columns
        impressions = columns.heads[:, IMPRESSIONS].tolist()
        for number in self._numbers:
            one, result = self._slices[number], partial(self._result, number)
            yield SliceRow(one.series, window, one.where, impressions[number], columns.reasons(number), result)

    def read(self, but: NDArray[np.int64]) -> dict[int, SliceSums]:
        """The sums of those that were read, but for these."""
        changed = set(but.tolist())
        return {number: sums for number, sums in self._read.copy().items() if number not in changed}

    def make(self, number: int) -> None:
        """Makes the numbers of a slice now, as somebody may ask for them soon; nothing if nothing was counted of it."""
        if self._columns.heads[number, IMPRESSIONS]:
            self._made[number], numbers = self._of(number)
            numbers.make()

    # -- inside --------------------------------------------------------------------------------------------------

    def _result(self, number: int) -> Result:
        if number not in self._made:  # two readers at once make the same
            self._made[number] = self._of(number)[0]
        return self._made[number]

    def _of(self, number: int) -> tuple[Result, SliceNumbers]:
        """A result and what makes its numbers."""
        one, sums = self._slices[number], self._sums(number)
        whole, violations = self.wholes[one.series], sums.head[VIOLATIONS]
        numbers = SliceNumbers(sums, self._layout, self._quantiles, whole, partial(self._last_read.now, number))
        result = Result(
            series=one.series,
            window=self.span.name,
            slice=one.where,
            totals=totals_of(sums.head),
            metrics=MappingWhenRead(numbers.metrics),
            reasons=self._columns.reasons(number),
            buckets=WhenRead(numbers.buckets),
            quantiles=WhenRead(numbers.quantiles),
            scores=ScoreCounts.when_read(numbers.scores),
            corrected=sums.head[CORRECTIONS],
            violations=violations,
            stderrs=MappingWhenRead(numbers.stderrs),
            design_effects=MappingWhenRead(numbers.design_effects),
            stderr_df=None if whole.errors is None else whole.errors.df,
            sampled=whole.sampled,
            recalibrated=(self._layout.options or NO_OPTIONS).sampling.recalibrated(one.series.version),
            **of_span(self.span, violations),
        )
        return result, numbers

    def _sums(self, number: int) -> SliceSums:
        if number not in self._read:
            self._read[number] = SliceSums(self._columns.heads[number].tolist(), self._columns.cells(number))
        return self._read[number]
