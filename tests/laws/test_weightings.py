"""GAUC by every weighting at once: the same bits as the one that is kept up to date, of windows, panes and past ranges."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import streameval
from streameval.loop.pipeline import Pipeline
from streameval.metrics.ranking import weighted_errors
from streameval.results.lines import Point, QuestionSlots
from streameval.results.pane_memory import PaneMemory
from streameval.settings.tree import Settings
from streameval.sketches.grid import score_keys
from streameval.sketches.ranks import GroupRanks
from streameval.sketches.sorted_lists import entries
from streameval.sketches.weightings import OTHER_WEIGHTINGS, Weighted, worths
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
        value = sign * worths(v[clicked])
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


@pytest.mark.parametrize("configured", ["impressions", "value"])
def test_what_is_read_in_between_is_not_what_is_read_after(configured: str) -> None:
    """Sums that are kept until groups change are those of the groups as they are now, whatever changed them."""
    u, p, y, v = table(3)
    some = np.arange(u.size) < 2_000
    first, second = (tuple(column[on] for column in (u, p, y, v)) for on in (some, ~some))
    ranks = GroupRanks(configured, values=True)

    def read() -> tuple[object, ...]:
        again = GroupRanks(configured, values=True)
        again.restore(ranks.state())
        found = (ranks.squares(), ranks.of_each())
        assert found == (again.squares(), again.of_each())
        return found

    filled(ranks, first, np.zeros(2_000, np.bool_))
    seen = [read()]
    filled(ranks, second, second[0] % 2 == 0)
    seen.append(read())
    ranks.keep(np.arange(0, 200, 3))
    seen.append(read())
    ranks.clear()
    seen.append(read())
    assert len(set(seen)) == 4


@pytest.mark.parametrize("unit", [1e-6, 1e-3, 0.05, 1.0, 1e6, 1e9, 1e11, 1e13])
@pytest.mark.parametrize("configured", ["impressions", "value"])
def test_by_value_the_unit_of_what_clicks_are_worth_is_no_matter(unit: float, configured: str) -> None:
    """Dollars, or micros of them: GAUC and its error are those of their formulas, from 1e-9 up to 1e12, which is the most."""
    u, p, y, v = table(5)
    nobody = np.zeros(u.size, np.bool_)
    ranks = filled(GroupRanks(configured, values=True), (u, p, y, v * unit), nobody)
    terms = Weighted(*ranks.terms(), ranks.squares()) if configured == "value" else ranks.of_each()[2]
    assert terms is not None
    worth = np.minimum(v * unit, 1e12) * y
    both = [on for on in (u == user for user in np.unique(u)) if len(set(y[on])) == 2]
    w, auc = np.array([worth[on].sum() for on in both]), np.array([auc_of(y[on], p[on]) for on in both])
    gauc = np.average(auc, weights=w)
    stderr = np.sqrt(((w * (auc - gauc)) ** 2).sum() * w.size / (w.size - 1)) / w.sum()
    assert terms.weighted_auc / terms.weight == pytest.approx(gauc, abs=1e-5 if unit < 1e-3 else 1e-8)
    error = weighted_errors(terms, w.size)
    assert error is not None
    assert error == pytest.approx((stderr, w.sum() ** 2 / (w * w).sum() - 1), rel=1e-4 if unit < 1e-3 else 1e-7)


@pytest.mark.parametrize("weighting", ["impressions", "value"])
def test_money_in_micros_is_money(weighting: str) -> None:
    """Of a table, too, GAUC by value and what comes of it is the same in any unit."""
    u, p, y, v = table(8)
    found = []
    for unit in (2.0**-8, 1.0, 2.0**20, 2.0**32):
        columns = {"pclick": p, "clicked": y, "user_id": u, "worth": v * unit}
        settings = {"metrics": {"value": True}, "users": {"weighting": weighting}}
        result = streameval.evaluate(columns, value="worth", settings=settings)
        found.append([result.metric(name) for name in ("gauc_value", "gauc_value_stderr", "gauc", "gauc_stderr")])
    for one in found:
        assert one == pytest.approx(found[1], rel=1e-6)


@pytest.mark.parametrize("unit", [1.0, 1e11])
def test_what_clicks_are_worth_is_the_same_after_a_restart(unit: float) -> None:
    u, p, y, v = table(6)
    columns, gone = (u, p, y, v * unit), np.random.default_rng(7).random(u.size) < 0.3
    ranks, again = filled(GroupRanks("value"), columns, gone), GroupRanks("value")
    again.restore(ranks.state())
    assert (again.terms(), again.squares()) == (ranks.terms(), ranks.squares())
    if unit == 1.0:  # as programs wrote it for which a user's clicks were worth 2**32 at the most
        before = GroupRanks("value")
        before.restore({name: column for name, column in ranks.state().items() if name != "whole"})
        assert (before.terms(), before.squares()) == (ranks.terms(), ranks.squares())


def test_without_values_there_is_no_gauc_by_value_and_no_memory_for_it() -> None:
    columns, nobody = table(3), np.zeros(3_000, np.bool_)
    plain, valued = (filled(GroupRanks(values=values), columns, nobody) for values in (False, True))
    assert plain.of_each() == (*valued.of_each()[:2], None)
    assert valued.nbytes == plain.nbytes + 16 * 200


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


@pytest.mark.parametrize("weighting", ["impressions", "value"])
def test_a_partition_in_which_a_window_has_nobody_changes_nothing(weighting: str) -> None:
    """Its values were taken for values that are not kept, so GAUC by value of the window of all partitions was undefined."""
    tree = {
        "users": {"weighting": weighting},
        "metrics": {"value": True},
        "join": {"attribution_window": "10s", "correction_horizon": "1h", "request_gap": "5s"},
        "windows": {"sliding": ["1m"]},
    }
    shown = [event for event in events() if isinstance(event, Shown)]
    gone = {event.id for event in shown if event.user < "u5"}  # after the first minute
    stayed = {event.id for event in shown if event.ts < BASE + 60_000} | {e.id for e in shown} - gone
    every = [event for event in events() if event.id in stayed]
    found = []
    for partitions in (1, 2):
        pipeline = Pipeline(Settings.model_validate(tree), ManualClock())
        for partition in range(partitions):
            mine = [event for event in every if partitions == 1 or (event.id in gone) == bool(partition)]
            pipeline.take(make_batch(mine, pipeline.catalog, partition))
        pipeline.finish()
        (window,) = [result for result in readers_see(pipeline).results.overall if result.window == "1m"]
        assert window.metrics["gauc_value"] is not None
        found.append({name: window.metrics[name] for name in window.metrics if name.startswith("gauc")})
        found[-1] |= {f"{name}_stderr": window.stderrs.get(name) for name in found[-1]}
    assert found[0] == found[1]
