"""Labels counted by pane, against counting them one by one."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from streameval.counting.panestats import PANE_CLICKS, PANE_CORRECTED, PANE_MATURED, PANE_NEWEST, PaneStats

PANE = 1_000
CELLS = (PANE_MATURED, PANE_CLICKS, PANE_CORRECTED)


@pytest.mark.parametrize(("n", "spread"), [(0, 1), (1, 1), (500, 700), (500, 20_000), (50, 1 << 50)])
def test_labels_by_pane_are_those_counted_one_by_one(n: int, spread: int) -> None:
    rng = np.random.default_rng(n + spread)
    stats, slow = PaneStats(PANE), defaultdict(lambda: [0, 0, 0, -(1 << 62)])
    for sign in (1, 1, -1):
        ts = np.sort(rng.integers(-spread // 3, spread, n))
        label, corrected = (rng.random(n) < 0.3).astype(np.int8), rng.random(n) < 0.2
        stats.matured(ts, label, corrected, sign)
        for at, clicked, late in zip(ts.tolist(), label.tolist(), corrected.tolist(), strict=True):
            for row in (slow[at // PANE], slow["total"]):
                row[:] = row[0] + sign, row[1] + sign * clicked, row[2] + sign * late, max(row[3], at)
    total = slow.pop("total", [0, 0, 0, -(1 << 62)])
    assert {pane: [*(row[cell] for cell in CELLS), row[PANE_NEWEST]] for pane, row in stats.by_pane.items()} == slow
    assert [*(stats.total[cell] for cell in CELLS), stats.total[PANE_NEWEST]] == total
