"""Where reading of the places of an assignment begins, a place being a (topic, partition).

One with a known offset, of a checkpoint or of the group, begins there, whether it has a leader or not: without one it is
as if it had lost it while it was read. One that begins at an end of its log waits until a leader says where that is.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from streameval.sources.kafka.positions import Positions
from streameval.sources.kafka.topics import NOBODY, Topic, leader_of
from streameval.sources.protocol import Place

log = logging.getLogger(__name__)

# The group's offset of a place that had no leader when the group began at the ends: it was not added since. The group stores
# only offsets from 0 on, so that is 0 with a note.
NOT_KNOWN = -1
NOTE = "not known yet: it had no leader"

_Edges = tuple[int, int]  # the first offset of a log, and the next one


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a place begins, as far as it can be said without its leader: at the beginning of its log, if nothing else is
    set.
    """

    offset: int | None = None  # there
    end: int | None = None  # at the end that its log had at this time, in ms
    skipped: int | None = None  # the offset of the group, if reading does not continue there


class AskEnds(Protocol):
    """Asks the leader of a place."""

    def __call__(self, place: Place, then: int | None = None, /) -> _Edges | None:
        """Returns the first offset of its log, and the next one: that at this time (ms), if one is given. None: no answer."""


class Ends:
    """The ends of logs, as their leaders tell them. Each is asked for once, and none of a leader that has not answered."""

    def __init__(self, ask: AskEnds, topics: Mapping[str, Topic], origins: Mapping[Place, Origin]) -> None:
        """`origins`: of the places that are to begin at an end that is past."""
        self._ask, self._topics, self._origins = ask, topics, origins
        self._told: dict[Place, _Edges | None] = {}
        self._silent: set[int | None] = {NOBODY}

    def __call__(self, place: Place) -> _Edges | None:
        """Returns the first and the next offset; None: nobody says."""
        if place not in self._told:
            leader = leader_of(self._topics, place)
            self._told[place] = None if leader in self._silent else self._asked(place)
            if self._told[place] is None:
                self._silent.add(leader)
        return self._told[place]

    def _asked(self, place: Place) -> _Edges | None:
        origin = self._origins.get(place)
        return self._ask(place) if origin is None or origin.end is None else self._ask(place, origin.end)


