"""What every client must do with every broker."""

from __future__ import annotations

import json
import time

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from streameval.sources.kafka.budget import BATCHES_A_POLL
from streameval.sources.protocol import SourceError

PATIENCE = 180.0  # seconds, on a slow machine


def says_caught_up_at(source, places):
    """Whether the brokers say so as soon as they answer: within a second each time they are asked, or it is nothing."""
    deadline = time.monotonic() + PATIENCE
    while (found := source.caught_up()) != places and time.monotonic() < deadline:
        time.sleep(0.1)
    return found == places


def reads_until_caught_up_at(source, places):
    """The same of a source from which nothing more comes."""
    deadline = time.monotonic() + PATIENCE
    while (found := source.caught_up()) != places and time.monotonic() < deadline:
        assert source.poll(0.1) == []
    return found == places


def test_every_message_arrives_once_and_in_order_in_its_partition(lab, impressions, clicks, drain):
    lab.create(lab.impressions, lab.clicks)
    for partition in range(4):
        lab.write(lab.impressions, impressions(partition * 1_000, 700), partition)
        lab.write(lab.clicks, clicks(partition * 1_000, 90), partition)
    source = lab.source(max_events=300)
    arrived = drain(source, 4 * 790)
    assert source.partitions() == {0, 1, 2, 3}
    for partition in range(4):
        first = partition * 1_000
        assert arrived.impressions[partition] == list(range(first, first + 700))
        assert arrived.clicks[partition] == list(range(first, first + 90))
    assert not any(batch.shared for batch in arrived.batches)
    assert arrived.offsets() == {
        (topic, p): n for topic, n in ((lab.impressions, 700), (lab.clicks, 90)) for p in range(4)
    }
    assert set(source.lag().values()) == {0}
    assert source.lag().keys() == arrived.offsets().keys()
    source.close()
    source.close()


def test_a_batch_has_about_max_events_and_a_poll_few_times_as_many(lab, impressions, clicks):
    lab.create(lab.impressions, lab.clicks)
    for partition in range(4):
        lab.write(lab.impressions, impressions(0, 500), partition)
        lab.write(lab.clicks, clicks(0, 10), partition)
    source = lab.source(max_events=100)
    seen = 0
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        batches = source.poll(0.2)
        assert max(map(len, batches), default=0) <= 100
        assert sum(map(len, batches)) <= 100 * BATCHES_A_POLL
        seen += sum(map(len, batches))
        if seen == 2_040:
            break
    assert seen == 2_040


def test_a_shared_topic_carries_both_kinds(lab, impressions, clicks, drain):
    lab.create(lab.impressions)
    lab.write(lab.impressions, [*impressions(0, 5), *clicks(0, 3), *impressions(5, 5)], 2)
    source = lab.source(lab.settings(clicks_topic=lab.impressions))
    arrived = drain(source, 13)
    assert arrived.impressions == {2: list(range(10))}
    assert arrived.clicks == {2: [0, 1, 2]}
    assert all(batch.shared for batch in arrived.batches)
    assert source.partitions() == {0, 1, 2, 3}


def test_a_bad_message_goes_whole_to_the_dead_letter_topic_with_its_origin(lab, impressions, clicks, drain):
    lab.create(lab.impressions, lab.clicks, lab.dead)
    bad = json.dumps({"impression_id": "x", "ts": 1, "user_id": "u", "pclick": 7}).encode()
    lab.write(lab.impressions, [*impressions(0, 2), b"\xff{not json", None, bad, *impressions(2, 1)], 3)
    lab.write(lab.clicks, [b"[", *clicks(0, 1)], 3)
    settings = lab.settings()
    sink = lab.dead_letters(settings)
    arrived = drain(lab.source(settings, sink), 8)
    assert arrived.impressions == {3: [0, 1, 2]}
    assert arrived.clicks == {3: [0]}
    sink.flush(PATIENCE)
    letters = {(h["topic"], h["offset"]): (value, h) for value, h, _ in lab.read(lab.dead, 4)}
    expected = {
        (lab.impressions, "2"): (b"\xff{not json", "malformed", ""),
        (lab.impressions, "3"): (b"", "empty", ""),
        (lab.impressions, "4"): (bad, "out_of_range", "pclick"),
        (lab.clicks, "0"): (b"[", "malformed", ""),
    }
    assert {place: (value, h["reason"], h["field"]) for place, (value, h) in letters.items()} == expected
    for _, headers in letters.values():
        assert headers["partition"] == "3"
        assert headers["message"]
        assert headers.keys() == {"reason", "field", "topic", "partition", "offset", "message"}


