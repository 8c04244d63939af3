"""Where partitions begin of which some have no leader, without Kafka."""

from __future__ import annotations

from itertools import count

import pytest

from streameval.sources.kafka.confluent_assignments import at as confluent_at
from streameval.sources.kafka.confluent_assignments import offsets_of
from streameval.sources.kafka.member import Member
from streameval.sources.kafka.python_offsets import at as python_at
from streameval.sources.kafka.python_offsets import offsets_of_group
from streameval.sources.kafka.starts import Origin
from streameval.sources.kafka.topics import NO_LEADER, Topic
from streameval.sources.protocol import SourceError

I0, C0, I1, C1 = ("i", 0), ("c", 0), ("i", 1), ("c", 1)
ALL = frozenset({I0, C0, I1, C1})
REST = ALL - {I1}
LEADERLESS = {"i": Topic("i", 2, {0: 1, 1: NO_LEADER}), "c": Topic("c", 2, {0: 1, 1: 1})}
LED = {"i": Topic("i", 2, {0: 1, 1: 2}), "c": Topic("c", 2, {0: 1, 1: 1})}


class Owner:
    """It knows some offsets, and nothing else."""

    def __init__(self, offsets=()):
        self.offsets = dict(offsets)

    def assigned(self, places):
        return self.offsets

    def topic_ids(self):
        return {}

    def revoked(self, places): ...

    def lost(self, places): ...


class Leaders:
    """They know the ends [10, 100), and write down what they are asked."""

    def __init__(self, silent=()):
        self.asked, self.silent = [], set(silent)

    def __call__(self, place, then=None):
        self.asked.append((place, then))
        if place in self.silent:
            return None
        return (10, 100) if then is None else (10, 90)


def member(owner=None, *, earliest=True, committed=False):
    one = Member(owner or Owner(), 10.0, committed=committed, earliest=earliest, topics=("i", "c"))
    one._starts._clock = count(1_700_000_000.0).__next__
    one.assign(ALL)
    return one


def start(one, leaders, topics, committed=lambda places: {}):
    one.begin(one.starts(one.given, leaders, committed, topics))


def told(one):
    """What is told after the next poll: where it begins."""
    one.beginnings()
    return {each.place: each.offset for each in one.beginnings()}


def test_a_known_offset_needs_no_leader(caplog):
    one, leaders = member(Owner({I1: 42, C1: 50})), Leaders()
    start(one, leaders, LEADERLESS)
    assert one.positions.next == {I0: 10, C0: 10, I1: 42, C1: 50}
    assert one.open == ALL
    assert I1 not in [place for place, _ in leaders.asked]
    assert "no leader answers: i [1]: read once one does" in caplog.messages


def test_an_offset_of_the_group_needs_no_leader_either():
    one = member(committed=True, earliest=False)
    start(one, Leaders(), LEADERLESS, lambda places: dict.fromkeys(places, 33))
    assert one.positions.next == dict.fromkeys(ALL, 33)


def test_an_offset_of_the_group_beyond_the_end_is_named_as_that():
    """It was set by hand, as a rule; nothing has a store here, which the error told to empty."""
    one = member(committed=True)
    with pytest.raises(SourceError) as refused:
        start(one, Leaders(), LED, lambda places: dict.fromkeys(places, 100) | {I1: 101})
    assert str(refused.value).startswith(
        "i [1]: the offset 101 that kafka.group_id has committed lies beyond the end of"
    )
    assert "set it to one from 10 to 100 (kafka-consumer-groups.sh --reset-offsets" in str(refused.value)
    assert "store.path" not in str(refused.value)
    with pytest.raises(SourceError, match=r"i \[1\]: to be read from offset 101, .* empty store\.path"):
        start(member(Owner({I1: 101})), Leaders(), LED)


def test_what_begins_at_an_end_of_its_log_waits_for_a_leader_and_the_others_do_not(caplog):
    caplog.set_level("INFO")
    one, leaders = member(), Leaders()
    start(one, leaders, LEADERLESS)
    assert (one.open, one.waiting, one.assignment) == (REST, {I1}, ALL)
    assert told(one).keys() == REST
    assert not one.may_be_late(LEADERLESS)
    assert one.late(leaders, LEADERLESS) == {}
    assert one.may_be_late(LED)
    assert one.late(leaders, LED) == {I1: 10}
    assert (one.open, one.waiting) == (ALL, frozenset())
    assert told(one) == {I1: 10}
    assert one.positions.ids[I1] == "i"
    assert caplog.messages[-1] == "i [1] has a leader: read from offset 10"
    assert not one.may_be_late(LED)


def test_the_end_at_which_it_begins_is_that_of_the_time_when_the_others_began():
    """Messages that came between its leader's return and the next look at it are read."""
    one, leaders = member(earliest=False), Leaders()
    start(one, leaders, LEADERLESS)
    assert one.positions.next == dict.fromkeys(REST, 100)
    assert one.late(leaders, LED) == {I1: 90}
    assert leaders.asked[-1] == (I1, 1_700_000_000_000)


