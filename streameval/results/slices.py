"""The results of slices. There may be tens of thousands, and readers want few: a look costs what its sums have changed, and
numbers are made when somebody reads them, or at once while somebody does so again and again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.counting.row_sums import RowSums, gathered, now
from streameval.counting.slice_rows import SliceRows
from streameval.events.batch import Catalog, Series
from streameval.metrics import registry
from streameval.metrics.operating import first_selected
from streameval.metrics.tables import ScoreCounts
from streameval.metrics.when_read import MappingWhenRead, WhenRead
from streameval.results.result import Result, Span, Totals, of_span, totals_of
from streameval.results.slice_numbers import OfAllSlices, SliceNumbers
from streameval.sketches.layout import BUCKETS, CORRECTIONS, IMPRESSIONS, NO_OPTIONS, VIOLATIONS, Layout
from streameval.sketches.sparse import SparseVector

_AT_ONCE = 256  # slices that are summed over partitions at the same time: some megabytes


class _Shown(NamedTuple):
    """A slice of a series, and the rows whose sum it is."""

    series: Series
    where: tuple[str, str]
    rows: tuple[int, ...]


class _Sums(NamedTuple):
    """What was counted of a slice: the first `BUCKETS` cells, all that are not 0, and whether any score is selected."""

    head: list[int]
    vector: SparseVector
    has_selected: bool


class _Made(NamedTuple):
    result: Result
    numbers: SliceNumbers


@dataclass(slots=True)
class _Seen:
    """A window as of the last look at it."""

    of: Sequence[RowSums]
    at: int  # see `row_sums.now`
    span: Span
    wholes: dict[Series, OfAllSlices]
    slices: list[_Made | None]  # by `_Shown`; None: nothing was counted
    unknown: list[int] = field(default_factory=list)  # of which the last look knew nothing


class SliceResults:
    """Makes the results of all slices, and keeps them for the next look."""

    def __init__(self, catalog: Catalog, slice_rows: SliceRows, layout: Layout, quantiles: int) -> None:
        self._catalog, self._slice_rows = catalog, slice_rows
        self._layout, self._quantiles = layout, quantiles
        self._shown: list[_Shown] = []
        self._first = np.zeros(0, np.int64)  # the first row of every one of them
        self._several: list[int] = []  # those of several rows
        self._by_series: dict[Series, list[int]] = {}
        self._named: tuple[object, ...] = ()  # as of which names that is
        self._seen: dict[str, _Seen] = {}
        self._reasons: dict[tuple[bool, bool, bool], Mapping[str, str]] = {}

    def begin(self, run: Sequence[RowSums]) -> None:
        """Begins a look; `run`: every partition's sums over the whole run, by row, which decide what is shown."""
        values = self._catalog.values
        crowded = any(len(names) - 2 > self._catalog.max_values for names in values)
        named = (self._slice_rows.count, self._catalog.changes, tuple(map(len, values)))
        if named == self._named and not crowded:
            return
        shown = self._show(run)
        self._named = named
        if shown == self._shown:
            return
        for seen in self._seen.values():
            known = dict(zip(self._shown, seen.slices, strict=True))
            seen.slices = [known.get(one) for one in shown]
            seen.unknown = [at for at, one in enumerate(shown) if one not in known]
        self._shown, self._by_series = shown, {}
        self._first = np.array([one.rows[0] for one in shown], np.int64)
        self._several = [at for at, one in enumerate(shown) if len(one.rows) > 1]
        for at, one in enumerate(shown):
            self._by_series.setdefault(one.series, []).append(at)

    def of_window(self, span: Span, sums: Sequence[RowSums], wholes: Mapping[Series, Result]) -> list[Result]:
        """The results in one window, by series and slice. `sums`: of every partition, by row; `wholes`: those of all slices
        together, by series.
        """
        at = now()
        inherited = {series: OfAllSlices.of(wholes.get(series)) for series in self._by_series}
        seen = self._seen.get(span.name)
        if seen is None or len(seen.of) != len(sums) or any(a is not b for a, b in zip(seen.of, sums, strict=True)):
            seen = self._seen[span.name] = _Seen(sums, 0, span, inherited, [None] * len(self._shown))
        changed = {*self._changed(sums, seen.at), *seen.unknown}
        before = {number: seen.slices[number] for number in changed}
        for number in changed:
            seen.slices[number] = None
        for number, found in self._rows(sorted(changed), sums):
            one = self._shown[number]
            seen.slices[number] = self._made(one, found, span, inherited[one.series], before[number])
        self._take_over(seen, span, inherited, changed)
        seen.at, seen.span, seen.wholes, seen.unknown = at, span, inherited, []
        return [one.result for one in seen.slices if one is not None]

    # -- inside --------------------------------------------------------------------------------------------------

    def _show(self, run: Sequence[RowSums]) -> list[_Shown]:
        """Of a dimension with more than `max_values` those with most impressions, then by name: what was counted of the
        others is in `__other__`. So it does not matter in which order values came, nor from which partition.
        """
        known = self._slice_rows.known()
        counted = [one.column(IMPRESSIONS) for one in run]
        shown: list[set[int]] = []
        for dimension, names in enumerate(self._catalog.values):
            size = dict.fromkeys(range(2, len(names)), 0)
            if len(size) > self._catalog.max_values:
                for number, _, of, value in known:
                    if of == dimension and value in size:
                        size[value] += sum(int(some[number]) for some in counted if number < some.size)
            order = sorted(size, key=lambda value: (-size[value], names[value]))
            shown.append({0, 1, *order[: self._catalog.max_values]})
        rows: dict[tuple[int, int, int], list[int]] = {}
        for number, code, dimension, value in known:
            rows.setdefault((code, dimension, value if value in shown[dimension] else 1), []).append(number)
        found = [
            _Shown(
                self._catalog.series[code], (self._catalog.dimensions[of], self._catalog.values[of][value]), (*some,)
            )
            for (code, of, value), some in rows.items()
        ]
        # by name, not by code: codes come in order of arrival, and the report must not depend on that
        return sorted(found)

    def _changed(self, sums: Sequence[RowSums], since: int) -> list[int]:
        """The slices whose sums have changed since."""
        rows = max((one.rows for one in sums), default=0)
        new = np.zeros(max(rows, int(self._first.max(initial=-1)) + 1), np.bool_)
        for one in sums:
            new[: one.rows] |= one.last > since
        found = new[self._first]
        for number in self._several:
            found[number] = any(row < new.size and new[row] for row in self._shown[number].rows)
        return np.flatnonzero(found).tolist()

    def _rows(self, numbers: Sequence[int], sums: Sequence[RowSums]) -> Iterator[tuple[int, _Sums]]:
        """(number, its sums over all partitions) of those of these slices that have any impression."""
        layout = self._layout
        for first in range(0, len(numbers), _AT_ONCE):
            some = numbers[first : first + _AT_ONCE]
            parts = [self._shown[number].rows for number in some]
            into = np.repeat(np.arange(len(some)), [len(rows) for rows in parts])
            together = gathered(sums, np.concatenate(parts), into, len(some))
            heads = np.stack([together.column(cell) for cell in range(BUCKETS)], axis=1).tolist()
            whole = together.vector()
            ends = np.searchsorted(whole.cells, np.arange(len(some) + 1) * layout.size)
            at = whole.cells - np.repeat(np.arange(len(some)) * layout.size, np.diff(ends))
            has_selected = _selected(at, ends, layout.histogram, layout.bins, first_selected(layout)).tolist()
            for i, number in enumerate(some):
                if heads[i][IMPRESSIONS]:
                    # copies: what is kept of one slice must not keep that of the others
                    mine = slice(ends[i], ends[i + 1])
                    vector = SparseVector(at[mine].copy(), whole.values[mine].copy())
                    yield number, _Sums(heads[i], vector, has_selected[i])

    def _made(self, one: _Shown, sums: _Sums, span: Span, whole: OfAllSlices, before: _Made | None = None) -> _Made:
        totals, violations = totals_of(sums.head), sums.head[VIOLATIONS]
        known = None if before is None else before.numbers
        numbers = SliceNumbers(sums.vector, self._layout, self._quantiles, whole, known)
        result = Result(
            series=one.series,
            window=span.name,
            slice=one.where,
            totals=totals,
            metrics=MappingWhenRead(numbers.metrics),
            reasons=self._reasons_of(numbers, totals, sums.has_selected),
            buckets=WhenRead(numbers.buckets),
            quantiles=WhenRead(numbers.quantiles),
            scores=ScoreCounts.when_read(numbers.scores),
            corrected=sums.head[CORRECTIONS],
            violations=violations,
            recalibrated=(self._layout.options or NO_OPTIONS).sampling.recalibrated(one.series.version),
            **of_span(span, violations),
            **numbers.inherited(),
        )
        return _Made(result, numbers)

    def _take_over(
        self, seen: _Seen, span: Span, inherited: Mapping[Series, OfAllSlices], made: Collection[int]
    ) -> None:
        """Of slices whose sums have not changed: what follows from the window, and from all slices together."""
        for series, numbers in self._by_series.items():
            whole = inherited[series]
            is_same = seen.wholes.get(series) == whole
            if is_same and seen.span == span:
                continue
            for number in numbers:
                one = seen.slices[number]
                if one is None or number in made:
                    continue
                more = of_span(span, one.result.violations)
                known = one.numbers
                if not is_same:
                    known = SliceNumbers(known.sums, self._layout, self._quantiles, whole, known)
                    more |= known.inherited()
                seen.slices[number] = _Made(replace(one.result, **more), known)

    def _reasons_of(self, numbers: SliceNumbers, totals: Totals, has_selected: bool) -> Mapping[str, str]:
        """Why metrics have no value. Of ours that follows from which impressions there are at all; of others, from themselves."""
        if registry.has_others():
            return registry.evaluate(numbers.view())[1]
        kind = totals.clicks == 0, totals.clicks == totals.impressions, has_selected
        if kind not in self._reasons:
            self._reasons[kind] = registry.evaluate(numbers.view())[1]
        return self._reasons[kind]


@numba.njit(cache=True, nogil=True)
def _selected(
    cells: NDArray[np.int64], ends: NDArray[np.int64], histogram: int, bins: int, lowest: int
) -> NDArray[np.bool_]:
    """Whether a bin from `lowest` on is among the cells from ends[i] to ends[i + 1]."""
    out = np.zeros(ends.size - 1, np.bool_)
    for i in range(out.size):
        for cell in cells[ends[i] : ends[i + 1]]:
            out[i] |= cell >= histogram and (cell - histogram) % bins >= lowest
    return out
