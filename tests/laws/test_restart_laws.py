"""A restart changes nothing: state, written and read back in another process' codes, goes on to the same report."""

from __future__ import annotations

import re
from functools import cache, partial
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings
from streameval.simulate.encode import events
from streameval.simulate.traffic import Traffic
from streameval.sources.formats.decode import Decoder
from streameval.testing import ManualClock, readers_see
from tests.laws.streams import (
    BROKEN_S,
    PARTITIONS,
    WHOLE,
    astray,
    differences,
    few_panes,
    looks_of,
    make_settings,
    scenario,
    through_disk,
    weighed,
    worth,
)

SCENARIO = scenario(duration_s=240.0, rate=16.0)
Message = tuple[int, bytes]  # 1 impression, 2 click; its bytes


@cache
def messages() -> list[list[Message]]:
    """By partition, in order of arrival."""
    out: list[list[Message]] = [[] for _ in range(PARTITIONS)]
    for event in events(Traffic(SCENARIO)):
        mine = out[sum(event.key) % PARTITIONS]
        kind, value = 1 if event.kind == "impression" else 2, event.json()
        if kind == 1:
            value = weighed(value)
        at = (event.arrives - SCENARIO.start_ms) / 1000
        if kind == 2 and BROKEN_S[0] <= at < BROKEN_S[1] and len(mine) % 5 < 3:
            value = astray(value)
        mine.append((kind, worth(value) if kind == 2 else value))
        if kind == 2 and len(mine) % 3 == 0:  # a second click is worth more
            mine.append((kind, worth(value, 1.7)))
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


def report(pipeline: Pipeline) -> dict:
    pipeline.finish()
    return readers_see(pipeline, with_history=False).report()  # panes are not in it, and take a tenth of the time


@patch("streameval.join.runs._MANY_RUNS", 3)
@given(
    weighting=st.sampled_from(["impressions", "clicks", "uniform", "value"]),
    score_at=st.sampled_from(["impression", "label"]),
    models=st.booleans(),
    shared=st.booleans(),
    over=st.booleans(),
    valued=st.booleans(),
    pane=st.sampled_from(["10s", "1s"]),
    sizes=st.lists(st.sampled_from([7, 60, 400, 1500]), min_size=1, max_size=4),
    seed=st.integers(0, 1 << 32),
)
@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow], phases=(Phase.reuse, Phase.generate)
)  # examples are slow: to make them smaller takes longer than to understand them
def test_any_restarts_from_any_checkpoints_give_the_report_of_an_undisturbed_run(
    weighting: str,
    score_at: str,
    models: bool,
    shared: bool,
    over: bool,
    valued: bool,
    pane: str,
    sizes: list[int],
    seed: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    config = make_settings(weighting, score_at, models, shared, over, valued, pane)
    luck = Random(seed)
    folder = tmp_path_factory.mktemp("restart")
    steps: list[tuple[int, int, int]] = []  # partition, from, to
    at = [0] * PARTITIONS
    while any(at[p] < len(messages()[p]) for p in range(PARTITIONS)):
        for p in range(PARTITIONS):
            if at[p] < len(messages()[p]):
                steps.append((p, at[p], min(at[p] + sizes[len(steps) % len(sizes)], len(messages()[p]))))
                at[p] = steps[-1][2]

    with looks_of(pane):
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
            killed = kills and luck.random() < 6 / len(steps)
            if luck.random() < (0.5 if killed else min(0.1, 10 / len(steps))):
                somebody = partial(readers_see, process.pipeline) if luck.random() < WHOLE else process.pipeline.compare
                somebody(complete=len(process.pipeline.partitions) == PARTITIONS)  # looks
            if killed:
                kills -= 1
                process = Process(config, luck.sample([0, 1, 2], 3))
                for p in luck.sample(range(PARTITIONS), PARTITIONS):
                    held = saved[p]
                    if held is not None:
                        assert process.pipeline.restore_partition(p, held[1]) == {("i", p): held[0]}
                done = [0 if held is None else held[0] for held in saved]
                todo = [step for step in steps if step[1] >= done[step[0]]]
        assert not differences(report(process.pipeline), expected)


@few_panes
@pytest.mark.parametrize("older", range(PARTITIONS))
@pytest.mark.parametrize("cut", [0.4, 0.7, 0.95])
@pytest.mark.parametrize("pane", ["10s", "1s"])
def test_a_partition_restored_from_before_the_last_look_is_made_up_for_without_another_look(
    older: int, cut: float, pane: str, tmp_path: Path
) -> None:
    """The stream has nothing more to give, and has not ended: no look will come."""
    config = make_settings("impressions", "impression", False, False, pane=pane)
    process = Process(config, [])
    saved: list[tuple[int, dict]] = []
    for p in (older, 1 - older):
        part = messages()[p]
        at = int(cut * len(part)) if p == older else len(part)
        process.take(p, part[:at], at)
        saved.append((p, through_disk(process, p, tmp_path / f"{p}")) if p == older else (p, {}))
        process.take(p, part[at:], len(part))
    expected = readers_see(process.pipeline).report()["comparisons"]
    assert any(c["impressions"] for c in expected)
    saved[1] = (1 - older, through_disk(process, 1 - older, tmp_path / f"{1 - older}"))

    again = Process(config, [])
    for p, tree in saved:
        again.pipeline.restore_partition(p, tree)
    part = messages()[older]
    at = int(cut * len(part))
    for start in range(at, len(part), 500):  # and somebody looks in between
        again.take(older, part[start : start + 500], min(start + 500, len(part)))
        readers_see(again.pipeline)
    assert not differences(readers_see(again.pipeline).report()["comparisons"], expected)


def test_a_state_that_was_restored_is_written_again_bit_by_bit(tmp_path: Path) -> None:
    config = make_settings("value", "impression", True, False, valued=True)
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
