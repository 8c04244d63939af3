"""What a member of a group may deliver, and what its keeper hears, without Kafka."""

from __future__ import annotations

import threading

import pytest
from kafka.future import Future

from streameval.sources.kafka.handover import Handover
from streameval.sources.kafka.member import Generation, Member
from streameval.sources.kafka.owner import PartitionOwner
from streameval.sources.kafka.reader import MessageRun
from streameval.sources.kafka.topics import Topic, TopicWatch, known_id
from streameval.sources.protocol import SourceError

STARTS = "streameval.sources.kafka.starts"
I0, C0, I1, C1 = ("i", 0), ("c", 0), ("i", 1), ("c", 1)
BOTH = frozenset({I0, C0, I1, C1})
FIRST = frozenset({I0, C0})
ENDS = {I0: (0, 100), C0: (20, 100), I1: (0, 100), C1: (0, 100)}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Keeper:
    def __init__(self) -> None:
        self.calls = []
        self.offsets = {I0: 7}
        self.ids = {}
        self.failure = None

    def take(self, partitions):
        self.calls.append(("take", sorted(partitions)))
        return {place: offset for place, offset in self.offsets.items() if place[1] in partitions}

    def topic_ids(self, partitions):
        return {place: known for place, known in self.ids.items() if place[1] in partitions}

    def release(self, partitions):
        self.calls.append(("release", sorted(partitions)))
        if self.failure:
            raise self.failure

    def regain(self, partitions):
        self.calls.append(("regain", sorted(partitions)))

    def drop(self, partitions):
        self.calls.append(("drop", sorted(partitions)))


@pytest.fixture
def keeper():
    return Keeper()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def member(keeper, clock):
    owner = PartitionOwner(("i", "c"), "g", keeper, lambda _: None)
    return Member(owner, 10.0, committed=False, earliest=True, topics=("i", "c"), clock=clock)


def nobody(places):
    """The group has no offsets."""
    return {}


def begin(member, places, number, name="me"):
    member.assign(places, Generation(number, name))
    member.begin(member.starts(member.given, ENDS.__getitem__, nobody))


def run(place, first, count=5):
    return MessageRun(*place, [b""] * count, list(range(first, first + count)))


def test_reading_begins_at_the_keepers_offset_or_the_earliest(member, keeper):
    begin(member, BOTH, 1)
    assert member.positions.next == {I0: 7, C0: 20, I1: 0, C1: 0}
    assert keeper.calls == [("take", [0, 1])]
    assert member.positions.lost == {}


def test_kept_partitions_keep_their_position_and_others_are_dropped(member, keeper):
    begin(member, BOTH, 1)
    assert member.deliver([run(I0, 7)]) == [run(I0, 7)]
    member.revoke(BOTH)
    begin(member, FIRST, 2)
    assert member.positions.next == {I0: 12, C0: 20}
    begin(member, BOTH, 3)
    back = ("regain", [0])
    assert keeper.calls == [("take", [0, 1]), ("release", [0, 1]), ("drop", [1]), back, back, ("take", [1])]


def test_nothing_is_delivered_between_a_revocation_and_the_next_beginning(member):
    begin(member, BOTH, 1)
    member.revoke(BOTH)
    assert member.deliver([run(I0, 7)]) == []
    assert member.assignment == BOTH  # nobody else has been told to have them
    begin(member, BOTH, 2)
    assert member.deliver([run(I0, 7)]) == [run(I0, 7)]


def test_what_was_lost_is_dropped_without_a_release_and_taken_again(member, keeper):
    begin(member, BOTH, 1)
    member.deliver([run(I0, 7)])
    member.lose(BOTH)
    assert member.deliver([run(I0, 12)]) == []
    assert member.assignment == frozenset()
    member.lose(BOTH)  # the client says so too, later
    begin(member, FIRST, 5, "me again")
    assert keeper.calls == [("take", [0, 1]), ("drop", [0, 1]), ("take", [0])]
    assert member.positions.next[I0] == 7


