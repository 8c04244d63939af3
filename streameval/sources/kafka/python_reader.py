"""The kafka-python client: pure Python, 0.2 million small messages/s (with crc32c; 0.03 without).

Only its public interface is used. Making its fetcher hand over whole record batches, through a private attribute, read
0.83 million messages/s where `poll` read 0.22, on a real broker. That hook is not here: with decoding it is a factor of
two, the other client gives more without any private name, and kafka-python is about to move these internals (3.1).

Topics compressed with snappy need the python-snappy package; gzip, lz4 and zstd need nothing more.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kafka import (
    ConsumerRebalanceListener,
    KafkaConsumer,
    OffsetAndMetadata,
    TopicPartition,
)
from kafka import errors as kafka_errors
from kafka.coordinator.assignors.range import RangePartitionAssignor

from streameval.config import Kafka
from streameval.sources.kafka.options import check_options, redacted
from streameval.sources.kafka.pacing import Place
from streameval.sources.kafka.reader import Assigned, Positions, Run, UnreachableError, check_start
from streameval.sources.protocol import SourceError

log = logging.getLogger(__name__)

LINGER = 0.05  # seconds a poll waits for more after the first messages: at most 20 small batches/s when little comes
SLICE = 0.2  # seconds, the longest wait between two looks at what callbacks have left
REJOIN_SLICE = 1.0  # seconds, the shortest wait for the client during a rebalance
REJOIN_PATIENCE = 30.0  # seconds a rebalance may take before the group is joined anew
ASK_TIMEOUT_MS = 10_000  # for one question to a broker that has answered before

TUNING: dict[str, Any] = {
    "client_id": "streameval",
    "isolation_level": "read_committed",
    "fetch_max_wait_ms": 100,
    "allow_auto_create_topics": False,  # a reader that creates topics gives them the wrong partition count
    "metadata_max_age_ms": 30_000,
    "reconnect_backoff_max_ms": 2_000,
}
RESERVED = {
    "bootstrap_servers": "set kafka.bootstrap_servers instead",
    "group_id": "set kafka.group_id instead",
    "auto_offset_reset": "set kafka.start instead",
    "enable_auto_commit": "streameval needs false here; remove it",
    "partition_assignment_strategy": "streameval needs the range assignor here; remove it",
    "key_deserializer": "streameval decodes messages itself; remove it",
    "value_deserializer": "streameval decodes messages itself; remove it",
}
_HOPELESS = (
    kafka_errors.AuthorizationError,
    kafka_errors.SaslAuthenticationFailedError,
    kafka_errors.UnsupportedCodecError,
    kafka_errors.CorruptRecordError,
    kafka_errors.FencedInstanceIdError,
)


class KafkaPythonReader:
    """See `streameval.sources.kafka.reader.KafkaReader`."""

    def __init__(self, settings: Kafka) -> None:
        check_options(settings.client_options, RESERVED)
        self._settings = settings
        self._options = {
            **TUNING,
            **known_options(settings.client_options, KafkaConsumer.DEFAULT_CONFIG),
            "bootstrap_servers": settings.bootstrap_servers.split(","),
            "group_id": settings.group_id,
            "auto_offset_reset": "none",  # a start is always resolved to a number here, so that no gap goes unnoticed
            "enable_auto_commit": False,
            # The only assignor that gives a member the same partition numbers of both topics.
            "partition_assignment_strategy": [RangePartitionAssignor],
        }
        self._made: Any = None
        self._positions = Positions()
        self._assignment: frozenset[Place] = frozenset()
        self._assigned: Assigned | None = None
        self._given: frozenset[Place] | None = None  # an assignment that is not begun yet
        self._topics: list[str] = []
        self._revoked_at: float | None = None  # a rebalance is under way since
        self._gaps: set[Place] = set()  # positions that Kafka does not have any more
        self._ready: deque[Run] = deque()  # received, not delivered yet
        self._paused: set[Place] = set()
        self._to_commit: dict[Place, int] = {}
        self._closed = False

    @property
    def _consumer(self) -> Any:
        if self._made is None:
            raise UnreachableError("not connected yet")
        return self._made

    def partition_counts(self, topics: Iterable[str], timeout: float) -> dict[str, int]:
        """See `KafkaReader.partition_counts`."""
        try:
            if self._made is None:
                timeout_ms = max(1, int(timeout * 1_000))
                self._made = make_client(
                    KafkaConsumer, {**self._options, "bootstrap_timeout_ms": timeout_ms}, self._settings.client_options
                )
                self._made.bootstrap(timeout_ms=timeout_ms)
            known = self._made.topics()  # asks the broker, for all topics: asking by name could create one
            return {topic: len(self._made.partitions_for_topic(topic)) for topic in topics if topic in known}
        except _HOPELESS as error:
            raise self._hopeless(error) from None
        except kafka_errors.KafkaError as error:
            raise UnreachableError(redacted(error, self._settings.client_options)) from None

    def subscribe(self, topics: Sequence[str], assigned: Assigned) -> None:
        """See `KafkaReader.subscribe`."""
        self._assigned = assigned
        self._topics = list(topics)
        self._consumer.subscribe(topics=self._topics, listener=_Listener(self._on_assign, self._on_revoke))
        # With their metadata here, the client does not rejoin the group at once, when it comes: see `_receive`.
        self._consumer.topics()

    def poll(self, timeout: float, max_messages: int) -> list[Run]:
        """See `KafkaReader.poll`."""
        deadline = time.monotonic() + timeout
        runs = self._deliver(max_messages)
        while self._given is None:
            wanted = max_messages - sum(len(run.offsets) for run in runs)
            if wanted <= 0:
                break
            if runs:
                deadline = min(deadline, time.monotonic() + LINGER)
            left = deadline - time.monotonic()
            self._receive(min(max(0.0, left), SLICE), wanted)
            runs += self._deliver(wanted)
            if left <= 0:
                break
        if self._given is not None:
            self._begin(self._given)
        else:
            for place in tuple(self._gaps):
                self._skip_gap(place)
        return runs

    @property
    def assignment(self) -> frozenset[Place]:
        """See `KafkaReader.assignment`."""
        return self._assignment

    def lag(self) -> dict[Place, int]:
        """See `KafkaReader.lag`; the ends are those of the last fetch, no broker is asked."""
        lags = {}
        waiting = {(run.topic, run.partition) for run in self._ready}
        for place in self._assignment:
            try:
                end = self._consumer.highwater(TopicPartition(*place))
                # the client's own position is past transaction markers, which are never delivered
                read = self._consumer.position(TopicPartition(*place), timeout_ms=0)
            except kafka_errors.KafkaError:
                continue  # a rebalance has taken it
            due = max(self._positions.next[place], 0 if place in waiting else read or 0)
            if end is not None:
                lags[place] = max(0, end - due)
        return lags

    def commit(self, offsets: Mapping[Place, int]) -> None:
        """See `KafkaReader.commit`."""
        ours = {place: offset for place, offset in offsets.items() if place in self._assignment}
        if ours:
            self._to_commit |= ours
            self._consumer.commit_async(_at(ours), callback=self._on_commit)

    def pause(self, places: Iterable[Place]) -> None:
        """See `KafkaReader.pause`.

        The client's buffer is emptied into ours first: kafka-python 3.0.12 sets a half-read fetch of a partition that
        is paused aside, and after `resume` may never come back to it, while that partition is not fetched either.
        """
        self._receive(0.0, sys.maxsize)
        self._paused |= set(places)
        self._consumer.pause(*self._still_given(self._paused))

    def resume(self, places: Iterable[Place]) -> None:
        """See `KafkaReader.resume`."""
        self._paused -= set(places)
        self._consumer.resume(*self._still_given(places))

    def close(self) -> None:
        """See `KafkaReader.close`."""
        if self._closed:
            return
        self._closed = True
        if self._made is None:
            return
        if self._to_commit:
            try:
                self._made.commit(_at(self._to_commit), timeout_ms=5_000)
            except kafka_errors.KafkaError as error:
                log.warning("offsets not committed: %s", error)
        self._made.close(timeout_ms=5_000)

    def _receive(self, timeout: float, max_messages: int) -> None:
        if self._revoked_at is not None:
            # When poll gives up while the leader of a group rejoins it because its topics have changed, 3.0.12 may
            # forget that it does, for ever. So be patient; and if it lasts, make it begin anew.
            timeout = max(timeout, REJOIN_SLICE)
            if time.monotonic() - self._revoked_at > REJOIN_PATIENCE:
                log.warning("kafka: no assignment for %.0f s: joining the group again", REJOIN_PATIENCE)
                self._revoked_at = time.monotonic()
                self._consumer.unsubscribe()
                self._consumer.subscribe(topics=self._topics, listener=_Listener(self._on_assign, self._on_revoke))
        try:
            fetched = self._consumer.poll(timeout_ms=int(timeout * 1_000), max_records=max_messages)
        except kafka_errors.OffsetOutOfRangeError as error:
            self._gaps |= {(p.topic, p.partition) for p in error.args[0]}
            return
        except kafka_errors.LogTruncationError as error:
            self._gaps |= {(p.topic, p.partition) for p in error.divergent_offsets}
            return
        except _HOPELESS as error:
            raise self._hopeless(error) from None
        except kafka_errors.KafkaError as error:
            log.warning("kafka: %s", redacted(error, self._settings.client_options))
            time.sleep(min(timeout, 0.1))
            return
        if self._given is not None:
            self._ready.clear()  # of the last assignment, or from a start that is not one: all of it is read again
            return
        for place, records in fetched.items():
            values, offsets = [r.value for r in records], [r.offset for r in records]
            self._ready.append(Run(place.topic, place.partition, values, offsets))

    def _deliver(self, limit: int) -> list[Run]:
        """Of what was received, at most `limit` messages of partitions that are not paused."""
        runs: list[Run] = []
        kept: list[Run] = []
        while self._ready and limit > 0:
            run = self._ready.popleft()
            if (run.topic, run.partition) in self._paused:
                kept.append(run)
                continue
            if len(run.offsets) > limit:
                rest = Run(run.topic, run.partition, run.values[limit:], run.offsets[limit:])
                self._ready.appendleft(rest)
                run = Run(run.topic, run.partition, run.values[:limit], run.offsets[:limit])
            limit -= len(run.offsets)
            remains = self._positions.advance(run)
            if remains is not None:
                runs.append(remains)
        self._ready.extendleft(reversed(kept))
        return runs

    def _skip_gap(self, place: Place) -> None:
        """Go on after messages that Kafka deleted before they were read."""
        try:
            low, _ = self._ends(place)
        except kafka_errors.KafkaError as error:
            log.warning("kafka: %s [%d] is out of range: %s", *place, error)  # the next poll tries again
            return
        self._gaps.discard(place)
        if self._still_given([place]):
            self._consumer.seek(TopicPartition(*place), low)
            due = self._positions.next[place]
            log.warning("%s [%d]: offset %d is not there any more: going on at %d", *place, due, low)
            self._positions.next[place] = low

    def _on_assign(self, partitions: Iterable[Any]) -> None:
        """Take note; `poll` begins, where a broker may be asked and errors can be raised.

        Without a position the client would look for a committed one, and fail where there is none. Pausing instead
        would set aside what it has of the last assignment, see `pause`.
        """
        given = list(partitions)
        for partition in given:
            self._consumer.seek(partition, 0)
        self._revoked_at = None
        self._given = frozenset((p.topic, p.partition) for p in given)

    def _on_revoke(self, _: Iterable[Any]) -> None:
        self._given = None
        self._revoked_at = time.monotonic()

    def _begin(self, places: frozenset[Place]) -> None:
        """Read every partition from a number: ours, the checkpoint's, the group's, or the one `kafka.start` means."""
        assert self._assigned is not None
        starts = self._positions.regained(places)
        try:
            asked = {place: offset for place, offset in self._assigned(places).items() if place not in starts}
            for place, offset in asked.items():
                check_start(place, offset, *self._ends(place))
            for place in sorted(places - starts.keys() - asked.keys()):
                offset = self._consumer.committed(TopicPartition(*place), timeout_ms=ASK_TIMEOUT_MS)
                if offset is None or offset < 0:
                    low, high = self._ends(place)
                    offset = low if self._settings.start == "earliest" else high
                starts[place] = offset
        except _HOPELESS as error:
            raise self._hopeless(error) from None
        except kafka_errors.KafkaError as error:
            log.warning("kafka: start offsets not known yet: %s", error)  # the next poll asks again
            return
        self._given = None
        self._gaps.clear()
        self._ready.clear()
        self._paused.clear()
        self._assignment = places
        self._positions.next = starts | asked
        for place, offset in self._positions.next.items():
            self._consumer.seek(TopicPartition(*place), offset)
        self._consumer.resume(*(TopicPartition(*place) for place in places))

    def _ends(self, place: Place) -> tuple[int, int]:
        partition = TopicPartition(*place)
        low = self._consumer.beginning_offsets([partition], timeout_ms=ASK_TIMEOUT_MS)[partition]
        return low, self._consumer.end_offsets([partition], timeout_ms=ASK_TIMEOUT_MS)[partition]

    def _still_given(self, places: Iterable[Place]) -> list[Any]:
        given = self._consumer.assignment()
        return [p for p in (TopicPartition(*place) for place in places) if p in given]

    def _hopeless(self, error: Exception) -> SourceError:
        return SourceError(
            f'kafka at {self._settings.bootstrap_servers}, group "{self._settings.group_id}": '
            f"{redacted(error, self._settings.client_options)}; check the access rights of the topics and the group, "
            "kafka.client_options, and the topics' compression (snappy needs the python-snappy package)"
        )

    def _on_commit(self, _: object, response: object) -> None:
        if isinstance(response, Exception):
            log.warning("offsets not committed: %s", response)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Hands rebalances to the reader; called while `poll` waits, on the client's thread: it must not block."""

    def __init__(self, assigned: Callable[[Iterable[Any]], None], revoked: Callable[[Iterable[Any]], None]) -> None:
        self._assigned, self._revoked = assigned, revoked

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._assigned(assigned)

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self._revoked(revoked)

    def on_partitions_lost(self, lost: Iterable[Any]) -> None:
        self._revoked(lost)


def make_client(make: Callable[..., Any], options: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    """A client, or a SourceError that says what it does not take; connection trouble passes through."""
    try:
        return make(**options)
    except kafka_errors.KafkaTimeoutError:
        raise
    except (kafka_errors.KafkaConfigurationError, ValueError, TypeError, AssertionError, OSError) as error:
        raise SourceError(f"kafka.client_options: {redacted(error, given)}; see kafka-python's KafkaConsumer") from None


def known_options(options: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The options as the client takes them; SourceError for one that it does not know."""
    for name in options:
        if name not in defaults:
            raise SourceError(
                f"kafka.client_options.{name}: kafka-python has no such option; see its KafkaConsumer for those it has"
            )
    return shared_options(options, defaults)


def shared_options(options: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Those options that another kind of client takes too; TOML has no tuples, so a version is written [2, 3]."""
    taken = {name: value for name, value in options.items() if name in defaults}
    if isinstance(taken.get("api_version"), list):
        taken["api_version"] = tuple(taken["api_version"])
    return taken


def _at(offsets: Mapping[Place, int]) -> dict[Any, Any]:
    return {TopicPartition(*place): OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()}
