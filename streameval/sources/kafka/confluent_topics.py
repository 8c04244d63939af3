"""Describes topics with the confluent-kafka client."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from streameval.sources.kafka.confluent_client import with_oauth
from streameval.sources.kafka.confluent_sender import CONSUMER_ONLY
from streameval.sources.kafka.topics import NO_LEADER, Describer, GroupMember, Topic, known_id
from streameval.sources.protocol import Place

_ASK_TIMEOUT = 3.0  # seconds
_HEAD, _LENGTH, _COUNT = struct.Struct(">hi"), struct.Struct(">h"), struct.Struct(">i")


class ConfluentDescriber(Describer):
    """Asks through confluent-kafka."""

    def __init__(self, bootstrap_servers: str, client_options: Mapping[str, Any], oauth: str = "") -> None:
        options = {
            "client.id": "streameval",
            "reconnect.backoff.max.ms": 2_000,
            **{name: value for name, value in client_options.items() if not name.startswith(CONSUMER_ONLY)},
            "bootstrap.servers": bootstrap_servers,
            "error_cb": lambda _: None,  # the reader has the same problem, and reports it
            "log_level": 0,
        }
        self._options = with_oauth(options, oauth)
        self.client_id = str(options["client.id"])
        self._made: AdminClient | None = None
        self._tells_ids = False

    def describe(self, names: Sequence[str]) -> Mapping[str, Topic] | None:
        try:
            if self._made is None:
                self._made = AdminClient(self._options)
            if not self._tells_ids:
                found = self._made.list_topics(timeout=_ASK_TIMEOUT)
                self._tells_ids = found.controller_id in found.brokers
            if not self._tells_ids:  # the embedded broker, which names a controller that does not exist
                known = {name: found.topics[name].partitions for name in names if name in found.topics}
                return {
                    name: Topic(None, len(some), {number: one.leader for number, one in some.items()})
                    for name, some in known.items()
                }
            asked = self._made.describe_topics(TopicCollection(list(names)), request_timeout=_ASK_TIMEOUT)
            answers = {name: _result(answer) for name, answer in asked.items()}
        except (KafkaException, FutureTimeoutError):
            return None
        return {name: topic for name, topic in answers.items() if topic is not None}

    def members(self, group: str) -> Iterable[GroupMember]:
        if self._made is None or not self._tells_ids:  # the embedded broker describes no groups
            return ()
        # not describe_consumer_groups: librdkafka 2.16 ends the process (an assertion, a use after free) when a broker
        # answers after such a request has timed out, which takes no more than a busy machine
        try:
            with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
                found = self._made.list_groups(group, timeout=_ASK_TIMEOUT)
        except KafkaException:
            return ()
        return [
            GroupMember(one.client_id, one.client_host, _places(one.assignment))
            for of_group in found
            for one in of_group.members
        ]

    def close(self) -> None:
        self._made = None  # librdkafka ends with the last reference


def _places(assignment: bytes) -> frozenset[Place]:
    """What a member was given, of ConsumerProtocolAssignment: the version, and of each topic its name and its partitions."""
    if len(assignment) < _HEAD.size:  # nothing, while the group rebalances
        return frozenset()
    (_, topics), at, found = _HEAD.unpack_from(assignment), _HEAD.size, set()
    for _ in range(topics):
        (length,) = _LENGTH.unpack_from(assignment, at)
        at += _LENGTH.size
        topic = assignment[at : at + length].decode()
        at += length
        (count,) = _COUNT.unpack_from(assignment, at)
        at += _COUNT.size
        found |= {(topic, partition) for partition in struct.unpack_from(f">{count}i", assignment, at)}
        at += 4 * count
    return frozenset(found)


def _result(answer: Future[Any]) -> Topic | None:
    """Returns a topic; None if there is none of that name. Raises KafkaException, TimeoutError."""
    try:
        topic = answer.result(_ASK_TIMEOUT + 1.0)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise
    leaders = {one.id: NO_LEADER if one.leader is None else one.leader.id for one in topic.partitions}
    return Topic(known_id(str(topic.topic_id)), len(topic.partitions), leaders)
