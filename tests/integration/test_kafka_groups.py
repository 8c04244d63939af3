"""Consumer groups: restarts, members that come and go, a broker that goes away, messages that are gone."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

pytestmark = pytest.mark.kafka


def settled(sources, partitions):
    """Poll until every partition is assigned to exactly one of the sources; what was read meanwhile."""
    batches = []
    for _ in range(300):
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


def test_members_of_a_group_share_the_partitions_and_repeat_nothing(real_lab, impressions, clicks, drain):
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
    for _ in range(300):
        arrived.take([*one.poll(0.1), *two.poll(0.1)])
        if arrived.count() >= 440:
            break
    two.commit(arrived.offsets())  # of the partitions it has; the other member's keep what they have in memory
    two.close()
    arrived.take(settled([one], 4))
    wave(2)
    drain(one, 660, arrived)
    for p in range(4):
        assert arrived.impressions[p] == list(range(150))
        assert arrived.clicks[p] == list(range(15))


def test_a_checkpoint_is_used_only_for_the_partitions_of_the_first_assignment(real_lab, impressions, clicks, drain):
    real_lab.create(real_lab.impressions, real_lab.clicks, partitions=2)
    for p in range(2):
        real_lab.write(real_lab.impressions, impressions(0, 40), p)
        real_lab.write(real_lab.clicks, clicks(0, 1), p)
    settings = real_lab.settings()
    offsets = {(real_lab.impressions, p): 10 for p in range(2)}
    one, two = real_lab.source(settings, offsets=offsets), real_lab.source(settings)
    batches = settled([one, two], 2)
    owners = {p: source for source in (one, two) for p in source.partitions()}
    for _ in range(100):
        batches += [*one.poll(0.1), *two.poll(0.1)]
        if all(v == 0 for source in (one, two) for v in source.lag().values()) and one.lag() and two.lag():
            break
    two.commit({(real_lab.impressions, p): 35 for p, owner in owners.items() if owner is two})
    two.close()
    later = settled([one], 2)
    for _ in range(100):
        later += one.poll(0.1)
        if set(one.lag().values()) == {0} and len(one.lag()) == 4:
            break
    (taken,) = [p for p, owner in owners.items() if owner is two]
    again = [ts - 1_700_000_000_000 for b in later if b.partition == taken for ts in b.impressions.ts.tolist()]
    assert again == list(range(35, 40))  # the committed offset, not the checkpoint's 10


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
        sources.append(lab.source())
        seen.append(drain(sources[-1], 110))
    launcher("stop", str(own_kafka))
    for _ in range(10):
        for source in sources:
            assert source.poll(0.2) == []
    assert launcher("start", str(own_kafka)) == address
    for lab, source, arrived in zip(labs, sources, seen, strict=True):
        assert source.partitions() == {0, 1, 2, 3}
        lab.write(lab.impressions, impressions(100, 100))
        lab.write(lab.clicks, clicks(10, 10))
        drain(source, 220, arrived)
        assert arrived.impressions[0] == list(range(200))
        assert arrived.clicks[0] == list(range(20))
        source.close()


def test_messages_deleted_before_they_were_read_are_skipped_and_said_so(real_lab, impressions, clicks, drain, caplog):
    real_lab.create(real_lab.impressions, real_lab.clicks)
    real_lab.write(real_lab.impressions, impressions(0, 100))
    real_lab.write(real_lab.clicks, clicks(0, 1))
    settings = real_lab.settings(start="latest")
    first = real_lab.source(settings)
    settled([first], 4)
    first.commit({(real_lab.impressions, 0): 10})
    first.close()
    admin = AdminClient({"bootstrap.servers": real_lab.address})
    for done in admin.delete_records([TopicPartition(real_lab.impressions, 0, 50)]).values():
        done.result(30)
    with caplog.at_level(logging.WARNING, "streameval"):
        arrived = drain(real_lab.source(settings), 50)
    assert arrived.impressions[0] == list(range(50, 100))
    assert f"{real_lab.impressions} [0]: offset 10 is not there any more: going on at 50" in caplog.text
