"""While too few clicks find their impression nothing is decided: by what was so at a look, whoever looked when."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from streameval import app
from streameval.events.durations import HOUR
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings
from streameval.simulate.encode import events
from streameval.simulate.scenario import Scenario, Version
from streameval.simulate.traffic import Traffic
from streameval.sources.dead_letters import JsonlDeadLetters
from streameval.sources.files import FileSource
from streameval.testing import readers_see
from tests.laws.test_restart_laws import differences, through_disk

pytestmark = pytest.mark.slow

SCENARIO = Scenario(
    duration_s=600.0,
    rate=15.0,
    users=300,
    ctr=0.1,
    window_s=40.0,
    versions=(Version("v1"), Version("v2", noise=2.5, bias=1.0, start_s=60.0, share=0.4)),
    shadow=True,
    shuffle_s=5.0,
)
LOST_S = (150.0, 300.0)  # of the stream: impressions are lost in it, so their clicks find none
LATE_S = (430.0, 500.0)  # or come late: their clicks are overdue until then


@cache
def lines() -> tuple[bytes, ...]:
    luck = Random(2)
    out = []
    for number, event in enumerate(events(Traffic(SCENARIO))):
        at = (event.arrives - SCENARIO.start_ms) / 1000
        missing = event.kind == "impression" and luck.random() < 0.4
        if missing and LOST_S[0] <= at < LOST_S[1]:
            continue
        late = 60.0 if missing and LATE_S[0] <= at < LATE_S[1] else 0.0
        out.append((at + late, number, event.json(with_type=True) + b"\n"))
    return tuple(line for *_, line in sorted(out))


def configure(shared: bool) -> Settings:
    return Settings.model_validate(
        {
            "join": {
                "attribution_window": "40s", "allowed_lateness": "8s", "correction_horizon": "90s", "request_gap": "20s",
            },
            "windows": {"pane": "2s", "sliding": ["1m"]},
            "compare": {"min_duration": "30s", "min_clicks": 20, "min_blocks": 10, "gauc_window": "20s"},
            "files": {"dead_letters": ""},
            "kafka": {"impressions_topic": "i", "clicks_topic": "i" if shared else "c"},
        }
    )  # fmt: skip


def read(
    shared: bool, size: int, looks: bool, folder: Path, killed: bool = False, some: tuple[bytes, ...] = ()
) -> dict[str, Any]:
    """The report of a file read `size` events at a time. `looks`: somebody looks after each, mostly at comparisons alone, at
    results every fourth time (five times as dear), and at panes, which are in no report, every 32nd (ten times); `killed`: half-way.
    """
    path = folder / "events.jsonl"
    path.write_bytes(b"".join(some or lines()))
    settings = configure(shared)
    pipeline = Pipeline(settings, time.time)
    source = FileSource([path], app.make_decoder(settings, pipeline), settings.files, size, JsonlDeadLetters(""))
    half = len(lines()) // size // 2
    number = 0
    while not source.finished:
        for batch in source.poll(0.0):
            pipeline.take(replace(batch, shared=shared))
            if looks and number % 4 == 0:
                readers_see(pipeline, with_history=number % 32 == 0)
            elif looks:
                pipeline.compare()
            number += 1
            if killed and number == half:
                tree = through_disk(Holder(pipeline), 0, folder / "checkpoint")
                settings = configure(shared)
                catalog, pipeline = pipeline.catalog, Pipeline(settings, time.time)
                pipeline.catalog.adopt(catalog.names())  # the source's decoder goes on with these codes
                pipeline.restore_partition(0, tree)
    pipeline.finish()
    return readers_see(pipeline, with_history=False).report()


class Holder:
    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline


@pytest.mark.parametrize("shared", [True, False], ids=["one-topic", "two-topics"])
def test_when_nothing_was_decided_does_not_depend_on_when_somebody_looked(shared: bool, tmp_path: Path) -> None:
    truth = read(shared, 100, False, tmp_path)
    (paired,) = (c for c in truth["comparisons"] if c["setup"] == "paired")
    changes = [change["kind"] for change in paired["changes"]]
    assert changes[:2] == ["withheld", "restored"]
    assert changes.count("withheld") > 1
    for size, looks, killed in ((50, True, False), (3_000, True, False), (200, True, True)):
        assert not differences(read(shared, size, looks, tmp_path, killed), truth), (size, looks, killed)


@cache
def lagging() -> tuple[bytes, ...]:
    """Most of the clicks of a minute and a half come at its end, and the hour of event time ends soon after."""
    scenario = replace(SCENARIO, start_ms=SCENARIO.start_ms // HOUR * HOUR + HOUR - 430_000)
    luck = Random(3)
    out = []
    for number, event in enumerate(events(Traffic(scenario))):
        at = (event.arrives - scenario.start_ms) / 1000
        if event.kind == "click" and 320.0 <= at < 415.0 and luck.random() < 0.9:
            at = 420.0
        out.append((at, number, event.json(with_type=True) + b"\n"))
    return tuple(line for *_, line in sorted(out))


@pytest.mark.parametrize("shared", [True, False], ids=["one-topic", "two-topics"])
def test_which_hours_are_left_out_because_clicks_lagged_does_not_depend_on_when_somebody_looked(
    shared: bool, tmp_path: Path
) -> None:
    late = lagging()
    truth = read(shared, 100, False, tmp_path, some=late)
    (paired,) = (c for c in truth["comparisons"] if c["setup"] == "paired")
    texts = [change["text"] for change in paired["changes"] if change["kind"] == "withheld"]
    assert any("came after the label of their impression was due" in text for text in texts)
    for size, looks, killed in ((50, True, False), (700, True, False), (200, True, True), (100, True, True)):
        assert not differences(read(shared, size, looks, tmp_path, killed, late), truth), (size, looks, killed)


def test_a_stretch_without_clicks_makes_the_run_unreliable_for_good_also_when_its_panes_are_let_go(
    tmp_path: Path,
) -> None:
    dead = replace(SCENARIO, dead_clicks=(100.0, 170.0))
    some = tuple(event.json(with_type=True) + b"\n" for event in events(Traffic(dead)))
    truth = read(True, 100, False, tmp_path, some=some)
    whole = {r["reliable_reason"] for r in truth["results"] if r["window"] == "all"}
    assert [why for why in whole if why and why.startswith("no clicks for")]
    for killed in (False, True):
        assert not differences(read(True, 100, True, tmp_path, killed, some), truth), killed
