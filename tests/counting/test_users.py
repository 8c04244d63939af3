"""Users within a budget, and the exact AUC kept beside them."""

from __future__ import annotations

import numpy as np

from streameval.counting.exact_scores import RUN_START
from streameval.counting.scoreboard import Labelled, Scoreboard
from streameval.counting.slice_rows import SliceRows
from streameval.counting.users import Users
from streameval.events.batch import Catalog
from streameval.events.columns import Scored
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings
from streameval.sketches.grid import score_keys, scores_bits
from streameval.sketches.layout import Options
from streameval.sketches.sorted_lists import entries
from streameval.testing import ManualClock, Shown, make_batch, readers_see

BASE = 1_700_000_040_000


def test_the_auc_of_a_run_counted_in_one_go_does_not_depend_on_the_order_of_arrival() -> None:
    pipeline = Pipeline(Settings(), ManualClock())
    shown = [Shown("a", BASE, pclick=0.9, clicked=0), Shown("b", BASE + 1, pclick=0.1, clicked=1)]
    pipeline.take(make_batch(shown, pipeline.catalog))
    pipeline.finish()
    by_window = {r.window: r.metrics["auc"] for r in readers_see(pipeline).results}
    assert by_window == dict.fromkeys(("all", "5m", "1h", "24h"), 0.0)


def test_scores_kept_for_an_exact_auc_go_before_users_do() -> None:
    rng = np.random.default_rng(0)
    users = Users([], "impressions", 12_000_000)  # less than the scores of one series may take beside the ranks
    ids = rng.integers(1, 2**62, 10_000).astype(np.uint64)
    for pane in range(150):
        p = rng.random(10_000)
        slots = users.slots(ids[rng.integers(0, ids.size, p.size)])
        y = (rng.random(p.size) < p).astype(np.int8)
        users.add(pane, 0, entries(slots, score_keys(p), y), scores_bits(p, y), None, 1)
        users.forget_before(pane)
        users.fit_budget()
    assert users.scores(0).scores(RUN_START, 150) is None
    assert users.sampled == 1
    assert users.ranked(0, None, 150)[0].users > 9_000


def test_a_sample_that_shrinks_while_a_batch_is_counted_does_not_mix_users_up() -> None:
    rng = np.random.default_rng(0)
    n, people = 600_000, 20_000
    catalog = Catalog()
    for name in ("v1", "v2"):
        catalog.series_code("m", name)
    board = Scoreboard(SliceRows(catalog), 0, Options((0.5,)), 60_000, [], "impressions", 15_000_000, 3_600_000)
    user = rng.integers(1, 2**62, people).astype(np.uint64)[rng.integers(0, people, n)]
    label = (rng.random(n) < 0.3).astype(np.int8)
    labelled = Labelled(
        np.full(n, BASE), user, np.zeros(n, np.int64), label, np.zeros(n, np.bool_), {}, np.ones(n, np.bool_)
    )
    row = np.tile(np.arange(n, dtype=np.int32), 2)  # every impression scored by both versions, with the same score
    p = np.tile(rng.random(n), 2)
    series = np.repeat(np.array([0, 1], np.int32), n)
    board.observe(labelled, Scored((0, n, 2 * n), row, series, p, np.zeros(2 * n, np.bool_)))
    assert board.users.sampled < 1
    columns = [board.users.columns(code) for code in (0, 1)]
    one, two = (dict(zip(ids.tolist(), c["impressions"].tolist(), strict=True)) for ids, c in columns)
    assert one == two