class Starts:
    """Decides where places begin, and remembers it of those that wait for a leader."""

    def __init__(
        self,
        positions: Positions,
        *,
        committed: bool,
        earliest: bool,
        recreated: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """See `Member`; `clock`: wall-clock seconds."""
        self.to_commit: dict[Place, int] = {}  # at the first start of a group: where all places of its topics begin
        self._positions = positions
        self._committed, self._earliest, self._recreated = committed, earliest, recreated
        self._clock = clock
        self._counts: dict[str, int] = {}  # partitions of a topic when it was first seen
        self._waiting: dict[Place, Origin] = {}

    def see(self, topics: Mapping[str, Topic]) -> None:
        """Notes how many partitions topics have when they are first seen."""
        self._counts = {name: topic.partitions for name, topic in topics.items()} | self._counts

    def forget(self, places: Iterable[Place]) -> None:
        """Drops what is remembered of these."""
        for place in tuple(places):
            self._waiting.pop(place, None)

    def remembered(self) -> dict[Place, Origin]:
        """Where those that wait begin."""
        return dict(self._waiting)

    def decide(
        self,
        places: Iterable[Place],
        kept: Mapping[Place, int],
        committed: Callable[[list[Place]], Mapping[Place, int]],
        ends: Ends,
        topics: Mapping[str, Topic],
    ) -> dict[Place, Origin]:
        """Returns where these begin; `kept`: the offsets that their owner knows, `committed` asks for those of the group."""
        origins = {place: Origin(kept[place]) if place in kept else self._waiting.get(place) for place in places}
        unknown = [place for place, origin in origins.items() if origin is None]
        decided = {place: origin for place, origin in origins.items() if origin is not None}
        return decided | self._of_unknown(unknown, committed, ends, topics)

    def begin(
        self, origins: Mapping[Place, Origin], recreated: Mapping[Place, tuple[str, str]], ends: Ends
    ) -> dict[Place, int]:
        """Returns the offsets at which these begin, except those that have to wait; `recreated`: topic ids, before and
        now.
        """
        starts, skipped = {}, {}
        for place, origin in origins.items():
            told = ends(place)
            start = origin.offset if told is None else self._start(place, origin, recreated.get(place), *told)
            if start is None:
                self._waiting[place] = origin
                continue
            self._waiting.pop(place, None)
            starts[place] = start
            if origin.skipped is not None and place not in recreated:
                skipped[place] = max(0, start - origin.skipped)
        self._say_skipped(skipped)
        return starts

    def _start(self, place: Place, origin: Origin, recreated: tuple[str, str] | None, low: int, high: int) -> int:
        if recreated is not None:
            return self._positions.after_recreation(place, *recreated, low, high, self._recreated)
        if origin.offset is not None:
            return self._positions.go_on(place, origin.offset, low, high)
        return low if origin.end is None else high

    def _of_unknown(
        self,
        unknown: list[Place],
        committed: Callable[[list[Place]], Mapping[Place, int]],
        ends: Ends,
        topics: Mapping[str, Topic],
    ) -> dict[Place, Origin]:
        """Returns where places begin that nothing is known about here.

        If the group has offsets only for other partitions of their topic, they were added since: they begin at their
        beginning, or what was written before this group noticed them would be skipped.
        """
        if not unknown:
            return {}
        last: dict[str, int] = {}
        for topic, partition in unknown:
            count = topics[topic].partitions if topic in topics else 0
            last[topic] = max(last.get(topic, 0), partition + 1, count)
        before = {topic: self._counts.setdefault(topic, count) for topic, count in last.items()}
        of_group = committed([(topic, p) for topic, count in last.items() for p in range(count)])
        read = {topic for topic, _ in of_group}
        now = None if self._earliest else round(self._clock() * 1_000)
        origins, added, new = {}, [], []
        for place in unknown:
            offset = of_group.get(place, NOT_KNOWN)
            if self._committed and offset != NOT_KNOWN:
                origins[place] = Origin(offset)
            elif place not in of_group and (place[0] in read or place[1] >= before[place[0]]):
                origins[place] = Origin()
                added.append(place)
            else:
                origins[place] = Origin(end=now, skipped=None if offset == NOT_KNOWN else offset)
                if offset == NOT_KNOWN:
                    new.append(place)
        if not self._earliest:  # so that other members do not mistake theirs for added ones
            begun = [(t, p) for t, count in last.items() if t not in read for p in range(count)]
            self.to_commit = _known(begun, frozenset(added), ends)
        for words, some in (("added since, from the beginning", added), ("nothing known, from kafka.start", new)):
            if some:
                log.info("%s: %s", words, named(some))
        return origins

    def _say_skipped(self, skipped: Mapping[Place, int]) -> None:
        if not skipped:
            return
        for place, count in skipped.items():
            self._positions.skip(place, count)
        log.warning(
            "no checkpoint in store.path of partitions that the group has read: they start empty, from kafka.start, "
            "and %d messages that follow the group's offsets are skipped: %s",
            sum(skipped.values()),
            named(skipped),
        )


def named(places: Iterable[Place]) -> str:
    """Places in words."""
    return ", ".join(f"{topic} [{partition}]" for topic, partition in places)


def _known(places: Iterable[Place], added: frozenset[Place], ends: Ends) -> dict[Place, int]:
    """Returns where places begin that a group has no offsets of: `added` ones at their beginning, the others at their end."""
    found = {}
    for place in places:
        told = ends(place)
        if told is not None:
            found[place] = told[0] if place in added else told[1]
        elif place not in added:
            found[place] = NOT_KNOWN
    return found
