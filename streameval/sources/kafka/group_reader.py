"""The part of a reader that does not depend on the client library: its group membership, and the brokers' last
answers.
"""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from streameval.settings.tree import Kafka
from streameval.sources.kafka.member import AWAY, Member
from streameval.sources.kafka.options import check_options
from streameval.sources.kafka.reader import QUIET, Beginning, KafkaReader, MessageRun, Owner
from streameval.sources.kafka.topics import NO_LEADER, Topic, TopicWatch, leader_of
from streameval.sources.protocol import Place

SLICE = 0.2  # seconds, the longest wait between two checks of what callbacks have recorded
ASK_TIMEOUT = 10.0  # seconds for one request to a broker that has answered before


class GroupReader(KafkaReader):
    """The part of a `KafkaReader` that is the same for every client."""

    def __init__(self, settings: Kafka, reserved: Mapping[str, str]) -> None:
        """`reserved`: options that may not be set, and what to do instead."""
        check_options(settings.client_options, reserved)
        self._settings = settings
        self._member: Member | None = None
        self._watch: TopicWatch | None = None
        self._topics: list[str] = []
        self._gaps: set[Place] = set()  # positions that Kafka no longer has
        self._paused: set[Place] = set()
        self._counted: dict[Place, int] = {}  # the offsets of our partitions that may be committed
        self._to_commit: dict[Place, int] = {}
        self._answered = -math.inf  # when a broker last answered
        self._ask_at = self._late_at = 0.0
        self._in_transaction: dict[Place, int] = {}
        self._closed = False

    @property
    def assignment(self) -> frozenset[Place]:
        return self._member.assignment if self._member else frozenset()

    def beginnings(self) -> list[Beginning]:
        return self._member.beginnings() if self._member else []

    @property
    def recreated(self) -> Mapping[str, int]:
        return dict(self._member.positions.recreated) if self._member else {}

    @property
    def empty(self) -> Mapping[Place, int]:
        return dict(self._member.positions.empty) if self._member else {}

    @property
    def lost(self) -> Mapping[Place, int]:
        return dict(self._member.positions.lost) if self._member else {}

    @property
    def in_transaction(self) -> Mapping[Place, int]:
        return self._in_transaction

    def lag(self) -> dict[Place, int]:
        """See `KafkaReader.lag`; the ends are those of the last fetch, no broker is asked."""
        due = self._due()
        return {place: max(0, end - due[place]) for place, end in self._fetched_ends(due).items()}

    def caught_up(self, timeout: float) -> frozenset[Place]:
        self._in_transaction = {}
        if self._member is None or not self._member.open:
            return frozenset()
        before = self._fetched_ends(self._due())  # first: what came after the question may be readable
        ends = self._ask_ends(self._member.open, timeout)
        due = self._due()
        reached = {place: end for place, end in ends.items() if place in due and due[place] >= end}
        self._in_transaction = {place: end for place, end in reached.items() if before.get(place, 0) > due[place]}
        return frozenset(reached.keys() - self._in_transaction.keys())

    @property
    def silence(self) -> float:
        silence = time.monotonic() - self._answered
        if self._member is not None and self._member.waiting and not self._member.open and self._watch is not None:
            return min(silence, self._watch.silence)  # the client has nobody to ask: no place has a leader
        return silence

    def _join(
        self, topics: Sequence[str], owner: Owner, committed: bool, watch: TopicWatch | None, session_ms: float
    ) -> None:
        """`session_ms`: a member without a heartbeat for this long is removed from its group."""
        self._watch = watch
        self._topics = list(topics)
        self._member = Member(
            owner,
            min(AWAY, session_ms / 2_000),
            committed=committed,
            earliest=self._settings.start == "earliest",
            topics=topics,
            recreated=self._settings.on_recreated_topic,
        )

    @property
    def _of_group(self) -> Member:
        if self._member is None:
            raise RuntimeError("not subscribed yet")
        return self._member

    def _after_delivery(self) -> None:
        """Does the rest of a poll: recreated topics, a new assignment, gaps, and whether brokers answer."""
        member = self._of_group
        member.check()
        if self._watch is not None and self._watch.known is not None:
            self._gaps |= member.find_recreated(self._watch.known)
        if member.given is not None:
            self._begin(member.given)
        else:
            topics = {} if self._watch is None else self._watch.known or {}
            for place in tuple(self._gaps):
                if leader_of(topics, place) != NO_LEADER:  # to ask for what nobody says would hold up the others
                    self._skip_gap(place)
            self._begin_late()
        now = time.monotonic()
        if self.silence > QUIET / 3 and now >= self._ask_at:  # nothing comes by itself
            self._ask_at = now + QUIET / 3
            self._ask_ends(member.open or [(self._topics[0], 0)], 1.0)

    def _begin_late(self) -> None:
        """Begins reading places that had no leader and have one now."""
        member, topics = self._of_group, None if self._watch is None else self._watch.known
        now = time.monotonic()
        if now < self._late_at or not member.may_be_late(topics):
            return
        self._late_at = now + QUIET / 3
        starts = member.late(partial(self._told_ends, timeout=1.0), topics)
        if starts:
            self._counted |= starts
            self._read_on(starts)

    def _is_deleted(self, topic: str) -> bool:
        """Whether a topic was deleted, and not recreated since."""
        return self._watch is not None and self._watch.known is not None and topic not in self._watch.known

    def _topics_now(self) -> Mapping[str, Topic] | None:
        return None if self._watch is None else self._watch.ask(ASK_TIMEOUT)

    def _waits(self, runs: Iterable[MessageRun]) -> bool:
        """Whether none of these may be delivered yet."""
        return self.gate is not None and not self.gate(runs)

    def _ours(self, offsets: Mapping[Place, int]) -> dict[Place, int]:
        return {place: offset for place, offset in offsets.items() if place in self.assignment}

    @abstractmethod
    def _begin(self, places: frozenset[Place]) -> None:
        """Begins reading every partition at a definite offset: ours, the owner's, the group's, or the one from
        `kafka.start`.
        """

    @abstractmethod
    def _read_on(self, starts: Mapping[Place, int]) -> None:
        """Makes the client read these, too, from their offsets."""

    @abstractmethod
    def _told_ends(
        self, place: Place, then: int | None = None, *, timeout: float = ASK_TIMEOUT
    ) -> tuple[int, int] | None:
        """See `starts.AskEnds`."""

    @abstractmethod
    def _due(self) -> dict[Place, int]:
        """Returns the next offset to deliver; past transaction markers, which are never delivered."""

    @abstractmethod
    def _fetched_ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """Returns the ends of the logs of those places of which the last fetch has told them, whatever can be read of
        them; no broker is asked.
        """

    @abstractmethod
    def _skip_gap(self, place: Place) -> None:
        """Continues after messages that Kafka deleted before they were read."""

    @abstractmethod
    def _ask_ends(self, places: Iterable[Place], timeout: float) -> dict[Place, int]:
        """Returns the current ends for readers of committed messages, as the brokers know them; nothing if they do not
        answer.
        """