@pytest.mark.parametrize("generation", [(3, "me"), (2, "another"), (1, "another"), (-1, "me")])
def test_a_generation_that_passed_without_us_may_have_given_ours_away(member, keeper, generation):
    begin(member, FIRST, 1)
    member.deliver([run(I0, 7)])
    member.revoke(FIRST)
    begin(member, FIRST, *generation)
    assert keeper.calls == [("take", [0]), ("release", [0]), ("drop", [0]), ("take", [0])]
    assert member.positions.next[I0] == 7


def test_who_has_not_looked_for_long_is_in_doubt_until_the_group_has_spoken(member, clock):
    begin(member, FIRST, 1)
    for _ in range(10):
        clock.now += 9.0
        assert not member.doubtful
    clock.now += 10.5
    member.look()
    assert member.doubtful
    member.confirm()
    assert not member.doubtful


def test_a_revocation_found_after_an_absence_is_a_loss(member, keeper, clock):
    begin(member, FIRST, 1)
    clock.now += 10.5
    member.revoke(FIRST)
    assert keeper.calls == [("take", [0]), ("drop", [0])]


def test_a_keepers_failure_inside_a_callback_comes_out_of_the_poll_once(member, keeper):
    begin(member, FIRST, 1)
    keeper.failure = SourceError("disk full")
    member.revoke(FIRST)
    with pytest.raises(SourceError, match="disk full"):
        member.check()
    member.check()


def test_a_beginning_that_failed_takes_once_and_counts_losses_once(member, keeper):
    keeper.offsets[C0] = 5
    member.assign(FIRST, Generation(1, "me"))

    def away(place):
        if place == I0:
            raise TimeoutError
        return ENDS[place]

    with pytest.raises(TimeoutError):
        member.starts(FIRST, away, nobody)
    assert member.starts(FIRST, ENDS.__getitem__, nobody) == {I0: 7, C0: 20}
    assert keeper.calls == [("take", [0]), ("regain", [0])]
    assert member.positions.lost == {C0: 15}


def test_of_half_a_pair_nothing_is_read_until_the_other_half_comes(member, keeper):
    begin(member, FIRST | {I1}, 1)
    assert member.assignment == FIRST
    assert keeper.calls == [("take", [0])]
    begin(member, BOTH, 2)
    assert member.assignment == BOTH


OLD, NEW = {"i": Topic("old", 2), "c": Topic("c", 2)}, {"i": Topic("new", 2), "c": Topic("c", 2)}


def start(member, places, topics, committed=nobody):
    member.assign(places)
    member.begin(member.starts(member.given, ENDS.__getitem__, committed, topics))


def told(member):
    """What is told after the next poll."""
    member.beginnings()
    return {one.place: (one.offset, one.topic_id, one.gap) for one in member.beginnings()}


def test_where_reading_begins_is_told_with_the_topics_id(member):
    start(member, FIRST, OLD)
    assert told(member) == {I0: (7, "old", ""), C0: (20, "c", "")}
    assert told(member) == {}


def test_a_beginning_revoked_before_it_was_reported_is_not_reported(member):
    start(member, BOTH, OLD)
    member.revoke(frozenset({I1, C1}))
    assert told(member).keys() == FIRST


def test_a_state_of_a_recreated_topic_continues_at_the_beginning_of_the_new_one(member, keeper):
    keeper.ids = {I0: "old", C0: "c"}
    start(member, BOTH, NEW)
    assert member.positions.next == {I0: 0, C0: 20, I1: 0, C1: 0}
    why = "topic i was deleted and recreated"
    assert told(member) == {I0: (0, "new", why), C0: (20, "c", ""), I1: (0, "new", why), C1: (0, "c", "")}
    assert member.positions.recreated == {"i": 1}
    assert member.positions.lost == {}


