"""Polls the brokers for the topics: how many partitions they have, and which topic id a name has.

A topic that is deleted and recreated has the same name, and offsets that begin at 0 again; only its id (KIP-516) tells.
The clients continue reading it at the old offset and say nothing. So a separate thread asks every `INTERVAL` seconds,
and readers use its last answer, without waiting.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

log = logging.getLogger(__name__)

INTERVAL = 1.0  # seconds between two questions: one small request a second
_PATIENCE = 30.0  # seconds without any answer after which that is said
_CLOSE_TIMEOUT = 2.0  # seconds; a question under way may take longer, and then ends with the process


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as it is now. `id` is None where brokers do not tell (before Kafka 2.8, the embedded one)."""

    id: str | None
    partitions: int


def known_id(text: str | None) -> str | None:
    """An id as Kafka's tools write it, 22 characters; None for none, which brokers may write as zero."""
    return text if text and text.strip("A") else None


class Describer(ABC):
    """Asks the brokers about topics. Used by one thread."""

    @abstractmethod
    def describe(self, names: Sequence[str]) -> Mapping[str, Topic] | None:
        """Those that exist; None when the brokers do not answer, or do not support ids."""

    @abstractmethod
    def close(self) -> None:
        """Drop connections."""


class TopicWatch:
    """The topics as of the last answer."""

    def __init__(self, describer: Describer, names: Sequence[str], interval: float = INTERVAL) -> None:
        self._describer = describer
        self._names = tuple(names)
        self._interval = interval
        self._known: Mapping[str, Topic] | None = None
        self._asked = 0  # questions that were put
        self._done = 0  # of them, those that are over
        self._changed = threading.Condition()
        self._wanted = self._closed = self._said = False
        self._say_at = time.monotonic() + _PATIENCE
        self._thread = threading.Thread(target=self._run, name="kafka-topics", daemon=True)
        self._thread.start()

    @property
    def known(self) -> Mapping[str, Topic] | None:
        """The topics that existed at the last answer; None before the first."""
        return self._known

    def ask(self, timeout: float) -> Mapping[str, Topic] | None:
        """What a question says that is put after this call began; after `timeout` s without an answer, the last one."""
        deadline = time.monotonic() + timeout
        with self._changed:
            mine = self._asked + 1
            self._wanted = True
            self._changed.notify_all()
            while self._done < mine and not self._closed and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
        return self._known

    def close(self) -> None:
        """Ask no more. May be called twice."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(_CLOSE_TIMEOUT)

    def _run(self) -> None:
        try:
            while not self._closed:
                with self._changed:
                    self._asked += 1
                    self._wanted = False
                try:
                    found = self._describer.describe(self._names)
                except Exception as error:  # a thread that ends would leave everybody with the last answer for ever
                    log.warning("kafka: the topics cannot be described: %s", error)
                    found = None
                self._say_unknown(found)
                with self._changed:
                    self._known = self._known if found is None else found
                    self._done = self._asked
                    self._changed.notify_all()
                    self._changed.wait_for(lambda: self._wanted or self._closed, self._interval)
        finally:
            self._describer.close()

    def _say_unknown(self, found: Mapping[str, Topic] | None) -> None:
        """Once: that nobody would notice a recreated topic."""
        if self._said:
            return
        if found is None and self._known is None and time.monotonic() > self._say_at:
            log.warning(
                "kafka: the brokers do not describe the topics (is this user allowed to?): a topic that is "
                "deleted and recreated will not be noticed"
            )
            self._said = True
        elif found and all(topic.id is None for topic in found.values()):
            log.info(
                "kafka: the brokers report no topic ids: a topic that is deleted and recreated will not be noticed"
            )
            self._said = True
