"""Measures that begin after a restart: what is counted of them is as if the stream had begun there, late clicks included."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streameval.events.batch import Series
from streameval.loop.keeper import PartitionKeeper
from streameval.loop.options import options_of
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings
from streameval.sources.dead_letters import JsonlDeadLetters
from streameval.store.history.format import HistoryFormat
from streameval.store.history.reader import HistoryReader
from streameval.store.history.writer import HistoryWriter, Retention
from streameval.testing import ManualClock, Shown, Tap, make_batch, readers_see

BASE = 1_760_000_000_000  # 20 s after a pane begins
BEFORE, AFTER = 1_180, 240  # impressions, one a second: the second part begins with a pane, and with a list
V1 = Series("default", "v1", "logged")
LONG = Retention(1 << 40, 1 << 40, 1 << 40, 1 << 30)

JOIN = {"attribution_window": "1m", "allowed_lateness": "0s", "request_gap": "1m"}
RANKED: dict[str, Any] = {"ranking": {"k": [1, 3], "by_user": ["ndcg_3", "mrr"]}}
OF_CUTS = (f"{name}_{k}" for name in ("precision", "recall", "hit_rate", "click_hit_rate") for k in (1, 2, 3))
RANKING = ("ndcg_", "map", "mrr", "dcg_", "shown_", "requests", *OF_CUTS)


def form_of(settings: Settings) -> HistoryFormat:
    return HistoryFormat(settings.windows.pane, options_of(settings), settings.users.weighting)


def opened(path: Path, measures: dict[str, Any]) -> tuple[Pipeline, PartitionKeeper]:
    settings = Settings.model_validate({"join": JOIN, "store": {"path": str(path)}, **measures})
    clock = ManualClock()
    pipeline = Pipeline(settings, clock)
    history = HistoryWriter(path / "history.sqlite", form_of(settings), LONG)
    keeper = PartitionKeeper(settings, pipeline, clock, history, JsonlDeadLetters(""))
    keeper.take(frozenset({0}))
    return pipeline, keeper


def feed(pipeline: Pipeline, start: int, count: int, late: Iterable[int] = ()) -> None:
    """Lists of four of thirteen users, one click in three impressions, and clicks on `late` ones."""
    some: list[Shown | Tap] = []
    for i in range(start, start + count):
        version, fields = ("v1", "v2")[i // 4 % 2], {"position": float(i % 4), "propensity": 0.1 + i % 5 / 8}
        score = (i * 7 % 19 + 1) / 20
        some.append(Shown(f"i{i}", BASE + 1_000 * i, f"u{i // 4 % 13}", score, version, f"r{i // 4}", fields=fields))
        if i % 3 == 0:
            some.append(Tap(f"i{i}", BASE + 1_000 * i + 500, {"value": float(i % 50)}))
    some += [Tap(f"i{i}", BASE + 1_000 * i + 700, {"value": 45.0}) for i in late]
    pipeline.take(replace(make_batch(some, pipeline.catalog), offsets={("impressions", 0): start + count}))


def measured(pipeline: Pipeline, names: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    pipeline.finish()
    rows = [r for r in readers_see(pipeline).report()["results"] if r["window"] == "all" and r["slice"] is None]
    return {row["version"]: {k: v for k, v in row.items() if k.startswith(names)} for row in rows}


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        ({"ranking": {"k": []}}, RANKED, RANKING),
        (RANKED, {"ranking": {"k": [1, 2, 3], "by_user": ["ndcg_2", "recall_1"]}}, RANKING),
        (RANKED, {"ranking": {**RANKED["ranking"], "gain": "value"}}, RANKING),
        (RANKED, {"ranking": {"k": [1, 3], "by_user": ["ndcg_3"]}}, ("ndcg_3_by_user",)),
        ({}, {"metrics": {"value": True}}, ("value_per_impression", "value_per_request", "click_yield")),
        ({}, {"exposure": {"max_weight": 3.0}}, ("log_loss_ips", "log_loss_snips", "exposure_ess", "dcg_10")),
        ({}, {"auction": {"mainline": 2}}, ("click_yield", "mainline_click_yield")),
    ],
    ids=["ranking", "another cut", "another gain", "other averages", "values", "other weights", "another mainline"],
)
def test_measures_of_a_restart_begin_with_the_next_pane(
    tmp_path: Path, before: dict[str, Any], after: dict[str, Any], names: tuple[str, ...]
) -> None:
    only, _ = opened(tmp_path / "only", after)
    feed(only, BEFORE, AFTER)
    pipeline, keeper = opened(tmp_path / "store", before)
    feed(pipeline, 0, BEFORE)
    readers_see(pipeline)
    keeper.close()
    for start in range(BEFORE, BEFORE + AFTER, AFTER // 2):  # twice: the second restart knows where they began
        pipeline, keeper = opened(tmp_path / "store", after)
        late = (start - BEFORE) * BEFORE // AFTER
        feed(pipeline, start, AFTER // 2, range(late, late + BEFORE // 2))
        readers_see(pipeline)
        if start == BEFORE:
            keeper.close()
    expected = measured(only, names)
    assert all(value is not None for row in expected.values() for key, value in row.items() if "snips" not in key)
    assert measured(pipeline, names) == expected


def test_a_cut_that_is_left_out_changes_nothing_of_the_others(tmp_path: Path) -> None:
    truth, _ = opened(tmp_path / "truth", {"ranking": {"k": [3], "by_user": []}})
    feed(truth, 0, BEFORE)
    feed(truth, BEFORE, AFTER, range(900, 1_000))
    pipeline, keeper = opened(tmp_path / "store", {"ranking": {"k": [1, 3], "by_user": []}})
    feed(pipeline, 0, BEFORE)
    keeper.close()
    pipeline, _ = opened(tmp_path / "store", {"ranking": {"k": [3], "by_user": []}})
    feed(pipeline, BEFORE, AFTER, range(900, 1_000))
    assert measured(pipeline, RANKING) == measured(truth, RANKING)


def test_a_past_range_that_begins_before_a_cut_says_nothing_of_it(tmp_path: Path) -> None:
    """Its lists would be divided by those of the other cuts, which were counted before, too."""
    later = {"ranking": {"k": [1, 2, 3], "by_user": []}}
    pipeline, keeper = opened(tmp_path, RANKED)
    feed(pipeline, 0, BEFORE)
    readers_see(pipeline)
    keeper.close()
    pipeline, keeper = opened(tmp_path, later)
    feed(pipeline, BEFORE, AFTER)
    keeper.close()
    pipeline, keeper = opened(tmp_path, later)  # it is remembered
    feed(pipeline, BEFORE + AFTER, 2 * AFTER)
    readers_see(pipeline)
    keeper.close()
    reader = HistoryReader(tmp_path / "history.sqlite", form_of(Settings.model_validate(later)), 20)
    first = BASE - 20_000 + 60_000 * (BEFORE // 60 + 1)  # the pane in which they begin
    past, since = (reader.range([V1], start, None, [None]).results[0] for start in (None, first))
    assert past.metrics["ndcg_2"] is None
    assert past.reasons["ndcg_2"] == "not_configured"
    assert 0.5 < past.metrics["ndcg_3"] < 1
    assert 0.2 < since.metrics["ndcg_2"] < 1
    assert since.totals.impressions < past.totals.impressions
    points = reader.series("ndcg_2", [V1], None, None)[V1].points
    assert {point.start < first for point in points if point.value is not None} == {False}
    assert any(point.start < first for point in points)