def test_a_state_that_knows_no_id_is_adopted(member, keeper):
    start(member, FIRST, NEW)
    assert member.positions.next[I0] == 7
    assert member.positions.recreated == {}


def test_an_unreported_topic_id_changes_nothing(member, keeper):
    keeper.ids = {I0: "old"}
    start(member, FIRST, {"i": Topic(None, 2), "c": Topic(None, 2)})
    assert member.positions.next[I0] == 7
    assert member.find_recreated({}) == frozenset()


def test_the_other_clients_spelling_of_an_id_is_no_other_topic(member, keeper):
    keeper.ids = {I0: "7q8n1cKyQOOCmQxS+ECh/g"}  # librdkafka's, in a checkpoint
    assert known_id("7q8n1cKyQOOCmQxS+ECh/g") == "7q8n1cKyQOOCmQxS-ECh_g"
    start(member, FIRST, {"i": Topic("7q8n1cKyQOOCmQxS-ECh_g", 2), "c": Topic("c", 2)})
    assert member.positions.next[I0] == 7
    assert member.positions.recreated == {}


def test_a_states_topic_id_is_kept_and_checked_once_brokers_report_ids(member, keeper):
    keeper.ids = {I0: "old"}
    start(member, FIRST, {})
    assert member.positions.next[I0] == 7
    assert told(member)[I0] == (7, "old", "")
    assert member.find_recreated(NEW) == {I0}


def test_a_topic_id_reported_later_is_adopted_and_reported(member):
    start(member, FIRST, {})
    assert told(member)[I0] == (7, None, "")
    assert member.find_recreated(OLD) == frozenset()
    assert told(member)[I0] == (7, "old", "")


def test_a_topic_recreated_while_it_is_read_is_found_once_and_continued(member):
    start(member, FIRST, OLD)
    member.deliver([run(I0, 7)])
    assert member.find_recreated(OLD) == frozenset()
    assert member.find_recreated(NEW) == {I0}
    assert member.go_on(I0, 0, 3, NEW) == 0
    assert member.positions.next == {I0: 0, C0: 20}
    assert member.find_recreated(dict(NEW)) == frozenset()
    assert member.positions.recreated == {"i": 1}


def test_a_topic_that_comes_back_to_who_has_forgotten_its_place_is_still_known_to_be_new(member):
    start(member, FIRST, OLD)
    start(member, frozenset({C0}), NEW)  # it is away
    assert member.assignment == frozenset()
    start(member, FIRST, NEW)
    assert member.positions.recreated == {"i": 1}


def test_a_partition_that_the_group_does_not_know_while_it_knows_others_was_added(keeper):
    member = Member(PartitionOwner(("i", "c"), "g", keeper, lambda _: None), 10.0, committed=False, earliest=False)
    start(member, BOTH, OLD, lambda places: {place: 1 for place in places if place in FIRST})
    assert member.positions.next == {I0: 7, C0: 100, I1: 0, C1: 0}
    assert member.first_offsets() == {}


def test_a_partition_beyond_those_of_the_first_look_was_added(keeper):
    member = Member(PartitionOwner(("i", "c"), "g", keeper, lambda _: None), 10.0, committed=False, earliest=False)
    start(member, FIRST, {"i": Topic("i", 1), "c": Topic("c", 1)})
    keeper.offsets = {}
    start(member, BOTH, {"i": Topic("i", 2), "c": Topic("c", 2)})
    assert member.positions.next == {I0: 7, C0: 100, I1: 0, C1: 0}


