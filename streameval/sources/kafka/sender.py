"""The protocol of a Kafka sender, implemented by `confluent_sender` and `python_sender`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streameval.sources.kafka.options import redacted
from streameval.sources.protocol import SourceError

Headers = Sequence[tuple[str, bytes]]


class Sender(ABC):
    """A producer of one client library. One thread uses it."""

    def __init__(self, bootstrap_servers: str, client_options: Mapping[str, Any]) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._client_options = client_options
        self._failed = ""  # what could not be delivered first, and why

    @abstractmethod
    def connect(self, timeout: float) -> None:
        """Return once a broker has answered. Raises SourceError, which names the address, after `timeout` s without."""

    @abstractmethod
    def send(
        self,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        partition: int | None = None,
        *,
        headers: Headers = (),
        refused: Callable[[], None] | None = None,
    ) -> None:
        """Hand over a message; waits while too many are under way.

        Without `partition`, murmur2 of the key decides (as in every Kafka client), so equal keys meet in the same
        partition number of topics with equal partition counts. `refused` is called, maybe on another thread, when the
        topic does not take a message of this size. Raises SourceError for messages that could not be delivered before.
        """

    @abstractmethod
    def flush(self, timeout: float) -> None:
        """Wait until everything is delivered. Raises SourceError for what is not after `timeout` s."""

    @abstractmethod
    def create_topics(self, names: Sequence[str], partitions: int, timeout: float) -> None:
        """Create topics; those that exist stay as they are. Raises SourceError for one that cannot be created."""

    @abstractmethod
    def close(self) -> None:
        """Drop connections; what is not flushed is dropped. May be called twice."""

    def _check(self) -> None:
        """Raises SourceError for messages that could not be delivered before."""
        if self._failed:
            raise SourceError(self._failed)

    def _undelivered(self, topic: str, why: object, refused: Callable[[], None] | None) -> None:
        """Take note of it; `refused`: who is told instead, when the message was too large."""
        if refused is not None:
            refused()
        elif not self._failed:
            self._failed = f'topic "{topic}": not delivered: {self._said(why)}'

    def _not_created(self, topic: str, why: object) -> SourceError:
        return SourceError(f'topic "{topic}" could not be created: {self._said(why)}')

    def _said(self, why: object) -> str:
        """What the client says, without the secrets of its options."""
        return redacted(why, self._client_options)
