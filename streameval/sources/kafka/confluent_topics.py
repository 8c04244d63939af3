"""Describes topics with the confluent-kafka client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from streameval.sources.kafka.confluent_client import with_oauth
from streameval.sources.kafka.confluent_sender import CONSUMER_ONLY
from streameval.sources.kafka.topics import Describer, GroupMember, Topic, known_id

_ASK_TIMEOUT = 3.0  # seconds


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
                return {name: Topic(None, len(found.topics[name].partitions)) for name in names if name in found.topics}
            asked = self._made.describe_topics(TopicCollection(list(names)), request_timeout=_ASK_TIMEOUT)
            answers = {name: _result(answer) for name, answer in asked.items()}
        except (KafkaException, FutureTimeoutError):
            return None
        return {name: topic for name, topic in answers.items() if topic is not None}

    def members(self, group: str) -> Iterable[GroupMember]:
        if self._made is None or not self._tells_ids:  # the embedded broker describes no groups
            return ()
        try:
            found = self._made.describe_consumer_groups([group], request_timeout=_ASK_TIMEOUT)[group]
            members = found.result(_ASK_TIMEOUT + 1.0).members
        except (KafkaException, FutureTimeoutError):
            # librdkafka 2.16 ends the process (an assertion, a use after free) when the coordinator of a group comes up
            # after such a request has timed out; and the coordinator that it knew before an outage stays down for it
            self._made = None
            return ()
        return [
            GroupMember(
                one.client_id,
                one.host,
                frozenset((place.topic, place.partition) for place in one.assignment.topic_partitions),
            )
            for one in members
        ]

    def close(self) -> None:
        self._made = None  # librdkafka ends with the last reference


def _result(answer: Future[Any]) -> Topic | None:
    """Returns a topic; None if there is none of that name. Raises KafkaException, TimeoutError."""
    try:
        topic = answer.result(_ASK_TIMEOUT + 1.0)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise
    return Topic(known_id(str(topic.topic_id)), len(topic.partitions))
