"""Many small panes: what is worked out for readers is bounded by update, and nothing is paid for panes that have left."""

from __future__ import annotations

import numpy as np
import pytest

from streameval.counting.exact_scores import ExactScores
from streameval.loop.pipeline import Pipeline
from streameval.metrics.registry import names
from streameval.results import panes as history_module
from streameval.results.lines import QuestionSlots
from streameval.results.pane_memory import PaneMemory
from streameval.settings.tree import Settings
from streameval.testing import Shown, make_batch, readers_see

T0 = 1_700_000_000_000


def pipeline(panes: int) -> Pipeline:
    """After so many seconds with an impression each, all of them labelled."""
    tree = {
        "join": {"attribution_window": "1s", "allowed_lateness": "0s", "correction_horizon": "10m", "request_gap": "1s"},
        "windows": {"pane": "1s", "sliding": ["5s"]},
    }  # fmt: skip
    made = Pipeline(Settings.model_validate(tree), lambda: 0.0)
    shown = [Shown(f"i{i}", T0 + i * 1000, f"u{i % 3}", 0.5, clicked=i % 2) for i in range(panes)]
    made.take(make_batch(shown, made.catalog))
    return made


def starts(made: Pipeline) -> list[int]:
    (columns,) = readers_see(made).panes.values()
    return ((columns.start - T0) // 1000).tolist()


def test_panes_are_worked_out_newest_first_a_bounded_number_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "AT_ONCE", 40)
    made = pipeline(100)
    made.finish()
    assert starts(made) == list(range(60, 100))
    assert starts(made) == list(range(20, 100))
    assert starts(made) == list(range(100))
    assert starts(made) == list(range(100)), "once each"


def test_a_pane_in_memory_says_why_a_metric_is_undefined_in_the_words_of_its_result() -> None:
    made = Pipeline(Settings.model_validate({"windows": {"pane": "1m", "sliding": ["5m"]}}), lambda: 0.0)
    shown = [Shown(f"i{i}", T0 // 60_000 * 60_000 + i, f"u{i}", 0.5, clicked=i % 2) for i in range(20)]
    made.take(make_batch(shown, made.catalog))
    made.finish()
    snapshot = readers_see(made)
    (whole,) = (result for result in snapshot.results if result.window == "all" and result.slice is None)
    memory = PaneMemory(snapshot, QuestionSlots())
    said = {}
    for metric in names():
        (line,) = memory.series(metric, memory.series_names(), None, None, 10).values()
        (point,) = line.points
        if point.value is None:
            said[metric] = point.reason
    assert said["gauc"] == "no_eligible_user"
    assert set(said) == {name for name in names() if whole.metrics[name] is None}
    assert said == {name: whole.reasons[name] for name in said}


def test_panes_that_left_memory_before_their_turn_are_not_worked_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "AT_ONCE", 40)
    made = pipeline(2_000)
    found = starts(made)
    assert len(found) == 40
    while len(more := starts(made)) > len(found):
        found = more
    assert found[-1] == 1_997
    assert len(found) <= 600 + 10, "ten minutes are kept"
    assert not made.panes._waiting


def test_the_oldest_scores_go_first_also_when_panes_come_and_go_in_any_order() -> None:
    rng = np.random.default_rng(1)
    kept, panes = ExactScores(50), {}
    for step in range(400):
        pane = step // 4 + int(rng.integers(-3, 4))
        scores = rng.integers(1, 1 << 40, int(rng.integers(1, 4))).astype(np.uint64)
        kept.add(pane, scores, 1)
        if pane >= kept._gone_before:
            panes.setdefault(pane, []).extend(scores.tolist())
        while sum(map(len, panes.values())) > 50:
            del panes[min(panes)]
        if step % 50 == 49:  # the same are there, by pane
            panes = {n: held for n, held in panes.items() if n >= kept._gone_before}
            first = min(panes)
            assert kept.scores(first, 1 << 40).tolist() == sorted(v for held in panes.values() for v in held)
            assert sorted(kept._oldest) == sorted(kept._panes)
    kept.forget_before(90)  # those that no window holds any more
    kept.add(10, np.array([2], np.uint64), 1)
    kept.add(101, np.arange(1, 60, dtype=np.uint64), 1)
    assert sorted(kept._oldest) == sorted(kept._panes)
