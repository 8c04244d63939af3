"""Placement curves: which of them place a pane's impressions is no matter of how batches were cut."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from streameval.counting.references import PROMISED
from streameval.counting.scoreboard import Labelled, Scoreboard
from streameval.counting.slice_rows import SliceRows
from streameval.events.batch import Catalog
from streameval.events.columns import Scored
from streameval.sketches.layout import Options

MINUTE = 60_000


def test_a_late_impression_that_comes_first_in_its_pane_is_placed_by_the_panes_own_curves() -> None:
    """Its pane had not begun for it, so it was placed by older curves when it was counted alone, and by new ones with others."""
    rng = np.random.default_rng(0)
    n = PROMISED + 20
    # the first curves are made where the second pane begins
    ts = np.concatenate((np.arange(PROMISED), MINUTE + np.arange(20)))
    fresh = np.arange(n) != PROMISED
    p, label = rng.random(n), rng.integers(0, 2, n).astype(np.int8)
    user = rng.integers(1, 1 << 60, n).astype(np.uint64)
    totals = []
    for cuts in ([0, n], [0, PROMISED, n], [0, PROMISED + 1, n], [0, PROMISED, PROMISED + 1, n]):
        catalog = Catalog()
        catalog.series_code("m", "v1")
        board = Scoreboard(SliceRows(catalog), 0, Options((0.5,)), MINUTE, [], "impressions", 1 << 30, 3_600_000)
        for start, end in pairwise(cuts):
            k, on = end - start, slice(start, end)
            no = np.zeros(k, np.bool_)
            labelled = Labelled(ts[on], user[on], np.zeros(k, np.int64), label[on], no, {}, fresh[on])
            board.observe(labelled, Scored((0, k), np.arange(k, dtype=np.int32), np.zeros(k, np.int32), p[on], no))
        totals.append(board.overall.total.row(0).tolist())
    assert totals[0] == totals[1] == totals[2] == totals[3]
