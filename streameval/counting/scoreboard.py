"""Where scored, labelled impressions are counted: panes overall and by slice, and users. One per partition.

Everything goes in by `observe` with sign +1 and comes out again, bit by bit, with sign -1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.columns import Scored
from streameval.counting.measured import Measured
from streameval.counting.references import References
from streameval.counting.users import Users
from streameval.counting.windows import Panes, Window
from streameval.events import RETIRED, Catalog, Codes
from streameval.sketches.accumulate import Scratch, add_scores
from streameval.sketches.layout import Layout
from streameval.sketches.ranks import Weighting

# Resolution of the score histograms: bins per octave = 2**bits; docs/metrics.md has the table of bins against error.
OVERALL_BITS = 10
SLICE_BITS = 7
# Panes kept when nobody forgets them (a replay, or event times scattered over centuries between two snapshots): about
# 4 kB each at the least. Three months of minutes; never fewer than four of the longest windows.
MOST_PANES = 1 << 17


_ONE = np.zeros(1, np.int32)


@dataclass(frozen=True, slots=True)
class Labelled:
    """n impressions whose label is known now: columns."""

    ts: NDArray[np.int64]
    user: NDArray[np.uint64]
    slices: NDArray[np.int64]
    label: NDArray[np.int8]
    corrected: NDArray[np.bool_]
    value: NDArray[np.float64] | None  # only for GAUC weighted by value
    fresh: NDArray[np.bool_]  # on time, and counted for the first time
    item: NDArray[np.int8] | None = None  # the item's block, see `sketches.blocks`; None: not known of any


@numba.njit(cache=True, nogil=True, error_model="numpy")
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
    by, radix = np.uint64(divisor), np.uint64(table.shape[1])
    for i in range(series.size):
        value = np.int64((np.uint64(slices[row[i]]) // by) % radix)  # unsigned: half the time
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

    def adopt(self, rows: Sequence[tuple[int, int, int, int]], codes: Codes) -> NDArray[np.int64]:
        """What the rows that `known` gave in another process are called here, by their number there."""
        mapping = np.zeros(max((row for row, *_ in rows), default=-1) + 1, np.int64)
        for row, series, dimension, value in sorted(rows):
            here = Scored((0, 1), _ONE, codes.series[[series]], np.zeros(1), np.zeros(1, np.bool_))
            combined = codes.values[dimension][[value]] * self._catalog.radix**dimension
            mapping[row] = self.rows(dimension, here, combined)[0]
        return mapping

    def of(self, series: int) -> list[int]:
        """The rows of one series; they stay those of its code."""
        if series >= self._table.shape[1]:
            return []
        mine = self._table[:, series]
        return [int(row) for row in mine[mine >= 0]]

    def known(self) -> list[tuple[int, int, int, int]]:
        """(row, series, dimension, value code) of every row given out, by series, dimension and value."""
        dimension, series, value = np.nonzero(self._table >= 0)
        row = self._table[dimension, series, value]
        found = zip(row.tolist(), series.tolist(), dimension.tolist(), value.tolist(), strict=True)
        return sorted((f for f in found if self._catalog.series[f[1]] != RETIRED), key=lambda f: f[1:])


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
        horizon: int,
    ) -> None:
        """`pane` and `horizon` (of corrections) in ms, `windows` in panes, `users_budget` in bytes."""
        self.pane = pane
        self.weighting = weighting
        self.overall_layout = Layout(OVERALL_BITS, edges, by_block=True)
        self.slice_layout = Layout(SLICE_BITS, edges)
        self.overall = Panes(self.overall_layout.size)
        self.slices = Panes(self.slice_layout.size)
        self.overall_windows: list[Window] = [self.overall.window(length) for length in windows]
        self.slice_windows: list[Window] = [self.slices.window(length) for length in windows]
        self.users = Users(windows, weighting, users_budget)
        self.references = References(pane, horizon)
        self.scratch = Scratch(self.overall_layout)
        self._slice_scratch = Scratch(self.slice_layout)
        self._slice_rows = slice_rows
        self._dimensions = dimensions
        self._most_panes = max(MOST_PANES, 4 * max(windows, default=0))

    def observe(
        self,
        labelled: Labelled,
        scored: Scored,
        sign: int = 1,
        measured: Measured | None = None,
        placed: bool = True,
    ) -> None:
        """Adds (or with sign -1 takes out) the scores of labelled impressions, which are in order of time.

        `measured`: what `measured` gives of them, if the caller has it. `placed`: their pane's curves are known, as those
        of earlier panes are mature; if not, standard errors of AUCs go without them.
        """
        if not scored.series.size:
            return
        k = scored.series.size
        slot = self.users.slots(labelled.user)
        known = measured or self.measured(labelled, scored)
        self.references.reserve(int(scored.series.max()) + 1)
        slice_row = np.empty((self._dimensions, k), np.int32)
        for dimension in range(self._dimensions):
            slice_row[dimension] = self._slice_rows.rows(dimension, scored, labelled.slices)
        self.scratch.reserve(int(scored.series.max()) + 1, k)
        self._slice_scratch.reserve(self._slice_rows.count, k * self._dimensions)
        for j, number in enumerate(known.panes):
            if labelled.fresh[known.first[j] : known.first[j + 1]].any():
                self.references.begin(number)
            curves = self.references.at(number) if placed else self.references.none
            for cut in known.cuts:
                part = slice(int(cut[j]), int(cut[j + 1]))
                entries, exact = add_scores(
                    self.scratch, self._slice_scratch, scored.p[part], known.loss[part], known.bin[part],
                    scored.row[part], scored.series[part], slice_row[:, part], scored.violation[part], labelled.label,
                    labelled.corrected, slot, known.block, labelled.fresh, curves.curve, curves.ready,
                    self.references.counting, sign,
                )  # fmt: skip
                value = None if labelled.value is None else labelled.value[scored.row[part]]
                self._rank(number, scored.series[part], entries, exact, value, sign)
            self.overall.add(number, self.scratch.drain())
            if self._dimensions:
                self.slices.add(number, self._slice_scratch.drain())
        self.users.fit_budget()
        if len(self.overall) > self._most_panes:
            self.forget_before(self.overall.numbers()[self._most_panes // 2])

    def measured(self, labelled: Labelled, scored: Scored) -> Measured:
        """What this board and its ledger need to know of the scores."""
        return Measured.of(labelled.ts, labelled.user, labelled.label, scored, self.pane)

    def add_cells(
        self, pane: int, series: NDArray[np.int32], cells: NDArray[np.int64], values: NDArray[np.int64]
    ) -> None:
        """Adds `values[i]` to cell `cells[i]` (a count or a limb) of overall series `series[i]` in a pane."""
        self.scratch.reserve(int(series.max()) + 1, 0)
        for row, cell, value in zip(series.tolist(), cells.tolist(), values.tolist(), strict=True):
            self.scratch.add_cell(row, cell, value)
        self.overall.add(pane, self.scratch.drain())

    def retire(self, series: int) -> None:
        """Forgets a series that no pane in memory holds (see `Panes.rows`); its code may be given to another."""
        self.overall.clear(series)
        for row in self._slice_rows.of(series):
            self.slices.clear(row)
        self.users.clear(series)
        self.references.clear(series)

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

    def state(self) -> dict[str, Any]:
        """Everything that was counted, for `restore`."""
        return {
            "overall": self.overall.state(),
            "slices": self.slices.state(),
            "users": self.users.state(),
            "references": self.references.state(),
        }

    def restore(self, state: Mapping[str, Any], codes: Codes, slice_rows: NDArray[np.int64]) -> None:
        """Takes over what `state` gave; `slice_rows[r]` is what row r of the slices is called here."""
        self.overall.restore(state["overall"], codes.series.astype(np.int64))
        self.slices.restore(state["slices"], slice_rows)
        self.users.restore(state["users"], codes.series)
        self.references.restore(state["references"], codes.series)

    def _rank(
        self,
        pane: int,
        series: NDArray[np.int32],
        entries: NDArray[np.uint64],
        exact: NDArray[np.uint64],
        value: NDArray[np.float64] | None,
        sign: int,
    ) -> None:
        """Gives rank entries to the users, each series its own."""
        if not series.size:
            return
        if bool((series == series[0]).all()):
            self.users.add(pane, int(series[0]), entries, exact, value, sign)
            return
        for one in np.unique(series).tolist():
            on = series == one
            self.users.add(pane, one, entries[on], exact[on], None if value is None else value[on], sign)