@pytest.mark.parametrize(("earliest", "skipped"), [(False, 150), (True, 10)])
def test_partitions_of_the_group_that_have_no_checkpoint_here_are_a_warning(keeper, caplog, earliest, skipped):
    keeper.offsets = {}
    member = Member(PartitionOwner(("i", "c"), "g", keeper, lambda _: None), 10.0, committed=False, earliest=earliest)
    with caplog.at_level("INFO", STARTS):
        start(member, FIRST, OLD, lambda places: {I0: 40, C0: 10, I1: 3, C1: 3})
    (line,) = (record for record in caplog.records if record.name == STARTS)
    assert line.levelname == "WARNING"
    assert f"start empty, from kafka.start, and {skipped} messages that follow" in line.getMessage()
    assert line.getMessage().endswith(": c [0], i [0]")
    # a dashboard sees what the log says; nothing was counted before, so no result has a gap
    assert member.positions.lost == ({C0: 10} if earliest else {I0: 60, C0: 90})
    assert {gap for _, _, gap in told(member).values()} == {""}


def test_a_first_start_of_a_group_is_no_warning(keeper, caplog):
    keeper.offsets = {}
    member = Member(PartitionOwner(("i", "c"), "g", keeper, lambda _: None), 10.0, committed=False, earliest=False)
    with caplog.at_level("INFO", STARTS):
        start(member, FIRST, OLD)
    assert [(line.levelname, line.getMessage()) for line in caplog.records if line.name == STARTS] == [
        ("INFO", "nothing known, from kafka.start: c [0], i [0]")
    ]
    assert member.positions.lost == {}


def test_the_first_member_of_a_group_tells_it_where_all_partitions_begin(keeper):
    keeper.offsets = {}
    member = Member(PartitionOwner(("i", "c"), "g", keeper, lambda _: None), 10.0, committed=False, earliest=False)
    start(member, FIRST, OLD)
    assert member.first_offsets() == {I0: 100, I1: 100, C0: 100, C1: 100}


def test_requests_of_a_client_in_a_poll_are_executed_by_the_polling_thread():
    handover = Handover()
    by = []

    def poll():
        """A client's poll: it calls back, and goes on when that is done."""
        asked = handover.ask(lambda: by.append(threading.current_thread()))
        answer = asked.send(None)
        assert isinstance(answer, Future)
        done = threading.Event()
        answer.add_both(lambda _: done.set())
        assert done.wait(30.0)
        return "messages"

    woken = []
    assert handover.run(poll, lambda: woken.append(len(by))) == "messages"
    assert by == [threading.main_thread()]
    assert woken == [1]
    with pytest.raises(ZeroDivisionError):
        handover.run(lambda: 1 / 0, lambda: None)
    handover.close()


class Answers:
    """A describer that gives answers one after the other, then the last one for ever."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.closed = threading.Event()

    def describe(self, names):
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self):
        self.closed.set()


def test_a_request_is_answered_by_the_state_after_it_was_made():
    describer = Answers(OLD, NEW)
    watch = TopicWatch(describer, ["i", "c"], interval=3_600.0)
    while watch.known is None:
        pass
    assert watch.known == OLD
    assert watch.ask(30.0) == NEW
    watch.close()
    watch.close()
    assert describer.closed.wait(30.0)


@pytest.mark.parametrize(
    ("known", "count"),
    [
        (None, None),
        ({"i": Topic("a", 4), "c": Topic("b", 4)}, 4),
        ({"i": Topic("a", 4), "c": Topic("b", 2)}, 2),
        ({"i": Topic("a", 4)}, 0),  # the other one is away
        ({}, 0),
        ({"i": Topic(None, 3), "c": Topic(None, 3)}, 3),  # brokers that report no ids
    ],
)
def test_partitions_in_common_are_none_while_a_topic_is_away(known, count):
    watch = TopicWatch(Answers(known), ["i", "c"], interval=3_600.0)
    watch.ask(30.0)
    assert watch.in_common() == count
    watch.close()


def test_without_an_answer_the_last_one_stands():
    watch = TopicWatch(Answers(OLD, None, RuntimeError("odd")), ["i", "c"], interval=0.01)
    for _ in range(5):
        assert watch.ask(30.0) == OLD
    watch.close()
