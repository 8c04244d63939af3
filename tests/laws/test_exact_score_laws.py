"""Laws of the exact AUC: of any range of panes, whatever came, went and was looked at before, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from streameval.counting.exact_scores import RUN_START, ExactScores
from streameval.sketches.grid import scores_bits

Scores = list[tuple[float, bool]]

p = st.one_of(
    st.floats(0, 1), st.sampled_from([0.0, -0.0, 5e-324, 1e-300, 1e-20, 0.1, np.nextafter(0.1, 1), 1 - 2**-53, 1.0])
)
scores = st.lists(st.tuples(p, st.booleans()), min_size=1, max_size=12)
add = st.tuples(st.just("add"), st.integers(0, 8), scores)
undo = st.tuples(st.just("undo"), st.integers(0, 8), st.just([]))
look = st.tuples(st.just("look"), st.integers(0, 9), st.just([]))
forget = st.tuples(st.just("forget"), st.integers(0, 5), st.just([]))
restart = st.tuples(st.just("restart"), st.just(0), st.just([]))


def bits(of: Scores) -> np.ndarray:
    return scores_bits(np.array([p for p, _ in of], float), np.array([y for _, y in of], bool))


def restarted(exact: ExactScores, limit: int) -> ExactScores:
    state = exact.state()
    again = ExactScores(limit)
    again.restore({**state, "panes": state["panes"]()})
    return again


def twin(of: Scores) -> float | None:
    if len({y for _, y in of}) < 2:
        return None
    pairs = [(a, b) for a, y in of if y for b, z in of if not z]
    return sum(1.0 if a > b else 0.5 if a == b else 0.0 for a, b in pairs) / len(pairs)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.one_of(add, add, look, undo, forget, restart), max_size=40))
def test_the_auc_of_any_range_is_that_of_its_scores(steps: list[tuple[str, int, Scores]]) -> None:
    exact = ExactScores(1 << 20)
    panes: dict[int, Scores] = {}
    horizon = 0
    for what, number, of in steps:
        if what == "add":
            exact.add(number, bits(of), 1)
            panes.setdefault(number, []).extend(of)
        elif what == "undo" and panes.get(number):
            exact.add(number, bits(panes[number]), -1)
            panes[number] = []
        elif what == "forget":
            horizon = max(horizon, number)
            exact.forget_before(horizon)
        elif what == "restart":
            exact = restarted(exact, 1 << 20)
        elif what == "look":
            for start, end in ((max(number - 3, horizon), max(number, horizon)), (RUN_START, -RUN_START)):
                held = [s for n, of in panes.items() if start <= n < end for s in of]
                assert exact.auc(start, end) == pytest.approx(twin(held), abs=1e-15)
                kept = exact.scores(start, end)
                assert kept is not None
                assert kept.tolist() == sorted(bits(held).tolist())
                assert exact.nbytes >= 8 * len(held)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), scores), max_size=15), st.integers(5, 60), st.randoms())
def test_past_the_limit_the_newest_panes_stay_whole_in_any_order(
    given_: list[tuple[int, Scores]], limit: int, random: object
) -> None:
    panes: dict[int, Scores] = {}
    for number, of in given_:
        panes.setdefault(number, []).extend(of)
    kept_from = next(n for n in range(8) if n == 7 or sum(len(of) for pane, of in panes.items() if pane >= n) <= limit)
    for _ in range(3):
        random.shuffle(given_)  # type: ignore[attr-defined]
        exact = ExactScores(limit)
        for number, of in given_:
            exact.add(number, bits(of), 1)
            assert exact.nbytes <= 8 * limit
            if random.random() < 0.2:  # type: ignore[attr-defined]
                exact = restarted(exact, limit)
        for start in range(8):
            held = [s for n, of in panes.items() if n >= start for s in of]
            known = exact.scores(start, 8)
            assert (known is not None) == (start >= kept_from or not any(panes.get(n) for n in range(start, kept_from)))
            if known is not None:
                assert exact.auc(start, 8) == pytest.approx(twin(held), abs=1e-15)
        whole = exact.scores(RUN_START, 8)
        assert (whole is not None) == (sum(map(len, panes.values())) <= limit)


def test_scores_that_differ_in_their_last_bit_are_not_tied() -> None:
    rng = np.random.default_rng(0)
    score = 0.1 + np.arange(2000) * 2.0**-56  # neighbours in float64
    y = rng.random(2000) < 0.3
    exact = ExactScores(1 << 20)
    exact.add(0, scores_bits(score, y), 1)
    assert exact.auc(RUN_START, 1) == pytest.approx(roc_auc_score(y, score), abs=1e-15)
    assert abs(exact.auc(RUN_START, 1) - 0.5) > 1e-3


def test_dropped_is_dropped() -> None:
    exact = ExactScores(100)
    exact.add(0, bits([(0.1, False), (0.2, True)]), 1)
    exact.drop()
    exact.add(5, bits([(0.1, False), (0.2, True)]), 1)
    assert (exact.auc(RUN_START, 9), exact.auc(5, 6), exact.nbytes) == (None, None, 0)


def test_old_panes_go_together_and_what_was_given_up_takes_no_room() -> None:
    three = bits([(0.1, False), (0.2, True), (0.3, False)])
    exact = ExactScores(10)
    for pane in range(3):
        exact.add(pane, three, 1)
    exact.forget_before(3)
    assert len(exact.scores(RUN_START, 9)) == 9
    exact.add(3, three, 1)  # too many: the old ones go
    exact.add(1, three, -1)  # a correction of what is not kept
    assert [exact.scores(start, 9) is None for start in (RUN_START, 1, 2, 3)] == [True, True, True, False]
    assert exact.nbytes == 8 * 3
    exact.forget_before(4)  # the run is not whole any more: nobody will ask for these
    assert exact.nbytes == 0
    exact.add(4, three, 1)
    assert len(exact.scores(4, 9)) == 3
