"""The `[store]` section: checkpoints and history, and how long they are kept."""

from __future__ import annotations

from pydantic import Field

from streameval.settings.section import Int, PositiveDuration, Section, Size, written


class Store(Section):
    """Checkpoints and history on disk."""

    path: str = Field(
        "",
        description='folder of the checkpoints and the history, created if missing; with `""` nothing is kept, and a restart starts empty',
    )
    checkpoint_interval: PositiveDuration = written(
        "30s", description="how often each partition's state and offsets are written"
    )
    keep: Int = Field(3, ge=1, le=100, description="checkpoints kept per partition; older ones are deleted")
    segment_rows: Int = Field(
        262_144,
        ge=0,
        le=1 << 24,
        multiple_of=16_384,
        description="number of impressions with mature labels that a partition moves from memory to a file in `path` at a time, a multiple of 16384; more at a time where there are many; 0: they stay in memory until `join.correction_horizon` has passed",
    )
    drain_timeout: PositiveDuration = written(
        "20s", description="how long writing the state may take at a stop, or when a partition is revoked"
    )
    minutes: PositiveDuration = written(
        "2d", description="how long the history keeps single panes; older ones are folded into hours"
    )
    hours: PositiveDuration = written(
        "30d", description="how long the history keeps hours; older ones are folded into days"
    )
    days: PositiveDuration = written("400d", description="how long the history keeps days")
    max_size: Size = written(
        "2GB", description="largest size of the history; beyond this, the oldest parts are deleted early, and counted"
    )