def test_an_array_of_events_in_one_message_is_many_events(lab, impressions, clicks, drain):
    lab.create(lab.impressions, lab.clicks)
    for first in range(0, 5_000, 500):
        lab.write(lab.impressions, [b"[" + b",".join(impressions(first, 500)) + b"]"])
    lab.write(lab.clicks, [b"[" + b",".join(clicks(0, 20)) + b"]"])
    arrived = drain(lab.source(max_events=1_000), 5_020)
    assert arrived.impressions == {0: list(range(5_000))}
    assert arrived.clicks == {0: list(range(20))}
    assert arrived.offsets()[lab.impressions, 0] == 10


def test_a_poll_takes_as_few_messages_as_hold_max_events(real_lab, impressions, clicks, drain):
    real_lab.create(real_lab.impressions, real_lab.clicks)
    real_lab.write(real_lab.impressions, [b"[" + b",".join(impressions(i * 100, 100)) + b"]" for i in range(600)])
    real_lab.write(real_lab.clicks, clicks(0, 1))
    arrived = drain(real_lab.source(max_events=1_000), 60_001)
    sizes = [len(batch) for batch in arrived.batches]
    assert max(sizes) <= 1_000
    assert arrived.impressions[0] == list(range(60_000))


def test_arrow_messages_arrive_whole(lab, drain):
    lab.create(lab.impressions, lab.clicks)
    ids = [f"i{i}" for i in range(300)]
    ts = pa.array(range(1_700_000_000_000, 1_700_000_000_300), pa.int64())
    seen = pa.table({"impression_id": ids, "ts": ts, "user_id": ids, "pclick": [0.5] * 300})
    for table, topic in ((seen, lab.impressions), (seen.select(["impression_id", "ts"]), lab.clicks)):
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table)
        lab.write(topic, [out.getvalue().to_pybytes()], 1)
    arrived = drain(lab.source(lab.settings(format="arrow")), 600)
    assert arrived.impressions == {1: list(range(300))}
    assert arrived.clicks == {1: list(range(300))}


def test_reading_begins_at_the_keepers_offsets(lab, stored, impressions, clicks, drain):
    lab.create(lab.impressions, lab.clicks)
    for partition in range(4):
        lab.write(lab.impressions, impressions(0, 50), partition)
        lab.write(lab.clicks, clicks(0, 20), partition)
    offsets = {(lab.impressions, p): 10 * p for p in range(4)} | {(lab.clicks, p): 5 * p for p in range(4)}
    arrived = drain(lab.source(keeper=stored(offsets)), 40 + 50 + 30 + 20 + 5 + 20 + 15 + 10)
    for p in range(4):
        assert arrived.impressions[p] == list(range(10 * p, 50))
        assert arrived.clicks[p] == list(range(5 * p, 20))


def test_a_position_beyond_the_end_is_an_error_that_says_what_to_do(lab, stored, impressions, clicks, drain):
    lab.create(lab.impressions, lab.clicks)
    lab.write(lab.impressions, impressions(0, 5))
    lab.write(lab.clicks, clicks(0, 5))
    source = lab.source(keeper=stored({(lab.impressions, 0): 6}))
    with pytest.raises(SourceError, match=rf"{lab.impressions} \[0\]: .* offset 6, but .* ends at 5: .* start over"):
        drain(source, 5)


def test_caught_up_is_what_the_broker_says_when_it_is_asked(lab, impressions, clicks, drain):
    lab.create(lab.impressions, lab.clicks)
    lab.write(lab.impressions, impressions(0, 50))
    lab.write(lab.clicks, clicks(0, 10))
    source = lab.source()
    assert source.caught_up() == frozenset()
    arrived = drain(source, 60)
    everywhere = {(topic, p) for topic in (lab.impressions, lab.clicks) for p in range(4)}
    assert says_caught_up_at(source, everywhere)
    lab.write(lab.clicks, clicks(10, 1), 3)
    assert says_caught_up_at(source, everywhere - {(lab.clicks, 3)})  # though no poll has seen the message
    drain(source, 61, arrived)
    assert says_caught_up_at(source, everywhere)


def test_a_group_without_offsets_starts_at_the_end_when_told_so(lab, impressions, clicks, drain):
    lab.create(lab.impressions, lab.clicks)
    lab.write(lab.impressions, impressions(0, 50))
    lab.write(lab.clicks, clicks(0, 50))
    source = lab.source(lab.settings(start="latest"))
    deadline = time.monotonic() + PATIENCE
    while not source.partitions():
        assert time.monotonic() < deadline
        assert not any(map(len, source.poll(0.1)))
    assert not any(map(len, source.poll(0.3)))
    lab.write(lab.impressions, impressions(50, 3))
    arrived = drain(source, 3)
    assert arrived.impressions[0] == [50, 51, 52]


