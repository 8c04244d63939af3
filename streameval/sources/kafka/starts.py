"""Where reading of the places of an assignment begins, a place being a (topic, partition).

One with a known offset, of a checkpoint or of the group, begins there, whether it has a leader or not: without one it is
as if it had lost it while it was read. One that begins at an end of its log waits until a leader says where that is.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from streameval.sources.kafka.positions import Positions
from streameval.sources.kafka.topics import NO_LEADER, Topic, leader_of
from streameval.sources.protocol import Place

log = logging.getLogger(__name__)

_Edges = tuple[int, int]  # the first offset of a log, and the next one
# The group stores offsets from 0 on, so an end that is not known is 0 with this note, and its time in ms.
_NOTE = "begins at the end that it had at "


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a place begins, as far as it can be said without its leader: at the beginning of its log, if nothing else is
    set.
    """

    offset: int | None = None  # there
    end: int | None = None  # at the end that its log had at this time, in ms
    skipped: int | None = None  # the offset of the group, if reading does not continue there
    of_group: bool = False  # the offset is the group's


Offsets = Mapping[Place, int | Origin]  # of a group


def noted(begin: int | Origin) -> tuple[int, str]:
    """Returns what a group stores of where a place begins: an offset and a note."""
    return (begin, "") if isinstance(begin, int) else (0, f"{_NOTE}{begin.end}")


def known(offset: int, note: str | None) -> int | Origin | None:
    """Returns what a group has stored; None: nothing."""
    if note and note.startswith(_NOTE):
        return Origin(end=int(note.removeprefix(_NOTE)))
    return offset if offset >= 0 else None


class AskEnds(Protocol):
    """Asks the leader of a place."""

    def __call__(self, place: Place, then: int | None = None, /) -> _Edges | None:
        """Returns the first offset of its log, and the next one: that at this time (ms), if one is given. None: no answer."""


class Ends:
    """The ends of logs, as their leaders tell them. Each is asked for once, and none of a leader that has not answered."""

    def __init__(self, ask: AskEnds, topics: Mapping[str, Topic], now: int) -> None:
        """`now`: ms of the wall clock."""
        self._ask, self._topics = ask, topics
        self.now = now
        self._told: dict[tuple[Place, int | None], _Edges | None] = {}
        self._silent: set[int | None] = {NO_LEADER}

    def __call__(self, place: Place, then: int | None = None) -> _Edges | None:
        """Returns the first and the next offset, the latter at a time before now, if one is given; None: nobody says."""
        then = None if then == self.now else then
        if (place, then) not in self._told:
            leader = leader_of(self._topics, place)
            told = None
            if leader not in self._silent:
                told = self._ask(place) if then is None else self._ask(place, then)
            if told is None:
                self._silent.add(leader)
            self._told[place, then] = told
        return self._told[place, then]


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
        self.to_commit: Offsets = {}  # at the first start of a group: where all places of its topics begin
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

    def ends(self, ask: AskEnds, topics: Mapping[str, Topic]) -> Ends:
        """What leaders say now."""
        return Ends(ask, topics, round(self._clock() * 1_000))

    def remembered(self) -> dict[Place, Origin]:
        """Where those that wait begin."""
        return dict(self._waiting)

    def decide(
        self,
        places: Iterable[Place],
        kept: Mapping[Place, int],
        committed: Callable[[list[Place]], Offsets],
        ends: Ends,
        topics: Mapping[str, Topic],
    ) -> dict[Place, Origin]:
        """Returns where these begin; `kept`: the offsets that their owner knows, `committed` asks for those of the group."""
        origins = {place: Origin(kept[place]) if place in kept else self._waiting.get(place) for place in places}
        unknown = [place for place, origin in origins.items() if origin is None]
        decided = {place: origin for place, origin in origins.items() if origin is not None}
        return decided | self._of_unknown(unknown, kept, committed, ends, topics)

    def begin(
        self, origins: Mapping[Place, Origin], recreated: Mapping[Place, tuple[str, str]], ends: Ends
    ) -> dict[Place, int]:
        """Returns the offsets at which these begin, except those that have to wait; `recreated`: topic ids, before and
        now.
        """
        starts, skipped = {}, {}
        for place, origin in origins.items():
            told = ends(place, origin.end)
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
            return self._positions.go_on(place, origin.offset, low, high, of_group=origin.of_group)
        return low if origin.end is None else high

    def _of_unknown(
        self,
        unknown: list[Place],
        kept: Mapping[Place, int],
        committed: Callable[[list[Place]], Offsets],
        ends: Ends,
        topics: Mapping[str, Topic],
    ) -> dict[Place, Origin]:
        """Returns where places begin that nothing is known about here.

        If the group, or their owner, has offsets only for other partitions of their topic, they were added since: they
        begin at their beginning, or what was written before this group noticed them would be skipped. A group forgets its
        offsets some days after its last member has left, and a new one has none; the owner's checkpoints stay.
        """
        if not unknown:
            return {}
        last: dict[str, int] = {}
        for topic, partition in unknown:
            count = topics[topic].partitions if topic in topics else 0
            last[topic] = max(last.get(topic, 0), partition + 1, count)
        before = {topic: self._counts.setdefault(topic, count) for topic, count in last.items()}
        of_group = committed([(topic, p) for topic, count in last.items() for p in range(count)])
        of_owner = {place: offset for place, offset in kept.items() if place not in of_group}
        read = {topic for topic, _ in (*of_group, *of_owner)}
        at_end = Origin() if self._earliest else Origin(end=ends.now)
        origins, added, new = {}, [], []
        for place in unknown:
            offset = of_group.get(place)
            if isinstance(offset, Origin):
                origins[place] = at_end if self._earliest else offset
            elif offset is not None:
                origins[place] = Origin(offset, of_group=True) if self._committed else replace(at_end, skipped=offset)
            elif place[0] in read or place[1] >= before[place[0]]:
                origins[place] = Origin()
                added.append(place)
            else:
                origins[place] = at_end
                new.append(place)
        if not self._earliest:  # so that other members do not mistake theirs for added ones
            begun = [(t, p) for t, count in last.items() if t not in read for p in range(count)]
            self.to_commit = {**of_owner, **_begun(begun, frozenset(added), ends)}
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


def _begun(places: Iterable[Place], added: frozenset[Place], ends: Ends) -> Offsets:
    """Returns where places begin that a group has no offsets of: `added` ones at their beginning, the others at their end."""
    found: dict[Place, int | Origin] = {}
    for place in places:
        told = ends(place)
        if told is not None:
            found[place] = told[0] if place in added else told[1]
        elif place not in added:
            found[place] = Origin(end=ends.now)
    return found
