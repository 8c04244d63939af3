"""Standard errors of ranking metrics: what groups of users say is what repeating the experiment says."""

from __future__ import annotations

import numpy as np
import pytest

from streameval.counting.request_lists import RankedLists, lists_of
from streameval.counting.request_ranking import RankingSums
from streameval.counting.scoreboard import Labelled, Scoreboard
from streameval.counting.slice_rows import SliceRows
from streameval.events.batch import Catalog
from streameval.events.columns import Scored
from streameval.metrics.errors import standard_errors
from streameval.metrics.registry import evaluate
from streameval.metrics.view import NOT_KEPT_FOR_SLICES, View
from streameval.sketches.layout import IMPRESSIONS, Options
from streameval.sketches.list_cells import ranking_tallies

BASE = 1_700_000_040_000
NAMES = ("ndcg_5", "mrr", "hit_rate_1", "recall_1", "precision_5", "map_5", "click_hit_rate_1")
OPTIONS = Options((0.1,), ranking_tallies((1, 5), "click"), k=(1, 5))


def seen(rng: np.random.Generator, users: int) -> tuple[list[float], list[float]]:
    """(values, stated errors) of 8,000 impressions in lists of 4 to 8, of users who differ in how well they are known."""
    activity = np.exp(rng.normal(0, 0.8, users))
    sizes = rng.integers(4, 9, 8_000 // 6)
    who = rng.choice(users, sizes.size, p=activity / activity.sum())
    request, n = np.repeat(np.arange(sizes.size, dtype=np.int32), sizes), int(sizes.sum())
    taste, known = rng.normal(0, 1, n), rng.normal(0.8, 0.8, users)[who][request]
    label = (rng.random(n) < 1 / (1 + np.exp(1.5 - known * taste))).astype(np.int8)
    ids = rng.integers(1, 2**63, users).astype(np.uint64)
    no, fresh = np.zeros(n, np.bool_), np.ones(n, np.bool_)
    labelled = Labelled(np.full(n, BASE), ids[who][request], np.zeros(n, np.int64), label, no, {}, fresh)
    p = 1 / (1 + np.exp(-taste - rng.normal(0, 0.5, n)))
    scored = Scored((0, n), np.arange(n, dtype=np.int32), np.zeros(n, np.int32), p, no)
    catalog = Catalog()
    catalog.series_code("m", "v1")
    board = Scoreboard(SliceRows(catalog), 0, OPTIONS, 60_000, [], "impressions", 1 << 20, 3_600_000)
    ranked = RankedLists.of(lists_of(labelled.ts, labelled.user, request, board.pane), label, scored)
    RankingSums(board.overall_layout).observe(board, labelled, ranked, +1)
    row = board.overall.total.row(0)
    row[IMPRESSIONS] = n
    view = View.of(row, board.overall_layout, NOT_KEPT_FOR_SLICES)
    metrics = evaluate(view)[0]
    stderr = standard_errors(view, {name: metrics[name] for name in NAMES}).stderr
    return [float(metrics[name] or 0) for name in NAMES], [float(stderr[name] or 0) for name in NAMES]


@pytest.mark.parametrize("users", [300, 3_000])
def test_errors_are_those_of_repeating_the_experiment(users: int) -> None:
    rng = np.random.default_rng(users)
    values, stated = map(np.array, zip(*(seen(rng, users) for _ in range(150)), strict=True))
    ratio = np.sqrt((stated**2).mean(axis=0)) / values.std(axis=0, ddof=1)
    print(dict(zip(NAMES, ratio.round(3).tolist(), strict=True)))
    assert ((ratio > 0.85) & (ratio < 1.25)).all(), dict(zip(NAMES, ratio.tolist(), strict=True))
