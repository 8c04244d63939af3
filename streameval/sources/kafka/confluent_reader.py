"""The confluent-kafka client (librdkafka): the fast one, 1.3 to 1.6 million small messages/s on one connection."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from streameval.config import Kafka
from streameval.sources.kafka.options import check_options, redacted
from streameval.sources.kafka.pacing import Place
from streameval.sources.kafka.reader import Assigned, Positions, Run, UnreachableError, check_start
from streameval.sources.protocol import SourceError

log = logging.getLogger(__name__)

LINGER = 0.05  # seconds a poll waits for more after the first message: at most 20 small batches/s when little comes
SLICE = 0.2  # seconds, the longest wait between two looks at what callbacks have left
ASK_TIMEOUT = 10.0  # seconds for one question to a broker that has answered before

TUNING: dict[str, Any] = {
    "client.id": "streameval",
    "isolation.level": "read_committed",
    "check.crcs": True,
    # When its queue (64 MiB) is full, librdkafka waits this long before the next fetch; at its default of 1000 ms the
    # queue runs dry meanwhile and a drain falls from 1.3 million messages/s to 0.4.
    "fetch.queue.backoff.ms": 10,
    "fetch.wait.max.ms": 100,
    "allow.auto.create.topics": False,  # a reader that creates topics gives them the wrong partition count
    "topic.metadata.refresh.interval.ms": 30_000,
    "reconnect.backoff.max.ms": 2_000,
}
OURS: dict[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",  # a start is always resolved to a number here, so that no gap goes unnoticed
    "enable.partition.eof": True,  # moves a position over transaction markers: the lag at the end is then 0
    # The only assignor that gives a member the same partition numbers of both topics.
    "partition.assignment.strategy": "range",
}
RESERVED = {
    "bootstrap.servers": "set kafka.bootstrap_servers instead",
    "metadata.broker.list": "set kafka.bootstrap_servers instead",
    "group.id": "set kafka.group_id instead",
    "group.protocol": "must stay classic: only there do both topics get the same partition numbers; remove it",
    **{name: f"streameval needs {value!r} here; remove it" for name, value in OURS.items()},
    "auto.offset.reset": "set kafka.start instead",
}
_DENIED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}


class ConfluentReader:
    """See `streameval.sources.kafka.reader.KafkaReader`."""

    def __init__(self, settings: Kafka) -> None:
        check_options(settings.client_options, RESERVED)
        self._settings = settings
        self._positions = Positions()
        self._assignment: frozenset[Place] = frozenset()
        self._assigned: Assigned | None = None
        self._given: frozenset[Place] | None = None  # an assignment that is not begun yet
        self._gaps: set[Place] = set()  # positions that Kafka does not have any more
        self._last_error = "no answer"
        self._paused: set[Place] = set()
        self._to_commit: dict[Place, int] = {}
        self._closed = False
        options = {
            **TUNING,
            **settings.client_options,
            **OURS,
            "bootstrap.servers": settings.bootstrap_servers,
            "group.id": settings.group_id,
            "error_cb": self._on_error,
            "on_commit": self._on_commit,
        }
        self._consumer = make_client(Consumer, options, settings.client_options)

    def partition_counts(self, topics: Iterable[str], timeout: float) -> dict[str, int]:
        """See `KafkaReader.partition_counts`."""
        counts = {}
        for topic in topics:
            try:
                found = self._consumer.list_topics(topic, timeout=timeout).topics[topic]
            except KafkaException as error:
                self._consumer.poll(0)  # serves error_cb, which knows more than "timed out"
                raise UnreachableError(f"{error.args[0].str()}; {self._last_error}") from None
            if found.error is not None and found.error.code() in _DENIED:
                raise self._denied(found.error)
            if found.error is None and found.partitions:
                counts[topic] = len(found.partitions)
        return counts

    def subscribe(self, topics: Sequence[str], assigned: Assigned) -> None:
        """See `KafkaReader.subscribe`."""
        self._assigned = assigned
        self._consumer.subscribe(
            list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
        )

    def poll(self, timeout: float, max_messages: int) -> list[Run]:
        """See `KafkaReader.poll`."""
        messages = self._receive(timeout, max_messages)
        found: dict[Place, Run] = {}
        events: list[Message] = []
        for message in messages:
            if message.error() is not None:
                events.append(message)
                continue
            place = (message.topic(), message.partition())
            run = found.get(place)
            if run is None:
                run = found[place] = Run(place[0], place[1], [], [])
            run.values.append(message.value())
            run.offsets.append(message.offset())
        runs = [self._positions.advance(run) for run in found.values()]
        for message in events:
            self._on_event(message)
        if self._given is not None:
            self._begin(self._given)
        else:
            for place in tuple(self._gaps):
                self._skip_gap(place)
        return [run for run in runs if run is not None]

    @property
    def assignment(self) -> frozenset[Place]:
        """See `KafkaReader.assignment`."""
        return self._assignment

    def lag(self) -> dict[Place, int]:
        """See `KafkaReader.lag`; the ends are those of the last fetch, no broker is asked."""
        lags = {}
        for place in self._assignment:
            try:
                _, end = self._consumer.get_watermark_offsets(TopicPartition(*place), cached=True)
            except KafkaException:
                continue
            if end >= 0 and place in self._positions.next:
                lags[place] = max(0, end - self._positions.next[place])
        return lags

    def commit(self, offsets: Mapping[Place, int]) -> None:
        """See `KafkaReader.commit`."""
        ours = {place: offset for place, offset in offsets.items() if place in self._assignment}
        if not ours:
            return
        self._to_commit |= ours
        try:
            self._consumer.commit(offsets=_at(ours), asynchronous=True)
        except KafkaException as error:
            log.warning("offsets not committed: %s", error)

    def pause(self, places: Iterable[Place]) -> None:
        """See `KafkaReader.pause`."""
        self._paused |= set(places)
        self._consumer.pause([TopicPartition(*place) for place in self._paused])

    def resume(self, places: Iterable[Place]) -> None:
        """See `KafkaReader.resume`."""
        gone_on = self._paused & set(places)
        self._paused -= gone_on
        self._consumer.resume([TopicPartition(*place) for place in gone_on])

    def close(self) -> None:
        """See `KafkaReader.close`."""
        if self._closed:
            return
        self._closed = True
        if self._to_commit:
            try:
                self._consumer.commit(offsets=_at(self._to_commit), asynchronous=False)
            except KafkaException as error:
                log.warning("offsets not committed: %s", error)
        self._consumer.close()

    def _receive(self, timeout: float, max_messages: int) -> list[Message]:
        deadline = time.monotonic() + timeout
        first = None
        while first is None and self._given is None:  # an assignment must not wait for the timeout
            left = deadline - time.monotonic()
            first = self._consumer.poll(min(max(left, 0.0), SLICE))
            if left <= SLICE:
                break
        if first is None or max_messages == 1:
            return [] if first is None else [first]
        return [first, *self._consumer.consume(max_messages - 1, min(LINGER, timeout))]

    def _on_event(self, message: Message) -> None:
        """A message that is none: an end, a gap, or an error."""
        error: KafkaError = message.error()
        place = (message.topic(), message.partition())
        if error.code() == KafkaError._PARTITION_EOF:
            # past transaction markers, which are never delivered; all before it was delivered
            self._positions.next[place] = max(self._positions.next.get(place, 0), message.offset())
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._gaps.add(place)
        elif error.fatal() or error.code() in _DENIED:
            raise self._denied(error)
        else:
            log.warning("kafka: %s", error.str())

    def _skip_gap(self, place: Place) -> None:
        """Go on after messages that Kafka deleted before they were read."""
        due = self._positions.next[place]
        try:
            low, _ = self._ends(place)
            # librdkafka has stopped this partition, so it cannot seek: begin all of them again where they stand
            self._consumer.assign(_at(self._positions.next | {place: low}))
            self.pause(self._paused)
        except KafkaException as error:
            log.warning("kafka: %s [%d] is out of range: %s", *place, error)  # the next poll tries again
            return
        self._gaps.discard(place)
        self._positions.next[place] = low
        log.warning("%s [%d]: offset %d is not there any more: going on at %d", *place, due, low)

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Take note; `poll` begins, where a broker may be asked and errors can be raised."""
        self._given = frozenset((p.topic, p.partition) for p in partitions)
        consumer.assign([])

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._given = None

    def _begin(self, places: frozenset[Place]) -> None:
        """Read every partition from a number: ours, the checkpoint's, the group's, or the one `kafka.start` means."""
        assert self._assigned is not None
        starts = self._positions.regained(places)
        try:
            asked = {place: offset for place, offset in self._assigned(places).items() if place not in starts}
            for place, offset in asked.items():
                check_start(place, offset, *self._ends(place))
            fresh = [TopicPartition(*place) for place in sorted(places - starts.keys() - asked.keys())]
            committed = self._consumer.committed(fresh, timeout=ASK_TIMEOUT) if fresh else []
            for known in committed:
                place = (known.topic, known.partition)
                low, high = (0, 0) if known.offset >= 0 else self._ends(place)
                starts[place] = known.offset if known.offset >= 0 else self._first(low, high)
        except KafkaException as error:
            log.warning("kafka: start offsets not known yet: %s", error)  # the next poll asks again
            return
        self._given = None
        self._gaps.clear()
        self._paused.clear()
        self._assignment = places
        self._positions.next = starts | asked
        self._consumer.assign(_at(self._positions.next))

    def _first(self, low: int, high: int) -> int:
        return low if self._settings.start == "earliest" else high

    def _ends(self, place: Place) -> tuple[int, int]:
        low, high = self._consumer.get_watermark_offsets(TopicPartition(*place), timeout=ASK_TIMEOUT)
        return low, high

    def _denied(self, error: KafkaError) -> SourceError:
        text = redacted(error.str(), self._settings.client_options)
        return SourceError(
            f'kafka refused group "{self._settings.group_id}": {text}; check the access rights (ACLs) of the '
            "topics and the group"
        )

    def _on_error(self, error: KafkaError) -> None:
        """Connections lost, and the like: librdkafka goes on by itself."""
        self._last_error = redacted(error.str(), self._settings.client_options)
        log.warning("kafka: %s", self._last_error)

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        if error is not None:
            log.warning("offsets not committed: %s", error.str())


def make_client(make: Callable[..., Any], options: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    """A client, or a SourceError that says which option it does not take."""
    try:
        return make(dict(options), logger=log)
    except (KafkaException, TypeError, ValueError) as error:
        text = error.args[0].str() if isinstance(error, KafkaException) else error
        raise SourceError(f"kafka.client_options: {redacted(text, given)}; see librdkafka's CONFIGURATION.md") from None


def _at(offsets: Mapping[Place, int]) -> list[TopicPartition]:
    return [TopicPartition(*place, offset) for place, offset in offsets.items()]
