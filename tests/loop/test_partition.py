"""The one rule: no model scores an event whose label it has learned from. River is the oracle."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from river import linear_model, stream

from streameval.events.batch import Batch
from streameval.join.policy import NEVER
from streameval.loop import row_counts
from streameval.loop.online import OnlineModels
from streameval.loop.partition import Partition
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings
from streameval.testing import ManualClock, Shown, Tap, make_batch, readers_see


def make_pipeline(
    window: int, lateness: int = 0, score_at: str = "impression", models: tuple[str, ...] = ("river",)
) -> Pipeline:
    known = {
        "river": {"name": "lr", "kind": "river", "factory": "river.linear_model.LogisticRegression"},
        "ftrl": {"name": "ftrl", "kind": "ftrl", "bits": 12, "alpha": 0.5},
    }
    return Pipeline(
        Settings.model_validate(
            {
                "join": {
                    "attribution_window": f"{window}ms", "allowed_lateness": f"{lateness}ms", "score_at": score_at,
                    "request_gap": 0, "correction_horizon": "24h",
                },
                "models": [known[name] for name in models],
            }
        ),
        ManualClock(),
    )  # fmt: skip


def make_stream(n: int, seed: int, step: int = 3) -> list[tuple[Shown, bool]]:
    """Impressions with features and labels; many equal times, and times exactly one window apart."""
    rng = np.random.default_rng(seed)
    ts = 1_700_000_000_000 + np.cumsum(rng.integers(0, step, n)) * 100
    out = []
    for i in range(n):
        x = {f"f{k}": float(rng.normal()) for k in range(3)} | {f"c={rng.integers(0, 5)}": 1.0}
        y = bool(rng.random() < 1 / (1 + np.exp(-(x["f0"] - 0.5))))
        out.append((Shown(f"i{i}", int(ts[i]), user=f"u{i % 7}", features=x), y))
    return out


def scores_of(pipeline: Pipeline) -> np.ndarray:
    (monitor,) = pipeline.partitions.values()
    table = monitor.joiner.table
    return table.score[0][: monitor.joiner.pending + monitor.joiner.counts["matured"]]


def river_scores(events: list[tuple[Shown, bool]], delay: int | None) -> list[float]:
    """What `progressive_val_score` computes: its loop over `simulate_qa`."""
    model = linear_model.LogisticRegression()
    dataset = [({"ts": e.ts, **e.features}, y) for e, y in events]
    scores: dict[int, float] = {}
    for i, x, y, *_ in stream.simulate_qa(dataset, moment="ts" if delay is not None else None, delay=delay, copy=True):
        features = {k: v for k, v in x.items() if k != "ts"}
        if y is None:
            scores[i] = model.predict_proba_one(features)[True]
        else:
            model.learn_one(features, y)
    return [scores[i] for i in range(len(events))]


@pytest.mark.parametrize("delay", [None, 100, 500, 5_000])
def test_the_loop_with_a_river_model_is_progressive_val_score_prediction_for_prediction(delay: int | None) -> None:
    events = make_stream(400, seed=1)
    pipeline = make_pipeline(window=delay or 0)
    for event, y in events:
        event.clicked = int(y)
        pipeline.take(make_batch([event], pipeline.catalog))
    assert scores_of(pipeline).tolist() == river_scores(events, delay)


def test_labels_that_come_as_clicks_are_learned_when_the_window_closes_as_in_river() -> None:
    events = make_stream(400, seed=2)
    pipeline = make_pipeline(window=700)
    arrivals: list[Shown | Tap] = [e for e, _ in events]
    arrivals += [Tap(e.id, e.ts + 1 + hash(e.id) % 699) for e, y in events if y]
    arrivals.sort(key=lambda e: e.ts)
    for event in arrivals:
        pipeline.take(make_batch([event], pipeline.catalog))
    ours = scores_of(pipeline)
    # clicks move the watermark too, so labels may be known a little earlier than at the next impression, never later
    assert np.abs(ours - np.array(river_scores(events, 700))).max() < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 7, 100, 1000])
@pytest.mark.parametrize("score_at", ["impression", "label"])
def test_no_score_ever_knows_its_label_at_any_batch_size_and_in_any_order_within_lateness(
    size: int, score_at: str
) -> None:
    events = make_stream(1500, seed=3)
    rng = np.random.default_rng(0)
    arrivals: list[Shown | Tap] = [e for e, _ in events] + [Tap(e.id, e.ts + 50) for e, y in events if y]
    arrivals.sort(key=lambda e: e.ts + rng.uniform(0, 900))
    pipeline = make_pipeline(window=500, lateness=1000, score_at=score_at, models=("ftrl", "river"))
    for start in range(0, len(arrivals), size):
        pipeline.take(make_batch(arrivals[start : start + size], pipeline.catalog))
    pipeline.finish()
    online = [r for r in readers_see(pipeline).results if r.series.source == "online"]
    assert len(online) >= 2
    assert all(r.violations == 0 and r.reliable for r in online)
    assert all(r.totals.impressions == 1500 for r in online if r.window == "all")


def test_a_loop_that_learns_before_it_scores_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def leaking_step(self: Partition, batch: Batch) -> None:
        rows, _ = self.joiner.add(batch)
        self._settle(self.joiner.mature(1 << 60))  # everything is learned at once ...
        self._score(rows)  # ... and then scored
        labelled, scored = self.rows._labelled(rows), self.rows._scored(rows)
        self.background.call(self.rows._observe, labelled, scored, 1, [])  # as the loop itself does

    monkeypatch.setattr(Partition, "step", leaking_step)
    events = make_stream(300, seed=4)
    pipeline = make_pipeline(window=500, models=("ftrl",))
    for start in range(0, 300, 50):
        for e, y in events[start : start + 50]:
            e.clicked = int(y)
        pipeline.take(make_batch([e for e, _ in events[start : start + 50]], pipeline.catalog))
    leaked = [r for r in readers_see(pipeline).results if r.series.source == "online" and r.window == "all"]
    assert leaked[0].violations > 0
    assert not leaked[0].reliable
    assert "may have known their label" in (leaked[0].reliable_reason or "")


def test_with_shuffled_labels_the_online_auc_falls_to_one_half() -> None:
    rng = np.random.default_rng(5)
    events = [e for e, _ in make_stream(8000, seed=5)]
    for e in events:
        e.clicked = int(rng.random() < 0.3)
    pipeline = make_pipeline(window=500, models=("ftrl",))
    for start in range(0, len(events), 250):
        pipeline.take(make_batch(events[start : start + 250], pipeline.catalog))
    pipeline.finish()
    result = next(r for r in readers_see(pipeline).results if r.series.source == "online" and r.window == "all")
    clicks, others = result.totals.clicks, result.totals.impressions - result.totals.clicks
    stderr = np.sqrt((clicks + others + 1) / (12 * clicks * others))  # of AUC when labels are random (Mann-Whitney)
    assert abs(result.metrics["auc"] - 0.5) < 4 * stderr


def test_a_late_impression_is_not_scored_online_and_is_counted() -> None:
    pipeline = make_pipeline(window=100, models=("ftrl",))
    early = [Shown(f"a{i}", 1_000_000 + i * 100, features={"x": 1.0}, clicked=1) for i in range(20)]
    pipeline.take(make_batch(early, pipeline.catalog))
    pipeline.take(make_batch([Shown("late", 1_000_050, features={"x": 1.0}, clicked=0)], pipeline.catalog))
    pipeline.finish()
    snapshot = readers_see(pipeline)
    assert snapshot.events["late_impressions"] == 1
    assert snapshot.events["late_unscored"] == 1
    by_source = {r.series.source: r.totals.impressions for r in snapshot.results if r.window == "all"}
    assert by_source == {"logged": 21, "online": 20}
    (monitor,) = pipeline.partitions.values()
    assert monitor.learners[0].trained > NEVER


def test_labels_wait_for_the_click_input_when_the_impressions_run_ahead() -> None:
    pipeline = make_pipeline(window=20_000, lateness=2_000, models=("ftrl",))
    shown = [Shown(f"i{i}", 1_000_000 + 1000 * i, features={"x": 1.0}) for i in range(100)]
    for part in (shown[:50], shown[50:]):
        pipeline.take(make_batch(part, pipeline.catalog, shared=False))
    assert readers_see(pipeline).events["matured"] == 0, "no click seen yet: nothing is known about clicks"
    taps = [Tap(e.id, e.ts + 500) for e in shown]
    pipeline.take(make_batch(taps, pipeline.catalog, shared=False))
    assert readers_see(pipeline).events["matured"] > 0
    assert readers_see(pipeline).events["corrected"] == 0


@pytest.mark.parametrize(("clicks", "wakes"), [(1, 0), (200, 1)])
def test_corrected_labels_wake_the_counting_thread_once_and_a_few_not_at_all(
    monkeypatch: pytest.MonkeyPatch, clicks: int, wakes: int
) -> None:
    pipeline = make_pipeline(window=100, models=())
    pipeline.take(make_batch([Shown(f"i{i}", 1_000_000 + i * 100) for i in range(300)], pipeline.catalog))
    pipeline.compare()  # waits for the counting
    (monitor,) = pipeline.partitions.values()
    call, calls = monitor.background.call, []

    def counted(function: Callable[..., Any], *args: Any, **named: Any) -> Future[Any]:
        calls.append(function)
        return call(function, *args, **named)

    monkeypatch.setattr(monitor.background, "call", counted)
    pipeline.take(make_batch([Tap(f"i{i}", 1_000_050 + i * 100) for i in range(clicks)], pipeline.catalog))
    assert len(calls) == wakes
    pipeline.finish()
    assert readers_see(pipeline).events["corrected"] == clicks


def test_labels_due_at_once_are_counted_piece_by_piece_while_later_ones_are_learned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(row_counts, "_PIECE", 40)
    pipeline = make_pipeline(window=1_000_000, models=("ftrl",))
    events = make_stream(100, seed=6)
    pipeline.take(make_batch([e for e, _ in events], pipeline.catalog))
    (monitor,) = pipeline.partitions.values()
    order: list[tuple[str, int]] = []
    for owner, name in ((OnlineModels, "learn"), (row_counts.RowCounts, "count")):
        call = getattr(owner, name)

        def noted(self: Any, rows: np.ndarray, call: Callable[..., Any] = call, name: str = name) -> Any:
            order.append((name, rows.size))
            return call(self, rows)

        monkeypatch.setattr(owner, name, noted)
    pipeline.finish()
    assert order == [(name, size) for size in (40, 40, 20) for name in ("learn", "count")]
    assert monitor.models.learners[0].updates == 100
