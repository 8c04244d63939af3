"""Counts labelled impressions by propensity, in the fine bins that strata are cut from (see `sketches.propensity`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streameval.counting.measured import Measured
from streameval.counting.windows import Panes
from streameval.events.columns import Scored
from streameval.sketches.accumulate import CURVE_BITS
from streameval.sketches.layout import Layout
from streameval.sketches.propensity import (
    STRATA_BITS,
    PropensityGrid,
    PropensityRows,
    PropensityScores,
    StrataRoom,
    strata_deltas,
)
from streameval.sketches.sparse import SparseVector

assert STRATA_BITS == CURVE_BITS  # `Measured.part` is of bins of the curves


class PropensityCounts:
    """Adds to the tallies of strata; a pane contains only the cells in use."""

    def __init__(self, layout: Layout) -> None:
        """If the layout has no strata, nothing is ever added."""
        strata = None if layout.options is None else layout.options.strata
        self.is_kept = strata is not None
        if strata is None:
            return
        sums, clicks = layout.tally(strata.sums), layout.tally(strata.clicks)
        assert sums is not None
        assert clicks is not None
        assert sums[1] < clicks[1]  # cells are written in order
        self._grid = PropensityGrid.of(strata)
        self._at = layout.size, sums[1], clicks[1]
        self._room = StrataRoom.of(0, 0, 0)

    def observe(
        self,
        panes: Panes,
        propensity: NDArray[np.float64],
        label: NDArray[np.int8],
        scored: Scored,
        known: Measured,
        sign: int,
    ) -> None:
        """Adds (or with sign -1 subtracts) scores to the panes; NaN: the impression has no propensity."""
        if not self.is_kept:
            return
        room = self._reserved(int(scored.series.max(initial=-1)) + 1, scored.series.size)
        scores = PropensityScores(scored.series, scored.row, scored.p, known.loss, known.part)
        rows = PropensityRows(label, propensity)
        cuts, ends = np.stack(known.cuts, axis=1), np.zeros(len(known.panes), np.int64)
        strata_deltas(cuts, scores, rows, self._grid, self._at, sign, room, ends)
        n = int(ends.max(initial=0))
        cells, values, start = room.cells[:n].copy(), room.values[:n].copy(), 0
        for number, end in zip(known.panes, ends.tolist(), strict=True):
            panes.add(number, SparseVector(cells[start:end], values[start:end]))
            start = end

    def _reserved(self, series: int, scores: int) -> StrataRoom:
        room = self._room
        if len(room.sums) < series or room.clicks.size < scores:
            most = max(len(room.sums), series), self._grid.edges.size + 1, max(room.clicks.size, scores)
            self._room = room = StrataRoom.of(*most)
        return room
