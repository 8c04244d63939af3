"""Impressions whose label is not mature yet, as readers of early results need them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from streameval.events.columns import Scored
from streameval.join.policy import CLICKED, KNOWN
from streameval.join.rows import Table


@dataclass(frozen=True, slots=True)
class PendingImpressions:
    """Some pending impressions of one partition, in order of arrival."""

    ts: NDArray[np.int64]
    series: NDArray[np.int32]  # that served, -1: none
    clicked: NDArray[np.bool_]
    known: NDArray[np.bool_]  # the impression carries its label
    age: NDArray[np.float64]  # ms after it up to which clicks have been read
    scored: Scored
    _scores: dict[int, NDArray[np.float64]] = field(default_factory=dict)

    @classmethod
    def of(cls, table: Table, rows: NDArray[np.int64], newest_label: int, scored: Scored) -> PendingImpressions:
        """`newest_label`: event time in ms up to which clicks have been read; `scored`: all scores of the rows."""
        ts, state, pclick = table.ts[rows], table.state[rows], table.pclick[rows]
        return cls(
            ts=ts,
            series=np.where(np.isnan(pclick), np.int32(-1), table.series[rows]),
            clicked=(state & CLICKED) != 0,
            known=(state & KNOWN) != 0,
            age=np.maximum(newest_label - ts, 0).astype(np.float64),
            scored=scored,
        )

    def scores_of(self, code: int) -> NDArray[np.float64]:
        """A series' scores, NaN where it has none."""
        if code not in self._scores:
            out = np.full(self.ts.size, np.nan)
            on = self.scored.series == code
            out[self.scored.row[on]] = self.scored.p[on]
            self._scores[code] = out
        return self._scores[code]
