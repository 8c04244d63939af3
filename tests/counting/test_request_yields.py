"""Click yields and worth of versions that serve: equal to a loop over the log, whatever the batches and corrections."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from streameval.counting import users as users_of_partition
from streameval.counting.users import Users
from streameval.events import fields
from streameval.events.batch import Batch, Catalog, Clicks, Features, Impressions, Shadow
from streameval.events.hashing import hash_strings
from streameval.loop.pipeline import Pipeline
from streameval.results.result import Result
from streameval.settings.tree import Settings
from streameval.store import container
from streameval.testing import Event, ManualClock, Shown, Tap, make_batch, readers_see

BASE = 1_700_000_040_000
NAMES = ("click_yield", "mainline_click_yield", "value_per_impression", "value_per_request", "value_per_user")
N = 4_000


def config(**more: dict) -> Settings:
    tree = {
        "join": {"attribution_window": "20s", "allowed_lateness": "5s", "correction_horizon": "100s", "request_gap": "10s"},
        "windows": {"pane": "10s", "sliding": ["60s"]},
        "metrics": {"value": True},
        "auction": {"mainline": 2},
    }  # fmt: skip
    return Settings.model_validate({**tree, **more})


def log(seed: int, users: int = 300) -> list[Event]:
    """Lists of one to six, served by the version of the user's arm; up to three clicks a position, some after the label."""
    luck = Random(seed)
    arrivals: list[tuple[int, int, Event]] = []
    taste = [luck.gammavariate(2, 0.1) for _ in range(users)]
    i = request = 0
    while i < N:
        request += 1
        ts, user = BASE + 60 * i, luck.randrange(users)
        version = "v2" if user % 4 == 0 else "v1"
        size = luck.choice([1, 3, 6])
        for position in range(size):
            name = "" if luck.random() < 0.02 else f"r{request}"
            fields = {} if luck.random() < 0.05 else {"position": float(position)}
            shown = Shown(f"i{i}", ts + position, f"u{user}", round(luck.random(), 2), version, name, fields=fields)
            arrivals.append((ts + position + (30_000 if luck.random() < 0.01 else 0), i, shown))
            if luck.random() < taste[user] / (1 + position):
                for _ in range(luck.choice([1, 1, 2, 3])):
                    clicked = ts + luck.randrange(100, 15_000)
                    tap = Tap(f"i{i}", clicked, {"value": luck.choice([0.1, 4.25, 1e7 + 1 / 3])})
                    arrivals.append((clicked + luck.choice([0, 0, 0, 40_000]), i, tap))
            i += 1
    return [event for _, _, event in sorted(arrivals, key=lambda one: one[:2])]


def run(events: list[Event], settings: Settings, cuts: int = 3, shadow: bool = False) -> Pipeline:
    pipeline = Pipeline(settings, ManualClock())
    luck, left = Random(cuts), list(events)
    while left:
        size = luck.choice([1, 50, 400])
        batch = make_batch(left[:size], pipeline.catalog)
        if shadow:  # the other version scores what it does not serve
            codes = [pipeline.catalog.series_code("default", v) for v in ("v1", "v2")]
            other = np.where(batch.impressions.series == codes[0], codes[1], codes[0]).astype(np.int32)
            scores = Shadow(np.arange(len(batch.impressions) + 1), other, batch.impressions.pclick)
            batch = replace(batch, impressions=replace(batch.impressions, shadow=scores))
        pipeline.take(batch)
        left = left[size:]
        if luck.random() < 0.2:
            readers_see(pipeline, with_history=False)
    pipeline.finish()
    return pipeline


def whole(pipeline: Pipeline) -> dict[str, Result]:
    return {r.series.version: r for r in readers_see(pipeline).results if r.window == "all" and not r.series.objective}


def expected(events: list[Event], version: str) -> dict[str, float]:
    """A loop over what was shown."""
    shown = [e for e in events if isinstance(e, Shown) and e.version == version]
    worth: dict[str, float] = {}
    for e in events:
        if isinstance(e, Tap):
            worth[e.id] = max(worth.get(e.id, 0.0), e.fields["value"])
    lists: defaultdict[str, list[Shown]] = defaultdict(list)
    for e in shown:
        if e.request:
            lists[e.request].append(e)
    in_lists = [e for of in lists.values() for e in of]
    placed = [of for of in lists.values() if any("position" in e.fields for e in of)]
    total = sum(worth.get(e.id, 0.0) for e in shown)
    return {
        "click_yield": sum(e.id in worth for e in in_lists) / len(lists),
        "mainline_click_yield": sum(e.id in worth and e.fields.get("position", 9) < 2 for e in in_lists) / len(placed),
        "value_per_impression": total / len(shown),
        "value_per_request": sum(worth.get(e.id, 0.0) for e in in_lists) / len(lists),
        "value_per_user": total / len({e.user for e in shown}),
    }


