"""Before anything is read: waits until a broker answers, then until the topics exist, and compares their partitions.

No answer for `timeout` seconds (20 as a rule) is an error, because a wrong address would never be
noticed. A topic that does not exist yet is none: its producer may come later. That is logged every 30 seconds.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

from streameval.sources.kafka.options import no_broker
from streameval.sources.kafka.reader import KafkaReader, UnreachableError
from streameval.sources.protocol import SourceError

log = logging.getLogger(__name__)

_SAY = 30.0  # seconds between two log lines about topics that do not exist


class AwaitedTopics:
    """The topics of impressions and clicks, or the one with both, until they can be read."""

    def __init__(self, reader: KafkaReader, topics: Sequence[str], bootstrap_servers: str, timeout: float) -> None:
        self._reader = reader
        self._topics = topics
        self._servers = bootstrap_servers
        self._timeout = timeout
        self._deadline: float | None = None  # of the first answer, from the first request on
        self._counts: Mapping[str, int] = {}  # partitions of those that exist
        self._say_at = 0.0

    def answered(self, wait: float) -> bool:
        """Asks how many partitions the topics have; returns False if no broker has answered yet, and raises SourceError
        if it is too late for that.
        """
        self._deadline = self._deadline or time.monotonic() + self._timeout
        try:
            self._counts = self._reader.partition_counts(self._topics, max(wait, min(2.0, self._timeout)))
        except UnreachableError as error:
            if time.monotonic() < self._deadline:
                return False
            raise no_broker(self._servers, self._timeout, str(error)) from None
        self._deadline = float("inf")  # later outages are waited out
        return True

    def missing(self) -> frozenset[str]:
        """Returns the topics that did not exist at the last answer."""
        return frozenset(self._topics) - self._counts.keys()

    def can_be_read(self, wait: float) -> bool:
        """Asks again; returns whether all topics exist, after `wait` s or one if not. Raises SourceError if their
        partitions differ.
        """
        if not self.answered(wait):
            return False
        if self.missing():
            self._say_missing()
            time.sleep(min(wait, 1.0))
            return False
        self._check_counts()
        return True

    def _say_missing(self) -> None:
        now = time.monotonic()
        if now >= self._say_at:
            self._say_at = now + _SAY
            missing = [repr(topic) for topic in self._topics if topic not in self._counts]
            log.warning("waiting for topic %s, which does not exist yet", " and ".join(missing))

    def _check_counts(self) -> None:
        impressions, clicks = self._topics[0], self._topics[-1]
        if self._counts[impressions] != self._counts[clicks]:
            more = max(self._counts[impressions], self._counts[clicks])
            raise SourceError(
                f'topic "{impressions}" has {self._counts[impressions]} partitions but "{clicks}" has '
                f"{self._counts[clicks]}: an impression and its click must meet in the same partition number; give "
                f"both {more} partitions and key both by user id"
            )
