"""The dead-letter topic."""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path

import pytest
from kafka import KafkaProducer

from streameval.settings.tree import Kafka
from streameval.sources.kafka import dead_letters, patient_sender, python_sender
from streameval.sources.protocol import DeadLetter, LettersError, SourceError

PATIENCE = 180.0  # seconds, on a slow machine


def letter(value: bytes, offset: int = 0) -> DeadLetter:
    return DeadLetter(value, "malformed", "", "not JSON: “x”", "impressions", 1, offset)


def test_the_original_bytes_are_stored_unchanged_and_in_order(lab):
    lab.create(lab.dead)
    sink = lab.dead_letters(lab.settings())
    values = [bytes([i % 256]) * (i % 50) for i in range(2_000)]
    sink.write([letter(value, i) for i, value in enumerate(values)])
    sink.flush(PATIENCE)
    stored = sorted((int(headers["offset"]), value or b"") for value, headers, _ in lab.read(lab.dead, 2_000))
    assert [value for _, value in stored] == values
    sink.close()
    sink.close()


@pytest.mark.kafka
def test_a_letter_too_large_for_the_topic_leaves_its_place_and_size(real_lab):
    real_lab.create(real_lab.dead, partitions=1, **{"max.message.bytes": "2000"})
    sink = real_lab.dead_letters(real_lab.settings())
    sink.write([letter(b"x" * 5_000, 7)])
    sink.flush(PATIENCE)
    sink.write([letter(b"small", 8)])
    sink.flush(PATIENCE)
    large, small = real_lab.read(real_lab.dead, 2)
    assert large[0] in (b"", None)
    assert (large[1]["offset"], large[1]["value_bytes"]) == ("7", "5000")
    assert small[0] == b"small"
    assert "value_bytes" not in small[1]


def test_without_a_topic_letters_are_dropped(lab):
    sink = lab.dead_letters(lab.settings(dead_letter_topic=""))
    sink.write([letter(b"x")])
    sink.flush(PATIENCE)


def store(sink: dead_letters.KafkaDeadLetters, timeout: float) -> None:
    sink.write([letter(b"x")])
    sink.flush(timeout)


def test_letters_that_cannot_be_delivered_are_an_error(laboratory, client, monkeypatch):
    monkeypatch.setattr(dead_letters, "CLOSE_TIMEOUT", 0.1)
    options = {"confluent": {"message.timeout.ms": 1_000}, "kafka-python": {}}
    lab = laboratory("127.0.0.1:1", client)
    sink = lab.dead_letters(lab.settings(client_options=options[client]))

    with pytest.raises(SourceError, match="not delivered"):
        store(sink, 5.0)


@pytest.mark.kafka
@pytest.mark.slow
def test_the_first_letter_ever_waits_for_the_brokers_too(own_kafka, launcher, laboratory, client, monkeypatch):
    """With kafka-python it waited for `START_TIMEOUT`, in which nothing else was done, and ended the process then."""
    monkeypatch.setattr(python_sender, "START_TIMEOUT", 1.0)
    monkeypatch.setattr(patient_sender, "_TRY", 0.5)  # seconds: several attempts while they are away
    lab = laboratory(launcher("start", str(own_kafka)), client)
    lab.create(lab.dead, partitions=1)
    sink = lab.dead_letters(lab.settings())
    launcher("stop", str(own_kafka))
    begin = time.monotonic()
    sink.write([letter(b"first"), letter(b"second", 1)])
    sink.write([letter(b"third", 2)])
    assert time.monotonic() - begin < 5.0
    time.sleep(3.0)
    launcher("start", str(own_kafka))
    assert [value for value, _, _ in lab.read(lab.dead, 3)] == [b"first", b"second", b"third"]  # without a flush
    sink.write([letter(b"later", 3)])
    sink.flush(PATIENCE)
    assert lab.read(lab.dead, 4)[3][0] == b"later"


@pytest.mark.kafka
@pytest.mark.slow
def test_letters_wait_for_a_topic_that_does_not_exist_yet(own_kafka, launcher, laboratory, client):
    """None was stored even once there was one, and the second letter ended the process."""
    lab = laboratory(launcher("start", str(own_kafka), "auto.create.topics.enable=false"), client)
    sink = lab.dead_letters(lab.settings())
    error, count = written_until_refused(sink)
    assert f'kafka.dead_letter_topic = "{lab.dead}": the brokers have no such topic' in error
    assert 'create the topic, or set it to ""' in error
    lab.create(lab.dead, partitions=1)
    sink.flush(PATIENCE)
    assert {int(headers["offset"]) for _, headers, _ in lab.read(lab.dead, count)} == set(range(count))


