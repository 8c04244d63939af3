"""The hand-over of snapshots from one writer to many readers."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from streameval.results.publish import Publisher
from streameval.results.snapshot import empty_snapshot

EMPTY = empty_snapshot(0.0)


def test_readers_see_the_first_snapshot_and_then_the_latest() -> None:
    publisher = Publisher(EMPTY)
    assert publisher.latest() is EMPTY
    newer = replace(EMPTY, number=1)
    publisher.publish(newer)
    assert publisher.latest() is newer


def test_a_number_that_does_not_increase_is_refused_and_changes_nothing() -> None:
    publisher = Publisher(replace(EMPTY, number=5))
    with pytest.raises(ValueError, match="5 after 5: numbers must increase"):
        publisher.publish(replace(EMPTY, number=5))
    assert publisher.latest().number == 5


def test_a_waiting_reader_is_woken_by_the_snapshot_that_it_waits_for() -> None:
    publisher = Publisher(EMPTY)
    got: list[object] = []
    reader = threading.Thread(target=lambda: got.append(publisher.wait_for(2, timeout=60)))
    reader.start()
    publisher.publish(replace(EMPTY, number=1))
    last = replace(EMPTY, number=2)
    publisher.publish(last)
    reader.join(60)
    assert got == [last]


def test_waiting_for_a_snapshot_that_never_comes_ends_with_none() -> None:
    assert Publisher(EMPTY).wait_for(1, timeout=0.01) is None


def test_a_subscriber_is_woken_after_the_snapshot_is_visible_and_until_it_leaves() -> None:
    publisher = Publisher(EMPTY)
    seen: list[int] = []
    leave = publisher.subscribe(lambda: seen.append(publisher.latest().number))
    publisher.publish(replace(EMPTY, number=1))
    leave()
    leave()
    publisher.publish(replace(EMPTY, number=2))
    assert seen == [1]


def test_a_subscriber_that_reads_or_leaves_while_woken_does_not_block_the_writer() -> None:
    publisher = Publisher(EMPTY)
    leave = publisher.subscribe(lambda: leave())
    publisher.publish(replace(EMPTY, number=1))
    assert publisher.wait_for(1, timeout=0) is publisher.latest()
