"""Counts weighted losses and policies by pane: the tallies of `sketches.exposure`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streameval.counting.measured import Measured
from streameval.counting.windows import Panes
from streameval.events.columns import Scored, ScoreList
from streameval.sketches.exposure import (
    WeightedScores,
    WeightRule,
    add_exposure,
    exposure_tallies,
    policy_tallies,
)
from streameval.sketches.layout import Layout
from streameval.sketches.policies import PolicyRows, add_policies
from streameval.sketches.sparse import SparseVector
from streameval.sketches.tally import Tally
from streameval.sketches.weighted_room import Room, drained


class Weighing(NamedTuple):
    """Impressions, by row."""

    label: NDArray[np.int8]
    propensity: NDArray[np.float64]  # NaN: none
    value: NDArray[np.float64] | None  # of clicks; None: not kept


class _Kept:
    """Two tallies, overall and by block of users, and buffers for those of one pane."""

    def __init__(self, layout: Layout, tallies: tuple[Tally, Tally]) -> None:
        self._tallies, self._size = tallies, layout.size
        found = [layout.tally(tally.name.partition(":")[0]) for tally in tallies]  # whatever their source
        self._at = [place[1] for place in found if place is not None]
        self.is_kept = len(self._at) == len(tallies)
        self.room = Room.of(0, tallies)

    def reserve(self, series: NDArray[np.int32]) -> None:
        """Makes room for these series."""
        most = int(series.max(initial=-1)) + 1
        if most > len(self.room.total):
            self.room = Room.of(most, self._tallies)

    def drain(self) -> SparseVector:
        """Returns what was added since the last call, as a vector over all series."""
        return drained(self.room, self._size, *self._at)


class ExposureCounts:
    """Adds impressions that have a propensity to the panes of one partition. Costs nothing if none has."""

    def __init__(self, layout: Layout, rule: WeightRule) -> None:
        self._rule = rule
        self._exposure, self._policy = _Kept(layout, exposure_tallies(rule)), _Kept(layout, policy_tallies(rule))

    def observe(
        self,
        panes: Panes,
        rows: Weighing,
        scored: Scored,
        policies: ScoreList | None,
        measured: Measured,
        sign: int,
    ) -> None:
        """Adds (or with sign -1 subtracts) impressions in time order, with their scores and the probabilities of
        policies.
        """
        if not (rows.propensity > 0).any():
            return
        if self._exposure.is_kept:
            self._observe_scores(panes, rows, scored, measured, sign)
        if self._policy.is_kept and policies is not None:
            self._observe_policies(panes, rows, policies, measured, sign)

    def _observe_scores(self, panes: Panes, rows: Weighing, scored: Scored, measured: Measured, sign: int) -> None:
        self._exposure.reserve(scored.series)
        scores = WeightedScores(
            p=scored.p,
            loss=measured.loss,
            row=scored.row,
            series=scored.series,
            label=rows.label,
            propensity=rows.propensity,
            block=measured.block,
        )
        cuts = np.stack(measured.cuts, axis=1)  # [panes + 1, givers]
        for j, number in enumerate(measured.panes):
            ranges = np.stack((cuts[j], cuts[j + 1]), axis=1)
            some = int(measured.first[j]), int(measured.first[j + 1])
            add_exposure(self._exposure.room, ranges, some, scores, self._rule, sign)
            panes.add(number, self._exposure.drain())

    def _observe_policies(
        self, panes: Panes, rows: Weighing, policies: ScoreList, measured: Measured, sign: int
    ) -> None:
        self._policy.reserve(policies.series)
        value = np.zeros(rows.label.size) if rows.value is None else rows.value
        cut = np.searchsorted(policies.row, measured.first)
        for j, number in enumerate(measured.panes):
            part = slice(int(cut[j]), int(cut[j + 1]))
            some = PolicyRows(
                row=policies.row[part],
                series=policies.series[part],
                probability=policies.p[part],
                label=rows.label,
                value=value,
                propensity=rows.propensity,
                block=measured.block,
            )
            add_policies(self._policy.room, some, self._rule, sign)
            panes.add(number, self._policy.drain())