def test_a_rebalance_in_the_meantime_changes_nothing_about_where_it_begins():
    """By then the group has offsets of the other partitions, as it has where one was added."""
    one, leaders = member(earliest=False), Leaders()
    start(one, leaders, LEADERLESS)
    one.revoke(ALL)
    assert not one.may_be_late(LED)
    one.assign(ALL)
    start(one, leaders, LED, lambda places: {I0: 100, C0: 100, C1: 100})
    assert one.positions.next[I1] == 90


@pytest.mark.parametrize("earliest", [False, True])
def test_who_comes_later_does_not_take_it_for_an_added_one(earliest):
    first = member(earliest=earliest)
    first._starts._clock = lambda: 1_000.0
    start(first, Leaders(), LEADERLESS)
    of_group = first.first_offsets()
    assert of_group == ({} if earliest else {I0: 100, C0: 100, C1: 100, I1: Origin(end=1_000_000)})
    assert first.first_offsets() == {}
    leaders = Leaders()
    later = member(Owner({I0: 100, C0: 100, C1: 100}), earliest=earliest)
    start(later, leaders, LED, lambda places: of_group)
    assert later.positions.next[I1] == (10 if earliest else 90)
    assert ((I1, 1_000_000) in leaders.asked) is not earliest, "what came while neither ran is read"
    assert later.positions.lost == {}


def test_an_added_one_without_a_leader_is_left_to_be_taken_for_added():
    one = member(earliest=False)
    one.assign(frozenset({I0, C0}))
    start(one, Leaders(), {"i": Topic("i", 1), "c": Topic("c", 1)})
    one.first_offsets()
    one.assign(ALL)
    start(one, Leaders(), LEADERLESS)
    assert I1 not in one.first_offsets()
    assert one.late(Leaders(), LED) == {I1: 10}


@pytest.mark.parametrize("committed", [False, True])
def test_one_that_was_added_is_told_from_the_offsets_of_checkpoints_where_the_group_has_none(committed, caplog):
    """Its offsets had expired, or `kafka.group_id` was new: it began at its end."""
    caplog.set_level("INFO")
    one = member(Owner({I0: 42, C0: 50}), earliest=False, committed=committed)
    start(one, Leaders(), LED)
    assert one.positions.next == {I0: 42, C0: 50, I1: 10, C1: 10}
    assert one.positions.lost == {}
    assert "added since, from the beginning: c [1], i [1]" in caplog.messages
    of_group = one.first_offsets()
    assert of_group == {I0: 42, C0: 50}
    later = member(earliest=False, committed=committed)  # another member, with nothing of its own
    later.assign(frozenset({I1, C1}))
    start(later, Leaders(), LED, lambda places: of_group)
    assert later.positions.next == {I1: 10, C1: 10}


def test_a_checkpoint_of_one_topic_says_nothing_of_the_other():
    one = member(Owner({I0: 42, I1: 42}), earliest=False)
    start(one, Leaders(), LED)
    assert one.positions.next == {I0: 42, I1: 42, C0: 100, C1: 100}


def test_a_leader_that_does_not_answer_is_asked_once():
    """Every question may take ten seconds."""
    topics = {"i": Topic("i", 2, {0: 1, 1: 2}), "c": Topic("c", 2, {0: 1, 1: 2})}
    one, leaders = member(), Leaders({I1, C1})
    start(one, leaders, topics)
    assert one.open == {I0, C0}
    assert [place for place, _ in leaders.asked] == [C0, C1, I0]


def test_what_was_lost_is_not_begun_late():
    one = member()
    start(one, Leaders(), LEADERLESS)
    one.lose(ALL)
    assert one.late(Leaders(), LED) == {}
    assert one.assignment == frozenset()


def test_one_that_is_recreated_while_it_waits_begins_where_that_is_to_begin():
    one = member(earliest=False)
    start(one, Leaders(), LEADERLESS)
    again = {**LED, "i": Topic("new", 2, {0: 1, 1: 2})}
    assert one.find_recreated(again) == {I0}
    assert one.late(Leaders(), again) == {I1: 10}
    assert one.positions.ids[I1] == "new"
    assert one.positions.recreated == {"i": 1}


def test_a_recreated_one_without_a_leader_waits_and_its_old_offset_is_not_used():
    one = member(Owner({I0: 42, I1: 42}))
    one._owner.topic_ids = lambda: {I0: "old", I1: "old"}
    start(one, Leaders(), LEADERLESS)
    assert (one.positions.next[I0], one.waiting) == (10, {I1})
    assert one.late(Leaders(), LED) == {I1: 10}
    assert one.positions.recreated == {"i": 1}


def test_the_group_keeps_what_is_not_known_as_a_note():
    offsets = {I0: 5, I1: Origin(end=1_700_000_000_000)}
    assert offsets_of(confluent_at(offsets)) == offsets

    class Consumer:
        def committed(self, partition, *, metadata, timeout_ms):
            assert metadata
            return python_at(offsets).get(partition)

    assert offsets_of_group(Consumer(), [I0, I1, C0], 1.0) == offsets
    assert all(each.offset >= 0 for each in (*confluent_at(offsets), *python_at(offsets).values()))
