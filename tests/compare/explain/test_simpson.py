"""The Simpson guard end to end: logs through a pipeline to what readers see."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from streameval.compare.reading.reading import Comparison
from streameval.loop.pipeline import Pipeline
from streameval.results.publish import Publisher
from streameval.results.snapshot import Snapshot
from streameval.server.prometheus.collector import SnapshotCollector
from streameval.settings.tree import Settings
from streameval.sources.formats.decode import Decoder
from streameval.testing import ManualClock, readers_see
from tests.compare.explain.test_uniform_exposure import world

BASE = 1_700_000_000_000
KIDNEY = {
    ("v2", "small"): (81, 87),
    ("v2", "large"): (192, 263),
    ("v1", "small"): (234, 270),
    ("v1", "large"): (55, 80),
}


def replayed(events: Iterable[dict[str, Any]], **sections: object) -> Snapshot:
    tree = {
        "compare": {"alpha": 0.05, "min_duration": "5m"}, "join": {"attribution_window": "1m", "request_gap": "1m"}, **sections,
    }  # fmt: skip
    pipeline = Pipeline(Settings.model_validate(tree), ManualClock())
    decoder = Decoder(pipeline.catalog, clock=lambda: 1 << 60, max_future=0)
    lines = [json.dumps(event).encode() for event in events]
    for start in range(0, len(lines), 5_000):
        part = lines[start : start + 5_000]
        batch, _ = decoder.messages(
            part, [0] * len(part), topic=("t",), partition=0, offsets=range(len(part)), format="json", shared=True
        )
        pipeline.take(batch)
    pipeline.finish()
    return readers_see(pipeline)


def only(snapshot: Snapshot, setup: str) -> Comparison:
    (found,) = [c for c in snapshot.comparisons if c.setup == setup]
    return found


@pytest.mark.slow
def test_thirty_copies_of_the_kidney_stones_raise_the_guard() -> None:
    """Treatment A, version v2, heals more of either kind of stones, and fewer of all: it gets the large ones."""
    rng = np.random.default_rng(0)
    rows = [
        (version, stone, k < healed)
        for (version, stone), (healed, treated) in KIDNEY.items()
        for _ in range(30)
        for k in range(treated)
    ]
    events = [
        {
            "type": "impression", "impression_id": f"i{k}", "ts": BASE + 1_000 * k, "user_id": f"{version}-{rng.integers(4_000)}",
            "model_version": version, "pclick": 0.8, "clicked": bool(healed), "slices": {"stone": stone},
        }
        for k, (version, stone, healed) in enumerate(rows[i] for i in rng.permutation(len(rows)))
    ]  # fmt: skip
    before = [
        {
            **events[0],
            "impression_id": f"b{k}",
            "ts": BASE - 1_000 * (200 - k),
            "model_version": "v1",
            "user_id": f"v1-{k}",
        }
        for k in range(200)
    ]
    c = only(replayed([*before, *events], slices={"dimensions": ["stone"]}), "split")
    mix = next(m for m in c.mixes if (m.dimension, m.metric) == ("stone", "ctr"))
    assert c.impressions > 20_500
    assert mix.simpson
    assert mix.total == pytest.approx(-0.046, abs=0.002)
    assert mix.within == pytest.approx(0.054, abs=0.002)
    assert mix.mix == pytest.approx(mix.total - mix.within)


@pytest.fixture(scope="module")
def reversed_by_exposure() -> Snapshot:
    rows, _ = world(np.random.default_rng(0), 120_000, 0.05, 0.68)
    every = zip(*(c.tolist() for c in (rows.user, rows.propensity, rows.label, rows.p1, rows.p3)), strict=True)
    return replayed(
        (
            {
                "type": "impression", "impression_id": f"i{k}", "ts": BASE + 250 * k, "user_id": str(user), "model_version": "v1",
                "pclick": p1, "predictions": {"v3": p3}, "propensity": propensity, "clicked": bool(label),
            }
            for k, (user, propensity, label, p1, p3) in enumerate(every)
        ),
        strata={"by": "propensity"},
    )  # fmt: skip


@pytest.mark.slow
def test_a_version_better_only_on_frequently_shown_items_is_detected(reversed_by_exposure: Snapshot) -> None:
    c = only(reversed_by_exposure, "paired")
    mix = next(m for m in c.mixes if m.metric == "log_loss")
    assert (mix.dimension, mix.simpson) == ("propensity", True)
    assert mix.total < 0 < mix.within
    assert "under uniform exposure" in mix.text
    said = reversed_by_exposure.report()["comparisons"][0]
    assert "Simpson's paradox: under uniform exposure the difference of log loss has the opposite sign" in said["words"]
    assert said["mixes"][0]["text"] == mix.text


def test_the_guard_has_families_of_its_own(reversed_by_exposure: Snapshot) -> None:
    collector = SnapshotCollector(
        Publisher(reversed_by_exposure), version="1", version_ttl=1e9, max_series=10_000, clock=lambda: BASE / 1000
    )
    found = {
        (sample.name.removeprefix("streameval_comparison_"), sample.labels["metric"]): sample.value
        for family in collector.collect()
        for sample in family.samples
        if sample.labels.get("setup") == "paired" and "metric" in sample.labels
    }
    mixes = {m.metric: m for m in only(reversed_by_exposure, "paired").mixes}
    for metric, mix in mixes.items():
        assert found["simpson", metric] == mix.simpson
        assert found["uniform_exposure", metric] == mix.within
        assert found["uniform_exposure_stderr", metric] == mix.within_stderr
    assert found["simpson", "log_loss"] == 1.0
