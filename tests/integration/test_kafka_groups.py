"""Consumer groups: restarts, members that come and go, a broker that goes away, messages that are gone."""

from __future__ import annotations

import itertools
import logging
import threading
import time

import pytest
from confluent_kafka import Consumer

from streameval.sources.kafka import confluent_reader
from streameval.sources.kafka.clients import open_describer, open_reader

pytestmark = pytest.mark.kafka
PATIENCE = 180.0  # seconds, on a slow machine
# a broker that restarts may be away for longer than the usual 45 s, on such a machine
LONG_SESSION = {
    "confluent": {"session.timeout.ms": 240_000},
    "kafka-python": {"session_timeout_ms": 240_000},
}


def settled(sources, partitions):
    """Poll until every partition is assigned to exactly one of the sources; what was read meanwhile."""
    batches = []
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        for source in sources:
            batches += source.poll(0.1)
        owned = [p for source in sources for p in source.partitions()]
        if sorted(owned) == list(range(partitions)) and all(source.partitions() for source in sources):
            return batches
    raise AssertionError(f"partitions never settled: {[sorted(s.partitions()) for s in sources]}")


def test_a_restart_goes_on_at_the_committed_offsets(real_lab, impressions, clicks, drain):
    real_lab.create(real_lab.impressions, real_lab.clicks)
    real_lab.write(real_lab.impressions, impressions(0, 100), 1)
    real_lab.write(real_lab.clicks, clicks(0, 30), 1)
    settings = real_lab.settings()
    first = real_lab.source(settings)
    drain(first, 130)
    first.commit({(real_lab.impressions, 1): 60})
    first.commit({(real_lab.impressions, 1): 70, (real_lab.clicks, 1): 10})
    first.close()
    arrived = drain(real_lab.source(settings), 30 + 20)
    assert arrived.impressions[1] == list(range(70, 100))
    assert arrived.clicks[1] == list(range(10, 30))


def test_a_group_without_members_is_joined_before_anything_is_read(real_lab, impressions, clicks, drain):
    """So that the wait of a new group for further members is over when the kernels are ready; but nobody else's are taken."""
    real_lab.create(real_lab.impressions, real_lab.clicks, partitions=4)
    settings = real_lab.settings()
    describer = open_describer(settings)

    def held() -> list[int]:
        assert describer.describe([real_lab.impressions, real_lab.clicks]) is not None
        return [len(member.places) for member in describer.members(settings.group_id)]

    goes_on = threading.Event()
    alone = real_lab.source(settings)
    alone.connect(goes_on)
    if real_lab.client == "confluent":
        deadline = time.monotonic() + PATIENCE
        while held() != [8]:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    assert not alone.partitions()
    real_lab.write(real_lab.impressions, impressions(0, 100), 1)
    real_lab.write(real_lab.clicks, clicks(0, 30), 1)
    arrived = drain(alone, 130)
    assert arrived.impressions[1] == list(range(100))
    further = real_lab.source(settings)
    further.connect(goes_on)
    for _ in range(20):
        alone.poll(0.1)
    assert held() == [8]
    settled([alone, further], 4)
    assert sorted(held()) == [4, 4]
    further.close()
    alone.close()
    deadline = time.monotonic() + PATIENCE
    while held():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    gone = real_lab.source(settings)
    gone.connect(goes_on)
    gone.close()  # a start that is interrupted while kernels are compiled
    deadline = time.monotonic() + PATIENCE
    while held():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    describer.close()


def test_partitions_that_come_while_a_client_is_closed_are_no_error(laboratory, real_kafka, monkeypatch):
    """The client left the group at `assign`, and what was asked of the group after that was a traceback."""

    class Slow(Consumer):
        def assign(self, places):
            super().assign(places)
            given.append(places)
            time.sleep(0.5)  # enough for the client's thread to leave

    given, raised = [], []
    lab = laboratory(real_kafka, "confluent")
    lab.create(lab.impressions, lab.clicks)
    settings = lab.settings()
    describer = open_describer(settings)
    assert describer.describe([lab.impressions, lab.clicks]) is not None
    monkeypatch.setattr(confluent_reader, "Consumer", Slow)
    monkeypatch.setattr(threading, "excepthook", raised.append)
    source = lab.source(settings)
    deadline = time.monotonic() + PATIENCE
    source.poll(0.0)
    while not any(member.places for member in describer.members(settings.group_id)):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(0.5)  # until the client has its places, too: but nobody asks it for them
    source.close()
    describer.close()
    assert given
    assert not raised


