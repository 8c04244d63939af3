"""Messages of the client sorted into runs."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, Message
from hypothesis import given
from hypothesis import strategies as st

from streameval.sources.kafka.message_runs import MessageColumns

TOPICS = ("impressions", "clicks")
places = st.tuples(st.sampled_from(TOPICS), st.integers(0, 3))


def message(topic: str, partition: int, offset: int, **rest: Any) -> Message:
    return Message(topic=topic, partition=partition, offset=offset, **rest)


@given(st.lists(st.lists(places, max_size=12), max_size=4), st.integers(0, 5))
def test_runs_hold_every_message_once_and_in_order_by_their_first(
    chunks: list[list[tuple[str, int]]], none: int
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
            offset += 1
        columns.add(messages)
    runs = columns.runs()
    assert [run.place for run in runs] == list(expected)
    for run in runs:
        assert list(zip(run.offsets, run.values, strict=True)) == expected[run.place]
    assert not columns.events


def test_events_that_are_no_messages_are_kept_separately() -> None:
    columns = MessageColumns()
    end = message("clicks", 1, 9, error=KafkaError(KafkaError._PARTITION_EOF))
    columns.add([message("clicks", 1, 7, value=b"a"), end, message("clicks", 1, 8, value=b"b")])
    assert columns.events == [end]
    (run,) = columns.runs()
    assert (run.topic, run.partition, run.offsets, run.values) == ("clicks", 1, [7, 8], [b"a", b"b"])
    assert MessageColumns().runs() == []
