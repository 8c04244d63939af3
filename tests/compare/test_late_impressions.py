"""A version whose impressions come late: it is noticed nevertheless, and nothing is decided about it, whoever looked when."""

from __future__ import annotations

from pathlib import Path
from random import Random

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


def changes(found: Snapshot) -> list[tuple[int, str, str]]:
    (split,) = (c for c in found.comparisons if c.setup == "split")
    return [(change.at, change.kind, change.text) for change in split.changes]


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_version_whose_impressions_come_late_is_noticed_when_they_come(partitions: int, tmp_path: Path) -> None:
    events = shipped(late=4 * MINUTE)
    truth = deploys(read(events, 100, partitions))
    assert [deploy[:2] for deploy in truth] == [("v1", None), ("v2", "v1")]
    began = BASE + 10 * MINUTE
    assert truth[1][2] == began < truth[1][3] <= began + 10 * MINUTE  # type: ignore[operator]
    for size in (60, 10_000):
        assert deploys(read(events, size, partitions, tmp_path)) == truth


@pytest.mark.parametrize("partitions", [1, 3])
def test_nothing_is_decided_while_many_of_a_version_s_impressions_are_missing(partitions: int, tmp_path: Path) -> None:
    events = shipped(late=4 * MINUTE)
    truth = changes(read(events, 100, partitions))
    assert [kind for _, kind, _ in truth] == ["withheld", "restored"]
    text = truth[0][2]
    assert text.startswith("100% of ")
    assert text.endswith(" impressions of v2 came later than join.allowed_lateness")
    assert truth[1][0] >= BASE + 39 * MINUTE, "at the end of the stream all of them count"
    for size in (60, 10_000):
        assert changes(read(events, size, partitions, tmp_path)) == truth
    assert changes(read(shipped(late=50_000), 100, partitions)) == [], "within the lateness that is allowed"


def test_stragglers_of_a_version_that_is_gone_are_no_roll_back() -> None:
    """The log of half of v1's hosts is stuck, and comes half an hour after v2 has taken over."""
    out, luck = [], Random(1)
    for i in range(60 * 50):
        ts = BASE + i * MINUTE // 50
        old = ts < BASE + 20 * MINUTE
        stuck = old and ts >= BASE + 10 * MINUTE and luck.random() < 0.5
        comes = BASE + 50 * MINUTE if stuck else ts
        out.append((comes, Shown(f"i{i}", ts, f"u{i % 90}", 0.1, "v1" if old else "v2", clicked=i % 7 == 0)))
    events = [event for _, event in sorted(out, key=lambda one: one[0])]
    found = read(events, 100)
    assert [(d.version, d.kind) for d in found.deploys] == [("v1", "deploy"), ("v2", "deploy")]
    assert found.events["late_impressions"] > 200


def test_comparisons_of_other_versions_go_on() -> None:
    """v2's impressions come late, v3's do not."""
    out = []
    for i in range(60 * 50):
        ts = BASE + i * MINUTE // 50
        version = "v2" if i % 5 == 0 and i >= 500 else "v3" if i % 5 == 1 and i >= 1000 else "v1"
        event = Shown(f"i{i}", ts, f"u{i % 90}", 0.1, version, clicked=i % 7 == 0)
        out.append((ts + 4 * MINUTE * (version == "v2"), event))
    pipeline, events = make_pipeline(), [event for _, event in sorted(out, key=lambda one: one[0])]
    for start in range(0, len(events), 100):
        pipeline.take(make_batch(events[start : start + 100], pipeline.catalog))
        pipeline.compare()
    split = {c.candidate.version: c for c in readers_see(pipeline).comparisons if c.setup == "split"}
    assert split["v2"].withheld
    assert not split["v3"].changes
    assert split["v3"].impressions > 1_000
