"""Where scored, labelled impressions are counted: panes overall and by slice, and users. One per partition.

`observe` adds with sign +1, and subtracts exactly what was added with sign -1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.counting.estimates import LOGGED
from streameval.counting.exposure import ExposureCounts, Weighing
from streameval.counting.measured import Measured
from streameval.counting.propensity_strata import PropensityCounts
from streameval.counting.references import Curves, References
from streameval.counting.users import Users
from streameval.counting.windows import Panes, Window
from streameval.events.batch import RETIRED, Catalog, Codes
from streameval.events.columns import Scored, ScoreList
from streameval.sketches.accumulate import LabelColumns, PlacementCurves, ScoreColumns, Scratch, add_scores
from streameval.sketches.blocks import BLOCKS
from streameval.sketches.copies import Copies
from streameval.sketches.exposure import DEFAULT_RULE, WeightRule
from streameval.sketches.layout import Options
from streameval.sketches.list_cells import averages_of
from streameval.sketches.ranks import Weighting
from streameval.sketches.sparse import SparseVector
from streameval.sketches.tally import PaneSums
from streameval.sketches.yield_cells import IMPRESSIONS_SERVED, VALUES, add_worth

# The number of panes kept if none are forgotten (in a replay, or with event times scattered over centuries between two
# snapshots): each takes about 4 kB or more. Three months of minutes; at least four of the longest windows.
_MOST_PANES = 1 << 17


_ONE = np.zeros(1, np.int32)


@dataclass(frozen=True, slots=True)
class Labelled:
    """n impressions whose label is known now: columns."""

    ts: NDArray[np.int64]
    user: NDArray[np.uint64]
    slices: NDArray[np.int64]
    label: NDArray[np.int8]
    corrected: NDArray[np.bool_]
    fields: Mapping[str, NDArray[np.float64]]  # numeric fields that rows keep, see `events.fields.needed`
    fresh: NDArray[np.bool_]  # on time, and counted for the first time
    item: NDArray[np.int8] | None = None  # the item's block, see `sketches.blocks`; None: no item is known
    policies: ScoreList | None = None  # probabilities by version, by ascending row; None: there are none
    copies: Copies | None = None  # weights, if the log is a sample; None: each counts once

    def times(self, sign: int) -> NDArray[np.int64]:
        """Returns how often they count, int64[n], negative if they are subtracted."""
        return np.full(self.ts.size, sign, np.int64) if self.copies is None else self.copies.now * sign


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
    """Numbers (series, value) pairs of one dimension; new ones get the next numbers."""
    by, radix = np.uint64(divisor), np.uint64(table.shape[1])
    for i in range(series.size):
        value = np.int64((np.uint64(slices[row[i]]) // by) % radix)  # unsigned: takes half the time
        known = table[series[i], value]
        if known < 0:
            known = np.int32(next_row)
            table[series[i], value] = known
            next_row += 1
        out[i] = known
    return next_row


class _Layer(NamedTuple):
    """Scores of some impressions, with one kind of label."""

    scored: Scored
    measured: Measured
    slice_row: NDArray[np.int32]  # [dimensions, scores]
    labels: LabelColumns
    value: NDArray[np.float64] | None  # values of the impressions' clicks, if they are counted
    weighed: bool  # the log is a sample


class SliceRows:
    """Row numbers of (series, dimension, value), the same in every partition of the process."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._table = np.full((len(catalog.dimensions), 0, catalog.radix), -1, np.int32)
        self.count = 0

    def rows(self, dimension: int, scored: Scored, slices: NDArray[np.int64]) -> NDArray[np.int32]:
        """Returns the row of every score in one dimension."""
        have = self._table.shape[1]
        if len(self._catalog.series) > have:
            more = np.full((self._table.shape[0], len(self._catalog.series) - have, self._catalog.radix), -1, np.int32)
            self._table = np.concatenate((self._table, more), axis=1)
        out = np.empty(scored.series.size, np.int32)
        divisor = self._catalog.radix**dimension
        self.count = _slice_rows(self._table[dimension], self.count, scored.series, scored.row, slices, divisor, out)
        return out

    def adopt(self, rows: Sequence[tuple[int, int, int, int]], codes: Codes) -> NDArray[np.int64]:
        """Returns this process's row numbers of the rows that `known` returned in another process, by their numbers
        there.
        """
        mapping = np.zeros(max((row for row, *_ in rows), default=-1) + 1, np.int64)
        for row, series, dimension, value in sorted(rows):
            here = Scored((0, 1), _ONE, codes.series[[series]], np.zeros(1), np.zeros(1, np.bool_))
            combined = codes.values[dimension][[value]] * self._catalog.radix**dimension
            mapping[row] = self.rows(dimension, here, combined)[0]
        return mapping

    def of(self, series: int) -> list[int]:
        """Returns the rows of one series; they stay with its code."""
        if series >= self._table.shape[1]:
            return []
        mine = self._table[:, series]
        return [int(row) for row in mine[mine >= 0]]

    def known(self) -> list[tuple[int, int, int, int]]:
        """Returns (row, series, dimension, value code) of every row in use, by series, dimension and value."""
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
        options: Options,
        pane: int,
        windows: list[int],
        weighting: Weighting,
        users_budget: int,
        horizon: int,
        weights: WeightRule = DEFAULT_RULE,
        weigh_by: str = LOGGED,
        strata_by: str = LOGGED,
        values: bool = False,
        weighed: bool = False,
    ) -> None:
        """`pane` and `horizon` (of corrections) in ms, `windows` in panes, `users_budget` in bytes; `weigh_by` and
        `strata_by`: fields with the propensities used for weights, and for strata.

        `values`: the values of clicks are counted, and kept by user; weighting "value" needs that anyway; `weighed`:
        the log is a sample, whose impressions have `Labelled.copies`.
        """
        self.pane = pane
        self.weighting = weighting
        self.values = values or weighting == "value"
        self.mainline = options.mainline
        self.overall_layout = options.overall
        self.slice_layout = options.slice
        self.overall = Panes(self.overall_layout.size)
        self.slices = Panes(self.slice_layout.size)
        self.overall_windows: list[Window] = [self.overall.window(length) for length in windows]
        self.slice_windows: list[Window] = [self.slices.window(length) for length in windows]
        averages = averages_of(options.by_user, options.k, options.gain)
        self.users = Users(windows, weighting, users_budget, averages=averages, values=self.values, weighed=weighed)
        self.references = References(pane, horizon)
        self._strata = PropensityCounts(self.overall_layout)
        self.exposure = ExposureCounts(self.overall_layout, weights)
        self.weigh_by, self.strata_by, self.weights = weigh_by, strata_by, weights
        self.scratch = Scratch(self.overall_layout)
        self._slice_scratch = Scratch(self.slice_layout)
        self._slice_rows = slice_rows
        self._dimensions = dimensions
        self._most_panes = max(_MOST_PANES, 4 * max(windows, default=0))

    def observe(
        self,
        labelled: Labelled,
        scored: Scored,
        sign: int = 1,
        measured: Measured | None = None,
        placed: bool = True,
        further: Sequence[tuple[Labelled, Scored]] = (),
    ) -> None:
        """Adds (or with sign -1 subtracts) the scores of labelled impressions, which are in time order.

        `measured`: the result of `measured` for them, if the caller has it. `placed`: their pane's curves are known,
        because those of earlier panes are mature; if not, standard errors of AUCs leave them out. `further`: the same
        impressions with other labels, and scores of other series; added pane by pane with the first, because curves
        come from what was before a pane.
        """
        if not scored.series.size:
            return
        slot = self.users.slots(labelled.user)
        layers = [self._layer(labelled, scored, measured or self.measured(labelled, scored), slot, sign)]
        layers += [self._layer(one, its, self.measured(one, its), slot, sign) for one, its in further]
        known = layers[0].measured
        top = max(int(layer.scored.series.max(initial=0)) for layer in layers) + 1
        k = sum(layer.scored.series.size for layer in layers)
        self.references.reserve(top)
        self.scratch.reserve(top, k)
        self._slice_scratch.reserve(self._slice_rows.count, k * self._dimensions)
        for j, number in enumerate(known.panes):
            if placed:  # labels mature in time order, including late ones: those of earlier panes have been counted
                self.references.begin(number)
            curves = self.references.at(number) if placed else self.references.none
            for layer in layers:
                for giver, cut in enumerate(layer.measured.cuts):
                    part = slice(int(cut[j]), int(cut[j + 1]))
                    self._add(number, layer, part, curves, sign, served=giver == 0)
                if layer.value is not None:
                    served = layer.measured.cuts[0]
                    self._add_values(number, layer, slice(int(served[j]), int(served[j + 1])), sign)
            self.overall.add(number, self.scratch.drain())
            if self._dimensions:
                self.slices.add(number, self._slice_scratch.drain())
        self._weigh([(labelled, scored), *further], layers, sign)
        self.users.fit_budget()
        if len(self.overall) > self._most_panes:
            self.forget_before(self.overall.numbers()[self._most_panes // 2])

    def _layer(
        self, labelled: Labelled, scored: Scored, measured: Measured, slot: NDArray[np.int32], sign: int
    ) -> _Layer:
        slice_row = np.empty((self._dimensions, scored.series.size), np.int32)
        for dimension in range(self._dimensions):
            slice_row[dimension] = self._slice_rows.rows(dimension, scored, labelled.slices)
        times = labelled.times(sign)
        labels = LabelColumns(labelled.label, labelled.corrected, labelled.fresh, slot, measured.block, times)
        value = labelled.fields["value"] if self.values else None
        return _Layer(scored, measured, slice_row, labels, value, labelled.copies is not None)

    def _add(self, pane: int, layer: _Layer, part: slice, curves: Curves, sign: int, *, served: bool) -> None:
        """Adds one giver's scores of one pane; `served`: whether the impressions were shown by these scores."""
        scored, known = layer.scored, layer.measured
        scores = ScoreColumns(
            scored.p[part],
            known.loss[part],
            known.part[part],
            scored.row[part],
            scored.series[part],
            layer.slice_row[:, part],
            scored.violation[part],
        )
        placed_by = PlacementCurves(curves.curve, curves.ready, self.references.counting)
        entries, exact, copies = add_scores(
            self.scratch, self._slice_scratch, scores, layer.labels, placed_by, sign, weighed=layer.weighed
        )
        value = None if layer.value is None else layer.value[scored.row[part]]
        stand_for = copies if copies.size else None
        self._rank(pane, scored.series[part], entries, exact, value, stand_for, sign, served=served)

    def _add_values(self, pane: int, layer: _Layer, part: slice, sign: int) -> None:
        """Adds the values of clicks on impressions that the series itself served, which are those with the first
        scores.
        """
        series = layer.scored.series[part]
        if layer.value is None or not series.size:
            return
        sums = np.zeros((int(series.max()) + 1, BLOCKS, len(VALUES.cells)), np.int64)
        row, labels = layer.scored.row[part], layer.labels
        add_worth(series, row, labels.block, labels.label, layer.value, sign, sums)
        code, block = np.nonzero(sums[:, :, IMPRESSIONS_SERVED])
        self.add_tally(pane, VALUES.name, code.astype(np.int32), block, sums[code, block])

    def measured(self, labelled: Labelled, scored: Scored) -> Measured:
        """Returns what this board and its ledger need to know about the scores."""
        return Measured.of(labelled.ts, labelled.user, labelled.label, scored, self.pane)

    def add_cells(
        self, pane: int, series: NDArray[np.int32], cells: NDArray[np.int64], values: NDArray[np.int64]
    ) -> None:
        """Adds `values[i]` to cell `cells[i]` (a count or a limb) of overall series `series[i]` in a pane."""
        at = series.astype(np.int64) * self.overall_layout.size + cells
        self.overall.add(pane, SparseVector.of(at, values))

    def add_tally(
        self,
        pane: int,
        name: str,
        series: NDArray[np.int32],
        block: NDArray[np.integer[Any]],
        cells: NDArray[np.int64],
    ) -> None:
        """Adds rows of a tally to a pane, `cells` int64[n, cells of the tally], signed: row i to series[i] in block[i]
        of users.

        For a tally without blocks, `block` is 0. Does nothing if the tally is not kept.
        """
        found = self.overall_layout.tally(name)
        if found is not None:
            at = found[1] + block.astype(np.int64) * len(found[0].cells)
            first = series.astype(np.int64) * self.overall_layout.size + at
            self.overall.add(pane, SparseVector.of_rows(first, cells))

    def add_whole(self, names: Sequence[str], sums: Sequence[PaneSums]) -> None:
        """Adds all cells of tallies that are kept, in their order, to panes."""
        found = [one for name in names if (one := self.overall_layout.tally(name)) is not None]
        sizes, places = np.array([tally.size for tally, _ in found]), np.array([at for _, at in found])
        if (np.diff(places) < 0).any():
            raise ValueError("tallies in another order than that of their cells")
        for panes, series, cells in sums:
            if sizes.sum() != cells.shape[2]:
                raise ValueError("cells of tallies that are not kept")
            first = (series[:, None].astype(np.int64) * self.overall_layout.size + places).ravel()
            size = np.tile(sizes, series.size)
            for pane, own in zip(panes.tolist(), cells, strict=True):
                self.overall.add(pane, SparseVector.of_pieces(first, size, own.ravel()))

    def retire(self, series: int) -> None:
        """Forgets a series that no pane in memory contains (see `Panes.rows`), so that its code can be reused."""
        self.overall.clear(series)
        for row in self._slice_rows.of(series):
            self.slices.clear(row)
        self.users.clear(series)
        self.references.clear(series)

    def forget_before(self, pane: int) -> None:
        """Drops old panes."""
        self.overall.forget_before(pane)
        self.slices.forget_before(pane)
        self.users.forget_before(pane)

    @property
    def nbytes(self) -> int:
        """Size of the panes and windows in bytes, without users."""
        scratch = self.scratch.target.cells.nbytes + self._slice_scratch.target.cells.nbytes
        return self.overall.nbytes + self.slices.nbytes + scratch

    def state(self) -> dict[str, Any]:
        """Returns everything that was counted, for `restore`."""
        return {
            "overall": self.overall.state(),
            "tallies": [[tally.name, tally.size] for tally in self.overall_layout.tallied],
            "slices": self.slices.state(),
            "users": self.users.state(),
            "references": self.references.state(),
        }

    def restore(self, state: Mapping[str, Any], codes: Codes, slice_rows: NDArray[np.int64]) -> None:
        """Restores what `state` returned; `slice_rows[r]` is this process's number of row r of the slices."""
        places = self.overall_layout.places(state.get("tallies", []))  # none: written before there were any
        self.overall.restore(state["overall"], codes.series.astype(np.int64), places)
        self.slices.restore(state["slices"], slice_rows)
        self.users.restore(state["users"], codes.series)
        self.references.restore(state["references"], codes.series)

    def _weigh(self, counted: Sequence[tuple[Labelled, Scored]], layers: Sequence[_Layer], sign: int) -> None:
        """Adds what is counted by propensity, which is the same for all labels of an impression."""
        fields = counted[0][0].fields
        stratum, given = fields.get(self.strata_by), fields.get(self.weigh_by)
        for (one, its), layer in zip(counted, layers, strict=True):
            if stratum is not None:
                self._strata.observe(self.overall, stratum, one.label, its, layer.measured, sign)
            if given is not None:
                weighing = Weighing(one.label, given, one.fields.get("value"))
                policies = one.policies if self.weigh_by == LOGGED else None  # policies use those of the log
                self.exposure.observe(self.overall, weighing, its, policies, layer.measured, sign)

    def _rank(
        self,
        pane: int,
        series: NDArray[np.int32],
        entries: NDArray[np.uint64],
        exact: NDArray[np.uint64],
        value: NDArray[np.float64] | None,
        copies: NDArray[np.uint32] | None,
        sign: int,
        *,
        served: bool,
    ) -> None:
        """Passes rank entries to the users, by series."""
        if not series.size:
            return
        if bool((series == series[0]).all()):
            self.users.add(pane, int(series[0]), entries, exact, value, sign, copies, served=served)
            return
        for one in np.unique(series).tolist():
            on = series == one
            of_value, of_copies = (None if column is None else column[on] for column in (value, copies))
            self.users.add(pane, one, entries[on], exact[on], of_value, sign, of_copies, served=served)
