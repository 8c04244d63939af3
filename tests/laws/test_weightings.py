"""GAUC by every weighting at once: the same bits as the one that is kept up to date, of windows, panes and past ranges."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from streameval.loop.pipeline import Pipeline
from streameval.results.lines import Point, QuestionSlots
from streameval.results.pane_memory import PaneMemory
from streameval.settings.tree import Settings
from streameval.sketches.grid import score_keys
from streameval.sketches.ranks import GroupRanks
from streameval.sketches.sorted_lists import entries
from streameval.sketches.weightings import OTHER_WEIGHTINGS, Weighted
from streameval.testing import Event, ManualClock, Shown, Tap, make_batch, readers_see
from tests.aucs import auc_of

BASE = 1_700_000_040_000
NONE = np.empty(0, np.uint64)
Columns = tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.int8], NDArray[np.float64]]


def table(seed: int, n: int = 3_000) -> Columns:
    """Users, scores with ties, labels, values."""
    rng = np.random.default_rng(seed)
    p = np.round(rng.random(n), 2)
    return rng.integers(0, 200, n).astype(np.int32), p, (rng.random(n) < p * 0.4).astype(np.int8), rng.gamma(1, 9, n)


def filled(ranks: GroupRanks, columns: Columns, gone: NDArray[np.bool_]) -> GroupRanks:
    """Everything added, and then some of it taken out again."""
    u, p, y, v = columns
    all_of_it = np.ones(u.size, np.bool_)
    for on, sign in ((all_of_it, 1), (gone, -1)):
        entry = np.sort(entries(u[on], score_keys(p[on]), y[on]))
        clicked = on & (y == 1)
        value = sign * np.rint(v[clicked] * 2**31).astype(np.int64)
        ranks.apply(*((entry, NONE) if sign > 0 else (NONE, entry)), 200, u[clicked], value)
    return ranks


@pytest.mark.parametrize("weighting", OTHER_WEIGHTINGS)
def test_every_weighting_has_the_bits_of_the_one_that_is_kept(weighting: str) -> None:
    columns = table(1)
    gone = np.random.default_rng(2).random(3_000) < 0.3
    kept = filled(GroupRanks(weighting), columns, gone)
    for configured in ("impressions", "clicks", "uniform", "value"):
        ranks = filled(GroupRanks(configured, values=True), columns, gone)
        found = ranks.of_each()[OTHER_WEIGHTINGS.index(weighting)]
        assert found == Weighted(*kept.terms(), kept.squares())
    u, p, y, v = (column[~gone] for column in columns)
    total = weights = 0.0
    for user in np.unique(u):
        on = u == user
        if len(set(y[on])) == 2:
            w = {"clicks": y[on].sum(), "uniform": 1, "value": v[on & (y == 1)].sum()}[weighting]
            total, weights = total + w * auc_of(y[on], p[on]), weights + w
    assert found.weighted_auc / found.weight == pytest.approx(total / weights, abs=1e-9)


def test_without_values_there_is_no_gauc_by_value_and_no_memory_for_it() -> None:
    columns, nobody = table(3), np.zeros(3_000, np.bool_)
    plain, valued = (filled(GroupRanks(values=values), columns, nobody) for values in (False, True))
    assert plain.of_each() == (*valued.of_each()[:2], None)
    assert valued.nbytes == plain.nbytes + 8 * 200


def events(minutes: int = 3) -> list[Event]:
    rng = np.random.default_rng(4)
    out: list[Event] = []
    for i in range(3_000):
        ts, p = BASE + i * minutes * 60_000 // 3_000, float(np.round(rng.random(), 2))
        out.append(Shown(f"i{i}", ts, user=f"u{rng.integers(90)}", pclick=p, request=f"r{i // 6}"))
        if rng.random() < p / 2:
            out.append(Tap(f"i{i}", ts + 10, {"value": float(rng.gamma(1, 9))}))
    return sorted(out, key=lambda event: event.ts)


def points(weighting: str, metric: str, memory: str = "512MB") -> list[Point]:
    """Of live panes."""
    tree = {
        "users": {"weighting": weighting, "memory": memory},
        "join": {"attribution_window": "10s", "correction_horizon": "1h", "request_gap": "5s"},
    }
    pipeline = Pipeline(Settings.model_validate(tree), ManualClock())
    pipeline.take(make_batch(events(), pipeline.catalog))
    pipeline.finish()
    snapshot = readers_see(pipeline)
    (series,) = snapshot.panes
    return list(PaneMemory(snapshot, QuestionSlots()).series(metric, [series], None, None, 10)[series].points)


def test_live_panes_have_gauc_by_value_and_by_request() -> None:
    """Panes left users' values out, so there was no GAUC of them; and without users' ranks none by request, either."""
    for metric in ("gauc", "gauc_value", "gauc_clicks", "gauc_uniform", "gauc_request"):
        found = points("value", metric)
        assert len(found) == 3
        assert all(point.value is not None and 0.5 < point.value < 1 and point.stderr for point in found), metric
    by_clicks = {weighting: points(weighting, "gauc_clicks") for weighting in ("value", "uniform")}
    assert by_clicks["value"] == by_clicks["uniform"]
    assert [p.value for p in points("value", "gauc")] == [p.value for p in points("value", "gauc_value")]
    assert points("uniform", "gauc") == points("impressions", "gauc_uniform") != points("impressions", "gauc")
    assert {p.value for p in points("impressions", "gauc_value")} == {None}
