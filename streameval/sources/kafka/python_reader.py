"""The kafka-python client: pure Python, 0.6 us of processor time a small message in whole record batches
(see `python_batches`), 6.6 one by one; with crc32c.

Only its public interface is used, except in `python_client` and `python_batches`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka import errors as kafka_errors
from kafka.coordinator.assignors.range import RangePartitionAssignor

from streameval.settings.tree import Kafka
from streameval.sources.kafka import python_client
from streameval.sources.kafka.group_reader import ASK_TIMEOUT, SLICE, GroupReader
from streameval.sources.kafka.handover import AssignmentListener, Handover
from streameval.sources.kafka.member import Generation
from streameval.sources.kafka.options import redacted
from streameval.sources.kafka.python_batches import keep_whole, runs_of
from streameval.sources.kafka.python_errors import HOPELESS, NOT_A_MEMBER, refused, truncated
from streameval.sources.kafka.python_offsets import at, edges, end_then, offsets_of_group
from streameval.sources.kafka.reader import MessageRun, Owner, UnreachableError
from streameval.sources.kafka.ready_runs import ReadyRuns
from streameval.sources.kafka.starts import Offsets
from streameval.sources.kafka.topics import TopicWatch
from streameval.sources.protocol import Place

log = logging.getLogger(__name__)

REJOIN_SLICE = 1.0  # seconds, the shortest wait for the client during a rebalance
REJOIN_PATIENCE = 30.0  # seconds that a rebalance may take before the group is joined again
EVERYTHING = 2**31  # messages, more than a client holds
CONFIRM_TIMEOUT_MS = 5_000  # that a poll waits for the group to confirm our membership


class KafkaPythonReader(GroupReader):
    """Reads with kafka-python."""

    def __init__(self, settings: Kafka) -> None:
        super().__init__(settings, python_client.RESERVED)
        self._options = {
            **python_client.TUNING,
            **python_client.known_options(settings.client_options, KafkaConsumer.DEFAULT_CONFIG),
            "bootstrap_servers": settings.bootstrap_servers.split(","),
            "group_id": settings.group_id,
            "auto_offset_reset": "none",  # a start is always resolved to a number here, so that no gap goes unnoticed
            "enable_auto_commit": False,
            **python_client.oauth_options(settings.oauth),
            # The only assignor that gives a member the same partition numbers of both topics.
            "partition_assignment_strategy": [RangePartitionAssignor],
        }
        self._made: Any = None
        self._handover = Handover()
        self._revoked_at: float | None = None  # when the current rebalance began
        self._ready = ReadyRuns()  # received, not delivered yet

    @property
    def _consumer(self) -> Any:
        if self._made is None:
            raise UnreachableError("not connected yet")
        return self._made

    def partition_counts(self, topics: Iterable[str], timeout: float) -> dict[str, int]:
        try:
            if self._made is None:
                timeout_ms = max(1, int(timeout * 1_000))
                self._made = python_client.make_client(
                    KafkaConsumer, {**self._options, "bootstrap_timeout_ms": timeout_ms}, self._settings.client_options
                )
                python_client.never_create(self._made)
                python_client.find_again(self._made)
                self._made.bootstrap(timeout_ms=timeout_ms)
            known = self._made.topics()  # asks the broker, for all topics: asking by name could create one
            self._answered = time.monotonic()
            return {topic: len(self._made.partitions_for_topic(topic)) for topic in topics if topic in known}
        except HOPELESS as error:
            raise refused(error, self._settings) from None
        except kafka_errors.KafkaError as error:
            raise UnreachableError(redacted(error, self._settings.client_options)) from None

    def subscribe(
        self, topics: Sequence[str], owner: Owner, *, committed: bool, watch: TopicWatch | None = None
    ) -> None:
        session_ms = float(self._settings.client_options.get("session_timeout_ms", 45_000))
        self._join(topics, owner, committed, watch, session_ms)
        keep_whole(self._consumer)
        self._subscribe()
        # Once it has their metadata, the client does not rejoin the group as soon as they come: see `_receive`.
        try:
            self._consumer.topics()
        except kafka_errors.KafkaError as error:
            log.warning("kafka: %s", redacted(error, self._settings.client_options))

    def poll(self, timeout: float, max_messages: int) -> list[MessageRun]:
        member = self._of_group
        deadline = time.monotonic() + timeout
        runs = self._ready.take(max_messages, self._paused)
        while member.given is None:
            wanted = max_messages - sum(len(run.offsets) for run in runs)
            if wanted <= 0:
                break
            if runs:
                deadline = min(deadline, time.monotonic() + self.linger)
            left = deadline - time.monotonic()
            self._receive(min(max(0.0, left), SLICE))
            runs += self._ready.take(wanted, self._paused)
            if left <= 0:
                break
        if member.doubtful and member.open and not self._still_member():
            self._ready.put_back(runs)
            runs = []
        if runs and self._waits(runs):
            self._ready.put_back(runs)
            runs = []
        runs = member.deliver(runs)
        self._after_delivery()
        return runs

    def commit(self, offsets: Mapping[Place, int]) -> None:
        ours = self._ours(offsets)
        if ours:
            self._to_commit |= ours
            self._counted |= ours
            self._consumer.commit_async(at(ours), callback=self._on_commit)

    def pause(self, places: Iterable[Place]) -> None:
        """See `KafkaReader.pause`.

        The client's buffer is moved into ours first: kafka-python 3.0.12 sets a half-read fetch of a paused partition
        aside, and after `resume` may never return to it, while that partition is not fetched either.
        """
        self._receive(0.0)
        self._paused |= set(places) & self._of_group.open
        self._consumer.pause(*self._still_given(self._paused))

    def resume(self, places: Iterable[Place]) -> None:
        resumed = self._paused & set(places)
        self._paused -= resumed
        self._consumer.resume(*self._still_given(resumed))

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._handover.close()
        if self._made is None:
            return
        ours = self._ours(self._to_commit)
        if ours:
            try:
                self._made.commit(at(ours), timeout_ms=5_000)
            except kafka_errors.KafkaError as error:
                log.warning("offsets not committed: %s", error)
        self._made.close(timeout_ms=5_000)

    def _subscribe(self) -> None:
        listener = AssignmentListener(self._handover, self._on_assign, self._on_revoke, self._on_lost)
        self._consumer.subscribe(topics=self._topics, listener=listener)

    def _receive(self, timeout: float) -> None:
        """Moves what the client has into our buffer, all of it: at most one response per broker.

        kafka-python does not fetch from a partition of which it still has messages. If it has some of one topic only, it
        asks for the other one alone; and while the broker waits for messages of that one, nothing else is fetched.
        """
        member = self._of_group
        if self._revoked_at is not None:
            # If poll gives up while the leader of a group rejoins it because its topics have changed, 3.0.12 may forget
            # about it forever. So wait longer; and if it lasts, make it start over.
            timeout = max(timeout, REJOIN_SLICE)
            if time.monotonic() - self._revoked_at > REJOIN_PATIENCE:
                log.warning("kafka: no assignment for %.0f s: rejoining the group", REJOIN_PATIENCE)
                self._revoked_at = time.monotonic()
                self._consumer.unsubscribe()
                self._subscribe()
        try:
            fetched = self._handover.run(
                lambda: self._consumer.poll(timeout_ms=int(timeout * 1_000), max_records=EVERYTHING), self._wake
            )
        except kafka_errors.OffsetOutOfRangeError as error:
            self._gaps |= {(p.topic, p.partition) for p in error.args[0]}
            return
        except kafka_errors.LogTruncationError as error:
            self._gaps |= member.find_recreated(self._topics_now() or {})
            shorter = {(p.topic, p.partition) for p in error.divergent_offsets}
            # to a client that remembers an epoch of the old one, a recreated topic is a shorter log
            if any(place not in self._gaps and not self._is_deleted(place[0]) for place in shorter):
                raise truncated(error) from None
            return
        except HOPELESS as error:
            if isinstance(error, kafka_errors.FencedInstanceIdError):
                member.lose(member.assignment)
            raise refused(error, self._settings) from None
        except kafka_errors.KafkaError as error:
            log.warning("kafka: %s", redacted(error, self._settings.client_options))
            time.sleep(min(timeout, 0.1))
            return
        finally:
            member.look()
        if fetched:
            self._answered = time.monotonic()
        for place, records in fetched.items():
            for run in runs_of(place.topic, place.partition, records):
                if run.place in member.open:  # otherwise from a start that is not valid: read again
                    self._ready.add(run)

    def _fetched_ends(self, places: Iterable[Place]) -> dict[Place, int]:
        ends = {}
        for place in places:
            try:
                end = self._consumer.highwater(TopicPartition(*place))
            except kafka_errors.KafkaError:
                continue  # revoked by a rebalance
            if end is not None:
                ends[place] = end
        return ends

    def _due(self) -> dict[Place, int]:
        """See `GroupReader._due`; past markers only if no messages wait here."""
        due = dict(self._of_group.positions.next) if self._member else {}
        for place in due.keys() - self._ready.places:
            try:
                due[place] = max(due[place], self._consumer.position(TopicPartition(*place), timeout_ms=0) or 0)
            except kafka_errors.KafkaError:
                del due[place]  # revoked by a rebalance
        return due

    def _skip_gap(self, place: Place) -> None:
        """Continues after messages that Kafka deleted before they were read."""
        member = self._of_group
        if place in member.open and self._still_given([place]):
            if self._is_deleted(place[0]):
                return
            topics = self._topics_now()
            try:
                low, high = self._ends(place)
            except kafka_errors.KafkaError as error:
                log.warning("kafka: %s [%d]: offset out of range: %s", *place, error)  # the next poll tries again
                return
            start = member.go_on(place, low, high, topics)
            self._ready.drop(place)
            self._consumer.seek(TopicPartition(*place), start)
        self._gaps.discard(place)

    def _still_member(self) -> bool:
        """Asks the group whether we are still a member: it accepts offsets only from members.

        Returns False if we are not, or if nobody answers: then the next poll asks again.
        """
        member = self._of_group
        place = min(member.open)
        try:
            self._consumer.commit(at({place: self._counted[place]}), timeout_ms=CONFIRM_TIMEOUT_MS)
        except NOT_A_MEMBER:
            log.warning("kafka: removed from group %s while this process was stalled", self._settings.group_id)
            self._on_lost([TopicPartition(*place) for place in member.assignment])
            return False
        except kafka_errors.RebalanceInProgressError:
            pass  # only sent to members
        except kafka_errors.KafkaError as error:
            log.warning("kafka: cannot tell whether this is still a member of the group: %s", error)
            return False
        self._answered = time.monotonic()
        member.confirm()
        return True

    def _ask_ends(self, places: Iterable[Place], timeout: float) -> dict[Place, int]:
        """Returns the current ends for readers of committed messages, as the brokers know them; nothing if they do not
        answer, and none of a partition without a leader.
        """
        try:
            ends = edges(places, self._consumer.end_offsets, timeout)
        except kafka_errors.KafkaError:
            return {}
        if ends:
            self._answered = time.monotonic()
        return ends

    def _on_assign(self, partitions: Iterable[Any]) -> None:
        """Only records the assignment; `poll` begins reading, where brokers may be asked and errors can be raised.

        Without a position the client would look for a committed one, and fail if there is none. Pausing instead would
        set aside what it has from the last assignment, see `pause`.
        """
        given = list(partitions)
        for partition in given:
            self._consumer.seek(partition, 0)
        self._revoked_at = None
        self._ready.clear()
        known = self._consumer.group_metadata()
        places = frozenset((p.topic, p.partition) for p in given)
        self._of_group.assign(places, Generation(known.generation_id, known.member_id))

    def _on_revoke(self, partitions: Iterable[Any]) -> None:
        self._ready.clear()  # what stays assigned is read again from its position
        self._of_group.revoke(frozenset((p.topic, p.partition) for p in partitions))
        self._of_group.given = None
        self._revoked_at = time.monotonic()

    def _on_lost(self, partitions: Iterable[Any]) -> None:
        self._ready.clear()
        self._of_group.lose(frozenset((p.topic, p.partition) for p in partitions))
        self._revoked_at = time.monotonic()

    def _wake(self) -> None:
        """Makes the client's thread continue after a callback: an empty request wakes its loop."""
        self._consumer.end_offsets([], timeout_ms=1_000)

    def _begin(self, places: frozenset[Place]) -> None:
        """Begins reading every partition at a definite offset: ours, the owner's, the group's, or the one from
        `kafka.start`.
        """
        member = self._of_group
        try:
            starts = member.starts(places, self._told_ends, self._committed, self._topics_now())
        except HOPELESS as error:
            raise refused(error, self._settings) from None
        except kafka_errors.KafkaError as error:
            log.warning("kafka: start offsets not known yet: %s", error)  # the next poll asks again
            return
        self._gaps.clear()
        self._ready.clear()
        self._paused.clear()
        self._to_commit.clear()
        self._counted = dict(starts)  # everything before them was delivered by earlier polls
        member.begin(starts)
        self._read_on(starts)
        # they have no partner, or nobody says where they begin: not to be read
        self._consumer.pause(*self._still_given(places - starts.keys()))
        if first := member.first_offsets():
            self._consumer.commit_async(at(first), callback=self._on_commit)

    def _read_on(self, starts: Mapping[Place, int]) -> None:
        given = self._still_given(starts)
        for one in given:
            self._consumer.seek(one, starts[one.topic, one.partition])
        self._consumer.resume(*given)

    def _committed(self, places: list[Place]) -> Offsets:
        return offsets_of_group(self._consumer, places, ASK_TIMEOUT)

    def _told_ends(
        self, place: Place, then: int | None = None, *, timeout: float = ASK_TIMEOUT
    ) -> tuple[int, int] | None:
        try:
            low, high = self._ends(place, timeout)
            return low, high if then is None else end_then(self._consumer, place, then, high, timeout)
        except HOPELESS as error:
            raise refused(error, self._settings) from None
        except kafka_errors.KafkaError as error:
            log.warning("kafka: start offset not known yet: %s", error)
            return None

    def _ends(self, place: Place, timeout: float = ASK_TIMEOUT) -> tuple[int, int]:
        low = edges([place], self._consumer.beginning_offsets, timeout)
        high = edges([place], self._consumer.end_offsets, timeout)
        if not (low and high):
            raise kafka_errors.LeaderNotAvailableError(f"{place[0]} [{place[1]}]")
        self._answered = time.monotonic()
        return low[place], high[place]

    def _still_given(self, places: Iterable[Place]) -> list[Any]:
        given = self._consumer.assignment()
        return [p for p in (TopicPartition(*place) for place in places) if p in given]

    def _on_commit(self, _: object, response: object) -> None:
        if isinstance(response, Exception):
            log.warning("offsets not committed: %s", response)
        else:
            self._answered = time.monotonic()
