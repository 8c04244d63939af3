"""A version whose impressions come late: it is noticed nevertheless, whoever looked when."""

from __future__ import annotations

from pathlib import Path

import pytest

from streameval.loop.pipeline import Pipeline
from streameval.results.snapshot import Snapshot
from streameval.settings.tree import Settings
from streameval.store import container
from streameval.testing import ManualClock, Shown, make_batch, readers_see

MINUTE = 60_000
BASE = 1_700_000_040_000


def make_pipeline() -> Pipeline:
    return Pipeline(Settings.model_validate({"join": {"attribution_window": "10m"}}), ManualClock())


def shipped(late: int, minutes: int = 40) -> list[Shown]:
    """In order of arrival: v1, and a fifth of it v2 from minute 10 on, whose impressions come so many ms late."""
    out = []
    for i in range(minutes * 50):
        ts = BASE + i * MINUTE // 50
        new = i % 5 == 0 and i >= 500
        out.append((ts + late * new, Shown(f"i{i}", ts, f"u{i % 90}", 0.1, "v2" if new else "v1", clicked=i % 7 == 0)))
    return [event for _, event in sorted(out, key=lambda one: one[0])]


def read(events: list[Shown], size: int, partitions: int = 1, folder: Path | None = None) -> Snapshot:
    """What is known at the end; `folder`: somebody looks after each batch, and the process is another one half-way."""
    pipeline, moved = make_pipeline(), False
    for start in range(0, len(events), size):
        for p in range(partitions):
            some = [event for event in events[start : start + size] if int(event.id[1:]) // 5 % partitions == p]
            pipeline.take(make_batch(some, pipeline.catalog, p))
        if folder is not None:
            pipeline.compare()
        if folder is not None and not moved and start > len(events) // 2:
            states, pipeline, moved = [pipeline.partition_state(p) for p in range(partitions)], make_pipeline(), True
            for p, state in enumerate(states):
                assert state is not None
                container.write(folder / f"{p}", state)
                pipeline.restore_partition(p, container.read(folder / f"{p}"))
    pipeline.finish()
    return readers_see(pipeline)


def deploys(found: Snapshot) -> list[tuple[object, ...]]:
    return [(d.version, d.replaces, d.at, d.noticed) for d in found.deploys]


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_version_whose_impressions_come_late_is_noticed_when_they_come(partitions: int, tmp_path: Path) -> None:
    events = shipped(late=4 * MINUTE)
    truth = deploys(read(events, 100, partitions))
    assert [deploy[:2] for deploy in truth] == [("v1", None), ("v2", "v1")]
    began = BASE + 10 * MINUTE
    assert began < truth[1][2] < truth[1][3] <= began + 10 * MINUTE  # type: ignore[operator]
    for size in (60, 10_000):
        assert deploys(read(events, size, partitions, tmp_path)) == truth
