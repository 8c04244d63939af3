"""How many messages a poll takes."""

from __future__ import annotations

from collections import Counter

from streameval.sources.kafka.budget import FIRST, Budget
from streameval.sources.kafka.reader import MessageRun


def run_of(topic: str, first: int, count: int) -> MessageRun:
    return MessageRun(topic, 0, [b"%d" % i for i in range(first, first + count)], list(range(first, first + count)))


def test_the_budget_doubles_up_to_the_messages_for_the_events_wanted() -> None:
    budget = Budget(("i", "c"), 1_000)
    assert budget.messages == FIRST
    seen = []
    for _ in range(9):
        budget.learn([run_of("i", 0, budget.messages)], Counter(i=budget.messages))
        seen.append(budget.messages)
    assert seen == [20, 40, 80, 160, 320, 640, 1_000, 1_000, 1_000]
    budget.learn([run_of("c", 0, 10)], Counter(c=500))  # fifty events a message
    assert budget.messages == 20
