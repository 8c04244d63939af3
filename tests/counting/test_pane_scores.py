"""Panes that are counted in one call come to what they come to one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.events import SERIES, Events
from streameval.counting import pane_scores
from streameval.counting.pane_scores import PaneScores
from streameval.events.batch import Batch, Shadow
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings


def pipeline() -> Pipeline:
    out = Pipeline(
        Settings.model_validate({"slices": {"dimensions": ["country", "device"]}, "windows": {"pane": "1s"}}),
        lambda: 0.0,
    )
    Events(1).name_slices(out.catalog)
    out.catalog.series_code(*SERIES)
    out.catalog.series_code("ctr", "shadow", "logged")
    return out


def batches() -> list[Batch]:
    """Of 65 minutes, so that curves are made from what scores promise, from labels, and with the hour; half of it in shadow."""
    events, catalog = Events(40_000, minutes=65, seed=5), pipeline().catalog
    out = list(events.batches(catalog, 4_000, learn=False))
    shadow = catalog.series_code("ctr", "shadow", "logged")
    for number, batch in enumerate(out[len(out) // 2 :], len(out) // 2):
        p = batch.impressions.pclick
        scores = Shadow(np.arange(p.size + 1), np.full(p.size, shadow, np.int32), np.sqrt(p))
        out[number] = replace(batch, impressions=replace(batch.impressions, shadow=scores))
    return out


def counted(given: list[Batch]) -> list[Any]:
    one = pipeline()
    for batch in given:
        one.take(batch)
    one.finish()
    one.history_rows([])
    board = one.partitions[0].scoreboard
    board.references.begin(1 << 50)  # labels of the last panes are in the sums, too
    state = board.state()
    panes = [state[room]["panes"]() for room in ("overall", "slices")]
    users = [[saved["users"]["log"](), saved["scores"]["panes"]()] for saved in state["users"]["series"]]
    return [panes, users, state["references"], state["overall"]["total"], state["slices"]["total"]]


@pytest.mark.slow
def test_panes_in_one_call_come_to_what_they_come_to_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    given, calls = batches(), []
    count = PaneScores.count

    def noted(self: PaneScores, layers: Any, first: int, end: int, *rest: Any) -> Any:
        calls.append(end - first)
        return count(self, layers, first, end, *rest)

    monkeypatch.setattr(PaneScores, "count", noted)
    together = counted(given)
    assert max(calls) > 10
    calls.clear()
    monkeypatch.setattr(pane_scores, "_ROOM", 0)
    one_by_one = counted(given)
    assert set(calls) == {1}
    np.testing.assert_equal(together, one_by_one)
