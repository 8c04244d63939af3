"""The partitions of a group member, and its positions in them: independent of the client library.

A rebalance consists of three notices. *Revoked*: the state of these partitions must be written, they may come back.
*Lost*: they are gone, and their state in memory is void. *Assigned*: this is the complete assignment now. The client
gives them from inside its poll, between messages from before and after; so a message is delivered only while its
partition is open, which it is from the beginning of an assignment until one of the other two notices.

A loss is noticed late: a process that was stopped (SIGSTOP, a paused virtual machine) wakes up with messages in its
queues, without knowing that its partitions have been assigned to others since. So after an unexplained gap in time the
membership is in doubt, and the reader confirms it with the group before it delivers anything.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from streameval.sources.kafka.positions import Positions
from streameval.sources.kafka.reader import Beginning, MessageRun, Owner
from streameval.sources.kafka.starts import AskEnds, Offsets, Origin, Starts, named
from streameval.sources.kafka.topics import NO_LEADER, Topic, leader_of
from streameval.sources.protocol import Place

log = logging.getLogger(__name__)

# Seconds without a check after which membership is confirmed. Shorter: this request, one round trip, would follow every
# slow batch; longer: it must stay below the session timeout less a heartbeat's interval, two thirds of it by default.
AWAY = 10.0


def seconds() -> float:
    """Returns the time of a clock that, unlike the monotonic one, does not stop while the machine is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True, slots=True)
class Generation:
    """The generation of the group, as the member knew it when partitions were assigned."""

    number: int
    member: str  # its id, a new one after it was removed

    def follows(self, before: Generation | None) -> bool:
        """Whether no other member can have held our partitions between `before` and this generation."""
        return before is not None and self.member == before.member and self.number - before.number in (0, 1)


def whole(places: frozenset[Place], topics: Sequence[str]) -> frozenset[Place]:
    """Returns the places for which the same partition of every topic is there: an impression and its click must
    meet.
    """
    numbers = [{p for t, p in places if t == topic} for topic in topics]
    return frozenset(place for place in places if all(place[1] in of_topic for of_topic in numbers))


