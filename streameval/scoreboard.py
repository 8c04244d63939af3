"""Where scored, labelled impressions are counted: panes overall and by slice, and users. One per partition.

Everything goes in by `observe` with sign +1 and comes out again, bit by bit, with sign -1.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.columns import Scored
from streameval.events import Catalog
from streameval.sketches.accumulate import Scratch
from streameval.sketches.grid import score_keys
from streameval.sketches.layout import Layout
from streameval.sketches.ranks import Weighting
from streameval.users import Users
from streameval.windows import Panes, Window

# Resolution of the score histograms: bins per octave = 2**bits; docs/metrics.md has the table of bins against error.
OVERALL_BITS = 10
SLICE_BITS = 7


@dataclass(frozen=True, slots=True)
class Labelled:
    """n impressions whose label is known now: columns."""

    ts: NDArray[np.int64]
    user: NDArray[np.uint64]
    slices: NDArray[np.int64]
    label: NDArray[np.int8]
    corrected: NDArray[np.bool_]
    value: NDArray[np.float64] | None  # only for GAUC weighted by value


@numba.njit(cache=True, nogil=True)
def _slice_rows(
    table: NDArray[np.int32],
    next_row: int,
    series: NDArray[np.int32],
    row: NDArray[np.int32],
    slices: NDArray[np.int64],
    divisor: int,
    out: NDArray[np.int32],
) -> int:
    """Numbers (series, value) pairs of one dimension, giving new ones the next numbers."""
    radix = table.shape[1]
    for i in range(series.size):
        value = (slices[row[i]] // divisor) % radix
        known = table[series[i], value]
        if known < 0:
            known = np.int32(next_row)
            table[series[i], value] = known
            next_row += 1
        out[i] = known
    return next_row


class SliceRows:
    """Row numbers of (series, dimension, value), the same in every partition of the process."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._table = np.full((len(catalog.dimensions), 0, catalog.radix), -1, np.int32)
        self.count = 0

    def rows(self, dimension: int, scored: Scored, slices: NDArray[np.int64]) -> NDArray[np.int32]:
        """The row of every score in one dimension."""
        have = self._table.shape[1]
        if len(self._catalog.series) > have:
            more = np.full((self._table.shape[0], len(self._catalog.series) - have, self._catalog.radix), -1, np.int32)
            self._table = np.concatenate((self._table, more), axis=1)
        out = np.empty(scored.series.size, np.int32)
        divisor = self._catalog.radix**dimension
        self.count = _slice_rows(self._table[dimension], self.count, scored.series, scored.row, slices, divisor, out)
        return out

    def known(self) -> list[tuple[int, int, int, int]]:
        """(row, series, dimension, value code) of every row given out, by series, dimension and value."""
        dimension, series, value = np.nonzero(self._table >= 0)
        row = self._table[dimension, series, value]
        found = zip(row.tolist(), series.tolist(), dimension.tolist(), value.tolist(), strict=True)
        return sorted(found, key=lambda f: f[1:])


class Scoreboard:
    """The panes, windows and users of one partition."""

    def __init__(
        self,
        slice_rows: SliceRows,
        dimensions: int,
        edges: tuple[float, ...],
        pane: int,
        windows: list[int],
        weighting: Weighting,
        users_budget: int,
    ) -> None:
        """`pane` in ms, `windows` in panes, `users_budget` in bytes."""
        self.pane = pane
        self.weighting = weighting
        self.overall_layout = Layout(OVERALL_BITS, edges)
        self.slice_layout = Layout(SLICE_BITS, edges)
        self.overall = Panes(self.overall_layout.size)
        self.slices = Panes(self.slice_layout.size)
        self.overall_windows: list[Window] = [self.overall.window(length) for length in windows]
        self.slice_windows: list[Window] = [self.slices.window(length) for length in windows]
        self.users = Users(windows, weighting, users_budget)
        self.scratch = Scratch(self.overall_layout)
        self._slice_scratch = Scratch(self.slice_layout)
        self._slice_rows = slice_rows
        self._dimensions = dimensions

    def observe(self, labelled: Labelled, scored: Scored, sign: int = 1) -> None:
        """Adds (or with sign -1 takes out) the scores of labelled impressions."""
        if not scored.series.size:
            return
        panes = labelled.ts // self.pane
        slot = self.users.slots(labelled.user)
        if panes[0] == panes[-1] and bool((panes == panes[0]).all()):
            self._observe_pane(int(panes[0]), labelled, slot, scored, sign)
            return
        of_score = panes[scored.row]
        order = np.argsort(of_score, kind="stable")
        bounds = np.flatnonzero(np.concatenate(([True], of_score[order][1:] != of_score[order][:-1], [True])))
        for begin, end in pairwise(bounds.tolist()):
            part = order[begin:end]
            some = Scored(scored.row[part], scored.series[part], scored.p[part], scored.violation[part])
            self._observe_pane(int(of_score[part[0]]), labelled, slot, some, sign)

    def add_cells(
        self, pane: int, series: NDArray[np.int32], cells: NDArray[np.int64], values: NDArray[np.int64]
    ) -> None:
        """Adds `values[i]` to cell `cells[i]` (a count or a limb) of overall series `series[i]` in a pane."""
        self.scratch.grow(int(series.max()) + 1)
        for row, cell, value in zip(series.tolist(), cells.tolist(), values.tolist(), strict=True):
            self.scratch.add_cell(row, cell, value)
        self.overall.add(pane, self.scratch.drain())

    def forget_before(self, pane: int) -> None:
        """Lets go of old panes."""
        self.overall.forget_before(pane)
        self.slices.forget_before(pane)
        self.users.forget_before(pane)

    @property
    def nbytes(self) -> int:
        """Bytes of the panes and windows, users apart."""
        scratch = self.scratch.matrix.nbytes + self._slice_scratch.matrix.nbytes
        return self.overall.nbytes + self.slices.nbytes + scratch

    def _observe_pane(self, pane: int, labelled: Labelled, slot: NDArray[np.int32], scored: Scored, sign: int) -> None:
        label = labelled.label[scored.row]
        corrected = labelled.corrected[scored.row]
        self.scratch.grow(int(scored.series.max()) + 1)
        self.scratch.add(scored.series, scored.p, label, corrected, scored.violation, sign)
        self.overall.add(pane, self.scratch.drain())
        if self._dimensions:
            for dimension in range(self._dimensions):
                rows = self._slice_rows.rows(dimension, scored, labelled.slices)
                self._slice_scratch.grow(self._slice_rows.count)
                self._slice_scratch.add(rows, scored.p, label, corrected, scored.violation, sign)
            self.slices.add(pane, self._slice_scratch.drain())
        key = score_keys(scored.p)
        value = None if labelled.value is None else labelled.value[scored.row]
        slots = slot[scored.row]
        first = int(scored.series[0])
        if bool((scored.series == first).all()):
            self.users.add(pane, first, slots, key, label, value, sign)
            return
        for series in np.unique(scored.series).tolist():
            on = scored.series == series
            self.users.add(pane, series, slots[on], key[on], label[on], None if value is None else value[on], sign)
