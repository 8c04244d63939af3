"""The state of receivers and sinks, as readers of a snapshot see it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReceiverState:
    """One `[[notify]]`. Totals are since the start."""

    name: str
    kind: str
    durable: bool  # what waits outlives the process
    waiting: int  # messages
    oldest: float | None  # wall clock (seconds) when the oldest of them was found
    delivered: int
    failures: int  # attempts
    dropped: int  # messages: too many waited
    muted: int  # messages that were not sent, because somebody had muted the comparison
    error: str  # of the last attempt; "": it went well


@dataclass(frozen=True, slots=True)
class SinkState:
    """One `[[sinks]]`. Totals are since the start."""

    name: str
    kind: str
    waiting: int  # panes and verdicts
    last_success: float | None  # wall clock, seconds
    panes: int  # written, also again because a label changed
    verdicts: int
    failures: int
    lost: int  # panes that left memory before they could be written
    error: str