def test_members_of_a_group_share_the_partitions_and_repeat_nothing(real_lab, impressions, clicks, drain, caplog):
    real_lab.create(real_lab.impressions, real_lab.clicks, partitions=4)

    def wave(number):
        for p in range(4):
            real_lab.write(real_lab.impressions, impressions(number * 50, 50), p)
            real_lab.write(real_lab.clicks, clicks(number * 5, 5), p)

    settings = real_lab.settings()
    wave(0)
    one = real_lab.source(settings)
    arrived = drain(one, 220)
    one.commit(arrived.offsets())
    two = real_lab.source(settings)
    arrived.take(settled([one, two], 4))
    assert len(one.partitions()) == len(two.partitions()) == 2
    wave(1)
    deadline = time.monotonic() + PATIENCE
    while arrived.count() < 440 and time.monotonic() < deadline:
        arrived.take([*one.poll(0.1), *two.poll(0.1)])
    two.commit(arrived.offsets())  # of the partitions it has; the other member's keep what they have in memory
    two.close()
    arrived.take(settled([one], 4))
    wave(2)
    deadline = time.monotonic() + PATIENCE
    wanted = {
        (topic, p): 3 * each
        for p in range(4)
        for topic, each in ((settings.impressions_topic, 50), (settings.clicks_topic, 5))
    }
    while arrived.offsets() != wanted and time.monotonic() < deadline:
        arrived.take(one.poll(0.1))
    arrived.take(one.poll(0.2))  # what must not come would come now
    # a heartbeat that crosses a rebalance costs a member of kafka-python its place, or its commit: what was read after the
    # last commit is then read again, and only then
    troubles = [m for r in caplog.records if "lost partitions" in (m := r.getMessage()) or "offsets not committed" in m]
    for p in range(4):
        for numbers, each in ((arrived.impressions[p], 50), (arrived.clicks[p], 5)):
            begun_again = [after for before, after in itertools.pairwise(numbers) if after != before + 1]
            assert set(begun_again) <= {0, each, 2 * each}, numbers  # nothing is left out, nothing is begun in between
            assert len(begun_again) <= len(troubles), (numbers, troubles)
            assert sorted(set(numbers)) == list(range(3 * each))


def test_a_broker_that_goes_away_and_comes_back_loses_and_repeats_nothing(
    own_kafka, laboratory, launcher, impressions, clicks, drain
):
    address = launcher("start", str(own_kafka))
    labs = [laboratory(address, client) for client in ("confluent", "kafka-python")]
    sources, seen = [], []
    for lab in labs:
        lab.create(lab.impressions, lab.clicks)
        lab.write(lab.impressions, impressions(0, 100))
        lab.write(lab.clicks, clicks(0, 10))
        sources.append(lab.source(lab.settings(client_options=LONG_SESSION[lab.client])))
        assert not sources[-1].connected()
        seen.append(drain(sources[-1], 110))
        assert sources[-1].connected()
    launcher("stop", str(own_kafka))
    for source in sources:
        deadline = time.monotonic() + PATIENCE
        while source.connected():
            assert time.monotonic() < deadline
            assert not any(map(len, source.poll(0.2)))
        assert source.caught_up() == frozenset()
    assert launcher("start", str(own_kafka)) == address
    for lab, source, arrived in zip(labs, sources, seen, strict=True):
        deadline = time.monotonic() + PATIENCE
        while not source.connected():
            assert time.monotonic() < deadline
            assert not any(map(len, source.poll(0.2)))
        assert source.partitions() == {0, 1, 2, 3}
        lab.write(lab.impressions, impressions(100, 100))
        lab.write(lab.clicks, clicks(10, 10))
        drain(source, 220, arrived)
        assert arrived.impressions[0] == list(range(200))
        assert arrived.clicks[0] == list(range(20))
        source.close()


def test_closing_does_not_wait_for_a_broker_that_is_gone(
    own_kafka, laboratory, launcher, client, impressions, clicks, drain
):
    lab = laboratory(launcher("start", str(own_kafka)), client)
    lab.create(lab.impressions, lab.clicks)
    lab.write(lab.impressions, impressions(0, 10))
    source = lab.source()
    arrived = drain(source, 10)
    launcher("stop", str(own_kafka))
    source.commit(arrived.offsets())
    closing = threading.Thread(target=source.close, daemon=True)
    closing.start()
    closing.join(30.0)  # a session timeout is 45 s
    assert not closing.is_alive()


def test_messages_deleted_before_a_committed_offset_are_counted_and_said_loudly(
    real_lab, impressions, clicks, drain, caplog
):
    real_lab.create(real_lab.impressions, real_lab.clicks)
    real_lab.write(real_lab.impressions, impressions(0, 100))
    real_lab.write(real_lab.clicks, clicks(0, 1))
    settings = real_lab.settings(start="latest")
    first = real_lab.source(settings)
    settled([first], 4)
    first.commit({(real_lab.impressions, 0): 10})
    first.close()
    real_lab.delete_before(real_lab.impressions, 0, 50)
    source = real_lab.source(settings)
    with caplog.at_level(logging.ERROR, "streameval"):
        arrived = drain(source, 50)
    assert arrived.impressions[0] == list(range(50, 100))
    assert source.lost() == {(real_lab.impressions, 0): 40}
    expected = f"{real_lab.impressions} [0]: offsets 10 to 49 were deleted before they were read: 40 messages lost"
    assert expected in caplog.text


