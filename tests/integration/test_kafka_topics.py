"""Topics that are deleted and recreated, or get more partitions, while somebody reads them."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from functools import partial

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from streameval import app
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings
from streameval.sources.dead_letters import JsonlDeadLetters
from streameval.sources.kafka.reader import QUIET
from streameval.sources.kafka.source import KafkaSource
from streameval.sources.kafka.topics import TopicWatch
from streameval.sources.protocol import SourceError
from tests.integration.conftest import launch

pytestmark = pytest.mark.kafka
PATIENCE = 180.0  # seconds, on a slow machine
LIVELY = {  # hear of new partitions soon
    "confluent": {"topic.metadata.refresh.interval.ms": 500},
    "kafka-python": {"metadata_max_age_ms": 500},
}


class Kept:
    """A keeper that knows what batches have told of offsets and topics, as a checkpoint would."""

    def __init__(self):
        self.offsets, self.ids = {}, {}

    def take(self, partitions):
        return {place: offset for place, offset in self.offsets.items() if place[1] in partitions}

    def topic_ids(self, partitions):
        return {place: known for place, known in self.ids.items() if place[1] in partitions}

    def release(self, partitions): ...

    def regain(self, partitions): ...

    def drop(self, partitions): ...

    def keep(self, arrived):
        for batch in arrived.batches:
            self.offsets |= batch.offsets
            self.ids |= batch.topic_ids


def make_anew(lab, topic, partitions=1):
    """Delete a topic and make another one of its name, as soon as the brokers let it."""
    admin = AdminClient({"bootstrap.servers": lab.address})
    for done in admin.delete_topics([topic]).values():
        done.result(PATIENCE)
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            lab.create(topic, partitions=partitions)
            return
        except KafkaException:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def grow(lab, topic, partitions):
    admin = AdminClient({"bootstrap.servers": lab.address})
    for done in admin.create_partitions([NewPartitions(topic, partitions)]).values():
        done.result(PATIENCE)
    deadline = time.monotonic() + PATIENCE
    while len(admin.list_topics(topic, timeout=PATIENCE).topics[topic].partitions) < partitions:  # a busy broker
        assert time.monotonic() < deadline
        time.sleep(0.05)


def write(lab, topic, values, partition):
    """With a producer that knows the partitions of now."""
    lab.write(topic, values, partition, Producer({"bootstrap.servers": lab.address}))


def settings(lab, **changes):
    return lab.settings(client_options=LIVELY[lab.client], **changes)


def poll_until(sources, arrived, reached):
    deadline = time.monotonic() + PATIENCE
    while not reached():
        for source in sources:
            arrived.take(source.poll(0.1))
        assert time.monotonic() < deadline, arrived


def stopped_before(lab, impressions, clicks, drain, **changes):
    """Settings and a keeper whose source has read three impressions of a topic that was recreated since, with five."""
    lab.create(lab.impressions, lab.clicks, partitions=1)
    lab.write(lab.impressions, impressions(0, 3))
    lab.write(lab.clicks, clicks(0, 1))
    ours, keeper = settings(lab, **changes), Kept()
    source = lab.source(ours, keeper=keeper)
    keeper.keep(drain(source, 4))
    assert keeper.offsets == {(lab.impressions, 0): 3, (lab.clicks, 0): 1}
    assert keeper.ids.keys() == keeper.offsets.keys()
    source.close()
    make_anew(lab, lab.impressions)
    lab.write(lab.impressions, impressions(100, 5))
    return ours, keeper


def test_a_topic_made_anew_while_nobody_read_is_read_from_its_beginning(real_lab, impressions, clicks, drain, caplog):
    ours, keeper = stopped_before(real_lab, impressions, clicks, drain)
    source = real_lab.source(ours, keeper=keeper)
    with caplog.at_level(logging.WARNING, "streameval"):
        arrived = drain(source, 5)
    assert arrived.impressions == {0: [100, 101, 102, 103, 104]}
    assert source.recreated() == {real_lab.impressions: 1}
    assert f'topic "{real_lab.impressions}" was deleted and recreated' in caplog.text
    gaps = [why for batch in arrived.batches for why in batch.gaps.values()]
    assert gaps == [f"topic {real_lab.impressions} was deleted and recreated"]
    before = dict(keeper.ids)
    keeper.keep(arrived)
    assert {place for place in before if keeper.ids[place] != before[place]} == {(real_lab.impressions, 0)}
    source.close()
    again = real_lab.source(ours, keeper=keeper)
    real_lab.write(real_lab.impressions, impressions(105, 1))
    assert drain(again, 1).impressions == {0: [105]}
    assert again.recreated() == {}


def test_or_from_its_end_and_what_is_passed_over_is_counted(real_lab, impressions, clicks, drain):
    ours, keeper = stopped_before(real_lab, impressions, clicks, drain, on_recreated_topic="end")
    source = real_lab.source(ours, keeper=keeper)
    drain(source, 0).take(source.poll(5.0))
    while not source.partitions():
        source.poll(0.1)
    real_lab.write(real_lab.impressions, impressions(105, 1))
    assert drain(source, 1).impressions == {0: [105]}
    assert source.lost() == {(real_lab.impressions, 0): 5}


def test_or_not_at_all(real_lab, impressions, clicks, drain):
    ours, keeper = stopped_before(real_lab, impressions, clicks, drain, on_recreated_topic="stop")
    source = real_lab.source(ours, keeper=keeper)
    with pytest.raises(
        SourceError, match=r'recreated .* kafka.on_recreated_topic = "stop": set it to "beginning" or "end"'
    ):
        drain(source, 5)


def test_a_topic_made_anew_while_it_is_read_is_read_from_its_beginning(real_lab, impressions, clicks, drain):
    real_lab.create(real_lab.impressions, real_lab.clicks, partitions=1)
    real_lab.write(real_lab.impressions, impressions(0, 10))
    real_lab.write(real_lab.clicks, clicks(0, 1))
    source = real_lab.source(settings(real_lab))
    arrived = drain(source, 11)
    make_anew(real_lab, real_lab.impressions)
    real_lab.write(real_lab.impressions, impressions(100, 15))  # more than were read of the old one
    poll_until([source], arrived, lambda: set(range(100, 115)) <= set(arrived.impressions[0]))
    assert source.recreated() == {real_lab.impressions: 1}
    assert arrived.offsets()[real_lab.impressions, 0] == 15
    real_lab.write(real_lab.impressions, impressions(115, 1))
    poll_until([source], arrived, lambda: arrived.impressions[0][-1] == 115)
    assert source.recreated() == {real_lab.impressions: 1}


def read_anew(lab, own_kafka, impressions, clicks, drain):
    """A topic made anew after its broker had restarted is read: the old one's leader has an epoch above 0 then, and the new
    one's has not. Returns (the source, what arrived).
    """
    lab.create(lab.impressions, lab.clicks, partitions=1)
    launch("stop", str(own_kafka))
    launch("start", str(own_kafka))
    lab.write(lab.impressions, impressions(0, 3))
    lab.write(lab.clicks, clicks(0, 1))
    source = lab.source(settings(lab))
    arrived = drain(source, 4)
    make_anew(lab, lab.impressions)
    write(lab, lab.impressions, impressions(100, 3), 0)
    poll_until([source], arrived, lambda: {100, 101, 102} <= set(arrived.impressions[0]))
    assert source.recreated() == {lab.impressions: 1}
    return source, arrived


def test_a_topic_made_anew_after_a_broker_restarted_is_read(client, own_kafka, laboratory, impressions, clicks, drain):
    lab = laboratory(launch("start", str(own_kafka)), client)
    source, arrived = read_anew(lab, own_kafka, impressions, clicks, drain)
    write(lab, lab.clicks, clicks(100, 1), 0)
    poll_until([source], arrived, lambda: arrived.offsets().get((lab.clicks, 0)) == 2)


@pytest.mark.parametrize("client", ["kafka-python"])
def test_a_recreated_topic_that_its_client_takes_for_a_shorter_log_is_read(
    own_kafka, laboratory, impressions, clicks, drain, monkeypatch, client
):
    """Where the client asks for the topics before we do."""
    monkeypatch.setattr("streameval.sources.kafka.source.TopicWatch", partial(TopicWatch, interval=60.0))
    lab = laboratory(launch("start", str(own_kafka)), client)
    read_anew(lab, own_kafka, impressions, clicks, drain)


def test_a_topic_that_is_away_for_long_is_waited_for(real_lab, impressions, clicks, drain):
    real_lab.create(real_lab.impressions, real_lab.clicks, partitions=1)
    real_lab.write(real_lab.impressions, impressions(0, 10))
    source = real_lab.source(settings(real_lab))
    arrived = drain(source, 10)
    admin = AdminClient({"bootstrap.servers": real_lab.address})
    for done in admin.delete_topics([real_lab.impressions]).values():
        done.result(PATIENCE)
    poll_until([source], arrived, lambda: source.unpaired() == {real_lab.clicks: 1})
    for _ in range(20):
        arrived.take(source.poll(0.1))
    real_lab.create(real_lab.impressions, partitions=1)
    real_lab.write(real_lab.impressions, impressions(100, 3))
    poll_until([source], arrived, lambda: set(range(100, 103)) <= set(arrived.impressions[0]))
    assert source.recreated() == {real_lab.impressions: 1}
    assert source.unpaired() == {}


def test_topics_that_are_all_gone_are_said_to_be_and_no_broker_is(real_lab, impressions, drain, caplog):
    """As after a cluster that came back without its data: `broker` failed, `topics` did not."""
    topics = {real_lab.impressions, real_lab.clicks}
    real_lab.create(*topics, partitions=1)
    real_lab.write(real_lab.impressions, impressions(0, 10))
    source = real_lab.source(settings(real_lab))
    arrived = drain(source, 10)
    assert source.missing() == frozenset()
    admin = AdminClient({"bootstrap.servers": real_lab.address})
    for done in admin.delete_topics(list(topics)).values():
        done.result(PATIENCE)
    poll_until([source], arrived, lambda: source.missing() == topics)
    end = time.monotonic() + QUIET + 4.0
    while time.monotonic() < end:
        arrived.take(source.poll(0.2))
    assert source.connected()
    assert "which was deleted" in caplog.text
    real_lab.create(*topics, partitions=1)
    real_lab.write(real_lab.impressions, impressions(100, 3))
    poll_until([source], arrived, lambda: set(range(100, 103)) <= set(arrived.impressions[0]))
    assert source.missing() == frozenset()


@pytest.mark.parametrize(
    ("client", "protocol"), [("confluent", "classic"), ("confluent", "consumer"), ("kafka-python", "")]
)
def test_partitions_added_while_running_are_read_from_their_beginning(
    client, protocol, laboratory, real_kafka, impressions, clicks, drain, caplog
):
    lab = laboratory(real_kafka, client)
    lab.create(lab.impressions, lab.clicks, partitions=2)
    lab.write(lab.impressions, impressions(0, 3))  # before anybody reads
    options = LIVELY[client] | ({"group.protocol": protocol} if protocol else {})
    source = lab.source(lab.settings(start="latest", client_options=options))
    arrived = drain(source, 0)
    poll_until([source], arrived, lambda: source.partitions() == {0, 1})
    grow(lab, lab.clicks, 4)
    write(lab, lab.clicks, clicks(200, 2), 3)
    with caplog.at_level(logging.WARNING, "streameval"):
        poll_until([source], arrived, lambda: source.unpaired() == {lab.clicks: 2} and "lacks" in caplog.text)
    lab.write(lab.impressions, impressions(100, 2), 1)
    poll_until([source], arrived, lambda: arrived.impressions.get(1) == [100, 101])  # the others go on
    grow(lab, lab.impressions, 4)
    write(lab, lab.impressions, impressions(200, 5), 3)
    poll_until([source], arrived, lambda: source.partitions() == {0, 1, 2, 3})
    write(lab, lab.impressions, impressions(205, 5), 3)
    poll_until([source], arrived, lambda: len(arrived.impressions.get(3, [])) >= 10 and len(arrived.clicks[3]) >= 2)
    assert arrived.impressions[3] == list(range(200, 210))
    assert arrived.clicks[3] == [200, 201]
    assert arrived.impressions.get(0, []) == []
    assert source.unpaired() == {}


def test_members_of_a_group_read_added_partitions_from_their_beginning(real_lab, impressions, clicks, drain):
    lab = real_lab
    lab.create(lab.impressions, lab.clicks, partitions=2)
    ours = settings(lab, start="latest")
    first = lab.source(ours)
    arrived = drain(first, 0)
    poll_until([first], arrived, lambda: first.partitions() == {0, 1})
    first.commit(arrived.offsets())
    for topic in (lab.impressions, lab.clicks):
        grow(lab, topic, 4)
    write(lab, lab.impressions, impressions(0, 5), 3)
    second = lab.source(ours)  # it has never known fewer
    both = [first, second]
    poll_until(both, arrived, lambda: sorted(p for s in both for p in s.partitions()) == [0, 1, 2, 3])
    poll_until(both, arrived, lambda: len(arrived.impressions.get(3, [])) >= 5)
    assert arrived.impressions[3] == list(range(5))


def test_partitions_added_while_nobody_read_are_read_from_their_beginning_by_a_group_without_offsets(
    real_lab, impressions, clicks, drain
):
    """Its offsets have expired, or it is a new one: the checkpoints know the topics."""
    lab, keeper = real_lab, Kept()
    lab.create(lab.impressions, lab.clicks, partitions=1)
    source = lab.source(settings(lab, start="latest"), keeper=keeper)
    arrived = drain(source, 0)
    poll_until([source], arrived, lambda: arrived.offsets().keys() == {(lab.impressions, 0), (lab.clicks, 0)})
    keeper.keep(arrived)
    source.close()
    for topic in (lab.impressions, lab.clicks):
        grow(lab, topic, 2)
    for partition in range(2):
        write(lab, lab.impressions, impressions(100 * partition, 5), partition)
    write(lab, lab.clicks, clicks(100, 2), 1)
    arrived = drain(lab.source(settings(lab, start="latest"), keeper=keeper), 12)  # every settings have a new group
    assert arrived.impressions == {0: [*range(5)], 1: [*range(100, 105)]}
    assert arrived.clicks == {0: [], 1: [100, 101]}


def test_what_comes_between_a_start_and_the_first_event_is_not_lost_by_a_restart(real_lab, impressions, clicks, drain):
    real_lab.create(real_lab.impressions, real_lab.clicks, partitions=1)
    ours, keeper = settings(real_lab, start="latest"), Kept()
    source = real_lab.source(ours, keeper=keeper)
    arrived = drain(source, 0)
    poll_until([source], arrived, lambda: arrived.offsets().keys() == {(real_lab.impressions, 0), (real_lab.clicks, 0)})
    keeper.keep(arrived)
    source.close()
    real_lab.write(real_lab.impressions, impressions(0, 5))
    assert drain(real_lab.source(ours, keeper=keeper), 5).impressions == {0: [0, 1, 2, 3, 4]}


@contextmanager
def monitor(settings):
    """A monitor with a store, as a function that returns the first snapshot of which something is true, or a late one."""
    pipeline = Pipeline(settings, time.time)
    letters = JsonlDeadLetters("")
    keeper, _ = app.open_store(settings, pipeline, letters)
    source = KafkaSource(settings.kafka, app.make_decoder(settings, pipeline), letters, 500, keeper=keeper)
    publisher = app.new_publisher(settings)
    stop = threading.Event()
    loop = app.Loop(source, pipeline, publisher, 0.1, letters, keeper)
    thread = threading.Thread(target=loop.run, args=(stop,))
    thread.start()

    def wait(reached):
        deadline = time.monotonic() + PATIENCE
        while not reached(publisher.latest()) and time.monotonic() < deadline:
            assert thread.is_alive()
            time.sleep(0.1)
        return publisher.latest()

    try:
        yield wait
    finally:
        stop.set()
        thread.join(PATIENCE)
        loop.publish()
        source.close()


def counted(settings, stop_after):
    """The last snapshot of a monitor with a store that reads until so many impressions are counted, over its life."""
    with monitor(settings) as wait:
        return wait(lambda seen: seen.events.get("impressions", 0) >= stop_after)


def kept_in(lab, folder):
    """Settings of a monitor with a store in a folder."""
    join = {"attribution_window": "10s", "allowed_lateness": "1s", "request_gap": "1s"}
    store = {"path": str(folder), "checkpoint_interval": "1s"}
    return Settings.model_validate(
        {"kafka": settings(lab).model_dump(), "store": store, "join": join, "windows": {"pane": "5s"}}
    )


def test_a_monitor_counts_all_of_a_topic_that_was_made_anew_while_it_was_down(real_lab, impressions, clicks, tmp_path):
    """3,000 impressions were counted where 4,000 are due."""
    lab = real_lab
    lab.create(lab.impressions, lab.clicks, partitions=1)
    lab.write(lab.impressions, impressions(0, 2_000, 100))
    lab.write(lab.clicks, clicks(0, 2_000, 100))
    tree = kept_in(lab, tmp_path)
    before = counted(tree, 2_000)
    assert before.events["impressions"] == 2_000
    make_anew(lab, lab.impressions)
    lab.write(lab.impressions, impressions(2_000, 2_000, 100))
    lab.write(lab.clicks, clicks(2_000, 2_000, 100))
    after = counted(tree, 4_000)
    assert after.events["impressions"] == 4_000
    assert after.events["duplicate_impressions"] == 0
    assert after.recreated == {lab.impressions: 1}
    reasons = {result.reliable_reason for result in after.results if result.window == "all"}
    assert reasons == {f"topic {lab.impressions} was deleted and recreated"}


def write_both(lab, impressions, clicks, start, count, partition):
    write(lab, lab.impressions, impressions(start, count, 100), partition)
    write(lab, lab.clicks, clicks(start, count, 100), partition)


def test_topics_made_anew_with_fewer_partitions_lose_nothing_that_was_counted(real_lab, impressions, clicks, tmp_path):
    """What the second partition had counted was missing, and nothing said so."""
    lab, tree = real_lab, kept_in(real_lab, tmp_path)
    lab.create(lab.impressions, lab.clicks, partitions=2)
    for partition in (0, 1):
        write_both(lab, impressions, clicks, 1_000 * partition, 1_000, partition)
    assert counted(tree, 2_000).events["impressions"] == 2_000
    for topic in (lab.impressions, lab.clicks):
        make_anew(lab, topic)
    write_both(lab, impressions, clicks, 2_000, 1_000, 0)
    after = counted(tree, 3_000)
    assert after.events["impressions"] == 3_000
    assert [one.partition for one in after.partitions] == [0, 1]
    for topic in (lab.impressions, lab.clicks):
        grow(lab, topic, 2)
    write_both(lab, impressions, clicks, 3_000, 500, 1)
    again = counted(tree, 3_500)
    assert again.events["impressions"] == 3_500
    assert again.events["duplicate_impressions"] == 0


def test_the_same_while_they_are_read_and_only_one_of_them_is_made_anew(
    real_lab, impressions, clicks, tmp_path, caplog
):
    lab = real_lab
    lab.create(lab.impressions, lab.clicks, partitions=2)
    for partition in (0, 1):
        write_both(lab, impressions, clicks, 1_000 * partition, 1_000, partition)
    with monitor(kept_in(lab, tmp_path)) as wait:
        assert wait(lambda seen: seen.events.get("impressions") == 2_000).events["clicks"] > 0
        make_anew(lab, lab.clicks)
        wait(lambda _: "the topics no longer have partitions 1:" in caplog.text)
        write(lab, lab.impressions, impressions(3_000, 500, 100), 1)  # not read: its clicks are missing
        write_both(lab, impressions, clicks, 2_000, 1_000, 0)
        less = wait(lambda seen: seen.events.get("impressions") == 3_000 and seen.unpaired)
        assert less.events["impressions"] == 3_000
        assert less.unpaired == {lab.impressions: 1}
        assert [one.partition for one in less.partitions] == [0, 1]
        grow(lab, lab.clicks, 2)
        again = wait(lambda seen: seen.events.get("impressions") == 3_500)
        assert again.events["impressions"] == 3_500
        assert again.events["duplicate_impressions"] == 0
        assert not again.unpaired


def test_what_was_counted_stays_while_a_topic_is_away(real_lab, impressions, clicks, tmp_path, caplog):
    """Every result vanished, as a group assigns nothing then."""
    lab = real_lab
    lab.create(lab.impressions, lab.clicks, partitions=2)
    for partition in (0, 1):
        write_both(lab, impressions, clicks, 1_000 * partition, 1_000, partition)
    admin = AdminClient({"bootstrap.servers": lab.address})
    with monitor(kept_in(lab, tmp_path)) as wait:
        before = wait(lambda seen: (seen.events.get("impressions"), seen.events.get("matured")) == (2_000, 1_780))
        assert before.ready["topics"]
        assert {one.totals.impressions for one in before.results if one.window == "all"} == {1_780}
        for done in admin.delete_topics([lab.impressions]).values():
            done.result(PATIENCE)
        wait(lambda _: "a topic is away: what partitions 0, 1 had counted (2000 impressions) stays" in caplog.text)
        away = wait(lambda seen: not seen.ready["topics"] and not seen.ready["assigned"])
        assert away.events["impressions"] == 2_000
        assert [one.totals for one in away.results] == [one.totals for one in before.results]
        lab.create(lab.impressions, partitions=2)
        for partition in (0, 1):
            write_both(lab, impressions, clicks, 2_000 + 1_000 * partition, 500, partition)
        back = wait(lambda seen: seen.events.get("impressions") == 3_000 and seen.ready["assigned"])
        assert back.events["impressions"] == 3_000
        assert back.events["duplicate_impressions"] == 0
        assert back.recreated == {lab.impressions: 1}


def test_of_two_workers_one_has_what_a_lost_partition_had_counted(real_lab, impressions, clicks, tmp_path):
    lab, tree = real_lab, kept_in(real_lab, tmp_path)
    lab.create(lab.impressions, lab.clicks, partitions=2)
    for partition in (0, 1):
        write_both(lab, impressions, clicks, 1_000 * partition, 1_000, partition)
    with monitor(tree) as one, monitor(tree) as other:

        def both(*expected):
            """Waits until these are (impressions, partitions) of either, in any order."""
            deadline = time.monotonic() + PATIENCE
            while True:
                latest = [wait(lambda _: True) for wait in (one, other)]
                found = [(seen.events.get("impressions", 0), len(seen.partitions)) for seen in latest]
                if sorted(found) == sorted(expected):
                    return
                assert time.monotonic() < deadline, found
                time.sleep(0.1)

        both((1_000, 1), (1_000, 1))
        counted_at = time.time()
        for wait in (one, other):  # what is not written when a busy machine loses its membership is missing
            wait(lambda seen: (seen.checkpoints.oldest or 0.0) > counted_at)
        for topic in (lab.impressions, lab.clicks):
            make_anew(lab, topic)
        write_both(lab, impressions, clicks, 2_000, 500, 0)
        both((2_500, 2), (0, 0))


def test_a_stranger_in_the_group_is_named_with_what_it_takes(real_lab, impressions, drain, monkeypatch, caplog):
    """Half of the partitions went to it, and nothing said so."""
    monkeypatch.setattr("streameval.sources.kafka.topics.GROUP_INTERVAL", 0.5)
    real_lab.create(real_lab.impressions, real_lab.clicks)
    real_lab.write(real_lab.impressions, impressions(0, 10))
    config = settings(real_lab)
    source = real_lab.source(config)
    arrived = drain(source, 10)
    group = {"bootstrap.servers": real_lab.address, "group.id": config.group_id, "auto.offset.reset": "earliest"}
    stranger = Consumer({**group, "client.id": "etl", "partition.assignment.strategy": "range"})
    stranger.subscribe([real_lab.impressions, real_lab.clicks])
    poll_until(  # the group may be described before we have begun with what is left of it
        [source], arrived, lambda: stranger.poll(0.1) is None and source.strangers() and len(source.partitions()) == 2
    )
    assert source.strangers() == {"etl at 127.0.0.1": 2}
    assert "etl at 127.0.0.1 is no streameval and reads 2 partitions" in caplog.text
    stranger.close()
    second = real_lab.source(config)  # a worker of ours is none
    both = [source, second]
    poll_until(both, arrived, lambda: not source.strangers() and all(len(one.partitions()) == 2 for one in both))
    deadline = time.monotonic() + 2.0
    while time.monotonic() < deadline:
        for one in both:
            arrived.take(one.poll(0.1))
        assert not source.strangers()
        assert not second.strangers()
