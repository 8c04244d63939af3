"""The whole state of a partition, for a checkpoint, and back."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.events.codes import Codes
from streameval.join.cold.segment import RowsFile
from streameval.loop.partition import Partition

log = logging.getLogger(__name__)


def state_of(part: Partition) -> dict[str, Any]:
    """The state between two batches, for `restore_state`: arrays, plain values, and calls that return more of them.

    Mutable data is copied now, or by the counting thread in order; calls are made by the writing thread.
    """
    joiner, counted, counting = part.joiner, part.counted, part.background
    return {
        "shared": part.shared,
        "leaps": part.quarantine.state(),
        "joiner": joiner.state(scores_change=part.score_at == "label"),
        "requests": part.requests.state(joiner.front, joiner.cold.base(joiner.front)),
        "panes": part.panes.state(),
        "arrivals": counted.arrivals.state(),
        "joins": counted.joins.state(),
        "late": counted.late.state(),
        "late_clicks": counted.late_clicks.state(),
        "late_impressions": counted.late_impressions.state(),
        "counts": dict(part.counts),
        **part.rows.state(),
        "learners": [
            {**one.state(), "column": column} for one, column in zip(part.learners, joiner.table.models, strict=True)
        ],
        "scoreboard": counting.call(part.scoreboard.state).result,
        "ledger": counting.call(counted.ledger.state).result,
        "gauc_marks": counted.gauc.marks(),
        "gauc": counting.call(counted.gauc.state).result,
    }


def restore_state(
    part: Partition,
    state: Mapping[str, Any],
    codes: Codes,
    slice_rows: NDArray[np.int64],
    files: Sequence[RowsFile] = (),
) -> None:
    """Restores what `state_of` returned, into a new partition (see `Scoreboard.restore`, `Joiner.restore`)."""
    counted = part.counted
    learned = {one["name"]: one for one in state["learners"]}
    added = f" since {max(state['joiner']['newest'])}"  # files may have the scores of one that was removed
    columns = [learned[one.name]["column"] if one.name in learned else one.name + added for one in part.learners]
    part.joiner.restore(state["joiner"], codes, files, tuple(columns))
    if "leaps" in state:
        part.quarantine.restore(state["leaps"], codes)
    else:  # an older checkpoint
        part.quarantine.begin_at([int(newest) for newest in state["joiner"]["newest"]])
    part.requests.restore(state["requests"])
    part.panes.restore(state["panes"])
    counted.arrivals.restore(state["arrivals"], codes.series)
    counted.joins.restore(state.get("joins", []))  # missing from older checkpoints
    if "late" in state:
        counted.late.restore(state["late"])
    if "late_clicks" in state:
        counted.late_clicks.restore(state["late_clicks"], codes.series)
        counted.late_impressions.restore(state["late_impressions"], codes.series)
    part.counts.clear()
    part.counts.update(state["counts"])
    part.rows.restore(state, codes)
    for one in part.learners:
        if one.name in learned:
            one.restore(learned.pop(one.name))
        else:
            log.info(
                'model "%s", partition %d: added; it scores what comes from here on', one.name, one.place.partition
            )
    for name in learned:
        log.warning('model "%s" is no longer configured: what it has learned of a partition is dropped', name)
    part.models.restore()
    part.scoreboard.restore(state["scoreboard"], codes, slice_rows, part.newest_event)
    counted.ledger.restore(state["ledger"], codes)
    counted.gauc.restore(state["gauc_marks"], state["gauc"], codes)
