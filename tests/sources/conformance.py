"""What every source must do, whoever registers it: subclass `SourceConformance` and give it a `case`."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from streameval.events.batch import Batch, Catalog
from streameval.sources.formats.decode import Decoder
from streameval.sources.protocol import DeadLetter, DeadLetterSink, Keeper, Place, Source

PATIENCE = 180.0  # seconds that anything awaited here may take, on a slow machine
T0 = 1_700_000_000_000
MAX_EVENTS = 100


def shown(number: int, **changes: object) -> dict[str, Any]:
    """An impression that says its number by its time."""
    event = {"type": "impression", "impression_id": f"i{number}", "ts": T0 + number, "user_id": "u", "pclick": 0.5}
    return {**event, **changes}


def click(number: int) -> dict[str, Any]:
    """A click on it."""
    return {"type": "click", "impression_id": f"i{number}", "ts": T0 + number}


def traffic(first: int, count: int) -> list[dict[str, Any]]:
    """As many impressions, with a click after every third."""
    return [event for i in range(first, first + count) for event in ([shown(i)] if i % 3 else [shown(i), click(i)])]


class Collected:
    """A dead-letter sink that keeps letters here."""

    def __init__(self) -> None:
        self.letters: list[DeadLetter] = []

    def write(self, letters: Sequence[DeadLetter]) -> None:
        self.letters += letters

    def flush(self, timeout: float) -> None: ...

    def close(self) -> None: ...


class Offsets:
    """A keeper that holds nothing but the offsets to go on at."""

    def __init__(self, offsets: Mapping[Place, int]) -> None:
        self._offsets = offsets
        self.taken: frozenset[int] = frozenset()

    def take(self, partitions: frozenset[int]) -> Mapping[Place, int]:
        self.taken |= partitions
        return {place: offset for place, offset in self._offsets.items() if place[1] in partitions}

    def topic_ids(self, partitions: frozenset[int]) -> Mapping[Place, str]:
        return {}

    def release(self, partitions: frozenset[int]) -> None: ...

    def regain(self, partitions: frozenset[int]) -> None: ...

    def drop(self, partitions: frozenset[int]) -> None: ...


class Case(ABC):
    """A source under test, and the log that it reads."""

    ends = False  # its log has an end, and was written whole before it is opened
    resumes = True  # it can go on at offsets

    @abstractmethod
    def write(self, events: Sequence[dict[str, Any]]) -> None:
        """Appends to the log; all of it to one partition."""

    @abstractmethod
    def open(self, decoder: Decoder, sink: DeadLetterSink, keeper: Keeper) -> Source:
        """A source that begins at the beginning, with batches of at most `MAX_EVENTS`; `begin` is called by the suite."""

    @abstractmethod
    def place(self, number: int) -> tuple[str, int]:
        """(topic or path, offset) that a dead letter says of the log's event of this number, all being impressions."""


class Reading:
    """A source that is being read, and what it brought."""

    def __init__(self, case: Case, offsets: Mapping[Place, int] | None = None) -> None:
        self.sink = Collected()
        self.keeper = Offsets(offsets or {})
        decoder = Decoder(Catalog(), clock=lambda: T0 + 10**9, max_future=0)
        self.source = case.open(decoder, self.sink, self.keeper)
        self.source.begin(self.keeper)
        self.batches: list[Batch] = []

    def poll(self) -> list[Batch]:
        batches = self.source.poll(0.2)
        assert len({batch.partition for batch in batches}) == len(batches)
        assert all(len(batch) <= MAX_EVENTS for batch in batches)
        self.batches += batches
        bad = sum(sum(batch.invalid.values()) for batch in self.batches)
        assert len(self.sink.letters) >= bad, "letters are written before the batch that counts them"
        return batches

    def until(self, events: int) -> Reading:
        """Polls until so many have come, bad ones included."""
        deadline = time.monotonic() + PATIENCE
        while self.count < events and not self.source.finished:
            assert time.monotonic() < deadline, (self.count, events, self.source.lag())
            self.poll()
        return self

    @property
    def count(self) -> int:
        return sum(len(batch) + sum(batch.invalid.values()) for batch in self.batches)

    @property
    def impressions(self) -> list[int]:
        return [ts - T0 for batch in self.batches for ts in batch.impressions.ts.tolist()]

    @property
    def clicks(self) -> list[int]:
        return [ts - T0 for batch in self.batches for ts in batch.clicks.ts.tolist()]

    def offsets(self) -> dict[Place, int]:
        return {place: offset for batch in self.batches for place, offset in batch.offsets.items()}


