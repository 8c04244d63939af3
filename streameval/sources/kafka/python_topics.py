"""Describes topics with the kafka-python client."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from kafka import KafkaAdminClient
from kafka import errors as kafka_errors

from streameval.sources.kafka.python_client import find_again, oauth_options, shared_options
from streameval.sources.kafka.topics import Describer, GroupMember, Topic, known_id
from streameval.sources.protocol import Place


class KafkaPythonDescriber(Describer):
    """Asks through kafka-python."""

    def __init__(self, bootstrap_servers: str, client_options: Mapping[str, Any], oauth: str = "") -> None:
        self._options = {
            "client_id": "streameval",
            "request_timeout_ms": 5_000,
            "reconnect_backoff_max_ms": 2_000,
            **shared_options(client_options, KafkaAdminClient.DEFAULT_CONFIG),
            "bootstrap_servers": bootstrap_servers.split(","),
            **oauth_options(oauth),
        }
        self.client_id = str(self._options["client_id"])
        self._made: Any = None

    def describe(self, names: Sequence[str]) -> Mapping[str, Topic] | None:
        try:
            if self._made is None:
                self._made = KafkaAdminClient(**self._options)
                find_again(self._made)
            answers = self._made.describe_topics(list(names))
        except (kafka_errors.KafkaError, OSError):
            return None
        found = {}
        for answer in answers:
            if answer["error_code"] == kafka_errors.UnknownTopicOrPartitionError.errno:
                continue
            if answer["error_code"]:
                return None
            number = answer.get("topic_id")  # a UUID, converted to the form of the other client and of Kafka's tools
            text = None if number is None else urlsafe_b64encode(UUID(str(number)).bytes).decode().rstrip("=")
            leaders = {one["partition_index"]: one["leader_id"] for one in answer["partitions"]}
            found[answer["name"]] = Topic(known_id(text), len(leaders), leaders)
        return found

    def members(self, group: str) -> Iterable[GroupMember]:
        if self._made is None:
            return ()
        try:
            found = self._made.describe_groups([group])[group]["members"]
        except (kafka_errors.KafkaError, OSError):
            return ()
        return [GroupMember(one["client_id"], one["client_host"], _places(one["member_assignment"])) for one in found]

    def close(self) -> None:
        if self._made is not None:
            self._made.close()


def _places(assignment: Any) -> frozenset[Place]:
    """What a member was given; while the group rebalances, nothing."""
    topics = assignment["assigned_partitions"] if isinstance(assignment, dict) else ()
    return frozenset((one["topic"], partition) for one in topics for partition in one["partitions"])
