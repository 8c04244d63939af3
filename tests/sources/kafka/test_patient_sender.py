"""Letters whose topic takes nothing wait, and are sent again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError
from kafka import errors as kafka_errors

from streameval.settings.tree import Kafka
from streameval.sources.kafka import patient_sender
from streameval.sources.kafka.confluent_sender import ConfluentSender
from streameval.sources.kafka.dead_letters import KafkaDeadLetters
from streameval.sources.kafka.patient_sender import PatientSender
from streameval.sources.kafka.python_sender import KafkaPythonSender
from streameval.sources.kafka.sender import NO_TOPIC, NoTopicError, Sender
from streameval.sources.protocol import DeadLetter, LettersError, SourceError

PATIENCE = 60.0  # seconds, on a slow machine


class Topic(Sender):
    """A client with a topic that takes nothing for as long as `why` says why not."""

    def __init__(self, why: str = "", unknown: bool = False) -> None:
        super().__init__("broker:9092", {})
        self.why, self.unknown = why, unknown
        self.taken: list[bytes] = []
        self.closed = threading.Event()

    def connect(self, timeout: float) -> None: ...

    def send(
        self,
        topic: str,
        value: bytes,
        *_: Any,
        stored: Callable[[], None] | None = None,
        unusable: Callable[[str], None] | None = None,
        **__: Any,
    ) -> None:
        if self.unknown:
            raise NoTopicError(f'topic "{topic}": not sent')
        if self.why:
            assert unusable is not None
            unusable(self.why)
            return
        if stored is not None:
            stored()
        self.taken.append(value)

    def serve(self, timeout: float) -> None:
        time.sleep(timeout)

    def flush(self, timeout: float) -> None: ...

    def create_topics(self, names: object, partitions: int, timeout: float) -> None: ...

    def close(self) -> None:
        self.closed.set()


def until(done: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patient_sender, "_AGAIN", 0.01)


@pytest.mark.parametrize("at_once", [True, False])
def test_what_a_topic_refuses_is_sent_again_until_it_takes_it(at_once: bool) -> None:
    topic = Topic(NO_TOPIC)
    sender = PatientSender(lambda: topic, at_once=at_once)
    stored: list[int] = []
    for number in range(3):
        sender.send("dead", bytes([number]), stored=lambda number=number: stored.append(number))
    until(lambda: sender.unusable)
    assert (sender.unusable, stored) == (NO_TOPIC, [])
    topic.why = ""
    until(lambda: len(stored) == 3)
    assert (sender.unusable, sorted(stored), len(topic.taken)) == ("", [0, 1, 2], 3)
    sender.send("dead", b"later")
    until(lambda: topic.taken[-1] == b"later")
    sender.close()
    assert topic.closed.wait(PATIENCE)


@pytest.mark.parametrize("at_once", [True, False])
def test_a_topic_that_the_client_does_not_find_is_no_error_while_brokers_answer(at_once: bool) -> None:
    found: list[Topic] = []
    there = False

    def make() -> Topic:
        found.append(Topic(unknown=not there))
        return found[-1]

    sender = PatientSender(make, at_once=at_once)
    sender.send("dead", b"x")
    until(lambda: sender.unusable == NO_TOPIC)
    there = True
    for one in list(found):
        one.unknown = False
    until(lambda: any(one.taken for one in found))
    assert not sender.unusable
    sender.close()


def test_no_more_wait_than_there_is_room_for() -> None:
    topic = Topic(NO_TOPIC)
    sender = PatientSender(lambda: topic, at_once=True, most_bytes=3_000, room_timeout=0.05)
    with pytest.raises(SourceError, match=f"{NO_TOPIC} for 0 s, and no more can wait"):
        for _ in range(4):
            sender.send("dead", b"x" * 1_000)
    sender.close()
    assert topic.closed.wait(PATIENCE)


@pytest.mark.parametrize(("why", "fix"), [(NO_TOPIC, "create the topic"), ("denied", "allow this user to write to it")])
def test_a_flush_names_the_setting_and_the_fix(monkeypatch: pytest.MonkeyPatch, why: str, fix: str) -> None:
    topic = Topic(why)
    monkeypatch.setattr("streameval.sources.kafka.dead_letters.open_sender", lambda *_: topic)
    sink = KafkaDeadLetters(Kafka(dead_letter_topic="dead"))
    for offset in range(2):
        sink.write([DeadLetter(b"x", "malformed", "", "", "impressions", 0, offset)])
        with pytest.raises(LettersError, match=f'kafka.dead_letter_topic = "dead": {why}.*; {fix}, or set it to ""'):
            sink.flush(0.1)
    topic.why = ""
    sink.flush(PATIENCE)
    assert len(topic.taken) == 2
    sink.close()


def test_the_clients_tell_a_topic_that_takes_nothing_from_other_failures() -> None:
    confluent, python = ConfluentSender("127.0.0.1:1", {}), KafkaPythonSender("127.0.0.1:1", {})
    told: list[str] = []
    for failure in (
        confluent._heard(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), None, told.append),
        confluent._heard(KafkaError(KafkaError._UNKNOWN_TOPIC), None, told.append),
        python._heard(kafka_errors.UnknownTopicOrPartitionError(), None, told.append),
        confluent._heard(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), None, told.append),
        python._heard(kafka_errors.TopicAuthorizationFailedError(), None, told.append),
    ):
        assert failure is not None
        failure()
    assert told[:3] == [NO_TOPIC] * 3
    assert all("uthorization" in why for why in told[3:])
    assert confluent._heard(KafkaError(KafkaError._FATAL), None, told.append) is None
    assert python._heard(kafka_errors.InvalidTopicError(), None, told.append) is None
