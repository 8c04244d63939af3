"""The results of slices. There may be tens of thousands, and readers want few: a look costs what its sums have changed, and
numbers are made when somebody reads them, or at once while somebody does so again and again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.counting.row_sums import RowSums, gathered, now
from streameval.counting.slice_rows import SliceRows
from streameval.events.batch import Catalog, Series
from streameval.metrics import registry
from streameval.metrics.operating import first_selected
from streameval.results.result import Result, Span
from streameval.results.slice_numbers import OfAllSlices, SliceSums
from streameval.results.window_slices import LastRead, SummedSlice, WindowSlices
from streameval.sketches.layout import BUCKETS, CLICKS, IMPRESSIONS, Layout
from streameval.sketches.sparse import SparseVector

_AT_ONCE = 256  # slices that are summed over partitions at the same time: some megabytes


class _Reasons:
    """Why metrics are undefined, and in how many slices each: few have reasons of their own."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[Mapping[str, str], int]] = {}

    def add(self, reasons: Mapping[str, str], n: int) -> None:
        """So many more, or fewer."""
        count = self._of.get(id(reasons), (reasons, 0))[1] + n
        self._of[id(reasons)] = reasons, count
        if not count:
            del self._of[id(reasons)]

    def counts(self) -> tuple[tuple[Mapping[str, str], int], ...]:
        """As they are now."""
        return tuple(self._of.values())


@dataclass(slots=True)
class _Seen:
    """A window as of the last look at it."""

    of: Sequence[RowSums]
    counted: list[SliceSums | None]  # by `SummedSlice`; None: nothing was counted
    last_read: LastRead
    at: int = 0  # see `row_sums.now`
    reasons: _Reasons = field(default_factory=_Reasons)
    unknown: list[int] = field(default_factory=list)  # of which the last look knew nothing
    results: WindowSlices | None = None

    def count(self, number: int, sums: SliceSums | None) -> None:
        """What was counted of one."""
        for one, n in ((self.counted[number], -1), (sums, +1)):
            if one is not None:
                self.reasons.add(one.reasons, n)
        self.counted[number] = sums


class SliceResults:
    """Makes the results of all slices, and keeps them for the next look."""

    def __init__(self, catalog: Catalog, slice_rows: SliceRows, layout: Layout, quantiles: int) -> None:
        self._catalog, self._slice_rows = catalog, slice_rows
        self._layout, self._quantiles = layout, quantiles
        self._shown: list[SummedSlice] = []
        self._first = np.zeros(0, np.int64)  # the first row of every one of them
        self._several: list[int] = []  # those of several rows
        self._all_series: list[Series] = []
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
            known = {one: number for number, one in enumerate(self._shown)}
            before, seen.counted = seen.counted, [None] * len(shown)
            seen.reasons = _Reasons()
            seen.last_read = seen.last_read.of([known.get(one, -1) for one in shown])
            for number, one in enumerate(shown):
                if one in known:
                    seen.count(number, before[known[one]])
            seen.unknown = [number for number, one in enumerate(shown) if one not in known]
            seen.results = None
        self._shown, self._all_series = shown, list(dict.fromkeys(one.series for one in shown))
        self._first = np.array([one.rows[0] for one in shown], np.int64)
        self._several = [at for at, one in enumerate(shown) if len(one.rows) > 1]

    def of_window(self, span: Span, sums: Sequence[RowSums], wholes: Mapping[Series, Result]) -> WindowSlices:
        """The results in one window, by series and slice. `sums`: of every partition, by row; `wholes`: those of all slices
        together, by series.
        """
        at = now()
        seen = self._seen.get(span.name)
        if seen is None or len(seen.of) != len(sums) or any(a is not b for a, b in zip(seen.of, sums, strict=True)):
            n = len(self._shown)
            last_read = LastRead(np.full(n, -np.inf)) if seen is None else seen.last_read
            seen = self._seen[span.name] = _Seen(sums, [None] * n, last_read)
        changed = {*self._changed(sums, seen.at), *seen.unknown}
        found = dict(self._rows(sorted(changed), sums))
        for number in changed:
            seen.count(number, found.get(number))
        seen.at, seen.unknown = at, []
        before = seen.results
        inherited = self._inherited(wholes, {} if before is None else before.wholes)
        if before is not None and not changed and before.span == span and before.wholes == inherited:
            return before
        counted, reasons = tuple(seen.counted), seen.reasons.counts()
        seen.results = results = WindowSlices(
            self._shown, counted, span, inherited, seen.last_read, reasons, self._layout, self._quantiles
        )
        for number in seen.last_read.lately():
            results.make(number)
        return results

    # -- inside --------------------------------------------------------------------------------------------------

    def _inherited(
        self, wholes: Mapping[Series, Result], before: Mapping[Series, OfAllSlices]
    ) -> dict[Series, OfAllSlices]:
        """By series; what is as it was `before` is the same object."""
        out = {}
        for series in self._all_series:
            now_, was = OfAllSlices.of(wholes.get(series)), before.get(series)
            out[series] = now_ if was is None or was != now_ else was
        return out

    def _show(self, run: Sequence[RowSums]) -> list[SummedSlice]:
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
            SummedSlice(
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

    def _rows(self, numbers: Sequence[int], sums: Sequence[RowSums]) -> Iterator[tuple[int, SliceSums]]:
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
                    yield number, self._counted(heads[i], vector, has_selected[i])

    def _counted(self, head: list[int], vector: SparseVector, has_selected: bool) -> SliceSums:
        """With the reasons why metrics have no value. Of ours they follow from which impressions there are at all; of others,
        from themselves.
        """
        sums = SliceSums(head, vector, {})
        if registry.has_others():
            sums.metrics, sums.reasons = registry.evaluate(sums.view(self._layout))
            return sums
        kind = head[CLICKS] == 0, head[CLICKS] == head[IMPRESSIONS], has_selected
        if kind not in self._reasons:
            self._reasons[kind] = registry.evaluate(sums.view(self._layout))[1]
        sums.reasons = self._reasons[kind]
        return sums


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
