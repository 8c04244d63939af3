"""The protocol of a Kafka sender, implemented by `confluent_sender` and `python_sender`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streameval.sources.kafka.options import redacted
from streameval.sources.protocol import SourceError

Headers = Sequence[tuple[str, bytes]]
NO_TOPIC = "the brokers have no such topic"


class NoTopicError(SourceError):
    """Nothing is known of a topic: there is none, or the brokers that knew are away."""


class Sender(ABC):
    """A producer of one client library. Used by a single thread."""

    def __init__(self, bootstrap_servers: str, client_options: Mapping[str, Any]) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._client_options = client_options
        self._failed = ""  # the first message that could not be delivered, and why
        self._last_error = ""  # of the client, which tries on

    @abstractmethod
    def connect(self, timeout: float) -> None:
        """Returns once a broker has answered. Raises SourceError, which names the address, if none has after `timeout`
        s.
        """

    @abstractmethod
    def send(
        self,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        partition: int | None = None,
        *,
        headers: Headers = (),
        stored: Callable[[], None] | None = None,
        refused: Callable[[], None] | None = None,
        unusable: Callable[[str], None] | None = None,
    ) -> None:
        """Queues a message; waits while too many are in flight.

        Without `partition`, murmur2 of the key decides (as in every Kafka client), so equal keys go to the same
        partition number of topics with equal partition counts. `stored` is called, maybe on another thread, when
        the brokers have the message, `refused` if the topic does not accept one of this size, and `unusable` with the
        reason if there is no such topic (`NO_TOPIC`), or this user may not write to it. Raises SourceError for messages
        that could not be delivered before; NoTopicError: this one was not queued.
        """

    @abstractmethod
    def serve(self, timeout: float) -> None:
        """Waits for up to `timeout` s while messages are delivered, and has their callbacks called. Any thread may call it.

        Raises SourceError for messages that could not be delivered.
        """

    @abstractmethod
    def flush(self, timeout: float) -> None:
        """Waits until everything is delivered. Raises SourceError if it is not after `timeout` s."""

    @abstractmethod
    def create_topics(self, names: Sequence[str], partitions: int, timeout: float) -> None:
        """Creates topics; those that exist stay as they are. Raises SourceError if one cannot be created."""

    @abstractmethod
    def close(self) -> None:
        """Closes connections; messages that are not flushed are dropped. May be called twice."""

    def late(self, left: int, timeout: float) -> SourceError:
        """The error that messages were not delivered in time."""
        return SourceError(
            f"{self._bootstrap_servers}: {left} messages not delivered within {timeout:.0f} s"
            f"{f' ({self._last_error})' if self._last_error else ''}; check that the brokers run"
        )

    def _check(self) -> None:
        """Raises SourceError for messages that could not be delivered before."""
        if self._failed:
            raise SourceError(self._failed)

    def _undelivered(self, topic: str, why: object, instead: Callable[[], None] | None) -> None:
        """Records the failure; `instead`: called in its place, if the sender of the message wants to hear of this one."""
        if instead is not None:
            instead()
        elif not self._failed:
            self._failed = f'topic "{topic}": not delivered: {self._redacted(why)}'

    def _not_created(self, topic: str, why: object) -> SourceError:
        return SourceError(f'topic "{topic}" could not be created: {self._redacted(why)}')

    def _redacted(self, why: object) -> str:
        """Returns the client's message, without the secrets of its options."""
        return redacted(why, self._client_options)
