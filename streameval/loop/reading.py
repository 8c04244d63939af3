"""How far a partition has been read, and what was lost or invalid: kept beside its counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from streameval.auction.live import LiveAuctions
from streameval.events.batch import Batch
from streameval.join.gaps import Gaps
from streameval.sources.protocol import Place

# Fates of the report, in its order; the joiner counts more (matched_clicks, forgotten_early, ...).
REPORTED_FATES = (
    "impressions", "clicks", "matured", "pending", "duplicate_impressions", "duplicate_clicks", "unmatched_clicks",
    "late_clicks", "late_impressions", "corrected", "matched_clicks", "expired_impressions", "late_unscored",
    "forgotten_early", "matured_early", "early_clicks", "quarantined", "runaway_impressions",
    "runaway_clicks", "conflicting_impressions",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Conflicts:
    """Impressions that were refused: their id is another model's or version's.

    `places`: in the arrival order of their batch; of those that came with an earlier batch only the number is known.
    """

    count: int
    places: NDArray[np.int32]
    batch: Batch


@dataclass(slots=True)
class Reading:
    """Of one partition."""

    offsets: dict[Place, int] = field(default_factory=dict)  # the next to read
    topic_ids: dict[Place, str] = field(default_factory=dict)  # of the topics that the offsets are of, where known
    gaps: Gaps = field(default_factory=Gaps)
    invalid: Counter[str] = field(default_factory=Counter)  # refused events, by reason
    candidates: int = 0  # impressions that were not shown

    def take(self, batch: Batch) -> None:
        """Adds a batch that was read."""
        self.invalid.update(batch.invalid)
        self.candidates += len(batch.candidates)
        self.offsets.update(batch.offsets)
        self.topic_ids.update(batch.topic_ids)

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {
            "offsets": [[topic, number, offset] for (topic, number), offset in self.offsets.items()],
            "topic_ids": [[*place, known] for place, known in self.topic_ids.items()],
            "gaps": self.gaps.state(),
            "invalid": dict(self.invalid),
            "candidates": self.candidates,
        }

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Reading:
        """What `state` returned; older checkpoints have no ids, no gaps and no candidates."""
        return cls(
            {(topic, number): offset for topic, number, offset in state["offsets"]},
            {(topic, number): known for topic, number, known in state.get("topic_ids", [])},
            Gaps(state.get("gaps", [])),
            Counter(state["invalid"]),
            state.get("candidates", 0),
        )


class Telling(Protocol):
    """What a partition tells of its events."""

    auctions: LiveAuctions | None

    def fates(self) -> Counter[str]:
        """What became of them, by the names of the report."""


def reported(partitions: Sequence[Telling], readings: Iterable[Reading]) -> dict[str, object]:
    """What became of the events, as reports have it; `candidates` and `auction_skipped` only where there are any."""
    readings = list(readings)
    counts = sum((part.fates() for part in partitions), Counter[str]())
    candidates = sum(reading.candidates for reading in readings)
    invalid = sum((reading.invalid for reading in readings), Counter[str]())
    skipped = sum((part.auctions.skipped for part in partitions if part.auctions is not None), Counter[str]())
    return {
        **{fate: counts[fate] for fate in REPORTED_FATES},
        **({"candidates": candidates} if candidates else {}),
        **({"auction_skipped": dict(sorted(skipped.items()))} if skipped else {}),
        "invalid": dict(sorted(invalid.items())),
    }
