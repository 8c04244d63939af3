"""Where a reader is in every topic partition, and what is missing before that."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterable, Mapping

from streameval.sources.kafka.reader import MessageRun
from streameval.sources.kafka.topics import Topic
from streameval.sources.protocol import Place, SourceError

log = logging.getLogger(__name__)


class Positions:
    """The next offset of every topic partition, for a reader.

    A position belongs to the state in this process's memory, which survives a rebalance that gives the partition back;
    so it is forgotten only if an assignment comes without the partition, or if it was lost.
    """

    def __init__(self) -> None:
        self.next: dict[Place, int] = {}
        self.lost: dict[Place, int] = {}  # offsets that were deleted, or skipped, before they were read
        self.empty: dict[Place, int] = {}  # offsets between messages without one: compaction, transactions
        self.recreated: dict[str, int] = {}  # how often a topic was found recreated
        self.ids: dict[Place, str] = {}  # of the topics that the positions belong to
        self.gaps: dict[Place, str] = {}  # what is missing before a position, until it is reported
        self._seen: dict[str, str] = {}  # the id that a topic had when it was last checked

    def regained(self, places: frozenset[Place]) -> dict[Place, int]:
        """Returns the positions that are still valid after an assignment."""
        self.forget(self.next.keys() - places)
        return dict(self.next)

    def forget(self, places: Iterable[Place]) -> None:
        """Drops the positions of these places."""
        for place in tuple(places):
            self.next.pop(place, None)
            self.ids.pop(place, None)

    def advance(self, run: MessageRun) -> MessageRun | None:
        """Advances past a run; returns it without messages that were delivered before (a rebalance can repeat them), or
        None.
        """
        due = self.next.get(run.place, 0)
        if run.offsets[0] < due:
            if run.end <= due:
                return None
            run = run.part(bisect_left(run.offsets, due))
        leapt = run.end - due - len(run.offsets)
        if leapt > 0:
            self.empty[run.place] = self.empty.get(run.place, 0) + leapt
        self.next[run.place] = run.end
        return run

    def reach(self, place: Place, end: int) -> None:
        """Advances to the end of what can be read: no message is left before it."""
        if (leapt := end - self.next[place]) > 0:
            self.empty[place] = self.empty.get(place, 0) + leapt
            self.next[place] = end

    def go_on(self, place: Place, due: int, low: int, high: int, *, of_group: bool = False) -> int:
        """Returns where to read if `due` was wanted and Kafka has [low, high): there, or after what it has deleted.

        Deleted messages are counted, and logged at error level. Raises SourceError if `due` is beyond the end, because
        later messages would not be the intended ones. `of_group`: nothing was read here, the group has committed `due`.
        """
        name = f"{place[0]} [{place[1]}]"
        if due > high and of_group:
            raise SourceError(
                f"{name}: the offset {due} that kafka.group_id has committed lies beyond the end of Kafka's log, {high}: it was set to that, or the topic was deleted and recreated since, or Kafka has lost messages; set it to "
                f"one from {low} to {high} (kafka-consumer-groups.sh --reset-offsets, while nobody reads), or set another kafka.group_id, which begins at kafka.start"
            )
        if due > high:
            raise SourceError(
                f"{name}: to be read from offset {due}, but Kafka's log ends at {high}: the topic was deleted and recreated, or Kafka has lost messages that were read already; start over, with an empty store.path and a "
                "new kafka.group_id, or read a topic of another name"
            )
        if due < low:
            self._pass_over(place, low - due, "were deleted before they were read")
            log.error(
                "%s: offsets %d to %d were deleted before they were read: %d messages lost, continuing at %d; keep "
                "messages longer (retention.ms, retention.bytes)",
                name,
                due,
                low - 1,
                low - due,
                low,
            )
        return max(due, low)

    def after_recreation(self, place: Place, before: str, now: str, low: int, high: int, policy: str) -> int:
        """Returns where to read a topic that was deleted and recreated: `policy` is `kafka.on_recreated_topic`.

        Raises SourceError if that is "stop".
        """
        topic, partition = place
        what = f'topic "{topic}" was deleted and recreated (id {before}, now {now})'
        if policy == "stop":
            raise SourceError(
                f'{what}, and kafka.on_recreated_topic = "stop": set it to "beginning" or "end" to continue there, '
                "or start over with an empty store.path and a new kafka.group_id"
            )
        if self._seen.get(topic) != now:
            self.recreated[topic] = self.recreated.get(topic, 0) + 1
            said = "%s: unread messages of the old one are lost; the new one is read from its %s (kafka.on_recreated_topic)"
            log.warning(said, what, policy)
        self._seen[topic] = now
        self.gaps[place] = f"topic {topic} was deleted and recreated"
        if policy == "end" and high > low:
            self._pass_over(place, high - low, "were skipped in a topic that was recreated")
            return high
        log.info("%s [%d]: begins at offset %d of the new topic", topic, partition, low)
        return low

    def moved(self, topic: str) -> str | None:
        """Returns the id that a topic had when it was last checked."""
        return self._seen.get(topic)

    def look(self, topics: Mapping[str, Topic]) -> None:
        """Records the current topics."""
        self._seen |= {name: topic.id for name, topic in topics.items() if topic.id is not None}

    def skip(self, place: Place, count: int) -> None:
        """Counts messages that are skipped where a partition starts empty; no result has a gap, as none began before it."""
        if count:
            self.lost[place] = self.lost.get(place, 0) + count

    def _pass_over(self, place: Place, count: int, why: str) -> None:
        self.skip(place, count)
        self.gaps[place] = f"{count} messages of {place[0]} [{place[1]}] {why}"
