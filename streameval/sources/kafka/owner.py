"""Maps the topic partitions of a group assignment to the partitions whose state the keeper manages."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from streameval.sources.kafka.topics import known_id
from streameval.sources.protocol import Keeper, Place

log = logging.getLogger(__name__)


class PartitionOwner:
    """See `streameval.sources.kafka.reader.Owner`. A partition is ours from `take` until `drop`."""

    def __init__(
        self,
        topics: tuple[str, ...],
        group: str,
        keeper: Keeper | None,
        began: Callable[[frozenset[int]], None],
        finish: Callable[[], None] = lambda: None,
    ) -> None:
        """`began` is called with the partitions of every assignment, after the keeper; `finish` before the keeper is
        notified of anything, so that everything read before is counted.
        """
        self._topics = topics
        self._group = group
        self._keeper = keeper
        self._began = began
        self._finish = finish
        self._held: frozenset[int] = frozenset()
        self.is_out = False  # all are lost, and nothing was assigned since
        self._starts: dict[Place, int] = {}  # where restored states continue
        self._ids: dict[Place, str] = {}  # the topics that those offsets belong to

    def assigned(self, places: frozenset[Place]) -> Mapping[Place, int]:
        """Drops the partitions that are not in the assignment, takes the new ones."""
        by_topic = {topic: frozenset(p for t, p in places if t == topic) for topic in self._topics}
        impressions, clicks = by_topic[self._topics[0]], by_topic[self._topics[-1]]
        partitions = impressions & clicks
        log.info("group %s: assigned partitions %s", self._group, sorted(partitions))
        self._finish()
        self._drop(self._held - partitions)
        if self._keeper is not None and self._held:
            self._keeper.regain(self._held)
        new = partitions - self._held
        if self._keeper is not None and new:
            self._starts |= self._keeper.take(new)
            restored = self._keeper.topic_ids(new).items()
            self._ids |= {place: topic_id for place, text in restored if (topic_id := known_id(text))}
        self._held |= new
        self.is_out = False
        self._began(partitions)
        return self._starts

    def topic_ids(self) -> Mapping[Place, str]:
        """Returns the ids of the topics that the offsets of restored states belong to."""
        return self._ids

    def revoked(self, places: frozenset[Place]) -> None:
        """They may come back: released, but not dropped yet."""
        self._finish()
        partitions = self._held & {partition for _, partition in places}
        if self._keeper is not None and partitions:
            self._keeper.release(partitions)

    def lost(self, places: frozenset[Place]) -> None:
        """Drops them at once."""
        self._finish()
        partitions = self._held & {partition for _, partition in places}
        if partitions:
            log.warning("group %s: lost partitions %s", self._group, sorted(partitions))
        self._drop(partitions)
        self.is_out = self.is_out or bool(partitions and not self._held)

    def _drop(self, partitions: frozenset[int]) -> None:
        self._held -= partitions
        self._starts = {place: offset for place, offset in self._starts.items() if place[1] not in partitions}
        self._ids = {place: known for place, known in self._ids.items() if place[1] not in partitions}
        if self._keeper is not None and partitions:
            self._keeper.drop(partitions)
