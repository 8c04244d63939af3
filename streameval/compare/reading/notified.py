"""Who was notified of a change of a verdict, and when; or why nobody was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

if TYPE_CHECKING:
    from streameval.compare.reading.reading import Comparison, VerdictChange

ToldState = Literal["delivered", "muted"]
Untold = Literal[
    "no_receivers",  # none is configured
    "not_subscribed",  # no receiver asks for such changes
    "serves_nobody",  # the version served nobody when the change was found
    "before_notifications",  # the change is older than notifications
    "not_told_of",  # there is no subscription for such changes
    "waiting",  # its message has not been delivered yet
    "dropped",  # too many messages were waiting
    "receiver_removed",  # its receiver was removed from the settings before it had taken the message
]


@dataclass(frozen=True, slots=True)
class Told:
    """One receiver of a change; `muted`: nothing was sent, because somebody had muted the comparison. `kind`: slack,
    webhook, ...
    """

    receiver: str  # its name
    kind: str
    at: Annotated[int, "ms"]  # wall clock
    state: ToldState


def change_key(comparison: str, change: VerdictChange) -> str:
    """Identifies a change across processes; `comparison`: the comparison's key."""
    return f"{comparison}-{change.at}-{change.kind}-{change.verdict}"


def with_told(
    comparisons: tuple[Comparison, ...],
    told: Callable[[Comparison], Sequence[tuple[tuple[Told, ...], Untold | None]]],
) -> tuple[Comparison, ...]:
    """Returns the comparisons with who was notified of each change, or why nobody was; `told` looks that up for one
    comparison.
    """
    return tuple(_with_told(c, told(c)) if c.changes else c for c in comparisons)


def _with_told(c: Comparison, found: Sequence[tuple[tuple[Told, ...], Untold | None]]) -> Comparison:
    if not any(whom or why for whom, why in found):
        return c
    pairs = zip(c.changes, found, strict=True)
    return replace(c, changes=tuple(replace(one, told=whom, untold=why) for one, (whom, why) in pairs))