class Member:
    """Holds what the group has assigned to this member, and notifies its owner."""

    def __init__(
        self,
        owner: Owner,
        away: float,
        *,
        committed: bool,
        earliest: bool,
        topics: Sequence[str] = (),
        recreated: str = "beginning",
        clock: Callable[[], float] = seconds,
    ) -> None:
        """`away`: seconds without a check after which membership is in doubt. `committed`, `earliest`: where unknown
        partitions begin. `topics`: those whose partitions are read together. `recreated`: what to do about a recreated
        topic.
        """
        self.positions = Positions()
        self.assignment: frozenset[Place] = frozenset()  # the last one begun; kept during a rebalance
        self.open: frozenset[Place] = frozenset()  # whose messages may be delivered now
        self.given: frozenset[Place] | None = None  # an assignment that has not begun yet
        self.waiting: frozenset[Place] = frozenset()  # of the assignment, for a leader who says where they begin
        self._held: frozenset[Place] = frozenset()  # what the owner knows to be ours, and not lost
        self._owner = owner
        self._starts = Starts(self.positions, committed=committed, earliest=earliest, recreated=recreated)
        self._topics, self._recreated = tuple(topics), recreated
        self._beginnings: dict[Place, Beginning] = {}
        self._due: dict[Place, Beginning] = {}  # to be reported after the next poll
        self._looked: Mapping[str, Topic] | None = None  # the last answer about topics that was checked
        self._generation: Generation | None = None
        self._failure: Exception | None = None
        self._away = away
        self._clock = clock
        self._seen = clock()
        self._doubt = False

    @property
    def doubtful(self) -> bool:
        """Whether this process may have been stopped for long enough to be removed from the group."""
        self.look()
        return self._doubt

    def look(self) -> None:
        """Must be called continually while polling, because a long time between two calls puts the membership
        in doubt.
        """
        now = self._clock()
        self._doubt |= now - self._seen > self._away
        self._seen = now

    def confirm(self) -> None:
        """Called when the group has confirmed our membership."""
        self._doubt = False
        self.look()

    def assign(self, places: frozenset[Place], generation: Generation | None = None) -> None:
        """Records a complete assignment. `generation`: of the group, if every rebalance revokes all partitions.

        If the group had another generation in between, our partitions may have been assigned to another member in it.
        """
        if generation is not None:
            if self._held and not generation.follows(self._generation):
                self.lose(self._held)
            self._generation = generation
            self._doubt = False  # the group has just contacted us, and earlier losses are known by now
        self.given = places

    def revoke(self, places: frozenset[Place]) -> None:
        """The group revokes these. They were ours until now, unless the membership is in doubt."""
        if self.doubtful:
            self.lose(places)
            return
        self.given = None
        self.open -= places
        self.waiting -= places
        self._notify(self._owner.revoked, places & self._held)

    def lose(self, places: frozenset[Place]) -> None:
        """These are lost."""
        self.given = None
        self.open -= places
        self.waiting -= places
        self.assignment -= places
        self.positions.forget(places)
        self._starts.forget(places)
        lost = places & self._held
        self._held -= places
        self._notify(self._owner.lost, lost)

    def starts(
        self,
        places: frozenset[Place],
        ends: AskEnds,
        committed: Callable[[list[Place]], Offsets],
        topics: Mapping[str, Topic] | None = None,
    ) -> dict[Place, int]:
        """Returns where to begin with those of an assignment that can be read now; the others are `waiting`.

        `ends` and `committed` ask Kafka, and may raise the client's exceptions. `topics`: as they are now, if known.
        """
        topics = topics or {}
        self._starts.see(topics)
        places = whole(places, self._topics)
        starts = self.positions.regained(places)
        self._starts.forget(self._starts.remembered().keys() - places)
        self._held = places
        kept = {place: offset for place, offset in self._owner.assigned(places).items() if place not in starts}
        ids = {**self._owner.topic_ids(), **self.positions.ids}
        recreated = self._recreated_ids(places, ids, topics)
        fresh = sorted(place for place in places if place not in starts or place in recreated)
        told = self._starts.ends(ends, topics)
        silent = [place for place in fresh if told(place) is None]  # all are asked before anything is counted
        known = [place for place in fresh if place not in recreated]
        origins = {place: Origin() for place in fresh if place in recreated}
        origins |= self._starts.decide(known, kept, committed, told, topics)
        starts = {place: starts[place] for place in starts if place not in recreated}
        starts |= self._starts.begin({place: origins[place] for place in fresh}, recreated, told)
        self.waiting = places - starts.keys()
        self.positions.look({topic: topics[topic] for topic, _ in starts if topic in topics})
        before = {place: recreated[place][0] for place in recreated if place in self.waiting}
        self.positions.ids = {
            place: one for place in places if (one := before.get(place) or _id(topics, place) or ids.get(place))
        }
        if silent:
            log.warning("no leader answers: %s: read once one does", named(silent))
        return starts

    def late(self, ends: AskEnds, topics: Mapping[str, Topic] | None) -> dict[Place, int]:
        """Begins those that were waiting for a leader and have one now; returns where. As with `starts`."""
        topics = topics or {}
        origins = {place: one for place, one in self._starts.remembered().items() if place in self.waiting}
        recreated = self._recreated_ids(origins, self.positions.ids, topics)
        starts = self._starts.begin(origins, recreated, self._starts.ends(ends, topics))
        self.positions.look({topic: topics[topic] for topic, _ in starts if topic in topics})
        self.positions.ids |= {place: one for place in starts if (one := _id(topics, place))}
        self.positions.next |= starts
        self.waiting -= starts.keys()
        self.open |= starts.keys()
        for place in sorted(starts):
            log.info("%s [%d] has a leader: read from offset %d", *place, starts[place])
            self._begins(place)
        return starts

    def may_be_late(self, topics: Mapping[str, Topic] | None) -> bool:
        """Whether one that is waiting may have a leader now; `topics`: as they are now, if known."""
        return any(
            topics is None or (place[0] in topics and leader_of(topics, place) != NO_LEADER) for place in self.waiting
        )

    def find_recreated(self, topics: Mapping[str, Topic]) -> frozenset[Place]:
        """Returns open places whose topic is no longer the one that their position belongs to; once per answer."""
        if topics is self._looked:
            return frozenset()
        self._looked = topics
        for place in self.open - self.positions.ids.keys():  # brokers reported no ids before, and do now
            now = _id(topics, place)
            if now is not None and self.positions.moved(place[0]) in (None, now):
                self.positions.ids[place] = now
                self._begins(place)
        return frozenset(self._recreated_ids(self.open, self.positions.ids, topics))

    def go_on(self, place: Place, low: int, high: int, topics: Mapping[str, Topic] | None) -> int:
        """Returns where to continue a place whose position has become invalid; Kafka has [low, high). Raises
        SourceError.
        """
        recreated = self._recreated_ids([place], self.positions.ids, topics or {}).get(place)
        if recreated:
            start = self.positions.after_recreation(place, *recreated, low, high, self._recreated)
            self.positions.ids[place] = recreated[1]
        else:
            start = self.positions.go_on(place, self.positions.next[place], low, high)
        self.positions.next[place] = start
        self._begins(place)
        return start

    def begin(self, starts: Mapping[Place, int]) -> None:
        """Begins the given assignment, every partition at its start."""
        self.given = None
        self.open = frozenset(starts)
        self.assignment = self.open | self.waiting
        self.positions.next = dict(starts)
        for place in sorted(starts):
            self._begins(place)

    def first_offsets(self) -> Offsets:
        """Returns what is to be committed at the first start of a group, once: where all places of its topics begin."""
        first, self._starts.to_commit = self._starts.to_commit, {}
        return first

    def beginnings(self) -> list[Beginning]:
        """See `KafkaReader.beginnings`."""
        told = [one for place, one in self._due.items() if place in self.open and place not in self._beginnings]
        self._due, self._beginnings = self._beginnings, {}
        return told

    def _begins(self, place: Place) -> None:
        before = self._beginnings.get(place) or self._due.get(place)
        gap = self.positions.gaps.pop(place, "") or (before.gap if before else "")  # one that was not reported yet
        offset, topic_id = self.positions.next[place], self.positions.ids.get(place)
        self._beginnings[place] = Beginning(place, offset, topic_id, gap)

    def _recreated_ids(
        self, places: Iterable[Place], ids: Mapping[Place, str], topics: Mapping[str, Topic]
    ) -> dict[Place, tuple[str, str]]:
        """Returns (id before, id now) of places whose topic is not the one that their position belongs to.

        If nothing is known about a place, its topic decides: its id when last seen, or that of its other places.
        """
        of_topic: dict[str, str] = {}
        for (topic, _), before in ids.items():
            if before != _id(topics, (topic, 0)):
                of_topic[topic] = before
        found = {}
        for place in places:
            known = _id(topics, place)
            was = ids.get(place) or self.positions.moved(place[0]) or of_topic.get(place[0])
            if known is not None and was is not None and known != was:
                found[place] = (was, known)
        return found

    def deliver(self, runs: Iterable[MessageRun]) -> list[MessageRun]:
        """Returns the messages that may be delivered now; positions advance past them."""
        found = [self.positions.advance(run) for run in runs if run.place in self.open]
        return [run for run in found if run is not None]

    def check(self) -> None:
        """Raises what the owner raised when it was notified inside the client's callbacks."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _notify(self, word: Callable[[frozenset[Place]], None], places: frozenset[Place]) -> None:
        if places:
            try:
                word(places)
            except Exception as failure:  # a client's callback cannot raise it: see `check`
                self._failure = self._failure or failure


def _id(topics: Mapping[str, Topic], place: Place) -> str | None:
    topic = topics.get(place[0])
    return None if topic is None else topic.id
