"""What a snapshot reports about partitions besides results: progress, usage of tables, labels learned."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from streameval.events.batch import Catalog
from streameval.join.policy import FOREVER, NEVER
from streameval.loop.partition import Partition
from streameval.loop.reading import Reading
from streameval.models.protocol import FAILURES
from streameval.results.snapshot import PartitionState, SliceValues
from streameval.settings.models import ModelSettings

TABLES = ("join", "panes", "ledger", "users", "models")
BUDGETS = ("impressions", "held_clicks", "quarantine", "users")


def partition_states(
    partitions: Mapping[int, Partition], readings: Mapping[int, Reading], gone: Collection[int]
) -> tuple[PartitionState, ...]:
    """The progress of every partition that is read, including those without any counts, and of those that are `gone`."""
    return tuple(
        _state(number, partitions.get(number), readings[number], number in gone)
        for number in sorted(readings)
        if number in partitions or number not in gone
    )


def _state(number: int, part: Partition | None, reading: Reading, gone: bool) -> PartitionState:
    watermark = part.watermark if part else NEVER
    newest = part.newest_event if part else NEVER
    complete = part.complete_until() if part else None
    return PartitionState(
        partition=number,
        watermark=None if watermark == NEVER else min(watermark, newest) if watermark >= FOREVER else watermark,
        label_complete=complete if complete is None or gone else min(complete, newest),
        newest_event=None if newest == NEVER else newest,
        offsets=dict(reading.offsets),
        lag={},
        waiting_since=None if part is None else part.next_due,
    )


def budgets(partitions: Iterable[Partition], catalog: Catalog) -> dict[str, float]:
    """How full every bounded table is, from 0 to 1, in the partition where it is fullest; docs/operations.md says what happens at 1."""
    used = dict.fromkeys(BUDGETS, 0.0)
    for part in partitions:
        used = {name: max(used[name], share) for name, share in _shares(part).items()}
    used["versions"] = len(catalog.codes) / catalog.max_series
    for dimension, values in zip(catalog.dimensions, catalog.values, strict=True):
        used[f"slice:{dimension}"] = min(1.0, (len(values) - 2) / catalog.max_values)
    return used


def _shares(part: Partition) -> dict[str, float]:
    most, users = part.policy.max_pending, part.scoreboard.users
    return {
        "impressions": part.joiner.in_memory / most,
        "held_clicks": part.joiner.held / most,
        "quarantine": part.quarantine.share_used,
        "users": users.nbytes / users.budget,
    }


def slice_values(catalog: Catalog) -> dict[str, SliceValues]:
    """The number of values of every dimension."""
    return {
        dimension: SliceValues(len(values) - 2, catalog.most_values, catalog.max_values, overflowed)
        for dimension, values, overflowed in zip(catalog.dimensions, catalog.values, catalog.overflowed, strict=True)
    }


def updates(partitions: Iterable[Partition], models: Sequence[ModelSettings]) -> dict[str, int]:
    """Labels that every online model has learned."""
    out = {model.name: 0 for model in models}
    for part in partitions:
        for model, learner in zip(models, part.learners, strict=True):
            out[model.name] += learner.updates
    return out


def failures(partitions: Sequence[Partition], models: Sequence[ModelSettings]) -> dict[str, dict[str, int]]:
    """Events that every online model failed to score or to learn, by reason."""
    out = {}
    for number, model in enumerate(models):
        found = sum((part.learners[number].failures for part in partitions), Counter[str]())
        out[model.name] = {reason: found[reason] for reason in FAILURES}
    return out


def sums(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Sums by name."""
    out: defaultdict[str, float] = defaultdict(float)
    for part in parts:
        for name, number in part.items():
            out[name] += number
    return dict(out)


def table_bytes(partitions: Iterable[Partition], beside: Mapping[str, int]) -> dict[str, int]:
    """Memory by table, as `TABLES` names them, bytes; adds up all panes of the partitions. `beside`: shared tables."""
    tables = [_bytes(part) for part in partitions]
    return {name: sum(one[name] for one in tables) + beside.get(name, 0) for name in TABLES}


def _bytes(part: Partition) -> dict[str, int]:
    return {
        "join": part.joiner.nbytes + part.requests.nbytes + part.rows.auctions_nbytes,
        "panes": part.scoreboard.nbytes,
        "ledger": part.counted.nbytes + part.scoreboard.references.nbytes,
        "users": part.scoreboard.users.nbytes,
        "models": sum(learner.model.nbytes for learner in part.learners),
    }
