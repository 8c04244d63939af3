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
    "not_subscribed",  # none asks for such changes
    "serves_nobody",  # its version did, when it was found
    "before_notifications",  # it is of before there were any
    "not_told_of",  # nobody can ask for such changes
    "waiting",  # its message has not been taken yet
    "dropped",  # too many messages waited
    "receiver_removed",  # its receiver was no longer configured before it had taken the message
]


@dataclass(frozen=True, slots=True)
class Told:
    """One receiver of a change; `muted`: nothing was sent, because somebody had muted the comparison. `kind`: slack, webhook, ..."""

    receiver: str  # its name
    kind: str
    at: Annotated[int, "ms"]  # wall clock
    state: ToldState


def change_key(comparison: str, change: VerdictChange) -> str:
    """Which change it is of the comparison with this key, whatever process found it."""
    return f"{comparison}-{change.at}-{change.kind}-{change.verdict}"


def with_told(
    comparisons: tuple[Comparison, ...],
    told: Callable[[Comparison], Sequence[tuple[tuple[Told, ...], Untold | None]]],
) -> tuple[Comparison, ...]:
    """The comparisons with who was told of each of their changes, or why nobody was; `told`: of the changes of one."""
    return tuple(_with_told(c, told(c)) if c.changes else c for c in comparisons)


def _with_told(c: Comparison, found: Sequence[tuple[tuple[Told, ...], Untold | None]]) -> Comparison:
    if not any(whom or why for whom, why in found):
        return c
    pairs = zip(c.changes, found, strict=True)
    return replace(c, changes=tuple(replace(one, told=whom, untold=why) for one, (whom, why) in pairs))
