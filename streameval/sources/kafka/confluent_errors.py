"""The meaning of librdkafka's errors for a reader: the end of a partition, access denied, or no longer a member of the
group.
"""

from __future__ import annotations

from confluent_kafka import KafkaError

from streameval.settings.tree import Kafka
from streameval.sources.kafka.options import redacted
from streameval.sources.protocol import SourceError

_DENIED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}
_NOT_A_MEMBER = {
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError._FENCED,
}


def is_end(error: KafkaError) -> bool:
    """Whether the error only says that a partition has been read to its end."""
    return error.code() == KafkaError._PARTITION_EOF


def is_gap(error: KafkaError) -> bool:
    """Whether the offset to read from is not in the log."""
    return error.code() == KafkaError._AUTO_OFFSET_RESET


def is_denied(error: KafkaError) -> bool:
    """Whether the brokers deny this user access."""
    return error.code() in _DENIED


def is_fatal(error: KafkaError) -> bool:
    """Whether the client is unusable, for example because another process has taken our group.instance.id."""
    return error.fatal() or error.code() == KafkaError._FATAL


def is_not_a_member(error: KafkaError) -> bool:
    """Whether the group no longer knows this member."""
    return error.code() in _NOT_A_MEMBER


def refused(error: KafkaError, settings: Kafka) -> SourceError:
    """Returns the error to raise, with its fix."""
    return SourceError(
        f'kafka refused group "{settings.group_id}": {redacted(error.str(), settings.client_options)}; check the access '
        "rights (ACLs) of the topics and the group, and that no other process has its group.instance.id"
    )
