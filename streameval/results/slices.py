"""The results of slices. There may be tens of thousands, and readers want few: a look costs what its sums have changed, and
numbers are made when somebody reads them, or at once while somebody does so again and again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.counting.row_sums import RowSums, now
from streameval.counting.slice_rows import SliceRows
from streameval.events.batch import Catalog, Series
from streameval.metrics import registry
from streameval.metrics.operating import first_selected
from streameval.results.result import Result, Span
from streameval.results.slice_columns import CountedSlices, SliceCells, SliceColumns
from streameval.results.slice_numbers import OfAllSlices, SliceSums
from streameval.results.window_slices import LastRead, SummedSlice, WindowSlices
from streameval.sketches.layout import CLICKS, IMPRESSIONS, Layout
from streameval.sketches.sparse import SparseVector

_AT_ONCE = 4096  # slices that are summed over partitions at the same time: some tens of megabytes


@dataclass(slots=True)
class _Seen:
    """A window as of the last look at it."""

    of: Sequence[RowSums]
    columns: SliceColumns
    last_read: LastRead
    at: int = 0  # see `row_sums.now`
    unknown: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))  # not known at the last look
    results: WindowSlices | None = None


class SliceResults:
    """Makes the results of all slices, and keeps them for the next look."""

    def __init__(self, catalog: Catalog, slice_rows: SliceRows, layout: Layout, quantiles: int) -> None:
        self._catalog, self._slice_rows = catalog, slice_rows
        self._layout, self._quantiles = layout, quantiles
        self._shown: list[SummedSlice] = []
        self._rows = np.zeros(0, np.int64)  # of all of them, one after the other
        self._ends = np.zeros(1, np.int64)  # where those of each begin and end
        self._all_series: list[Series] = []
        self._named: tuple[object, ...] = ()  # as of which names that is
        self._seen: dict[str, _Seen] = {}
        self._reasons: dict[int, Mapping[str, str]] = {}  # by kind of what there is

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
        known = {one: number for number, one in enumerate(self._shown)}
        before = np.array([known.get(one, -1) for one in shown], np.int64)
        for seen in self._seen.values():
            seen.columns, seen.last_read = seen.columns.numbered(before), seen.last_read.numbered(before)
            seen.unknown = np.flatnonzero(before < 0)
            seen.results = None
        self._shown, self._all_series = shown, list(dict.fromkeys(one.series for one in shown))
        self._rows = np.array([row for one in shown for row in one.rows], np.int64)
        self._ends = np.cumsum([0, *(len(one.rows) for one in shown)])

    def of_window(self, span: Span, sums: Sequence[RowSums], wholes: Mapping[Series, Result]) -> WindowSlices:
        """The results in one window, by series and slice. `sums`: of every partition, by row; `wholes`: those of all slices
        together, by series.
        """
        at, n = now(), len(self._shown)
        seen = self._seen.get(span.name)
        if seen is None or len(seen.of) != len(sums) or any(a is not b for a, b in zip(seen.of, sums, strict=True)):
            last_read = LastRead.never(n) if seen is None else seen.last_read
            seen = self._seen[span.name] = _Seen(sums, SliceColumns.nothing(n), last_read)
        changed = np.union1d(self._changed(sums, seen.at), seen.unknown)
        if changed.size:
            seen.columns = seen.columns.updated(changed, list(self._counted(changed, sums)))
        seen.at, seen.unknown = at, np.zeros(0, np.int64)
        before = seen.results
        inherited = self._inherited(wholes, {} if before is None else before.wholes)
        if before is not None and not changed.size and before.span == span and before.wholes == inherited:
            return before
        read = {} if before is None else before.read(but=changed)
        seen.results = results = WindowSlices(
            self._shown, seen.columns, span, inherited, seen.last_read, read, self._layout, self._quantiles
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

    def _changed(self, sums: Sequence[RowSums], since: int) -> NDArray[np.int64]:
        """The slices whose sums have changed since, in order."""
        if not self._shown:
            return np.zeros(0, np.int64)
        new = np.zeros(max(int(self._rows.max()) + 1, *(one.rows for one in sums), 0), np.bool_)
        for one in sums:
            new[: one.rows] |= one.last > since
        return np.flatnonzero(np.logical_or.reduceat(new[self._rows], self._ends[:-1]))

    def _counted(self, changed: NDArray[np.int64], sums: Sequence[RowSums]) -> Iterator[CountedSlices]:
        """What is in all partitions' sums of those of these slices that have any impression."""
        for first in range(0, changed.size, _AT_ONCE):
            numbers = changed[first : first + _AT_ONCE]
            begin, end = self._ends[numbers], self._ends[numbers + 1]
            vector = SparseVector.sum([one.gathered(self._rows, begin, end) for one in sums])
            cells = SliceCells.of(vector, numbers.size, self._layout.size)
            heads = cells.heads()
            some = np.flatnonzero(heads[:, IMPRESSIONS])
            if some.size < numbers.size:
                numbers, heads, cells = numbers[some], heads[some], cells.only(some)
            if some.size:
                yield CountedSlices(numbers, heads, cells, *self._why(heads, cells))

    def _why(self, heads: NDArray[np.int64], cells: SliceCells) -> tuple[list[Mapping[str, str]], NDArray[np.int64]]:
        """Why metrics have no value, and which of these reasons are those of each slice. Of our metrics they follow from which
        impressions there are at all; of others, from themselves.
        """
        n, layout = len(heads), self._layout
        if registry.has_others():
            return [self._evaluated(heads[i], cells.one(i)) for i in range(n)], np.arange(n)
        clicks = heads[:, CLICKS]
        selected = _selected(
            cells.vector.cells, cells.ends, layout.size, layout.histogram, layout.bins, first_selected(layout)
        )
        kinds = (clicks == 0) + 2 * (clicks == heads[:, IMPRESSIONS]) + 4 * selected
        found, first, which = np.unique(kinds, return_index=True, return_inverse=True)
        for kind, i in zip(found.tolist(), first.tolist(), strict=True):
            if kind not in self._reasons:
                self._reasons[kind] = self._evaluated(heads[i], cells.one(i))
        return [self._reasons[kind] for kind in found.tolist()], which

    def _evaluated(self, head: NDArray[np.int64], cells: SparseVector) -> Mapping[str, str]:
        return registry.evaluate(SliceSums(head.tolist(), cells).view(self._layout))[1]


@numba.njit(cache=True, nogil=True)
def _selected(
    cells: NDArray[np.int64], ends: NDArray[np.int64], row_cells: int, histogram: int, bins: int, lowest: int
) -> NDArray[np.bool_]:
    """Whether a bin from `lowest` on is among the cells of row i, from ends[i] to ends[i + 1]."""
    out = np.zeros(ends.size - 1, np.bool_)
    for i in range(out.size):
        first = i * row_cells + histogram
        for cell in cells[ends[i] : ends[i + 1]]:
            out[i] |= cell >= first and (cell - first) % bins >= lowest
    return out