@pytest.mark.parametrize("seed", range(3))
def test_yields_are_those_of_a_loop_over_the_log(seed: int) -> None:
    events = log(seed)
    found = whole(run(events, config()))
    for version in ("v1", "v2"):
        metrics = {name: found[version].metrics[name] for name in NAMES}
        assert metrics == pytest.approx(expected(events, version), rel=1e-9)
        assert all(found[version].stderrs[name] > 0 for name in NAMES)
    assert found["v1"].corrected > 20


@pytest.mark.slow
def test_batches_change_nothing_and_who_only_scores_brings_in_nothing() -> None:
    events = log(4)
    one, other, shadowed = (
        whole(run(events, config(), cuts, shadow)) for cuts, shadow in ((3, False), (8, False), (5, True))
    )
    for version in ("v1", "v2"):
        plain = one[version].as_json()
        assert plain == other[version].as_json()
        also = shadowed[version].as_json()
        names = [f"{name}{suffix}" for name in NAMES for suffix in ("", "_stderr")]
        assert [also[name] for name in names] == [plain[name] for name in names]
        assert also["impressions"] > plain["impressions"]
        assert also["gauc_impressions"] != plain["gauc_impressions"], (
            "users of others are not its own here, and are there"
        )


def test_users_that_others_served_are_left_out_of_windows_and_after_restarts_too(tmp_path: Path) -> None:
    events = log(7)
    plain, shadowed = run(events, config()), run(events, config(), 5, shadow=True)
    for one, other in zip(*(readers_see(p).results for p in (plain, shadowed)), strict=True):
        assert (one.series.version, one.window) == (other.series.version, other.window)
        assert one.metrics["value_per_user"] == other.metrics["value_per_user"]
        assert one.stderrs["value_per_user"] == other.stderrs["value_per_user"]
    state = shadowed.partition_state(0)
    assert state is not None
    again = Pipeline(config(), ManualClock())
    container.write(tmp_path / "checkpoint", state)
    again.restore_partition(0, container.read(tmp_path / "checkpoint"))
    assert whole(again)["v1"].metrics["value_per_user"] == whole(plain)["v1"].metrics["value_per_user"]


def test_a_checkpoint_that_does_not_know_whose_users_they_were_says_so() -> None:
    older = Users([6], "impressions", 1 << 30, values=True)
    entries = np.array([user << 32 | 1 for user in older.slots(np.arange(1, 9).astype(np.uint64)).tolist()], np.uint64)
    older.add(0, 0, entries[:4], np.zeros(4, np.uint64), np.ones(4), 1, served=True)
    older.add(0, 0, entries[2:], np.zeros(6, np.uint64), np.ones(6), 1, served=False)
    terms, _ = older.ranked(0, None, 0)
    assert (sum(terms.by_block), terms.served_known) == (4, True)
    older.add(0, 0, entries[2:], np.zeros(6, np.uint64), np.ones(6), -1, served=False)
    assert not older._shadow[0].rows(None, 0).any()
    state = older.state()
    for name in ("shadow", "shadow_known"):
        del state[name]
    newer = Users([6], "impressions", 1 << 30, values=True)
    newer.restore(_unpacked(state), np.array([0], np.int32), 1, lists_anew=False)
    assert not newer.ranked(0, None, 0)[0].served_known
    assert Users([6], "impressions", 1 << 30, values=True).ranked(0, None, 0)[0].served_known


def _unpacked(state: Any) -> Any:
    """As a checkpoint gives it back: what is packed when it is written, packed."""
    if isinstance(state, dict):
        return {name: _unpacked(one) for name, one in state.items()}
    if isinstance(state, list):
        return [_unpacked(one) for one in state]
    return _unpacked(state()) if callable(state) else state


def test_without_requests_positions_or_values_there_is_a_reason() -> None:
    bare = [replace(e, request="", fields={}) if isinstance(e, Shown) else replace(e, fields={}) for e in log(5)]
    (v1,) = (r for v, r in whole(run(bare, config())).items() if v == "v1")
    assert {name: v1.reasons.get(name) for name in NAMES} == {
        "click_yield": "no_request",
        "mainline_click_yield": "no_positions",
        "value_per_impression": None,
        "value_per_request": "no_request",
        "value_per_user": None,
    }
    assert v1.metrics["value_per_user"] == 0
    without = whole(run(log(5), config(metrics={"value": False})))["v1"]
    assert {without.reasons.get(name) for name in NAMES[2:]} == {"values_not_kept"}
    assert without.metrics["click_yield"] is not None