class Anybody:
    """An owner that knows no offsets."""

    def assigned(self, places):
        return {}

    def topic_ids(self):
        return {}

    def revoked(self, places): ...

    def lost(self, places): ...


def test_messages_deleted_while_they_wait_to_be_read_are_counted(real_lab, impressions):
    real_lab.create(real_lab.impressions, partitions=1)
    real_lab.write(real_lab.impressions, impressions(0, 5))
    place = (real_lab.impressions, 0)
    reader = open_reader(real_lab.settings())
    try:
        reader.partition_counts([place[0]], PATIENCE)
        reader.subscribe([place[0]], Anybody(), committed=False)
        assert read(reader, 5) == [0, 1, 2, 3, 4]
        reader.pause([place])
        assert reader.poll(3.0, 100) == []  # no fetch is under way after that
        real_lab.write(real_lab.impressions, impressions(5, 5))
        real_lab.delete_before(*place, 8)
        reader.resume([place])
        assert read(reader, 2) == [8, 9]
        assert reader.lost == {place: 3}
    finally:
        reader.close()


def test_a_pause_loses_nothing_of_what_the_client_has_fetched_one_by_one(real_lab, impressions):
    real_lab.create(real_lab.impressions, partitions=1)
    for event in impressions(0, 20):
        real_lab.write(real_lab.impressions, [event])  # each a batch of its own, so a record of the client is a message
    place = (real_lab.impressions, 0)
    reader = open_reader(real_lab.settings())
    try:
        reader.partition_counts([place[0]], PATIENCE)
        reader.subscribe([place[0]], Anybody(), committed=False)
        deadline = time.monotonic() + PATIENCE
        while not (first := reader.poll(0.2, 1)):
            assert time.monotonic() < deadline
        reader.pause([place])
        assert reader.poll(1.0, 100) == []
        reader.resume([place])
        assert [*first[0].offsets, *read(reader, 19)] == list(range(20))
    finally:
        reader.close()


def test_a_pause_does_not_outlive_an_assignment(real_lab, impressions):
    """librdkafka keeps the pause of a partition that is taken and given back: nothing was read of it again."""
    real_lab.create(real_lab.impressions, partitions=2)
    places = [(real_lab.impressions, p) for p in range(2)]
    for _, p in places:
        real_lab.write(real_lab.impressions, impressions(0, 5), p)
    settings = real_lab.settings()
    readers = [open_reader(settings) for _ in range(2)]
    joined, seen = [], set()

    def poll_until(done):
        deadline = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < deadline, (seen, [reader.assignment for reader in readers])
            for reader in joined:
                seen.update((run.place, offset) for run in reader.poll(0.2, 100) for offset in run.offsets)

    try:
        for reader in readers:
            reader.partition_counts([real_lab.impressions], PATIENCE)
            reader.subscribe([real_lab.impressions], Anybody(), committed=False)
            joined.append(reader)
            poll_until(lambda: len(seen) == 10)
            readers[0].pause(places)
        poll_until(lambda: all(len(reader.assignment) == 1 for reader in readers))
        for _, p in places:
            real_lab.write(real_lab.impressions, impressions(5, 1), p)
        poll_until(lambda: {(place, 5) for place in places} <= seen)
    finally:
        for reader in readers:
            reader.close()


def test_a_silent_topic_does_not_hold_up_a_backlog_of_the_other_one(real_lab, impressions):
    """Whatever is taken at a time: kafka-python asked for the silent one alone, until the broker had waited for it."""
    real_lab.create(real_lab.impressions, real_lab.clicks, partitions=1)
    for event in impressions(0, 20):
        real_lab.write(real_lab.impressions, [event.ljust(5_000)])
    wait, fetch = 4.0, 12_000  # seconds that the broker waits for messages; bytes, which are two messages
    options = {
        "kafka-python": {"fetch_max_wait_ms": int(wait * 1_000), "max_partition_fetch_bytes": fetch},
        "confluent": {"fetch.wait.max.ms": int(wait * 1_000), "max.partition.fetch.bytes": fetch},
    }
    topics = [real_lab.impressions, real_lab.clicks]
    reader = open_reader(real_lab.settings(client_options=options[real_lab.client]))
    try:
        reader.partition_counts(topics, PATIENCE)
        reader.subscribe(topics, Anybody(), committed=False)
        deadline, offsets = time.monotonic() + PATIENCE, []
        while len(offsets) < 20:
            joining = not offsets
            offsets += [offset for run in reader.poll(0.2, 1) for offset in run.offsets]
            if joining and offsets:
                deadline = time.monotonic() + 5 * wait
            assert time.monotonic() < deadline, offsets
        assert offsets == list(range(20))
    finally:
        reader.close()


def read(reader, count):
    """The offsets of the next messages."""
    offsets = []
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        offsets += [offset for run in reader.poll(0.2, 100) for offset in run.offsets]
        if len(offsets) >= count:
            break
    return offsets
