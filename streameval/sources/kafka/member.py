"""What a member of a group holds, and where it stands in it: the part of a reader that knows no client library.

A rebalance is a conversation of three words. *Revoked*: the state of these partitions is to be written, they may come
back. *Lost*: they are gone, whatever is in memory is worth nothing. *Assigned*: this is all there is now. The client
says them from inside its poll, between messages of before and of after; so a message is delivered only while its
partition is open, which it is from the beginning of an assignment until one of the two other words.

Being lost is noticed late: a process that was stopped (SIGSTOP, a paused virtual machine) wakes up with messages in its
queues and without knowing that others have had its partitions since. So when time has passed that nobody here saw, the
membership is in doubt, and a reader asks the group whether it holds before it delivers anything.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from streameval.sources.kafka.pacing import Place
from streameval.sources.kafka.reader import Owner, Run
from streameval.sources.protocol import SourceError

log = logging.getLogger(__name__)

# Seconds unseen after which membership is asked about. Shorter: the question, one round trip, comes after every slow
# batch; longer: it must stay below the session timeout less a heartbeat's interval, two thirds of it by default.
AWAY = 10.0


def seconds() -> float:
    """A clock that, unlike the monotonic one, does not stand still while the machine is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True, slots=True)
class Generation:
    """Of the group, as the member knew it when it was given partitions."""

    number: int
    member: str  # its id, new after it was thrown out

    def follows(self, before: Generation | None) -> bool:
        """True when no other member can have held our partitions between `before` and this."""
        return before is not None and self.member == before.member and self.number - before.number in (0, 1)


class Positions:
    """The next offset of every topic partition, for a reader.

    A position goes with the state in this process' memory, which survives a rebalance that gives the partition back;
    so it is forgotten only when an assignment comes without the partition, or when it was lost.
    """

    def __init__(self) -> None:
        self.next: dict[Place, int] = {}
        self.lost: dict[Place, int] = {}  # offsets that Kafka deleted before they were read

    def regained(self, places: frozenset[Place]) -> dict[Place, int]:
        """The positions that still hold after an assignment."""
        self.next = {place: offset for place, offset in self.next.items() if place in places}
        return dict(self.next)

    def forget(self, places: Iterable[Place]) -> None:
        """These have no position any more."""
        for place in places:
            self.next.pop(place, None)

    def advance(self, run: Run) -> Run | None:
        """Move past a run; what remains of it when what was delivered before (a rebalance can repeat it) is cut off."""
        due = self.next.get(run.place, 0)
        if run.offsets[0] < due:
            keep = [i for i, offset in enumerate(run.offsets) if offset >= due]
            if not keep:
                return None
            run = Run(run.topic, run.partition, run.values[keep[0] :], run.offsets[keep[0] :])
        self.next[run.place] = run.offsets[-1] + 1
        return run

    def go_on(self, place: Place, due: int, low: int, high: int) -> int:
        """Where to read when `due` was asked for and Kafka has [low, high): there, or behind what it has deleted.

        What was deleted is counted and said at error level. Raises SourceError when `due` is beyond the end: what
        would come is not what was meant.
        """
        name = f"{place[0]} [{place[1]}]"
        if due > high:
            raise SourceError(
                f"{name}: to be read from offset {due}, but Kafka's log ends at {high}: the topic was deleted and made "
                "again, or Kafka has lost messages that were read already; begin anew, with an empty store.path and a "
                "new kafka.group_id, or read a topic of another name"
            )
        if due < low:
            self.lost[place] = self.lost.get(place, 0) + low - due
            log.error(
                "%s: offsets %d to %d were deleted before they were read: %d messages lost, going on at %d; keep "
                "messages longer (retention.ms, retention.bytes)",
                name, due, low - 1, low - due, low,
            )  # fmt: skip
        return max(due, low)