def test_an_objective_has_yields_of_its_own_label() -> None:
    events = log(6)
    objective = [{"name": "dear", "value_at_least": 4}]
    results = readers_see(run(events, config(objectives=objective))).results
    (found,) = (
        r for r in results if (r.series.version, r.series.objective, r.window) == ("v1", "dear", "all") and not r.slice
    )
    worth: dict[str, float] = {}
    for e in events:
        if isinstance(e, Tap):
            worth[e.id] = max(worth.get(e.id, 0.0), e.fields["value"])
    some = [e for e in events if isinstance(e, Shown) or worth[e.id] >= 4]
    metrics = {name: found.metrics[name] for name in NAMES}
    assert metrics == pytest.approx(expected(some, "v1"), rel=1e-9)


@pytest.mark.slow
@patch.object(users_of_partition, "APPLY_AT", 10_000)
def test_values_by_user_of_a_sample_of_users_are_estimated() -> None:
    rng = np.random.default_rng(0)
    shown = [
        Shown(f"i{i}", BASE + i, f"u{rng.integers(60_000)}", float(rng.random()), clicked=None) for i in range(120_000)
    ]
    users = len({e.user for e in shown})
    taps = [Tap(e.id, e.ts + 1, {"value": 2.0}) for e in shown[::10]]
    pipeline = Pipeline(config(users={"memory": "1MB"}), ManualClock())
    for at in range(0, 120_000, 20_000):
        pipeline.take(make_batch([*shown[at : at + 20_000], *taps[at // 10 : at // 10 + 2_000]], pipeline.catalog))
    pipeline.finish()
    (found,) = (r for r in readers_see(pipeline).results if r.window == "all")
    assert found.users_sampled < 1
    truth, stderr = 24_000 / users, found.stderrs["value_per_user"]
    assert stderr is not None
    assert abs(found.metrics["value_per_user"] - truth) < 4 * stderr < truth / 3


@pytest.mark.slow
@pytest.mark.parametrize("users", [300, 3_000])
def test_errors_are_those_of_repeating_the_experiment(users: int) -> None:
    """Stated over empirical, in 150 repetitions."""
    values, stated = [], []
    for seed in range(150):
        pipeline = Pipeline(config(windows={"pane": "1m", "sliding": []}), ManualClock())
        pipeline.take(repeated(seed + users, users, pipeline.catalog))
        pipeline.finish()
        (found,) = readers_see(pipeline, with_history=False).results
        values.append([found.metrics[name] for name in NAMES])
        stated.append([found.stderrs[name] for name in NAMES])
    ratio = dict(zip(NAMES, np.mean(stated, axis=0) / np.std(values, axis=0, ddof=1), strict=True))
    assert all(0.85 < r < 1.25 for r in ratio.values()), ratio


def repeated(seed: int, users: int, catalog: Catalog) -> Batch:
    """Other users every time: how much each is shown, clicks and spends is their own. Lists of three, in order of time."""
    rng = np.random.default_rng(seed)
    taste, activity = rng.gamma(2, 0.1, users), 1 + rng.poisson(rng.gamma(1, 1200 / users, users))
    user = np.repeat(np.arange(users), activity)  # of each request
    ts = BASE + np.sort(rng.integers(50_000, size=user.size))
    rng.shuffle(user)
    at = np.repeat(np.arange(user.size), 3)  # the request of each impression
    n = at.size
    clicked = np.flatnonzero(rng.random(n) < taste[user[at]])
    arrival = np.argsort(np.concatenate((ts[at], ts[at[clicked]] + 1)), kind="stable")
    order = np.empty(arrival.size, np.int32)
    order[arrival] = np.arange(arrival.size)
    ids, position = hash_strings([f"i{i}" for i in range(n)]), np.tile([0.0, 1.0, 2.0], user.size)
    of_user = hash_strings([f"{seed}-{i}" for i in range(users)])
    request = hash_strings([f"{seed}-r{i}" for i in range(user.size)])
    value = rng.gamma(1, 20 * taste[user[at[clicked]]])
    none = {one.name: np.full(n, np.nan) for one in fields.carried(fields.IMPRESSION)}
    nothing = {one.name: np.full(clicked.size, np.nan) for one in fields.carried(fields.CLICK)}
    impressions = Impressions(
        order[:n], ids, ts[at], of_user[user[at]], request[at], np.zeros(n, np.uint64),
        np.full(n, catalog.series_code("default", "v1"), np.int32), np.full(n, 0.1), np.zeros(n, np.int64),
        np.full(n, -1, np.int8), {**none, "position": position}, features=Features(np.zeros(n + 1, np.int64), ids[:0], value[:0]),
    )  # fmt: skip
    by_time = np.argsort(order[n:])
    clicks = Clicks(
        order[n:][by_time],
        ids[clicked][by_time],
        ts[at[clicked]][by_time] + 1,
        {**nothing, "value": value[by_time]},
    )
    return Batch(0, impressions, clicks, True)
