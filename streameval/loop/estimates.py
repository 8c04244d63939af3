"""Estimated propensities of the joiner's rows: assigned when labels mature, kept in the row, and assigned again when a label changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.counting.estimates import Maturing, Propensities, field_of_estimate, hours_of
from streameval.counting.scoreboard import Labelled
from streameval.events.batch import Impressions
from streameval.join.joiner import Joiner
from streameval.join.policy import CLICKED, CORRECTED, LATE


class RowPropensities:
    """The propensities of one partition. `by_source`: every estimator that the settings ask for."""

    def __init__(self, by_source: Mapping[str, Propensities], pane: int) -> None:
        """`pane` in ms."""
        self._by_source = dict(by_source)
        self._pane = pane

    def considered(self, candidates: Impressions) -> None:
        """Adds candidates that are on time, before the joiner adds their batch."""
        for one in self._by_source.values():
            one.considered(candidates)

    def mature(self, joiner: Joiner, rows: NDArray[np.int64]) -> None:
        """Assigns propensities to rows that have just matured, in order of time."""
        table = joiner.table
        ids = table.item_id[rows] if table.item_id.size else np.zeros(rows.size, np.uint64)
        state = table.state[rows]
        some = Maturing(
            hours_of(table.ts[rows], self._pane),
            ids,
            table.user[rows],
            table.slices[rows].astype(np.int64, copy=False),
            (state & CLICKED).astype(np.int8),
            ((state & (CLICKED | CORRECTED)) == CLICKED).astype(np.int8),
            (state & LATE) == 0,
        )
        for source, one in self._by_source.items():
            number = [field.name for field in table.kept].index(field_of_estimate(source))
            table.write_field(number, rows, one.of(some), joiner.front + joiner.known)

    def relabelled(self, labelled: Labelled) -> dict[str, NDArray[np.float64]]:
        """Fields of rows whose labels have changed since propensities were assigned; `labelled`: with their current labels."""
        hour = hours_of(labelled.ts, self._pane)
        names = {source: field_of_estimate(source) for source in self._by_source}
        return {
            names[source]: one.relabelled(hour, labelled.label, labelled.fields[names[source]])
            for source, one in self._by_source.items()
        }

    def alone(self, labelled: Labelled) -> dict[str, NDArray[np.float64]]:
        """Fields of impressions that were never joined, in order of time; these have no item."""
        nobody = np.zeros(labelled.ts.size, np.uint64)
        some = Maturing(
            hours_of(labelled.ts, self._pane),
            nobody,
            labelled.user,
            labelled.slices,
            labelled.label,
            labelled.label,
            labelled.fresh,
        )
        return {field_of_estimate(source): one.of(some) for source, one in self._by_source.items()}

    def state(self) -> dict[str, Any]:
        """The state of every estimator, for `restore`, by source."""
        return {source: one.state() for source, one in self._by_source.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned; estimators that it lacks start empty."""
        for source, one in self._by_source.items():
            if state.get(source) is not None:
                one.restore(state[source])
