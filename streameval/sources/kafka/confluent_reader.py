"""The confluent-kafka client (librdkafka): the fast one, 1.3 to 1.6 million small messages/s on one connection."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence

from confluent_kafka import (
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from streameval.settings.tree import Kafka
from streameval.sources.kafka.confluent_assignments import Assignments, at, offsets_of
from streameval.sources.kafka.confluent_client import (
    CLASSIC,
    OURS,
    RESERVED,
    TUNING,
    make_client,
    with_oauth,
)
from streameval.sources.kafka.confluent_errors import (
    is_denied,
    is_end,
    is_fatal,
    is_gap,
    is_not_a_member,
    refused,
)
from streameval.sources.kafka.group_reader import ASK_TIMEOUT, SLICE, GroupReader
from streameval.sources.kafka.message_runs import SLICE_MESSAGES, MessageColumns
from streameval.sources.kafka.options import redacted
from streameval.sources.kafka.reader import QUIET, MessageRun, Owner, UnreachableError
from streameval.sources.kafka.recreated import Unheard
from streameval.sources.kafka.starts import Offsets
from streameval.sources.kafka.topics import TopicWatch
from streameval.sources.protocol import Place

log = logging.getLogger(__name__)

_CLOSE_TIMEOUT = 10.0  # seconds; the rest of the process has its own deadline
CONFIRM_TIMEOUT = 5.0  # seconds that a poll waits for the group to confirm our membership


class ConfluentReader(GroupReader):
    """Reads with confluent-kafka."""

    def __init__(self, settings: Kafka) -> None:
        super().__init__(settings, RESERVED)
        incremental = settings.client_options.get("group.protocol") == "consumer"
        self._assignments = Assignments(lambda: self._of_group, incremental=incremental)
        self._last_error = "no answer"
        self._commits = 0  # in progress
        self._commit_error: KafkaError | None = None
        options = {
            **TUNING,
            **({"group.remote.assignor": "range"} if incremental else CLASSIC),
            **settings.client_options,
            **OURS,
            "bootstrap.servers": settings.bootstrap_servers,
            "group.id": settings.group_id,
            "error_cb": self._on_error,
            "on_commit": self._on_commit,
        }
        self._options, self._unheard = with_oauth(options, settings.oauth), Unheard()
        self._consumer = make_client(Consumer, self._options, settings.client_options)

    def partition_counts(self, topics: Iterable[str], timeout: float) -> dict[str, int]:
        counts = {}
        for topic in topics:
            try:
                found = self._consumer.list_topics(topic, timeout=timeout).topics[topic]
            except KafkaException as error:
                self._consumer.poll(0)  # serves error_cb, which knows more than "timed out"
                raise UnreachableError(f"{error.args[0].str()}; {self._last_error}") from None
            self._answered = time.monotonic()
            if found.error is not None and is_denied(found.error):
                raise refused(found.error, self._settings)
            if found.error is None and found.partitions:
                counts[topic] = len(found.partitions)
        return counts

    def subscribe(
        self, topics: Sequence[str], owner: Owner, *, committed: bool, watch: TopicWatch | None = None
    ) -> None:
        session_ms = float(self._settings.client_options.get("session.timeout.ms", 45_000))
        self._join(topics, owner, committed, watch, session_ms)
        self._assignments.subscribe(self._consumer, topics)

    def poll(self, timeout: float, max_messages: int) -> list[MessageRun]:
        member = self._of_group
        received = self._receive(timeout, max_messages)
        found, events = received.runs(), received.events
        heard = {run.place for run in found} | {(e.topic(), e.partition()) for e in events if is_end(e.error())}
        if member.doubtful and member.open:
            self._make_sure()
            found, events = [], []  # read again if we are still a member
        elif found and member.open and self._waits(found):
            found, events = [], [one for one in events if not is_end(one.error())]
            self._rewind()
        runs = member.deliver(found)
        for message in events:
            self._on_event(message)
        self._after_delivery()
        if late := self._unheard.overdue(self.recreated, member.open - self._paused, heard):
            log.warning("kafka: recreated topics are not read: %s; joining the group anew", sorted(late))
            self._renew()
        return runs

    def _renew(self) -> None:
        """Goes on with a new client (see `Unheard`); to the group and the owner, this is a rebalance."""
        self._consumer.close()
        self._commits = 0
        self._consumer = make_client(Consumer, self._options, self._settings.client_options)
        self._assignments.subscribe(self._consumer, self._topics)

    def commit(self, offsets: Mapping[Place, int]) -> None:
        ours = self._ours(offsets)
        if not ours:
            return
        self._to_commit |= ours
        self._counted |= ours
        if self.silence > QUIET:  # what cannot be sent would only delay `close`
            return
        try:
            self._consumer.commit(offsets=at(ours), asynchronous=True)
            self._commits += 1
        except KafkaException as error:
            log.warning("offsets not committed: %s", error)

    def pause(self, places: Iterable[Place]) -> None:
        self._paused |= set(places) & self._of_group.open
        self._consumer.pause([TopicPartition(*place) for place in self._paused])

    def resume(self, places: Iterable[Place]) -> None:
        resumed = self._paused & set(places)
        self._paused -= resumed
        self._consumer.resume([TopicPartition(*place) for place in resumed])

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._assignments.close()
        # librdkafka waits for unavailable brokers, and for commits in progress up to the session timeout
        leaving = threading.Thread(target=self._leave, name="kafka-close", daemon=True)
        leaving.start()
        leaving.join(_CLOSE_TIMEOUT)
        if leaving.is_alive():
            log.warning("kafka: did not leave group %s in time: the broker is unreachable", self._settings.group_id)

    def _leave(self) -> None:
        ours = self._ours(self._to_commit)
        if ours and self.silence < QUIET:
            try:
                self._consumer.commit(offsets=at(ours), asynchronous=False)
            except KafkaException as error:
                log.warning("offsets not committed: %s", error)
        self._consumer.close()

    def _receive(self, timeout: float, max_messages: int) -> MessageColumns:
        member, received = self._of_group, MessageColumns()
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            first = self._consumer.poll(min(max(left, 0.0), SLICE))
            member.look()
            if first is not None or member.given is not None or left <= SLICE:  # an assignment must not wait
                break
        if first is None:
            return received
        if first.error() is None or is_end(first.error()):
            self._answered = time.monotonic()
        received.add([first])
        until, wanted = time.monotonic() + min(self.linger, timeout), max_messages - 1
        while wanted > 0:
            some = self._consumer.consume(min(wanted, SLICE_MESSAGES), max(until - time.monotonic(), 0.0))
            received.add(some)
            wanted -= len(some)
            if len(some) < SLICE_MESSAGES:  # nothing more has come in that time
                break
        return received

    def _due(self) -> dict[Place, int]:
        due = self._member.positions.next if self._member else {}
        return {place: due[place] for place in self.assignment & due.keys()}

    def _fetched_ends(self, places: Iterable[Place]) -> dict[Place, int]:
        ends = {}
        for place in places:
            try:
                _, end = self._consumer.get_watermark_offsets(TopicPartition(*place), cached=True)
            except KafkaException:
                continue
            if end >= 0:
                ends[place] = end
        return ends

    def _on_event(self, message: Message) -> None:
        """Handles a message that is an end, a gap, or an error."""
        member = self._of_group
        error: KafkaError = message.error()
        place = (message.topic(), message.partition())
        if is_end(error):
            if place in member.open:  # past transaction markers, which are never delivered
                member.positions.reach(place, message.offset())
        elif is_gap(error):
            self._gaps.add(place)
        elif is_fatal(error):  # fenced: another process has our group.instance.id
            member.lose(member.assignment)
            raise refused(error, self._settings)
        elif is_denied(error):
            raise refused(error, self._settings)
        else:
            log.warning("kafka: %s", redacted(error.str(), self._settings.client_options))

    def _skip_gap(self, place: Place) -> None:
        """Continues after messages that Kafka deleted before they were read."""
        member = self._of_group
        if place in member.open:
            if self._is_deleted(place[0]):
                return
            topics = self._topics_now()
            try:
                member.go_on(place, *self._ends(place), topics)
                self._rewind()  # librdkafka has stopped this partition, so it cannot seek
            except KafkaException as error:
                log.warning("kafka: %s [%d]: offset out of range: %s", *place, error)  # the next poll tries again
                return
        self._gaps.discard(place)

    def _rewind(self) -> None:
        """Makes the client read all of our partitions from their current positions."""
        member = self._of_group
        self._assignments.rewind(self._consumer, {place: member.positions.next[place] for place in member.open})
        self.pause(self._paused)

    def _make_sure(self) -> None:
        """Asks the group whether we are still a member: it accepts offsets only from members.

        Messages received in the meantime are discarded. If nobody answers, the doubt remains, and the next poll asks
        again.
        """
        member = self._of_group
        place = min(member.open)
        self._commit_error = None
        try:
            self._consumer.commit(offsets=at({place: self._counted[place]}), asynchronous=True)
            self._commits += 1
        except KafkaException as error:
            self._commit_error = error.args[0]
        deadline = time.monotonic() + CONFIRM_TIMEOUT
        while self._commits and member.open and member.given is None and time.monotonic() < deadline:
            message = self._consumer.poll(SLICE)  # serves on_commit, and rebalances
            if message is not None and message.error() is not None and is_fatal(message.error()):
                self._on_event(message)
        if not member.open or member.given is not None:
            return  # answered by a rebalance
        if self._commit_error is not None and is_not_a_member(self._commit_error):
            log.warning("kafka: removed from group %s while this process was stalled", self._settings.group_id)
            member.lose(member.assignment)
            return
        if not self._commits and self._commit_error is None:
            member.confirm()
        try:
            self._rewind()
        except KafkaException as error:
            raise refused(error.args[0], self._settings) from None

    def _ask_ends(self, places: Iterable[Place], timeout: float) -> dict[Place, int]:
        """Returns the current ends for readers of committed messages, as the brokers know them; nothing if they do not
        answer.
        """
        latest = [TopicPartition(*place, OFFSET_END) for place in places]
        try:
            found = self._consumer.offsets_for_times(latest, timeout=timeout)
        except KafkaException:
            return {}
        ends = {(p.topic, p.partition): p.offset for p in found if p.error is None and p.offset >= 0}
        if ends:
            self._answered = time.monotonic()
        return ends

    def _begin(self, places: frozenset[Place]) -> None:
        """Begins reading every partition at a definite offset: ours, the owner's, the group's, or the one from
        `kafka.start`.
        """
        member = self._of_group
        kept = member.open
        try:
            starts = member.starts(places, self._told_ends, self._committed, self._topics_now())
        except KafkaException as error:
            log.warning("kafka: start offsets not known yet: %s", error)  # the next poll asks again
            return
        member.begin(starts)
        self._counted = dict(starts)  # everything before them was delivered by earlier polls
        self._to_commit.clear()
        self._gaps &= kept
        self._assignments.read(self._consumer, starts)
        self._consumer.resume([TopicPartition(*place) for place in starts])  # its pauses outlive it
        self._paused.clear()
        if first := member.first_offsets():
            self._consumer.commit(offsets=at(first), asynchronous=True)
            self._commits += 1

    def _read_on(self, starts: Mapping[Place, int]) -> None:
        member = self._of_group
        self._assignments.read(self._consumer, {place: member.positions.next[place] for place in member.open})
        self.pause(self._paused)

    def _committed(self, places: list[Place]) -> Offsets:
        if not places:
            return {}
        return offsets_of(self._consumer.committed([TopicPartition(*place) for place in places], timeout=ASK_TIMEOUT))

    def _told_ends(
        self, place: Place, then: int | None = None, *, timeout: float = ASK_TIMEOUT
    ) -> tuple[int, int] | None:
        try:
            low, high = self._ends(place, timeout)
            if then is None:
                return low, high
            (first,) = self._consumer.offsets_for_times([TopicPartition(*place, then)], timeout=timeout)
            if first.error is not None:
                raise KafkaException(first.error)
        except KafkaException as error:
            log.warning("kafka: start offset not known yet: %s", error)
            return None
        return low, min(high, first.offset) if first.offset >= 0 else high

    def _ends(self, place: Place, timeout: float = ASK_TIMEOUT) -> tuple[int, int]:
        try:
            low, high = self._consumer.get_watermark_offsets(TopicPartition(*place), timeout=timeout)
        except KafkaException as error:
            e = error.args[0]
            raise KafkaException(KafkaError(e.code(), f"{place[0]} [{place[1]}]: {e.str()}", fatal=e.fatal())) from None
        self._answered = time.monotonic()
        return low, high

    def _on_error(self, error: KafkaError) -> None:
        """Logs lost connections and similar errors, which librdkafka handles by itself."""
        said = redacted(error.str(), self._settings.client_options)
        log.warning("kafka: %s", said)
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # follows what says why: a wrong password, say
            self._last_error = said

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        self._commits = max(0, self._commits - 1)
        if error is not None:
            self._commit_error = error
            log.warning("offsets not committed: %s", error.str())
        else:
            self._answered = time.monotonic()
