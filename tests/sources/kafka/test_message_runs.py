"""Messages of the client sorted into runs."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, Message
from hypothesis import given
from hypothesis import strategies as st

from streameval.sources.kafka.message_runs import MessageColumns

TOPICS = ("impressions", "clicks")
places = st.tuples(st.sampled_from(TOPICS), st.integers(0, 3))


def message(topic: str, partition: int, offset: int, **rest: Any) -> Message:
    return Message(topic=topic, partition=partition, offset=offset, **rest)


@given(st.lists(st.lists(places, max_size=12), max_size=4), st.integers(0, 5), st.sampled_from([0, 1, 7]))
def test_runs_hold_every_message_once_and_in_order_by_their_first(
    chunks: list[list[tuple[str, int]]], none: int, missing: int
) -> None:
    columns = MessageColumns()
    expected: dict[tuple[str, int], list[tuple[int, bytes | None]]] = {}
    offset = 0
    for chunk in chunks:
        messages = []
        for topic, partition in chunk:
            value = None if offset == none else b"%d" % offset  # a tombstone
            messages.append(message(topic, partition, offset, value=value))
            expected.setdefault((topic, partition), []).append((offset, value))
            offset += 1 + (offset == missing)
        columns.add(messages)
    assert delivered(columns) == expected
    assert list(dict.fromkeys(run.place for run in columns.runs())) == list(expected)
    assert not columns.events


@pytest.mark.parametrize("left_out", [[], [3], [0, 3], [2, 3, 4, 9]])
@pytest.mark.parametrize("partitions", [1, 2])
def test_offsets_are_those_of_the_messages_also_where_compaction_or_a_transaction_left_some_out(
    left_out: list[int], partitions: int
) -> None:
    kept = [offset for offset in range(12) if offset not in left_out]
    columns = MessageColumns()
    for some in (kept[:5], kept[5:]):
        columns.add([message("clicks", p, k, value=b"%d" % k) for k in some for p in range(partitions)])
    expected = [(offset, b"%d" % offset) for offset in kept]
    assert delivered(columns) == {("clicks", partition): expected for partition in range(partitions)}


def test_events_that_are_no_messages_are_kept_separately() -> None:
    columns = MessageColumns()
    end = message("clicks", 1, 9, error=KafkaError(KafkaError._PARTITION_EOF))
    columns.add([message("clicks", 1, 7, value=b"a"), end, message("clicks", 1, 8, value=b"b")])
    assert columns.events == [end]
    assert delivered(columns) == {("clicks", 1): [(7, b"a"), (8, b"b")]}
    assert MessageColumns().runs() == []


def delivered(columns: MessageColumns) -> dict[tuple[str, int], list[tuple[int, bytes | None]]]:
    """The offsets and values of all runs, by topic partition."""
    found: dict[tuple[str, int], list[tuple[int, bytes | None]]] = {}
    for run in columns.runs():
        found.setdefault(run.place, []).extend(zip(list(map(int, run.offsets)), run.values, strict=True))
    return found
