"""What a reader does about places without a leader, whatever its client is."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from streameval.settings.tree import Kafka
from streameval.sources.kafka import group_reader
from streameval.sources.kafka.group_reader import GroupReader
from streameval.sources.kafka.topics import NO_LEADER, Topic

I0, I1 = ("i", 0), ("i", 1)
LEADERLESS, LED = {"i": Topic("i", 2, {0: 1, 1: NO_LEADER})}, {"i": Topic("i", 2, {0: 1, 1: 2})}


class Nobody:
    """An owner who knows no offsets."""

    def assigned(self, places):
        return {}

    def topic_ids(self):
        return {}

    def revoked(self, places): ...

    def lost(self, places): ...


class Reader(GroupReader):
    """Without a client: what one would be asked is written down."""

    def __init__(self, topics):
        super().__init__(Kafka(group_id="g"), {})
        self.asked, self.read, self.skipped, self.answers = [], [], [], True
        self.stable, self.fetched = (
            {},
            {},
        )  # ends of what can be read, as brokers tell them; of logs, with the last fetch
        self.watch = SimpleNamespace(known=topics, silence=0.5, ask=lambda timeout: self.watch.known)
        self._join(["i"], Nobody(), committed=False, watch=self.watch, session_ms=45_000)

    def assign(self, *places):
        self._of_group.assign(frozenset(places))
        self._after_delivery()

    def after(self):
        self._after_delivery()
        return self.read

    def _begin(self, places):
        self._of_group.begin(self._of_group.starts(places, self._told_ends, lambda _: {}, self._topics_now()))

    def _read_on(self, starts):
        self.read.append(dict(starts))

    def _told_ends(self, place, then=None, *, timeout=10.0):
        self.asked.append((place, timeout))
        return (3, 9) if self.answers else None

    def _skip_gap(self, place):
        self.skipped.append(place)

    def _ask_ends(self, places, timeout):
        self.asked.append((frozenset(places), timeout))
        return {place: self.stable[place] for place in places if place in self.stable}

    def _due(self):
        return dict(self._of_group.positions.next)

    def _fetched_ends(self, places):
        return {place: self.fetched[place] for place in places if place in self.fetched}

    def partition_counts(self, topics, timeout): ...
    def subscribe(self, topics, owner, *, committed, watch=None): ...
    def poll(self, timeout, max_messages): ...
    def commit(self, offsets): ...
    def pause(self, places): ...
    def resume(self, places): ...
    def close(self): ...


@pytest.fixture
def now(monkeypatch):
    """The time, as a list of one number."""
    time = [1_000.0]
    monkeypatch.setattr(group_reader.time, "monotonic", lambda: time[0])
    return time


def test_what_waits_is_begun_once_it_has_a_leader_that_answers(now):
    reader = Reader(LEADERLESS)
    reader._answered = now[0]
    reader.assign(I0, I1)
    assert reader.asked == [(I0, 10.0)]
    now[0] += 60.0
    reader._answered = now[0]
    assert reader.after() == []
    assert reader.asked == [(I0, 10.0)], "nobody was there to be asked"
    reader.watch.known, reader.answers = LED, False
    for _ in range(5):
        assert reader.after() == []
    assert reader.asked == [(I0, 10.0), (I1, 1.0)], "others wait while it is asked: not at every poll"
    now[0] += 4.0
    reader._answered, reader.answers = now[0], True
    assert reader.after() == [{I1: 9}]
    assert reader._counted[I1] == 9
    assert reader.after() == [{I1: 9}]


def test_a_gap_is_looked_into_only_with_a_leader(now):
    reader = Reader(LEADERLESS)
    reader._answered = now[0]
    reader.assign(I0, I1)
    reader._gaps = {I0, I1}
    reader.after()
    assert reader.skipped == [I0]
    reader.watch.known = LED
    reader.after()
    assert sorted(reader.skipped) == [I0, I0, I1]


def test_a_broker_answers_if_it_says_that_no_place_has_a_leader(now):
    reader = Reader(LEADERLESS)
    assert reader.silence == float("inf")
    reader.assign(I1)
    assert reader.silence == 0.5
    reader = Reader(LEADERLESS)
    reader.assign(I0, I1)
    assert reader.silence == float("inf"), "it can ask, and got no answer"


def test_all_places_are_asked_for_when_nothing_comes(now):
    """One without a leader would never answer."""
    reader = Reader(LED)
    reader.assign(I0, I1)
    assert reader.asked[-1] == (frozenset({I0, I1}), 1.0)


def test_what_a_transaction_holds_back_is_not_read_to_its_end(now):
    """It was, and its input counted as idle."""
    reader = Reader(LED)
    assert (reader.caught_up(1.0), reader.in_transaction) == (frozenset(), {})
    reader.assign(I0, I1)  # both begin at 9
    reader.stable, reader.fetched = {I0: 9, I1: 9}, {I0: 9}
    assert (reader.caught_up(1.0), reader.in_transaction) == ({I0, I1}, {})
    reader.fetched = {I0: 9, I1: 12}
    assert (reader.caught_up(1.0), reader.in_transaction) == ({I0}, {I1: 9})
    assert reader.lag() == {I0: 0, I1: 3}
    reader.stable[I1] = 12  # it has ended: its messages are to be read
    assert (reader.caught_up(1.0), reader.in_transaction) == ({I0}, {})
    reader._of_group.positions.next[I1] = 12  # or were only markers
    assert (reader.caught_up(1.0), reader.in_transaction) == ({I0, I1}, {})
    reader.stable = {}  # nobody answers
    assert (reader.caught_up(1.0), reader.in_transaction) == (frozenset(), {})