class SourceConformance:
    """The suite."""

    @pytest.fixture
    def case(self, tmp_path: Path) -> Case:
        """The source under test, whose log is empty."""
        raise NotImplementedError

    def test_every_event_comes_once_and_in_order_and_then_nothing(self, case: Case) -> None:
        events = traffic(0, 450)
        case.write(events)
        reading = Reading(case).until(len(events))
        source = reading.source
        assert reading.impressions == list(range(450))
        assert reading.clicks == list(range(0, 450, 3))
        places = {(name, partition) for name in source.inputs for partition in source.partitions()}
        assert reading.offsets().keys() <= places
        shared = {batch.shared for batch in reading.batches if len(batch)}
        assert shared == {len(source.inputs) == 1}
        for _ in range(3):  # what comes twice would come now
            assert not any(map(len, reading.poll()))
        assert source.finished == case.ends
        assert set(source.lag().values()) <= {0}
        assert source.lag().keys() <= places
        deadline = time.monotonic() + PATIENCE
        while source.caught_up() != places:  # nothing is, where brokers do not answer within a second
            assert time.monotonic() < deadline, (source.caught_up(), places)
            assert not any(map(len, reading.poll()))
        assert source.connected()
        assert not source.lost()
        assert not source.unpaired()
        source.commit(reading.offsets())
        if not case.ends:  # silence is no end
            case.write(traffic(450, 30))
            reading.until(len(events) + 40)
            assert reading.impressions == list(range(480))
        source.close()
        source.close()

    def test_the_loop_gets_the_messages_of_polls_in_order(self, case: Case) -> None:
        events = [shown(i, pclick=7.5) if i % 100 == 3 else shown(i) for i in range(2_000)]
        case.write(events)
        polled, reading = Reading(case).until(2_000), Reading(case)
        deadline = time.monotonic() + PATIENCE
        bad = 0

        def take(batch: Batch) -> None:
            nonlocal bad
            assert len(batch) <= MAX_EVENTS
            reading.batches.append(batch)
            bad += sum(batch.invalid.values())
            assert len(reading.sink.letters) >= bad, "letters are written before the batch that counts them is taken"

        while reading.count < 2_000:
            assert time.monotonic() < deadline, reading.count
            reading.source.deliver(0.2, take)
        assert reading.impressions == polled.impressions
        assert reading.offsets() == polled.offsets()
        assert [letter.offset for letter in reading.sink.letters] == [letter.offset for letter in polled.sink.letters]
        reading.source.deliver(0.2, take)
        assert reading.count == 2_000
        assert reading.source.finished == case.ends
        for one in (reading, polled):
            one.source.close()

    def test_a_restart_in_the_middle_continues_exactly_there(self, case: Case) -> None:
        events = traffic(0, 450)
        case.write(events)
        first = Reading(case).until(len(events) // 2)
        first.source.close()
        if not case.resumes:
            assert not first.offsets(), "nobody could go on there"
            return
        assert first.count < len(events)
        assert first.keeper.taken == {batch.partition for batch in first.batches}
        second = Reading(case, first.offsets()).until(len(events) - first.count)
        assert first.impressions + second.impressions == list(range(450))
        assert first.clicks + second.clicks == list(range(0, 450, 3))
        second.source.close()

    def test_a_bad_event_is_a_complete_dead_letter_with_its_place(self, case: Case) -> None:
        events = [shown(i, pclick=7.5) if i in (3, 120) else shown(i) for i in range(200)]
        case.write(events)
        reading = Reading(case).until(200)
        assert reading.impressions == [i for i in range(200) if i not in (3, 120)]
        for letter, number in zip(reading.sink.letters, (3, 120), strict=True):
            assert (letter.reason, letter.field) == ("out_of_range", "pclick")
            assert (letter.topic, letter.offset) == case.place(number)
            assert f"i{number}" in letter.value.decode()
            assert "7.5" in letter.value.decode()
            assert letter.partition in {batch.partition for batch in reading.batches}
        reading.source.close()
