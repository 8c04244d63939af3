"""How far a partition has been read, and which events were lost or invalid."""

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
    """Impressions that were refused because their id belongs to another model or version.

    `places`: in the arrival order of their batch. Those from earlier batches are only counted.
    """

    count: int
    places: NDArray[np.int32]
    batch: Batch


@dataclass(slots=True)
class Reading:
    """The reading of one partition."""

    offsets: dict[Place, int] = field(default_factory=dict)  # the next to read
    topic_ids: dict[Place, str] = field(default_factory=dict)  # of the topics to which the offsets refer, where known
    gaps: Gaps = field(default_factory=Gaps)
    invalid: Counter[str] = field(default_factory=Counter)  # refused events, by reason
    candidates: int = 0  # impressions that were not shown

    def take(self, batch: Batch, inputs: Sequence[str], watermark: int) -> None:
        """Records a batch that was read; `inputs`: the names of the inputs of impressions and clicks, maybe the same.

        `watermark`: the partition's before the batch, ms.
        """
        self.invalid.update(batch.invalid)
        self.candidates += len(batch.candidates)
        self.offsets.update(batch.offsets)
        self.topic_ids.update(batch.topic_ids)
        self.gaps.open(batch.gaps, watermark)
        for name, events in ((inputs[0], batch.impressions), (inputs[-1], batch.clicks)):
            if len(events):
                self.gaps.close([name], int(events.ts.max()))

    def end(self, partition: int, watermark: int, newest: int) -> None:
        """Nothing more will be read: labels that were pending at the watermark lack clicks; `newest`: event, ms."""
        name = f"partition {partition}"
        self.gaps.open({(name, partition): f"{name} is gone from the topics"}, watermark)
        self.gaps.close([name, *(topic for topic, _ in self.offsets)], newest)

    def state(self) -> dict[str, Any]:
        """Everything, for a checkpoint."""
        return {
            "offsets": [[topic, number, offset] for (topic, number), offset in self.offsets.items()],
            "topic_ids": [[*place, known] for place, known in self.topic_ids.items()],
            "gaps": self.gaps.state(),
            "invalid": dict(self.invalid),
            "candidates": self.candidates,
        }

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Reading:
        """From what `state` returned; older checkpoints have no ids, gaps or candidates."""
        return cls(
            {(topic, number): offset for topic, number, offset in state["offsets"]},
            {(topic, number): known for topic, number, known in state.get("topic_ids", [])},
            Gaps(state.get("gaps", [])),
            Counter(state["invalid"]),
            state.get("candidates", 0),
        )


class Telling(Protocol):
    """The part of a partition that reports its events."""

    auctions: LiveAuctions | None

    def fates(self) -> Counter[str]:
        """The outcomes of the events, by the names of the report."""


def reported(partitions: Sequence[Telling], readings: Iterable[Reading]) -> dict[str, object]:
    """The outcomes of events for reports; `candidates` and `auction_skipped` only if there are any."""
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
