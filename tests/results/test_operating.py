"""Metrics of the operating point need no state: past ranges, other windows and other settings give what the histogram gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streameval.events.durations import DAY
from streameval.loop.options import options_of
from streameval.loop.pipeline import Pipeline
from streameval.metrics.auc import partial_area, standardised
from streameval.results.result import Result
from streameval.settings.tree import Settings
from streameval.sources.formats.decode import Decoder
from streameval.store.history.format import HistoryFormat
from streameval.store.history.reader import HistoryReader
from streameval.store.history.rows import PaneRows
from streameval.store.history.writer import HistoryWriter, Retention
from streameval.testing import ManualClock, readers_see

START = 1_714_557_600_000
MINUTE = 60_000
NAMES = ("pauc", "precision_at", "recall_at", "f1_at", "expected_cost")


def settings(**metrics: Any) -> Settings:
    return Settings.model_validate({"slices": {"dimensions": ["block"]}, "metrics": metrics})


GIVEN = settings(operating_range=[0.02, 0.3], threshold=0.137, cost_ratio=4.0)


@pytest.fixture(scope="module")
def hour() -> Pipeline:
    """An hour of impressions of many users, all of them final."""
    rng = np.random.default_rng(0)
    pipeline = Pipeline(GIVEN, ManualClock())
    p = rng.beta(1, 5, 3600)
    clicked = rng.random(3600) < p
    lines = [
        {"impression_id": f"i{i}", "ts": START + i * 1000, "user_id": f"u{i * i % 397}", "pclick": score, "clicked": label, "position": i % 5}
        for i, (score, label) in enumerate(zip(p.tolist(), clicked.tolist(), strict=True))
    ]  # fmt: skip
    decoder = Decoder(pipeline.catalog, clock=lambda: START + DAY, max_future=0)
    batch, letters = decoder.messages(
        [json.dumps(line).encode() for line in lines], [1] * len(lines), topic=("t",), partition=0,
        offsets=range(len(lines)), format="json", shared=True,
    )  # fmt: skip
    assert not letters
    pipeline.take(batch)
    pipeline.finish()
    return pipeline


def whole_run(pipeline: Pipeline) -> dict[Any, Result]:
    return {r.slice: r for r in readers_see(pipeline).results if r.window == "all"}


@pytest.fixture(scope="module")
def rows(hour: Pipeline) -> list[PaneRows]:
    return hour.history_rows([0])[0]


def stored(rows: list[PaneRows], path: Path, form: HistoryFormat) -> HistoryReader:
    writer = HistoryWriter(path, form, Retention(DAY, DAY, DAY, 1 << 30))
    writer.write(0, 1, rows)
    writer.refresh(60.0)
    writer.close()
    return HistoryReader(path, form, 4)


def form_of(given: Settings) -> HistoryFormat:
    return HistoryFormat(MINUTE, options_of(given), "impressions")


def test_a_past_range_of_whole_panes_is_the_live_one_to_the_bit(
    hour: Pipeline, rows: list[PaneRows], tmp_path: Path
) -> None:
    live = whole_run(hour)
    reader = stored(rows, tmp_path / "history.sqlite", form_of(GIVEN))
    past = {r.slice: r for r in reader.range([live[None].series], None, None).results}
    assert set(past) == set(live) == {None, ("block", "mainline"), ("block", "sidebar")}
    for where, result in live.items():
        for name in NAMES:
            for key in (name, f"{name}_error"):
                assert result.metrics[key] == past[where].metrics[key] is not None, (where, key)
            assert result.stderrs[name] == past[where].stderrs[name] is not None, (where, name)


def test_lines_over_time_have_the_value_of_every_pane_and_its_certified_error(
    hour: Pipeline, rows: list[PaneRows], tmp_path: Path
) -> None:
    series = whole_run(hour)[None].series
    reader = stored(rows, tmp_path / "history.sqlite", form_of(GIVEN))
    (line,) = reader.series("pauc", [series], None, None).values()
    panes = readers_see(hour).panes[series]
    assert len(line.points) == 60 == len(panes.start)
    assert [point.value for point in line.points] == [
        None if np.isnan(value) else value for value in panes.metrics["pauc"].tolist()
    ]
    assert all(point.error is not None for point in line.points if point.value is not None)
    (step,) = reader.steps("pauc", [series], None, None, 60 * MINUTE, ("block", "mainline"), 10).values()
    want = whole_run(hour)["block", "mainline"]
    assert (step.points[0].value, step.points[0].error) == (want.metrics["pauc"], want.metrics["pauc_error"])
    assert step.points[0].stderr == pytest.approx(want.stderrs["pauc"])


def test_other_settings_later_are_those_of_the_past_too(hour: Pipeline, rows: list[PaneRows], tmp_path: Path) -> None:
    """Also of points that were worked out under the old ones."""
    path, series = tmp_path / "history.sqlite", whole_run(hour)[None].series
    before = stored(rows, path, form_of(GIVEN)).series("pauc", [series], None, None)[series].points
    other = form_of(settings(operating_range=[0.0, 0.5], threshold=0.25))
    HistoryWriter(path, other, Retention(DAY, DAY, DAY, 1 << 30)).close()
    reader = HistoryReader(path, other, 4)
    after = reader.series("pauc", [series], None, None)[series].points
    assert [p.value for p in after] != [p.value for p in before]
    (result,) = (r for r in reader.range([series], None, None).results if r.slice is None)
    counts = result.scores
    found = partial_area(counts.negatives, counts.positives, 0.0, 0.5)
    assert found is not None
    assert result.metrics["pauc"] == pytest.approx(standardised(found[0], 0.0, 0.5), abs=1e-15)
    assert result.metrics["recall_at"] == counts.positives[counts.lower >= 0.25].sum() / result.totals.clicks
