"""Which ids a registry is asked for, and when messages may be decided by its answers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from streameval.settings.kafka import SchemaRegistry as RegistrySettings
from streameval.sources.formats.framed import Schema
from streameval.sources.kafka.formats import RETRY, SchemaGate
from streameval.sources.kafka.reader import MessageRun
from streameval.sources.schema_registry import FORGET, RegistryDownError, SchemaRegistry
from streameval.testing import ManualClock


class Slow:
    """A registry with the schemas of some ids, that takes its time for each answer."""

    def __init__(self, clock: ManualClock, seconds: float, known: set[int]) -> None:
        self.clock, self.seconds, self.known, self.down = clock, seconds, known, False
        self.asked: list[int] = []

    def schema(self, id: int) -> Schema | None:
        if self.down:
            raise RegistryDownError("away")
        self.clock.advance(self.seconds)
        self.asked.append(id)
        return Schema(id, "{}") if id in self.known else None


def registry(
    monkeypatch: pytest.MonkeyPatch, seconds: float, known: set[int]
) -> tuple[SchemaRegistry, Slow, ManualClock]:
    clock = ManualClock(1.0)
    made, slow = SchemaRegistry(RegistrySettings(url="http://127.0.0.1:1"), clock=clock), Slow(clock, seconds, known)
    monkeypatch.setattr(made, "_client", slow)
    return made, slow, clock


def test_a_batch_of_many_unknown_ids_ends_however_slow_the_registry_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers grow old while the others are asked for; asking for them again and again, it never came to an end."""
    made, slow, _ = registry(monkeypatch, 0.2, {999})
    rounds = next(n for n in itertools.count(1) if made.resolve(range(1_000)) or n > 20)
    assert rounds == 5
    assert sorted(slow.asked) == list(range(1_000))
    assert made.known(999) is not None


def test_an_unknown_id_is_asked_for_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    made, slow, clock = registry(monkeypatch, 0.0, set())
    assert made.resolve({7})
    assert made.resolve({7})
    assert slow.asked == [7]
    slow.known.add(7)  # registered after its messages
    clock.advance(FORGET)
    assert made.resolve({7})
    assert made.known(7) is not None


def test_unknown_ids_are_requested_again_after_an_outage_of_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    made, slow, clock = registry(monkeypatch, 0.0, set())
    assert not made.resolve(range(300))
    slow.down = True
    with pytest.raises(RegistryDownError):
        made.resolve(range(300))
    clock.advance(FORGET)
    slow.down, slow.known = False, {7}
    assert not made.resolve(range(300))
    assert made.resolve(range(300))
    assert made.known(7) is not None


def test_why_messages_wait_is_told_as_long_as_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    made, slow, clock = registry(monkeypatch, 0.0, {7})
    gate, messages = SchemaGate(made, clock), [MessageRun("impressions", 0, [b"\0\0\0\0\7x"], np.zeros(1, np.int64))]
    assert gate.trouble() == ""
    slow.down = True
    for _ in range(10):
        assert not gate.ready(messages)
        told = "schema registry: away; messages with schemas not seen before wait until it responds, and all after them"
        assert gate.trouble() == told
        clock.advance(gate.waiting() + 1.0)
        assert gate.trouble() == told, "the next request is still to come"
    slow.down = False
    assert gate.ready(messages)
    assert gate.trouble() == ""


def test_messages_that_went_to_another_worker_wait_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    made, slow, clock = registry(monkeypatch, 0.0, {7})
    gate, slow.down = SchemaGate(made, clock), True
    assert not gate.ready([MessageRun("impressions", 0, [b"\0\0\0\0\7x"], np.zeros(1, np.int64))])
    clock.advance(gate.waiting() + RETRY[1] + 0.1)
    assert gate.trouble() == ""