class Member:
    """Holds what the group has assigned to this member, and asks its owner what to do with it."""

    def __init__(
        self, owner: Owner, away: float, *, committed: bool, earliest: bool, clock: Callable[[], float] = seconds
    ) -> None:
        """`away`: seconds unseen that may cost the membership. `committed`, `earliest`: where unknown ones begin."""
        self.positions = Positions()
        self.assignment: frozenset[Place] = frozenset()  # the last one begun; kept during a rebalance
        self.open: frozenset[Place] = frozenset()  # whose messages may be delivered now
        self.given: frozenset[Place] | None = None  # an assignment that is not begun yet
        self._held: frozenset[Place] = frozenset()  # what the owner was told to be ours, and not lost
        self._owner = owner
        self._committed, self._earliest = committed, earliest
        self._generation: Generation | None = None
        self._failure: Exception | None = None
        self._away = away
        self._clock = clock
        self._seen = clock()
        self._doubt = False

    @property
    def doubtful(self) -> bool:
        """True when this process may have been stopped for long enough to be thrown out of the group."""
        self.look()
        return self._doubt

    def look(self) -> None:
        """To be called all the time while polling: what passes between two calls has passed unseen."""
        now = self._clock()
        self._doubt |= now - self._seen > self._away
        self._seen = now

    def confirm(self) -> None:
        """The group has said that we are a member of it."""
        self._doubt = False
        self.look()

    def assign(self, places: frozenset[Place], generation: Generation | None = None) -> None:
        """A whole assignment has come. `generation`: its own, where every rebalance revokes all partitions.

        When another generation of the group went by in between, ours may have been another member's in it.
        """
        if generation is not None:
            if self._held and not generation.follows(self._generation):
                self.lose(self._held)
            self._generation = generation
            self._doubt = False  # the group has just spoken to us, and what was lost before is known by now
        self.given = places

    def revoke(self, places: frozenset[Place]) -> None:
        """The group asks for these. They were ours until now, unless nobody was here to see."""
        if self.doubtful:
            self.lose(places)
            return
        self.given = None
        self.open -= places
        self._tell(self._owner.revoked, places & self._held)

    def lose(self, places: frozenset[Place]) -> None:
        """These are gone."""
        self.given = None
        self.open -= places
        self.assignment -= places
        self.positions.forget(places)
        lost = places & self._held
        self._held -= places
        self._tell(self._owner.lost, lost)

    def starts(
        self,
        places: frozenset[Place],
        ends: Callable[[Place], tuple[int, int]],
        committed: Callable[[list[Place]], Mapping[Place, int]],
    ) -> dict[Place, int]:
        """Where to begin with an assignment. `ends` and `committed` ask Kafka, and may raise as the client does."""
        starts = self.positions.regained(places)
        self._held = places
        asked = {place: offset for place, offset in self._owner.assigned(places).items() if place not in starts}
        fresh = sorted(places - starts.keys())
        if self._committed:
            asked = {**committed([place for place in fresh if place not in asked]), **asked}
        known = {place: ends(place) for place in fresh}
        for place, (low, high) in known.items():
            unknown = low if self._earliest else high
            starts[place] = self.positions.go_on(place, asked.get(place, unknown), low, high)
        return starts

    def begin(self, starts: Mapping[Place, int]) -> None:
        """Read the given assignment, every partition from its start."""
        self.given = None
        self.assignment = self.open = frozenset(starts)
        self.positions.next = dict(starts)

    def deliver(self, runs: Iterable[Run]) -> list[Run]:
        """What may be handed out of these, now; positions move past it."""
        found = [self.positions.advance(run) for run in runs if run.place in self.open]
        return [run for run in found if run is not None]

    def check(self) -> None:
        """Raises what the owner raised when it was told of something inside the client's callbacks."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _tell(self, word: Callable[[frozenset[Place]], None], places: frozenset[Place]) -> None:
        if places:
            try:
                word(places)
            except Exception as failure:  # a client's callback is no place for it: see `check`
                self._failure = self._failure or failure
