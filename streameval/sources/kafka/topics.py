"""Polls the brokers for the topics: how many partitions they have, and which topic id a name has.

A topic that is deleted and recreated has the same name, and offsets that begin at 0 again; only its id (KIP-516)
differs. The clients continue reading it at the old offset without an error. So a separate thread asks every `INTERVAL`
seconds, and readers use its last answer, without waiting. Every `GROUP_INTERVAL` seconds it also asks who else reads these
topics in our group: another program with our `kafka.group_id` gets some of the partitions, and nobody counts them.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from streameval.sources.protocol import Place

log = logging.getLogger(__name__)

INTERVAL = 1.0  # seconds between two requests: one small request a second
GROUP_INTERVAL = 10.0  # seconds between two requests about the group
_PATIENCE = 30.0  # seconds without any answer after which that is logged
_SAY = 30.0  # seconds between two log lines about partitions that are not read
_CLOSE_TIMEOUT = 2.0  # seconds; a request in progress may take longer, and then ends with the process


NO_LEADER = -1  # instead of a broker: a partition has no leader


@dataclass(frozen=True, slots=True)
class Topic:
    """The current state of a topic. `id` is None if brokers do not report it (before Kafka 2.8, the embedded one)."""

    id: str | None
    partitions: int
    leaders: Mapping[int, int] = field(default_factory=dict)  # by partition: the broker that leads it, or NO_LEADER


def leader_of(topics: Mapping[str, Topic], place: Place) -> int | None:
    """Returns the broker that leads a place, or NO_LEADER; None if that is not known."""
    topic = topics.get(place[0])
    return None if topic is None else topic.leaders.get(place[1])


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a consumer group, and what it was given, as (topic, partition)."""

    client_id: str
    host: str
    places: frozenset[Place]


def known_id(text: str | None) -> str | None:
    """Returns an id as Kafka's tools write it, 22 characters; None if there is none, which brokers may write as
    zero. librdkafka writes + and / where they have - and _, and so do checkpoints of earlier versions.
    """
    return text.replace("+", "-").replace("/", "_") if text and text.strip("A") else None


class Describer(ABC):
    """Asks the brokers about topics and a group. Used by a single thread."""

    client_id: str  # of our own members

    @abstractmethod
    def describe(self, names: Sequence[str]) -> Mapping[str, Topic] | None:
        """Returns the topics that exist; None if the brokers do not answer, or do not support ids."""

    @abstractmethod
    def members(self, group: str) -> Iterable[GroupMember]:
        """Those of a group; none when the brokers do not say."""

    @abstractmethod
    def close(self) -> None:
        """Closes connections."""

    def strangers(self, group: str, topics: Sequence[str]) -> Mapping[str, int]:
        """Members that are none of ours: how many partitions of the topics each has, by what it calls itself and where it runs."""
        found = Counter[str]()
        for one in self.members(group):
            held = {partition for topic, partition in one.places if topic in topics}
            if held and one.client_id != self.client_id:
                found[f"{one.client_id} at {one.host.lstrip('/')}"] += len(held)
        return dict(found)


