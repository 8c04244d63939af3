"""The AUC of scores that come and go between looks is that of all of them, to the last bit, and costs what has changed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from streameval.counting import exact_scores, growing_auc
from streameval.counting.exact_scores import RUN_START, ExactScores
from streameval.counting.growing_auc import Aucs, GrowingAuc
from streameval.metrics.auc import ranked_auc
from streameval.sketches.grid import scores_bits

FOREVER = -RUN_START
few = st.lists(st.tuples(st.sampled_from([0.0, 5e-324, 0.1, 0.25, 0.5, 1.0]), st.booleans()), max_size=8)
_STEP = st.tuples(
    st.sampled_from(["add", "add", "undo", "look", "look", "forget", "restart"]),
    st.integers(0, 1),
    st.integers(0, 8),
    few,
)


def bits(of: list[tuple[float, bool]]) -> NDArray[np.uint64]:
    return scores_bits(np.array([p for p, _ in of], float), np.array([y for _, y in of], bool))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.booleans(), few), max_size=12), st.sampled_from([1, 3, 10_000]))
def test_adding_and_removing_equals_sorting_again(
    steps: list[tuple[bool, list[tuple[float, bool]]]], fewest: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growing_auc, "_FEWEST", fewest)
        held: list[int] = []
        growing = GrowingAuc(np.empty(0, np.uint64))
        for come, of in steps:
            scores = bits(of) if come else np.array(held[: len(of)], np.uint64)
            growing.change(scores, 1 if come else -1)
            held = held + scores.tolist() if come else held[scores.size :]
            assert growing.value == ranked_auc(np.sort(np.array(held, np.uint64)))


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    st.lists(_STEP, min_size=10, max_size=40), st.sampled_from([1 << 20, 1 << 20, 5]), st.sampled_from([1 << 20, 20])
)
def test_looks_at_two_partitions_do_not_depend_on_earlier_looks(
    steps: list[tuple[str, int, int, list[tuple[float, bool]]]], most: int, limit: int
) -> None:
    aucs, kept, horizon = Aucs(), [ExactScores(limit), ExactScores(limit)], 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growing_auc, "_FEWEST", 4)
        patch.setattr(exact_scores, "_MOST_CHANGES", most)
        for what, which, pane, of in steps:
            if what == "add":
                kept[which].add(pane, bits(of), 1)
            elif what == "undo":
                gone = kept[which].scores(pane, pane + 1)
                kept[which].add(pane, np.empty(0, np.uint64) if gone is None else gone, -1)
            elif what == "forget":
                horizon = max(horizon, pane)
                kept[which].forget_before(pane)
            elif what == "restart":
                state, again = kept[which].state(), ExactScores(limit)
                again.restore({**state, "panes": state["panes"]()})
                kept[which] = again
            else:
                aucs.begin()
                windows = [(max(start, horizon), max(start, horizon) + 2) for start in (0, 1, 2)]
                for number, (start, end) in enumerate([(RUN_START, FOREVER), *windows]):
                    parts = [one.scores(start, end) for one in kept]
                    whole = [part for part in parts if part is not None]
                    expected = ranked_auc(np.sort(np.concatenate(whole))) if len(whole) == 2 else None
                    found = aucs.of_window(0, kept, (start, end)) if number else aucs.of_run(0, kept)
                    assert found == expected


def test_a_reading_sorts_only_new_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    kept, aucs, sizes = ExactScores(1 << 20), Aucs(), []
    scores = [scores_bits(rng.random(n), rng.random(n) < 0.1) for n in (300_000, 50, 50, 50)]
    sort = np.sort
    monkeypatch.setattr(np, "sort", lambda a, **how: sizes.append(a.size) or sort(a, **how))
    for more in scores:
        kept.add(7, more, 1)
        aucs.begin()
        found = aucs.of_run(0, [kept])
    assert found == ranked_auc(sort(np.concatenate(scores)))
    assert sum(sizes) < 2 * 300_000 + 1_000, "the first look, and the first after which little came"
    window = aucs.of_window(0, [kept], (7, 8))
    sizes.clear()
    kept.add(8, scores[1], 1)  # the window's panes stand still
    assert aucs.of_window(0, [kept], (7, 8)) == window
    assert not sizes


def test_a_window_of_the_whole_run_sorts_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    kept, aucs, sizes = [ExactScores(1 << 20), ExactScores(1 << 20)], Aucs(), []
    scores = [scores_bits(rng.random(300), rng.random(300) < 0.1) for _ in range(4)]
    kept[0].add(3, scores[0], 1)
    kept[0].add(5, scores[1], 1)
    kept[1].add(4, scores[2], 1)
    aucs.begin()
    run = aucs.of_run(0, kept)
    sort = np.sort
    monkeypatch.setattr(np, "sort", lambda a, **how: sizes.append(a.size) or sort(a, **how))
    assert aucs.of_window(0, kept, (3, 6)) == aucs.of_window(0, kept, (1, 9)) == run
    assert not sizes
    for panes, parts in (((3, 5), (0, 2)), ((4, 6), (1, 2))):
        expected = ranked_auc(sort(np.concatenate([scores[i] for i in parts])))
        assert aucs.of_window(0, kept, panes) == expected != run
    kept[1].add(5, scores[3], 1)  # since the run's AUC was read
    assert aucs.of_window(0, kept, (3, 6)) == ranked_auc(sort(np.concatenate(scores)))
