"""The meaning of kafka-python's errors for a reader: access denied, no longer a member of the group, or a log that was
truncated.
"""

from __future__ import annotations

from kafka import errors as kafka_errors

from streameval.settings.tree import Kafka
from streameval.sources.kafka.options import redacted
from streameval.sources.protocol import SourceError

HOPELESS = (
    kafka_errors.AuthorizationError,
    kafka_errors.SaslAuthenticationFailedError,
    kafka_errors.UnsupportedCodecError,
    kafka_errors.CorruptRecordError,
    kafka_errors.FencedInstanceIdError,
)
NOT_A_MEMBER = (
    kafka_errors.CommitFailedError,
    kafka_errors.UnknownMemberIdError,
    kafka_errors.IllegalGenerationError,
    kafka_errors.FencedInstanceIdError,
)


def refused(error: Exception, settings: Kafka) -> SourceError:
    """Returns the error to raise for a hopeless one, with its fix."""
    if isinstance(error, kafka_errors.UnsupportedCodecError):  # its library came with ours, and is gone
        return SourceError(f'kafka: {error}; install the locked packages again, or set kafka.client = "confluent"')
    return SourceError(
        f'kafka at {settings.bootstrap_servers}, group "{settings.group_id}": '
        f"{redacted(error, settings.client_options)}; check the access rights of the topics and the group, "
        "that no other process has its group_instance_id, and kafka.client_options"
    )


def truncated(error: kafka_errors.LogTruncationError) -> SourceError:
    """Returns the error to raise when messages that were read are no longer in the log, with its fix."""
    return SourceError(
        f"{', '.join(f'{p.topic} [{p.partition}]' for p in error.divergent_offsets)}: Kafka has lost messages "
        "that were read already (its log was truncated); start over with an empty store.path and a new "
        "kafka.group_id"
    )