def test_compressed_topics_are_read(real_lab, impressions, clicks, drain):
    real_lab.create(real_lab.impressions, real_lab.clicks)
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        producer = Producer({"bootstrap.servers": real_lab.address, "compression.type": codec, "linger.ms": 50})
        real_lab.write(real_lab.impressions, impressions(number * 500, 500), producer=producer)
    real_lab.write(real_lab.clicks, clicks(0, 1))
    arrived = drain(real_lab.source(), 2_501)
    assert arrived.impressions[0] == list(range(2_500))


def test_big_messages_pass_and_too_big_ones_are_dead_letters(real_lab, impressions, clicks, drain):
    real_lab.create(real_lab.impressions, real_lab.clicks, real_lab.dead)
    first, second = impressions(0, 2)
    big = first[:-1] + b', "features": {"text": "' + b"x" * 5_000_000 + b'"}}'
    too_big = b"{" + b" " * 17_000_000 + b"}"
    for value in (big, too_big, second):  # one at a time: together they are more than a broker takes in a batch
        real_lab.write(real_lab.impressions, [value])
    real_lab.write(real_lab.clicks, clicks(0, 1))
    settings = real_lab.settings()
    sink = real_lab.dead_letters(settings)
    arrived = drain(real_lab.source(settings, sink), 4)
    assert arrived.impressions[0] == [0, 1]
    sink.flush(PATIENCE)
    (letter,) = real_lab.read(real_lab.dead, 1)
    assert letter[1]["reason"] == "too_large"
    assert letter[0] == too_big


def test_transactions_deliver_what_was_committed_and_leave_no_lag(real_lab, impressions, clicks, drain):
    real_lab.create(real_lab.impressions, real_lab.clicks)
    producer = Producer({"bootstrap.servers": real_lab.address, "transactional.id": real_lab.impressions})
    producer.init_transactions(60)
    for first, keep in ((0, True), (100, False), (200, True)):
        producer.begin_transaction()
        real_lab.write(real_lab.impressions, impressions(first, 100), producer=producer)
        (producer.commit_transaction if keep else producer.abort_transaction)(60)
    real_lab.write(real_lab.clicks, clicks(0, 1))
    source = real_lab.source()
    arrived = drain(source, 201)
    assert arrived.impressions[0] == [*range(100), *range(200, 300)]
    deadline = time.monotonic() + PATIENCE
    while set(source.lag().values()) != {0}:  # the end is told with the next fetch
        assert time.monotonic() < deadline, source.lag()
        assert source.poll(0.1) == []
    assert says_caught_up_at(
        source, {(topic, p) for topic in (real_lab.impressions, real_lab.clicks) for p in range(4)}
    )
    real_lab.write(
        real_lab.impressions, impressions(300, 1)
    )  # kafka-python passes the last marker with what follows it
    drain(source, 202, arrived)
    assert source.empty() == {(real_lab.impressions, 0): 103}  # three markers, and what was aborted


@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_what_a_transaction_holds_back_is_not_caught_up_with(outcome, real_lab, impressions, clicks, drain):
    real_lab.create(real_lab.impressions, real_lab.clicks)
    places = {(topic, p) for topic in (real_lab.impressions, real_lab.clicks) for p in range(4)}
    held = (real_lab.impressions, 0)
    real_lab.write(real_lab.impressions, impressions(0, 10))
    real_lab.write(real_lab.clicks, clicks(0, 1))
    source = real_lab.source()
    arrived = drain(source, 11)
    assert says_caught_up_at(source, places)
    assert source.in_transaction() == {}
    producer = Producer({"bootstrap.servers": real_lab.address, "transactional.id": real_lab.impressions})
    producer.init_transactions(60)
    producer.begin_transaction()
    real_lab.write(real_lab.impressions, impressions(100, 5), producer=producer)
    real_lab.write(real_lab.impressions, impressions(200, 5))  # waits behind it
    late = real_lab.source()
    drain(late, 11)
    for one in (source, late):
        assert reads_until_caught_up_at(one, places - {held})
        assert one.in_transaction() == {held: 10}
        assert one.lag()[held] == 10
    late.close()
    (producer.commit_transaction if outcome == "commit" else producer.abort_transaction)(60)
    kept = 10 if outcome == "commit" else 5
    arrived = drain(source, 11 + kept, arrived)
    assert arrived.impressions[0][10:] == [*range(100, 105), *range(200, 205)][-kept:]
    assert reads_until_caught_up_at(source, places)
    assert source.in_transaction() == {}