class TopicWatch:
    """The topics as of the last answer."""

    def __init__(self, describer: Describer, names: Sequence[str], interval: float = INTERVAL, group: str = "") -> None:
        """`group`: whose members are described, too; empty: nobody's."""
        self._describer = describer
        self._names = tuple(names)
        self._interval = interval
        self._group, self._group_at = group, time.monotonic()  # when it is described next
        self.strangers: Mapping[str, int] = {}  # see `Describer.strangers`; as of the last look
        self._known: Mapping[str, Topic] | None = None
        self._answered = -math.inf
        self._asked = 0  # requests made
        self._done = 0  # requests that have ended
        self._changed = threading.Condition()
        self._wanted = self._closed = self._warned = False
        self._say_unknown_at = time.monotonic() + _PATIENCE
        self._say_unread_at = 0.0
        self._thread = threading.Thread(target=self._run, name="kafka-topics", daemon=True)
        self._thread.start()

    @property
    def known(self) -> Mapping[str, Topic] | None:
        """The topics that existed at the last answer; None before the first."""
        return self._known

    def missing(self) -> frozenset[str]:
        """Returns the topics that did not exist at the last answer."""
        return frozenset() if self._known is None else frozenset(self._names) - self._known.keys()

    def unpaired(self) -> Mapping[str, int]:
        """Returns how many partitions more than another topic each had at the last answer; no entry: none."""
        known = self._known
        if known is None:
            return {}
        counts = {name: known[name].partitions if name in known else 0 for name in self._names}
        fewest = min(counts.values())
        return {name: count - fewest for name, count in counts.items() if count > fewest}

    def in_common(self) -> int | None:
        """Returns how many partitions every topic had at the last answer, 0 while one is gone; None before the first."""
        if self._known is None:
            return None
        return 0 if self.missing() else min(topic.partitions for topic in self._known.values())

    def say_unread(self) -> None:
        """Logs topics that are gone, and partitions that only one has, while that lasts: at once, then every 30 seconds.
        To be called at every poll.
        """
        now = time.monotonic()
        if now < self._say_unread_at:
            return
        unpaired, missing = self.unpaired(), self.missing()
        self._say_unread_at = now + (_SAY if unpaired or missing else 1.0)
        if missing:
            log.warning("waiting for topic %s, which was deleted", " and ".join(map(repr, sorted(missing))))
        for topic, count in unpaired.items():
            (other,) = set(self._names) - {topic}
            log.warning(
                'topic "%s" has %d partitions that "%s" lacks: they are not read until it has them; reading then '
                "resumes where it stopped, and new ones begin at their beginning",
                topic,
                count,
                other,
            )

    @property
    def silence(self) -> float:
        """Seconds since the last answer; infinite before the first."""
        return time.monotonic() - self._answered

    def ask(self, timeout: float) -> Mapping[str, Topic] | None:
        """Returns the answer to a request made after this call began; after `timeout` s without one, the last
        answer.
        """
        deadline = time.monotonic() + timeout
        with self._changed:
            mine = self._asked + 1
            self._wanted = True
            self._changed.notify_all()
            while self._done < mine and not self._closed and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
        return self._known

    def close(self) -> None:
        """Stops asking. May be called twice."""
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
                except Exception as error:  # if the thread ended, the last answer would be used forever
                    log.warning("kafka: the topics cannot be described: %s", error)
                    found = None
                self._say_unknown(found)
                with self._changed:
                    if found is not None:
                        self._known, self._answered = found, time.monotonic()
                    self._done = self._asked
                    self._changed.notify_all()
                self._look_at_group()
                with self._changed:
                    self._changed.wait_for(lambda: self._wanted or self._closed, self._interval)
        finally:
            self._describer.close()

    def _look_at_group(self) -> None:
        if not self._group or time.monotonic() < self._group_at:
            return
        try:
            found = self._describer.strangers(self._group, self._names)
        except Exception as error:  # see above
            log.warning("kafka: the group cannot be described: %s", error)
            found = {}
        for who in found.keys() - self.strangers.keys():
            log.warning(
                "group %s: %s is no streameval and reads %d partitions, which are not counted; give it a group of its own",
                self._group,
                who,
                found[who],
            )
        self.strangers = found
        self._group_at = time.monotonic() + GROUP_INTERVAL

    def _say_unknown(self, found: Mapping[str, Topic] | None) -> None:
        """Logs once that a recreated topic would not be noticed."""
        if self._warned:
            return
        if found is None and self._known is None and time.monotonic() > self._say_unknown_at:
            log.warning(
                "kafka: the brokers do not describe the topics (is this user allowed to?): a topic that is "
                "deleted and recreated will not be noticed"
            )
            self._warned = True
        elif found and all(topic.id is None for topic in found.values()):
            log.info(
                "kafka: the brokers report no topic ids: a topic that is deleted and recreated will not be noticed"
            )
            self._warned = True
