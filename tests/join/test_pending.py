"""The newest pending impressions of a joiner, and their scores."""

from __future__ import annotations

import numpy as np

from streameval.events.batch import Catalog
from streameval.join.joiner import Joiner
from streameval.join.policy import JoinPolicy
from streameval.testing import Shown, Tap, make_batch

BASE = 1_700_000_000_000


def test_the_newest_impressions_without_a_mature_label_come_with_their_scores() -> None:
    catalog, joiner = Catalog(), Joiner(JoinPolicy(60_000, 0, 3_600_000))
    labelled = Shown("labelled", BASE + 70_000, clicked=1, pclick=0.75, version="v2")
    events = [
        Shown("mature", BASE),
        Shown("old", BASE + 65_000),
        labelled,
        Shown("clicked", BASE + 80_000, pclick=0.25),
    ]
    joiner.add(make_batch([*events, Tap("clicked", BASE + 90_000)], catalog))
    assert joiner.mature(joiner.progress.firm).tolist() == [0]

    pending = joiner.newest_pending(2, [])
    assert pending.ts.tolist() == [BASE + 70_000, BASE + 80_000]
    assert pending.clicked.tolist() == [True, True]
    assert pending.known.tolist() == [True, False]
    assert pending.age.tolist() == [20_000.0, 10_000.0]  # the click is the newest event of the only log
    first, second = pending.series.tolist()
    assert first != second
    assert np.array_equal(pending.scores_of(first), [0.75, np.nan], equal_nan=True)
    assert np.array_equal(pending.scores_of(second), [np.nan, 0.25], equal_nan=True)
    assert joiner.newest_pending(10, []).ts.size == 3
