"""Keeps the two inputs of a partition together in event time while a backlog is processed.

Labels wait for the slower of a partition's two inputs, so whatever the faster one is ahead must be kept in memory; the
outcome of its events does not depend on that (`join.kernel`). A Kafka client serves topics by bytes, not by event time:
clicks are few and small, so a client reads days of them before the impressions of the first hour. The rule here: an
input more than `ahead` of its partner is held, until it is less than half of that ahead. An input that has nothing to
wait for is never held: if the partner is at its end, or has been silent for `patience` seconds (its leader is
unavailable, or its end is not what it seems), the input is read freely until the partner delivers again. Only listening
counts: while the loop is busy with what has come (a slow model or disk), nobody is silent.

So at most `ahead` of event time plus two polls can pile up, whatever the length of the backlog.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streameval.sources.protocol import Place

AHEAD_MS = 300_000  # smaller: clients drop and refetch their queues more often; larger: more early clicks in memory
_PATIENCE = 5.0  # seconds of listening; longer than a leader election, shorter than what looks stuck


@dataclass(slots=True)
class _Input:
    ts: int  # its position in event time, ms
    spoke: float  # seconds of listening when it last delivered
    held: bool = False


class Pacing:
    """Decides which of the `pairs` (impressions, clicks) of topic partitions must wait for its partner."""

    def __init__(self, ahead_ms: int = AHEAD_MS, patience: float = _PATIENCE) -> None:
        self._ahead = ahead_ms
        self._patience = patience
        self._listened = 0.0  # seconds
        self._partner: dict[Place, Place] = {}
        self._inputs: dict[Place, _Input] = {}

    def assign(self, pairs: Iterable[tuple[Place, Place]]) -> None:
        """Begins with these pairs, none held (a reader forgets its pauses when it is assigned partitions)."""
        self._partner = {}
        for one, other in pairs:
            self._partner[one], self._partner[other] = other, one
        self._inputs = {}

    def delivered(self, place: Place, ts: int) -> None:
        """Records that an input has reached event time `ts` (ms); a partner not seen yet is assumed to be there too."""
        for known in (place, self._partner.get(place, place)):
            self._inputs.setdefault(known, _Input(ts, self._listened))
        self._inputs[place].ts = ts
        self._inputs[place].spoke = self._listened

    def listened(self, seconds: float) -> None:
        """Records that the client was asked for messages for so long."""
        self._listened += seconds

    def held(self, lag: Mapping[Place, int]) -> frozenset[Place]:
        """Returns the inputs that must not be read now; `lag`: messages left by input (absent: none)."""
        for place, input_ in self._inputs.items():
            other = self._partner.get(place, place)
            partner = self._inputs.get(other, input_)
            limit = self._ahead // 2 if input_.held else self._ahead
            worth_waiting = lag.get(other, 0) > 0 and self._listened - partner.spoke <= self._patience
            input_.held = worth_waiting and input_.ts - partner.ts > limit
        return frozenset(place for place, input_ in self._inputs.items() if input_.held)
