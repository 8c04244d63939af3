"""Selects some of a batch's impressions, with their scores."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streameval.counting.scoreboard import Labelled
from streameval.events.columns import Scored, ScoreList


def subset(labelled: Labelled, scored: Scored, on: NDArray[np.bool_]) -> tuple[Labelled, Scored]:
    """Returns the rows in which `on` is True, with their scores."""
    place = np.cumsum(on, dtype=np.int32) - np.int32(1)
    some = Labelled(
        ts=labelled.ts[on],
        user=labelled.user[on],
        slices=labelled.slices[on],
        label=labelled.label[on],
        corrected=labelled.corrected[on],
        fields={name: column[on] for name, column in labelled.fields.items()},
        fresh=labelled.fresh[on],
        item=None if labelled.item is None else labelled.item[on],
        policies=None if labelled.policies is None else _policies(labelled.policies, on, place),
        copies=None if labelled.copies is None else labelled.copies.taken(on),
    )
    kept = on[scored.row]
    count = np.concatenate((np.zeros(1, np.int64), np.cumsum(kept)))
    return some, Scored(
        bounds=tuple(count[list(scored.bounds)].tolist()),
        row=place[scored.row[kept]],
        series=scored.series[kept],
        p=scored.p[kept],
        violation=scored.violation[kept],
    )


def _policies(policies: ScoreList, on: NDArray[np.bool_], place: NDArray[np.int32]) -> ScoreList:
    kept = on[policies.row]
    return ScoreList(place[policies.row[kept]], policies.series[kept], policies.p[kept])
