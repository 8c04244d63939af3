"""Acknowledging and muting verdicts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

if TYPE_CHECKING:
    from streameval.compare.reading.reading import Comparison

HandlingState = Literal["acknowledged", "muted"]


@dataclass(frozen=True, slots=True)
class Handling:
    """How somebody has handled a comparison; `muted`: its changes are no longer notified. `verdict`: as it was at that
    time.
    """

    state: HandlingState
    by: str
    reason: str
    at: Annotated[int, "ms"]  # wall clock
    verdict: str


def comparison_key(comparison: Comparison) -> str:
    """Identifies a comparison across processes: 16 hex digits from its sides, setup and start."""
    c = comparison
    sides = [[s.model, s.version, s.source] for s in (c.baseline, c.candidate)]
    named = json.dumps([sides, c.setup, c.start]).encode()
    return hashlib.blake2b(named, digest_size=8).hexdigest()


def with_handlings(comparisons: tuple[Comparison, ...], said: Mapping[str, Handling]) -> tuple[Comparison, ...]:
    """Returns the comparisons with their handling, looked up by `comparison_key`."""
    if not said:
        return comparisons
    return tuple(replace(c, handling=said.get(comparison_key(c))) for c in comparisons)
