"""How many messages a poll takes, and how they are cut."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from streameval.sources.kafka.budget import FIRST, Budget, pieces
from streameval.sources.kafka.reader import MessageRun


def run_of(topic: str, first: int, count: int) -> MessageRun:
    return MessageRun(topic, 0, [b"%d" % i for i in range(first, first + count)], list(range(first, first + count)))


@given(st.lists(st.integers(1, 40), max_size=4), st.integers(1, 17))
def test_pieces_are_the_runs_in_their_order_and_none_is_too_long(counts: list[int], most: int) -> None:
    runs = [run_of(f"t{i}", 100 * i, count) for i, count in enumerate(counts)]
    found = list(pieces(runs, most))
    assert [(r.topic, v, o) for piece in found for r in piece for v, o in zip(r.values, r.offsets, strict=True)] == [
        (r.topic, v, o) for r in runs for v, o in zip(r.values, r.offsets, strict=True)
    ]
    assert all(sum(len(r.values) for r in piece) <= most for piece in found)
    assert len(found) == 1 or all(found), "an empty piece only if there is nothing"


def test_the_budget_grows_twofold_to_what_holds_the_events_wanted() -> None:
    budget = Budget(("i", "c"), 1_000)
    assert budget.messages == FIRST
    seen = []
    for _ in range(9):
        budget.learn([run_of("i", 0, budget.messages)], Counter(i=budget.messages))
        seen.append(budget.messages)
    assert seen == [20, 40, 80, 160, 320, 640, 1_000, 1_000, 1_000]
    budget.learn([run_of("c", 0, 10)], Counter(c=500))  # fifty events a message
    assert budget.messages == 20
