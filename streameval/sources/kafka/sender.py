"""What a Kafka client must do to be written with: one protocol, done by `confluent_sender` and `python_sender`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

Headers = Sequence[tuple[str, bytes]]


class Sender(Protocol):
    """A producer of one client library. One thread uses it."""

    def connect(self, timeout: float) -> None:
        """Return once a broker has answered. Raises SourceError, which names the address, after `timeout` s without."""

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

    def flush(self, timeout: float) -> None:
        """Wait until everything is delivered. Raises SourceError for what is not after `timeout` s."""

    def create_topics(self, names: Sequence[str], partitions: int, timeout: float) -> None:
        """Create topics; those that exist stay as they are. Raises SourceError for one that cannot be created."""

    def close(self) -> None:
        """Let go of connections; what is not flushed is dropped. May be called twice."""
