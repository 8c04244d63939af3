"""How many messages a poll takes, and a batch of it."""

from __future__ import annotations

from collections import Counter

from streameval.sources.kafka.budget import BATCHES_A_POLL, FIRST, Budget
from streameval.sources.kafka.reader import MessageRun


def run_of(topic: str, first: int, count: int, partition: int = 0) -> MessageRun:
    messages = range(first, first + count)
    return MessageRun(topic, partition, [b"%d" % i for i in messages], list(messages))


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


def grown(partitions: int) -> Budget:
    """A budget after many polls of events evenly of so many partitions."""
    budget = Budget(("i", "c"), 1_000)
    for _ in range(12):
        each = max(1, budget.messages // partitions)
        budget.learn([run_of("i", 0, each, p) for p in range(partitions)], Counter(i=each * partitions))
    return budget


def test_of_several_partitions_a_poll_takes_more() -> None:
    assert [grown(n).messages for n in (1, 2, 3, 4, 64)] == [1_000, 2_000, 3_000, 4_000, 4_000]
    assert BATCHES_A_POLL == 4
    budget = grown(64)
    budget.learn([run_of("i", 0, 4_000, 7)], Counter(i=4_000))  # a backlog of one
    assert budget.messages == budget.batch == 1_000


def test_what_is_more_than_a_batch_is_divided_in_order() -> None:
    budget = grown(4)
    runs = [run_of("i", 0, 400), run_of("i", 400, 2_500), run_of("c", 0, 150)]
    batches = budget.split(runs)
    assert [sum(len(run.values) for run in some) for some in batches] == [1_000, 1_000, 1_000, 50]
    for topic, count in (("i", 2_900), ("c", 150)):
        parts = [run for some in batches for run in some if run.topic == topic]
        assert [value for run in parts for value in run.values] == [b"%d" % i for i in range(count)]
        assert [offset for run in parts for offset in run.offsets] == list(range(count))
    assert budget.split([]) == [[]]
    assert budget.split(runs[:1])[0][0] is runs[0]
