"""Who was told of a change of a verdict, and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

from streameval.compare.reading.handling import comparison_key

if TYPE_CHECKING:
    from streameval.compare.reading.reading import Comparison, VerdictChange

ToldState = Literal["delivered", "muted"]


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


def with_told(comparisons: tuple[Comparison, ...], told: Mapping[str, tuple[Told, ...]]) -> tuple[Comparison, ...]:
    """The comparisons with who was told of each of their changes, by its key."""
    return tuple(_with_told(c, told) for c in comparisons) if told else comparisons


def _with_told(c: Comparison, told: Mapping[str, tuple[Told, ...]]) -> Comparison:
    if not c.changes:
        return c
    key = comparison_key(c)
    whom = [told.get(change_key(key, one), ()) for one in c.changes]
    if not any(whom):
        return c
    pairs = zip(c.changes, whom, strict=True)
    return replace(c, changes=tuple(replace(one, told=some) if some else one for one, some in pairs))