def written_until_refused(sink: dead_letters.KafkaDeadLetters) -> tuple[str, int]:
    """Writes letters until the sink knows that there is no topic, and one more; what it says, and how many they are."""
    deadline = time.monotonic() + PATIENCE
    for offset in itertools.count():
        assert time.monotonic() < deadline
        sink.write([letter(b"x", offset)])
        try:
            sink.flush(1.0)
        except LettersError as error:
            sink.write([letter(b"x", offset + 1)])
            return str(error), offset + 2
        except SourceError:
            continue
    raise AssertionError


@pytest.mark.parametrize("client", ["kafka-python"])
def test_a_sender_that_cannot_be_made_is_an_error_although_letters_wait(laboratory, client):
    lab = laboratory("127.0.0.1:1", client)
    sink = lab.dead_letters(lab.settings(client_options={"api_version": "two"}))
    with pytest.raises(SourceError, match=r"kafka\.client_options"):
        store(sink, PATIENCE)


@pytest.fixture
def away(own_kafka, launcher, laboratory, client):
    """A laboratory, with a letter stored, and what takes its broker away."""
    lab = laboratory(launcher("start", str(own_kafka)), client)
    lab.create(lab.dead)
    sink = lab.dead_letters(lab.settings())
    sink.write([letter(b"before")])
    sink.flush(PATIENCE)
    return lab, sink, lambda: launcher("stop", str(own_kafka)), lambda: launcher("start", str(own_kafka))


def test_a_flush_ends_while_another_thread_writes_on(lab):
    """Or a topic that is full of errors would have no checkpoints."""
    lab.create(lab.dead)
    sink = lab.dead_letters(lab.settings())
    sink.write([letter(b"first")])
    stop = threading.Event()

    def write_on():
        while not stop.wait(0.001):
            sink.write([letter(b"more", 1)])

    thread = threading.Thread(target=write_on)
    thread.start()
    try:
        sink.flush(PATIENCE)
    finally:
        stop.set()
        thread.join()


@pytest.mark.kafka
@pytest.mark.slow
def test_a_flush_says_how_many_letters_wait(away):
    _, sink, leave, come_back = away
    leave()
    sink.write([letter(b"x"), letter(b"y", 1)])
    with pytest.raises(SourceError, match="2 messages not delivered within 1 s"):
        sink.flush(1.0)
    come_back()
    sink.flush(PATIENCE)


@pytest.mark.kafka
@pytest.mark.slow
def test_a_stop_without_a_broker_does_not_wait_for_letters(away, caplog):
    """It waited for 150 s, ended with an error then, and no report was written."""
    _, sink, leave, _ = away
    leave()
    sink.write([letter(b"x")])
    begin = time.monotonic()
    sink.close()
    assert time.monotonic() - begin < 60
    assert [one.levelname for one in caplog.records if "dead letters, to be written again" in one.message] == ["ERROR"]
    assert not producers()


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.parametrize("client", ["kafka-python"])  # the other one's own limit cannot be lowered without setting ours
def test_letters_wait_for_longer_than_the_client_tries_by_itself(away, monkeypatch):
    lab, first, leave, come_back = away
    monkeypatch.setitem(KafkaProducer.DEFAULT_CONFIG, "delivery_timeout_ms", 1_500)
    sink = lab.dead_letters(lab.settings(client_options={"request_timeout_ms": 1_000}))
    sink.write([letter(b"connected")])
    sink.flush(PATIENCE)
    leave()
    sink.write([letter(b"waits")])
    time.sleep(6.0)
    come_back()
    sink.flush(PATIENCE)
    assert sorted(value for value, _, _ in lab.read(lab.dead, 3)) == [b"before", b"connected", b"waits"]
    first.close()


def test_the_limit_of_librdkafka_is_set_aside_for_letters(monkeypatch):
    given = {}
    monkeypatch.setattr(dead_letters, "open_sender", lambda client, servers, options, oauth: given.update(options))
    dead_letters.KafkaDeadLetters(Kafka())
    assert given == {
        "message.timeout.ms": 0, "delivery.report.only.error": False, "topic.metadata.propagation.max.ms": 5_000,
    }  # fmt: skip


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.parametrize("client", ["kafka-python"])
def test_a_letter_that_waits_for_a_broker_costs_nothing(away):
    """kafka-python's thread looked for its broker 1,000 times a second, for up to a core."""
    _, sink, leave, _ = away
    leave()
    sink.write([letter(bytes([i]), i) for i in range(50)])
    time.sleep(5.0)
    (thread,) = producers()
    before = switches(thread)
    time.sleep(4.0)
    assert switches(thread) - before < 400


def producers() -> list[threading.Thread]:
    """The threads of kafka-python's producers."""
    return [one for one in threading.enumerate() if one.name.endswith("-network-thread")]


def switches(thread: threading.Thread) -> int:
    """How often a thread has waited."""
    status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    return int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0])
