"""What a member of a group may deliver, and what its keeper hears, without Kafka."""

from __future__ import annotations

import threading

import pytest
from kafka.future import Future

from streameval.sources.kafka.handover import Handover
from streameval.sources.kafka.member import Generation, Member
from streameval.sources.kafka.owner import PartitionOwner
from streameval.sources.kafka.reader import Run
from streameval.sources.protocol import SourceError

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
        self.failure = None

    def take(self, partitions):
        self.calls.append(("take", sorted(partitions)))
        return {place: offset for place, offset in self.offsets.items() if place[1] in partitions}

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
    return Member(owner, 10.0, committed=False, earliest=True, clock=clock)


def begin(member, places, number, name="me"):
    member.assign(places, Generation(number, name))
    member.begin(member.starts(member.given, ENDS.__getitem__, dict))


def run(place, first, count=5):
    return Run(*place, [b""] * count, list(range(first, first + count)))


def test_reading_begins_at_the_keepers_offset_or_the_earliest(member, keeper):
    begin(member, BOTH, 1)
    assert member.positions.next == {I0: 7, C0: 20, I1: 0, C1: 0}
    assert keeper.calls == [("take", [0, 1])]
    assert member.positions.lost == {}


def test_what_stays_keeps_its_position_and_what_goes_is_dropped(member, keeper):
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
        member.starts(FIRST, away, dict)
    assert member.starts(FIRST, ENDS.__getitem__, dict) == {I0: 7, C0: 20}
    assert keeper.calls == [("take", [0]), ("regain", [0])]
    assert member.positions.lost == {C0: 15}


def test_half_a_pair_is_an_error_that_names_both(member):
    member.assign(frozenset({I0, C0, I1}))
    with pytest.raises(SourceError, match=r'partitions \[0, 1\] of "i" but \[0\] of "c"'):
        member.starts(member.given, ENDS.__getitem__, dict)


def test_what_a_client_asks_for_in_a_poll_is_done_by_the_thread_that_polls():
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
