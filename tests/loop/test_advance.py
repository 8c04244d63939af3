"""`advance` moves on what readers see; `snapshot` only shows it."""

from __future__ import annotations

from streameval.loop.pipeline import Pipeline
from streameval.results.snapshot import Surroundings
from streameval.settings.tree import Settings
from streameval.testing import ManualClock, Shown, Tap, make_batch

BASE = 1_700_000_040_000


def test_a_snapshot_changes_nothing_and_shows_nothing_new_until_the_pipeline_advances() -> None:
    pipeline = Pipeline(Settings(), clock := ManualClock())
    events = [Shown(f"i{i}", BASE + 1000 * i, f"u{i % 7}", 0.1 + i % 8 / 10) for i in range(400)]
    clicks = [Tap(f"i{i}", BASE + 1000 * i + 500) for i in range(0, 400, 3)]
    batch = sorted([*events, *clicks], key=lambda event: event.ts)
    pipeline.take(make_batch(batch[:250], pipeline.catalog, 0))
    assert pipeline.snapshot().results == ()
    pipeline.advance()
    first = pipeline.snapshot()
    pipeline.take(make_batch(batch[250:], pipeline.catalog, 0))
    clock.now += 10
    assert pipeline.snapshot() == first
    assert pipeline.snapshot(Surroundings(ready={"broker": True})).ready == {"broker": True}
    assert pipeline.snapshot() == first
    pipeline.advance()
    then = pipeline.snapshot()
    assert then.number == first.number + 1
    assert then.taken_at == first.taken_at + 10
    assert then.events["impressions"] == 400 > first.events["impressions"]


def test_the_lag_of_a_partition_is_its_own() -> None:
    pipeline = Pipeline(Settings(), ManualClock())
    for partition in (0, 1):
        pipeline.take(make_batch([Shown("a", BASE)], pipeline.catalog, partition))
    pipeline.advance()
    lag = {("impressions", 0): 3, ("clicks", 0): 4, ("impressions", 1): 5}
    states = pipeline.snapshot(Surroundings(lag=lag)).partitions
    assert [dict(state.lag) for state in states] == [
        {("impressions", 0): 3, ("clicks", 0): 4},
        {("impressions", 1): 5},
    ]
