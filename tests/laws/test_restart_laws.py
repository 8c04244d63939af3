"""A restart changes nothing: state, written and read back in another process' codes, goes on to the same report."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streameval import health
from streameval.config import Settings
from streameval.join import joiner
from streameval.pipeline import Pipeline
from streameval.simulate.encode import events
from streameval.simulate.scenario import Scenario, Version
from streameval.simulate.traffic import Traffic
from streameval.sources.decode import Decoder
from streameval.store import container
from streameval.testing import ManualClock

PARTITIONS = 2
SCENARIO = Scenario(
    duration_s=240.0,
    rate=25.0,
    users=80,
    ctr=0.2,
    late_share=0.05,
    window_s=40.0,
    versions=(Version("v1"), Version("v2", noise=1.0, start_s=90.0, share=0.3)),
    shadow=True,
    malformed=0.02,
    duplicate=0.03,
    unmatched=0.03,
    shuffle_s=15.0,
)
Message = tuple[int, bytes]  # 1 impression, 2 click; its bytes


@cache
def messages() -> list[list[Message]]:
    """By partition, in order of arrival."""
    out: list[list[Message]] = [[] for _ in range(PARTITIONS)]
    for event in events(Traffic(SCENARIO)):
        mine = out[sum(event.key) % PARTITIONS]
        kind, value = 1 if event.kind == "impression" else 2, event.json()
        mine.append((kind, value))
        if len(mine) % 60 == 0 and b'"ts"' in value:  # a clock that is wrong: further ahead than the correction horizon
            mine.append(
                (
                    kind,
                    re.sub(rb'"ts": ?\d+', b'"ts":%d' % (ahead(value) + 130_000), value).replace(b'_id":"', b'_id":"x'),
                )
            )
    return out


def ahead(value: bytes) -> int:
    found = re.search(rb'"ts": ?(\d+)', value)
    return int(found[1]) if found else 0


def make_settings(weighting: str, score_at: str, models: bool, shared: bool, over: bool = False) -> Settings:
    """`over`: comparisons end, and their sums are let go, within the stream."""
    learners = [
        {"name": "ftrl", "kind": "ftrl", "bits": 12},
        {"name": "lr", "kind": "river", "factory": "river.linear_model.LogisticRegression"},
    ]
    return Settings.model_validate(
        {
            "join": {
                "attribution_window": "40s", "allowed_lateness": "8s", "correction_horizon": "90s",
                "request_gap": "20s", "score_at": score_at,
            },
            "windows": {"pane": "10s", "sliding": ["30s", "60s"]},
            "slices": {"dimensions": ["country", "device"]},
            "users": {"weighting": weighting},
            "models": learners if models else [],
            "compare": {
                "count": 20, "min_duration": "30s", "min_clicks": 20, "min_blocks": 10, "gauc_window": "20s",
                **({"horizon": "50s", "keep": "90s"} if over else {}),
            },
            "kafka": {"impressions_topic": "i", "clicks_topic": "i" if shared else "c"},
        }
    )  # fmt: skip


class Process:
    """A pipeline and a decoder, as one process has them; `state` and `restored` are a restart."""

    def __init__(self, config: Settings, order: list[int]) -> None:
        self.config = config
        self.pipeline = Pipeline(config, ManualClock())
        self.decoder = Decoder(
            self.pipeline.catalog,
            clock=lambda: SCENARIO.start_ms + 600_000,
            max_future=0,
            hashed=True,
            dicts=bool(config.models),
        )
        for value in order:  # names that came in another order before: codes differ from the other process'
            self.pipeline.catalog.value_code(0, f"country-{value}")
            self.pipeline.catalog.series_code("other", f"v{value}")

    def take(self, partition: int, part: list[Message], next_offset: int) -> None:
        shared = self.config.kafka.impressions_topic == self.config.kafka.clicks_topic
        batch, _ = self.decoder.messages(
            [value for _, value in part],
            [0 if shared else kind for kind, _ in part],
            topic=("i", "c"),
            partition=partition,
            offsets=list(range(next_offset - len(part), next_offset)),
            format="json",
            shared=shared,
            next_offsets={("i", partition): next_offset},
        )
        self.pipeline.take(batch)


def through_disk(process: Any, partition: int, path: Path) -> dict:
    state = process.pipeline.partition_state(partition)
    assert state is not None
    container.write(path, state)
    process.pipeline.state_written(partition)
    tree = container.read(path)
    for learner in tree["monitor"]["learners"] if tree["monitor"] else []:
        if "pickle" in learner["model"]:
            learner["model"]["pickle"] = learner["model"]["pickle"].tobytes()
    return tree


def report(pipeline: Pipeline) -> dict:
    pipeline.finish()
    return pipeline.snapshot().report()


@patch.object(joiner, "_MANY_RUNS", 3)
@patch.object(health, "MIN_JOIN_RATE", 0.0)  # while the join is unhealthy as of now, no comparison looks at anything
@given(
    weighting=st.sampled_from(["impressions", "clicks", "uniform", "value"]),
    score_at=st.sampled_from(["impression", "label"]),
    models=st.booleans(),
    shared=st.booleans(),
    over=st.booleans(),
    sizes=st.lists(st.sampled_from([7, 60, 400, 1500]), min_size=1, max_size=4),
    seed=st.integers(0, 1 << 32),
)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_restarts_from_any_checkpoints_give_the_report_of_an_undisturbed_run(
    weighting: str,
    score_at: str,
    models: bool,
    shared: bool,
    over: bool,
    sizes: list[int],
    seed: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    config = make_settings(weighting, score_at, models, shared, over)
    luck = Random(seed)
    folder = tmp_path_factory.mktemp("restart")
    steps: list[tuple[int, int, int]] = []  # partition, from, to
    at = [0] * PARTITIONS
    while any(at[p] < len(messages()[p]) for p in range(PARTITIONS)):
        for p in range(PARTITIONS):
            if at[p] < len(messages()[p]):
                steps.append((p, at[p], min(at[p] + sizes[len(steps) % len(sizes)], len(messages()[p]))))
                at[p] = steps[-1][2]

    truth = Process(config, [])
    for partition, start, end in steps:
        truth.take(partition, messages()[partition][start:end], end)
    expected = report(truth.pipeline)

    process = Process(config, [])
    saved: list[tuple[int, dict] | None] = [None] * PARTITIONS  # (offset, tree)
    todo = list(steps)
    kills = 4
    while todo:
        partition, start, end = todo.pop(0)
        process.take(partition, messages()[partition][start:end], end)
        if luck.random() < max(0.05, 4 / len(steps)):
            saved[partition] = end, through_disk(process, partition, folder / f"{partition}.checkpoint")
        if luck.random() < 0.1:
            process.pipeline.snapshot(complete=len(process.pipeline.monitors) == PARTITIONS)  # somebody looks
        if kills and luck.random() < 6 / len(steps):
            kills -= 1
            process = Process(config, luck.sample([0, 1, 2], 3))
            for p in luck.sample(range(PARTITIONS), PARTITIONS):
                held = saved[p]
                if held is not None:
                    assert process.pipeline.restore_partition(p, held[1]) == {("i", p): held[0]}
            done = [0 if held is None else held[0] for held in saved]
            todo = [step for step in steps if step[1] >= done[step[0]]]
    assert not differences(report(process.pipeline), expected)


@patch.object(health, "MIN_JOIN_RATE", 0.0)
@pytest.mark.parametrize("older", range(PARTITIONS))
@pytest.mark.parametrize("cut", [0.4, 0.7, 0.95])
def test_a_partition_restored_from_before_the_last_look_is_made_up_for_without_another_look(
    older: int, cut: float, tmp_path: Path
) -> None:
    """The stream has nothing more to give, and has not ended: no look will come."""
    config = make_settings("impressions", "impression", False, False)
    process = Process(config, [])
    saved: list[tuple[int, dict]] = []
    for p in (older, 1 - older):
        part = messages()[p]
        at = int(cut * len(part)) if p == older else len(part)
        process.take(p, part[:at], at)
        saved.append((p, through_disk(process, p, tmp_path / f"{p}")) if p == older else (p, {}))
        process.take(p, part[at:], len(part))
    expected = process.pipeline.snapshot().report()["comparisons"]
    assert any(c["impressions"] for c in expected)
    saved[1] = (1 - older, through_disk(process, 1 - older, tmp_path / f"{1 - older}"))

    again = Process(config, [])
    for p, tree in saved:
        again.pipeline.restore_partition(p, tree)
    part = messages()[older]
    at = int(cut * len(part))
    for start in range(at, len(part), 500):  # and somebody looks in between
        again.take(older, part[start : start + 500], min(start + 500, len(part)))
        again.pipeline.snapshot()
    assert not differences(again.pipeline.snapshot().report()["comparisons"], expected)


def test_a_state_that_was_restored_is_written_again_bit_by_bit(tmp_path: Path) -> None:
    config = make_settings("value", "impression", True, False)
    process = Process(config, [])
    for p, part in enumerate(messages()):
        process.take(p, part[: len(part) // 2], len(part) // 2)
    first = [through_disk(process, p, tmp_path / f"first-{p}") for p in range(PARTITIONS)]
    again = Process(config, [])
    for p in range(PARTITIONS):
        again.pipeline.restore_partition(p, first[p])
        second = through_disk(again, p, tmp_path / f"second-{p}")
        for tree in (first[p], second):  # pickles of River's models are not canonical; names learned later differ
            tree["monitor"]["learners"][1]["model"].clear()
            tree.pop("last_seen")
        assert not list(differences(first[p], second))


def differences(a: object, b: object, where: str = "") -> list[str]:
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return [found for key in a for found in differences(a[key], b[key], f"{where}.{key}")]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [
            found for i, (x, y) in enumerate(zip(a, b, strict=True)) for found in differences(x, y, f"{where}[{i}]")
        ]
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        same = a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
        return [] if same else [where]
    return [] if a == b else [where]
