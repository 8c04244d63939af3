"""Offsets of partitions and of the group, as kafka-python asks for them and commits them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from kafka import OffsetAndMetadata, TopicPartition

from streameval.sources.kafka.starts import Offsets, Origin, known, noted
from streameval.sources.protocol import Place


def at(offsets: Offsets) -> dict[Any, Any]:
    """Returns places with their offsets, as the client commits them."""
    return {TopicPartition(*place): OffsetAndMetadata(*noted(offset), -1) for place, offset in offsets.items()}


def offsets_of_group(consumer: Any, places: Iterable[Place], timeout: float) -> dict[Place, int | Origin]:
    """Returns the offsets of the group that it has."""
    found = {}
    for place in places:
        one = consumer.committed(TopicPartition(*place), metadata=True, timeout_ms=int(timeout * 1_000))
        offset = None if one is None else known(one.offset, one.metadata)
        if offset is not None:
            found[place] = offset
    return found


def edges(places: Iterable[Place], ask: Callable[..., dict[Any, int]], timeout: float) -> dict[Place, int]:
    """Returns the first or next offsets, which `ask` asks for, of those that have a leader.

    Where some have none and others do, kafka-python 3.0.12 fails with the first one without as a KeyError.
    """
    asked, deadline = {TopicPartition(*place) for place in places}, time.monotonic() + timeout
    while asked:
        left = max(0.0, deadline - time.monotonic())
        try:
            found = ask(sorted(asked), timeout_ms=int(left * 1_000))
        except KeyError as error:
            asked.remove(error.args[0])
        else:
            return {(p.topic, p.partition): offset for p, offset in found.items()}
    return {}


def end_then(consumer: Any, place: Place, then: int, end: int, timeout: float) -> int:
    """Returns the end that a log had at a time (ms), by the times of its messages; `end`: that of now."""
    partition = TopicPartition(*place)
    found = consumer.offsets_for_times({partition: then}, timeout_ms=int(timeout * 1_000))[partition]
    return end if found is None else min(end, int(found.offset))
