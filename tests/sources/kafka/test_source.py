"""Batches of a backlog: decoded one ahead, and none left when somebody else gets the partition."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from streameval.events.batch import Batch, Catalog
from streameval.settings.tree import Settings
from streameval.sources.ahead import MOST_BATCHES
from streameval.sources.formats.decode import Decoder
from streameval.sources.kafka import source as module
from streameval.sources.kafka.budget import FIRST
from streameval.sources.kafka.linger import LEAST_LINGER, MOST_LINGER
from streameval.sources.kafka.reader import Beginning, MessageRun
from streameval.sources.kafka.source import KafkaSource
from streameval.sources.protocol import Place
from tests.sources.conformance import T0, Collected, shown

PLACE = ("events", 0)


class Backlog:
    """A reader with a long topic, and a rebalance in the middle of its poll number `revoked_in`."""

    silence = 0.0
    gate = None
    linger = LEAST_LINGER
    lost: Mapping[Place, int] = {}
    empty: Mapping[Place, int] = {}
    recreated: Mapping[str, int] = {}

    def __init__(self, revoked_in: int = 0, bad: int = -1) -> None:
        self.polls = self._next = 0
        self._revoked_in, self._bad = revoked_in, bad
        self.assignment: frozenset[Place] = frozenset()

    def partition_counts(self, topics: Iterable[str], timeout: float) -> dict[str, int]:
        return dict.fromkeys(topics, 1)

    def subscribe(self, topics: Sequence[str], owner: Any, **kept: Any) -> None:
        self._owner, self.assignment = owner, frozenset({PLACE})
        owner.assigned(self.assignment)

    def poll(self, timeout: float, most: int) -> list[MessageRun]:
        self.polls += 1
        if self.polls == self._revoked_in:
            self._owner.revoked(self.assignment)
            return []
        offsets = list(range(self._next, self._next + most))
        self._next += most
        events = [shown(i, pclick=7.5) if i == self._bad else shown(i) for i in offsets]
        return [MessageRun(*PLACE, [json.dumps(event).encode() for event in events], offsets)]

    def beginnings(self) -> list[Beginning]:
        return [Beginning(PLACE, 0, None)] if self.polls == 1 else []

    def lag(self) -> dict[Place, int]:
        return {}

    def pause(self, places: Iterable[Place]) -> None: ...

    def resume(self, places: Iterable[Place]) -> None: ...

    def close(self) -> None: ...


class Told:
    """A keeper that writes down in `said` what it is told."""

    def __init__(self, said: list[Any]) -> None:
        self._said = said

    def take(self, partitions: frozenset[int]) -> Mapping[Place, int]:
        return {}

    def topic_ids(self, partitions: frozenset[int]) -> Mapping[Place, str]:
        return {}

    def release(self, partitions: frozenset[int]) -> None:
        self._said.append("release")

    def regain(self, partitions: frozenset[int]) -> None: ...

    def drop(self, partitions: frozenset[int]) -> None: ...


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Any:
    class NoWatch:
        known = None

        def __init__(self, *args: object, **options: object) -> None: ...

        def missing(self) -> frozenset[str]:
            return frozenset()

        def unpaired(self) -> dict[str, int]:
            return {}

        def say_unread(self) -> None: ...

        def close(self) -> None: ...

    def open_source(reader: Backlog, said: list[Any], sink: Collected) -> KafkaSource:
        monkeypatch.setattr(module, "open_reader", lambda settings: reader)
        monkeypatch.setattr(module, "open_describer", lambda settings: None)
        monkeypatch.setattr(module, "TopicWatch", NoWatch)
        kafka = Settings.model_validate({"kafka": {"impressions_topic": "events", "clicks_topic": "events"}}).kafka
        decoder = Decoder(Catalog(), clock=lambda: T0 + 10**9, max_future=0)
        return KafkaSource(kafka, decoder, sink, 40, keeper=Told(said))

    return open_source


def test_a_source_that_rests_polls_with_all_its_partitions_paused(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without polls the group would drop the member, and its brokers would count as away."""
    reader = Backlog()
    source = opened(reader, [], Collected())
    source.deliver(0.0, lambda batch: None)
    did: list[Any] = []
    monkeypatch.setattr(reader, "pause", lambda places: did.append(("pause", set(places))))
    monkeypatch.setattr(reader, "resume", lambda places: did.append(("resume", set(places))))
    monkeypatch.setattr(reader, "poll", lambda timeout, most: did.append(timeout) or [])
    source.rest(0.2, lambda batch: None)
    assert did == [("pause", {PLACE}), 0.2, ("resume", {PLACE})]
    source.deliver(0.2, lambda batch: None)
    assert did[3:] == [0.2]


def test_a_backlog_comes_in_order_in_batches_of_max_events(opened: Any) -> None:
    said: list[Any] = []
    reader, sink = Backlog(bad=100), Collected()
    source = opened(reader, said, sink)
    batches: list[Batch] = []

    def take(batch: Batch) -> None:
        batches.append(batch)
        assert sum(sum(one.invalid.values()) for one in batches) == len(sink.letters), (
            "written with the batch that counts it"
        )

    polls = []
    for _ in range(6):
        source.deliver(0.2, take)
        polls.append(reader.polls)
    assert [ts - T0 for batch in batches for ts in batch.impressions.ts.tolist()] == [
        i for i in range(reader._next) if i != 100
    ]
    assert max(map(len, batches)) == 40
    assert polls[0] == 1
    assert polls[-1] - polls[-2] == MOST_BATCHES, "several of a backlog in one call"
    assert len(sink.letters) == 1
    assert batches[0].offsets == {PLACE: FIRST}
    assert batches[-1].offsets == {PLACE: reader._next}
    source.close()


def test_a_poll_lingers_when_its_batches_took_long(opened: Any) -> None:
    reader = Backlog()
    source = opened(reader, [], Collected())
    source.deliver(0.2, lambda batch: time.sleep(MOST_LINGER))
    assert reader.linger == MOST_LINGER
    source.close()


def test_what_was_read_is_taken_before_the_partition_is_released(opened: Any) -> None:
    said: list[Any] = []
    reader = Backlog(revoked_in=5)
    source = opened(reader, said, Collected())
    for _ in range(4):
        source.deliver(0.2, lambda batch: said.append(batch.offsets[PLACE]))
        if "release" in said:
            break
    assert said[-2:] == [reader._next, "release"]
    assert said[:-1] == sorted(said[:-1])
    assert len(said) == 5, "a batch of every poll"
    source.close()


def test_an_exception_of_take_ends_the_delivery(opened: Any) -> None:
    source = opened(Backlog(), [], Collected())

    def take(batch: Batch) -> None:
        raise KeyError("what the loop raises")

    with pytest.raises(KeyError, match="what the loop raises"):
        source.deliver(0.2, take)
    source.close()
