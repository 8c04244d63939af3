"""Where scored, labelled impressions are counted: panes overall and by slice, and users. One per partition.

`observe` adds with sign +1, and subtracts exactly what was added with sign -1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.counting.estimates import LOGGED
from streameval.counting.exposure import ExposureCounts, Weighing
from streameval.counting.measured import Measured
from streameval.counting.pane_scores import Layer, PaneScores, most_labels
from streameval.counting.references import References
from streameval.counting.slice_rows import SliceRows
from streameval.counting.users import Users, UserSlots
from streameval.counting.windows import Panes, Window
from streameval.events.codes import Codes
from streameval.events.columns import Scored, ScoreList
from streameval.sketches.accumulate import Given, LabelColumns
from streameval.sketches.blocks import BLOCKS
from streameval.sketches.copies import Copies
from streameval.sketches.exposure import DEFAULT_RULE, WeightRule
from streameval.sketches.layout import Options
from streameval.sketches.list_cells import LISTS_TALLY, averages_of
from streameval.sketches.propensity import PropensityGrid, StrataRows
from streameval.sketches.ranks import Weighting
from streameval.sketches.sparse import SparseVector
from streameval.sketches.tally import PaneSums
from streameval.sketches.yield_cells import IMPRESSIONS_SERVED, VALUES, add_worth

# Panes kept when nobody forgets them (a replay, or event times scattered over centuries between two snapshots): about
# 4 kB each at least. Three months of minutes; never fewer than four of the longest windows.
_MOST_PANES = 1 << 17


@dataclass(frozen=True, slots=True)
class Labelled:
    """n impressions whose label is known now: columns."""

    ts: NDArray[np.int64]
    user: NDArray[np.uint64]
    slices: NDArray[np.int64]
    label: NDArray[np.int8]
    corrected: NDArray[np.bool_]
    fields: Mapping[str, NDArray[np.float64]]  # what rows keep of their events' numbers, see `events.fields.needed`
    fresh: NDArray[np.bool_]  # on time, and counted for the first time
    item: NDArray[np.int8] | None = None  # the item's block, see `sketches.blocks`; None: not known of any
    policies: ScoreList | None = None  # probabilities by version, by ascending row; None: of none
    copies: Copies | None = None  # what they stand for, where the log is a sample; None: for themselves

    def times(self, sign: int) -> NDArray[np.int64]:
        """How often they count, int64[n], below 0 when they are taken out."""
        return np.full(self.ts.size, sign, np.int64) if self.copies is None else self.copies.now * sign


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
        with_copies: bool = False,
    ) -> None:
        """`pane` and `horizon` (of corrections) in ms, `windows` in panes, `users_budget` in bytes; `weigh_by` and
        `strata_by`: fields that hold the propensities which impressions weigh by, and strata are made of.

        `values`: what clicks are worth is counted, and kept by user; weighting "value" needs it anyway; `with_copies`: the log is a
        sample, whose impressions have `Labelled.copies`.
        """
        self.pane = pane
        self.weighting = weighting
        self.values = values or weighting == "value"
        self.mainline = options.mainline
        self.overall_layout = options.overall
        self.slice_layout = options.slice
        self.overall = Panes(self.overall_layout.size)
        self._begun: dict[str, int] = {}  # first panes of tallies that began to count after a restart
        self.slices = Panes(self.slice_layout.size)
        self.overall_windows: list[Window] = [self.overall.window(length) for length in windows]
        self.slice_windows: list[Window] = [self.slices.window(length) for length in windows]
        averages = averages_of(options.by_user, options.k, options.gain)
        self.users = Users(
            windows, weighting, users_budget, averages=averages, values=self.values, with_copies=with_copies
        )
        self.references = References(pane, horizon)
        strata = None if self.overall_layout.strata is None else options.strata
        self._grid = None if strata is None else PropensityGrid.of(strata)
        self.exposure = ExposureCounts(self.overall_layout, weights)
        self.weigh_by, self.strata_by, self.weights = weigh_by, strata_by, weights
        self.scores = PaneScores(self.overall_layout, self.slice_layout, dimensions)
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
        """Adds (or with sign -1 takes out) the scores of labelled impressions, which are in order of time.

        `measured`: what `measured` gives of them, if the caller has it. `placed`: their pane's curves are known, as those
        of earlier panes are mature; if not, standard errors of AUCs go without them. `further`: the same impressions with
        other labels, by scores of other series; pane by pane with the first, as curves are made of what came before a pane.
        """
        if not scored.series.size:
            return
        known = measured or self.measured(labelled, scored)
        slot = (known.users or self.users.known(labelled.user)).slot
        strata = self._by_propensity(labelled, sign)
        layers = [self._layer(labelled, scored, known, slot, strata, sign)]
        layers += [self._layer(one, its, self._measured(one, its), slot, strata, sign) for one, its in further]
        panes = layers[0].measured.panes
        top = max(int(layer.scored.series.max(initial=0)) for layer in layers) + 1
        self.references.reserve(top)
        self.scores.reserve(top, self._slice_rows.count, sum(layer.scored.series.size for layer in layers))
        ends = self.scores.ends(layers)
        first = 0
        while first < len(panes):
            if placed:  # labels mature in order of time, late ones too: those of earlier panes have been counted
                self.references.begin(panes[first])
            end = ends[first]
            if placed and end > first + 1:
                labels = most_labels(layers[0], first, end, self.references.series)
                if not self.references.alike(panes[first:end], labels):
                    end = first + 1
            curves = self.references.at(panes[first]) if placed else self.references.none
            counted = self.scores.count(layers, first, end, curves, self.references.counting, sign)
            for j in range(first, end):
                self._add(panes[j], layers, j, counted.given, sign)
                self.overall.add(panes[j], counted.overall[j - first])
                if self._dimensions:
                    self.slices.add(panes[j], counted.slices[j - first])
            if placed:
                self.references.reach(panes[end - 1])
            first = end
        self._weigh([(labelled, scored), *further], layers, sign)
        self.users.fit_budget()
        if len(self.overall) > self._most_panes:
            self.forget_before(self.overall.numbers()[self._most_panes // 2])

    def _by_propensity(self, labelled: Labelled, sign: int) -> StrataRows:
        propensity = labelled.fields.get(self.strata_by)
        if self._grid is None or propensity is None:
            return StrataRows.none()
        return StrataRows.of(propensity, labelled.times(sign), self._grid)

    def _layer(
        self,
        labelled: Labelled,
        scored: Scored,
        measured: Measured,
        slot: NDArray[np.int32],
        strata: StrataRows,
        sign: int,
    ) -> Layer:
        slice_row = np.empty((self._dimensions, scored.series.size), np.int32)
        for dimension in range(self._dimensions):
            slice_row[dimension] = self._slice_rows.rows(dimension, scored, labelled.slices)
        times = labelled.times(sign)
        labels = LabelColumns(labelled.label, labelled.corrected, labelled.fresh, slot, measured.block, times, strata)
        value = labelled.fields["value"] if self.values else None
        alone = bool((scored.series == scored.series[:1]).all())
        return Layer(scored, measured, slice_row, labels, value, labelled.copies is not None, alone)

    def _add(self, pane: int, layers: Sequence[Layer], j: int, given: Sequence[Given], sign: int) -> None:
        """What users keep of the scores of the j-th pane, and what its clicks are worth."""
        for layer, out in zip(layers, given, strict=True):
            for giver, part in enumerate(layer.parts(j)):  # the first are who showed the impressions
                self._rank(pane, layer, part, out, sign, served=giver == 0)
            self._add_values(pane, layer, next(layer.parts(j)), sign)

    def _add_values(self, pane: int, layer: Layer, part: slice, sign: int) -> None:
        """What the clicks on impressions are worth, of those that the series itself served: whose scores are the first ones."""
        series = layer.scored.series[part]
        if layer.value is None or not series.size:
            return
        sums = np.zeros((int(series.max()) + 1, BLOCKS, len(VALUES.cells)), np.int64)
        row, labels = layer.scored.row[part], layer.labels
        add_worth(series, row, labels.block, labels.label, layer.value, sign, sums)
        code, block = np.nonzero(sums[:, :, IMPRESSIONS_SERVED])
        self.add_tally(pane, VALUES.name, code.astype(np.int32), block, sums[code, block])

    def measured(self, labelled: Labelled, scored: Scored) -> Measured:
        """What this board and its ledger need to know of the scores; count them before any others, which may change slots."""
        users = self.users.known(labelled.user) if scored.series.size else None
        return self._measured(labelled, scored, users)

    def _measured(self, labelled: Labelled, scored: Scored, users: UserSlots | None = None) -> Measured:
        return Measured.of(labelled.ts, labelled.user, labelled.label, scored, self.pane, users)

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
        """Adds rows of a tally to a pane, `cells` int64[n, cells of the tally], signed: row i to series[i] in block[i] of users.

        Of a tally without blocks `block` is 0. Nothing happens when the tally is not kept.
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
        """Forgets a series that no pane in memory holds (see `Panes.rows`); its code may be given to another."""
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
        """Bytes of the panes and windows, users apart."""
        return self.overall.nbytes + self.slices.nbytes + self.scores.nbytes

    def state(self) -> dict[str, Any]:
        """Everything that was counted, for `restore`."""
        return {
            "overall": self.overall.state(),
            "tallies": [[tally.name, tally.size] for tally in self.overall_layout.tallied],
            "begun": dict(self._begun),
            "slices": self.slices.state(),
            "users": self.users.state(),
            "references": self.references.state(),
        }

    def restore(self, state: Mapping[str, Any], codes: Codes, slice_rows: NDArray[np.int64], newest: int) -> None:
        """Restores what `state` returned; `slice_rows[r]` is what row r of the slices is called here.

        Tallies that are new begin with the pane after the `newest` event.
        """
        stored = state.get("tallies", [])  # none: written before there were any
        new = [tally.name for tally in self.overall_layout.not_in({name for name, _ in stored})]
        first = newest // self.pane + 1
        begun = {**state.get("begun", {}), **dict.fromkeys(new, first)}
        for tally in self.overall_layout.tallied:
            if tally.name in begun:
                self._begun[tally.name] = begun[tally.name]
                self.overall.begin(begun[tally.name], self.overall_layout.cells_of(tally))
        places = self.overall_layout.places(stored, without=new)
        self.overall.restore(state["overall"], codes.series.astype(np.int64), places)
        self.slices.restore(state["slices"], slice_rows)
        self.users.restore(state["users"], codes.series, first, lists_anew=LISTS_TALLY in new)
        self.references.restore(state["references"], codes.series)

    def _weigh(self, counted: Sequence[tuple[Labelled, Scored]], layers: Sequence[Layer], sign: int) -> None:
        """What weighs by propensity, which is one for all labels of an impression."""
        given = counted[0][0].fields.get(self.weigh_by)
        if given is None:
            return
        for (one, its), layer in zip(counted, layers, strict=True):
            weighing = Weighing(one.label, given, one.fields.get("value"))
            policies = one.policies if self.weigh_by == LOGGED else None  # theirs are of the log's
            self.exposure.observe(self.overall, weighing, its, policies, layer.measured, sign)

    def _rank(self, pane: int, layer: Layer, part: slice, given: Given, sign: int, *, served: bool) -> None:
        """Gives rank entries to the users, each series its own."""
        series = layer.scored.series[part]
        if not series.size:
            return
        entries, exact, copies = given.entries[part], given.exact[part], given.copies[part]
        value = None if layer.value is None else layer.value[layer.scored.row[part]]
        stand_for = copies if given.copies.size else None
        if layer.alone or (series == series[0]).all():  # as the scores of one giver usually are
            self.users.add(pane, int(series[0]), entries, exact, value, sign, stand_for, served=served)
            return
        for one in np.unique(series).tolist():
            on = series == one
            of_value, of_copies = (None if column is None else column[on] for column in (value, stand_for))
            self.users.add(pane, one, entries[on], exact[on], of_value, sign, of_copies, served=served)
