"""Online models that a restart adds or removes: the others go on as if nothing had happened, and so does all that is logged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from river import base

from streameval.join.cold.ground import ALIGN
from streameval.loop.pipeline import Pipeline
from streameval.store.errors import StoreError
from streameval.testing import Shown, Tap, make_batch, readers_see
from tests.join.cold.test_cold_rows import Process, Run, stream
from tests.loop.test_keeper import BASE, make

OLD: dict[str, Any] = {"name": "old", "kind": "ftrl", "bits": 12}
NEW: dict[str, Any] = {"name": "1", "kind": "ftrl", "bits": 10, "alpha": 0.3}
STOPS = 40_000, 62_000, 87_000  # events; all of them are 99,000


def through(
    path: Path, segment_rows: int, models: list[list[dict[str, Any]]], **more: Any
) -> tuple[dict[str, Any], int]:
    """The report of a stream that is read by four processes, each with models of its own; and segments there were at most."""
    stops, most = [*STOPS, 1 << 40], 0
    for stop, some in zip(stops, models, strict=True):
        process = Process(path, segment_rows, models=some, **more)
        for done, batch in stream().batches(process.pipeline.catalog, 4_000, True, process.begin):
            process.pipeline.take(batch)
            if segment_rows:
                process.settle()
                most = max(most, len(process.cold.segments))
            if done >= stop:
                break
        if stop == stops[-1]:
            process.pipeline.finish()
            return readers_see(process.pipeline, with_history=False).report() | {
                "learned": learned(process.pipeline)
            }, most
        process.keeper.close()
    raise AssertionError


def learned(pipeline: Pipeline) -> dict[str, int]:
    """Labels by model."""
    return {one.name: one.updates for one in pipeline.partitions[0].learners}


def of(report: dict[str, Any], *models: str) -> dict[str, Any]:
    """What a report says of some models; deploys have numbers, and other models have deploys, too."""
    compared = [one for one in report["comparisons"] if one["candidate"]["model"] in models]
    return {
        "results": [one for one in report["results"] if one["model"] in models],
        "comparisons": [{key: one[key] for key in one.keys() - {"id", "deploy"}} for one in compared],
    }


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"join": {"score_at": "label"}}], ids=["", "scores at the label"])
def test_a_model_is_added_and_the_others_do_not_notice(more: dict[str, Any], tmp_path: Path) -> None:
    models = [[OLD], [NEW, OLD], [NEW, OLD], [OLD, NEW]]
    truth = Run(tmp_path / "truth", stream(), 0, models=[OLD], **more).report
    in_memory, _ = through(tmp_path / "memory", 0, models, **more)
    on_disk, most = through(tmp_path / "disk", ALIGN, models, **more)
    assert most >= 3
    assert of(on_disk, "ctr", "old") == of(in_memory, "ctr", "old") == of(truth, "ctr", "old")
    assert of(on_disk, "1") == of(in_memory, "1")
    (whole,) = [r for r in of(on_disk, "1")["results"] if r["window"] == "all" and r["slice"] is None]
    (of_old,) = [r for r in of(on_disk, "old")["results"] if r["window"] == "all" and r["slice"] is None]
    assert 0.4 * of_old["impressions"] < whole["impressions"] < 0.7 * of_old["impressions"]
    assert 0 < on_disk["learned"]["1"] <= whole["impressions"] + of_old["impressions"] // 20
    assert not on_disk.get("online_failures", {}).get("1")


@pytest.mark.slow
def test_a_model_is_removed_and_comes_back_as_a_new_one(tmp_path: Path) -> None:
    models = [[OLD, NEW], [NEW], [NEW], [NEW, OLD]]
    truth = Run(tmp_path / "truth", stream(), 0, models=[NEW]).report
    in_memory, _ = through(tmp_path / "memory", 0, models)
    on_disk, _ = through(tmp_path / "disk", ALIGN, models)
    assert of(on_disk, "ctr", "1") == of(in_memory, "ctr", "1") == of(truth, "ctr", "1")
    assert of(on_disk, "old") == of(in_memory, "old")
    assert 0 < on_disk["learned"]["old"] < on_disk["learned"]["1"] // 3
    (compared,) = of(on_disk, "old")["comparisons"]
    assert (compared["verdict"], compared["reason"]) == ("undecided", "learning")


class Strict(base.Classifier):
    """Fails on an impression without the feature that it needs."""

    def predict_proba_one(self, x: dict[str, float]) -> dict[bool, float]:
        return {True: x["price"], False: 1.0 - x["price"]}

    def learn_one(self, x: dict[str, float], y: bool) -> None:
        assert x["price"] > 0.0


def feed(pipeline: Pipeline, start: int, count: int) -> None:
    some: list[Shown | Tap] = []
    for i in range(start, start + count):
        some.append(Shown(f"{i}", BASE + i * 1000, f"u{i % 7}", 0.3, "v1", features={"price": 0.25}))
        some.append(Tap(f"{i}", BASE + i * 1000 + 500))
    batch = make_batch(some, pipeline.catalog)
    if not pipeline.settings.models:  # no decoder makes what nobody asks for
        batch = replace(batch, impressions=replace(batch.impressions, features=None))
    pipeline.take(replace(batch, offsets={("impressions", 0): start + count}))


def test_the_first_model_neither_scores_nor_learns_what_came_before_it_without_features(tmp_path: Path) -> None:
    pipeline, keeper, _ = make(tmp_path)
    keeper.take(frozenset({0}))
    feed(pipeline, 0, 500)
    for start in (500, 520):  # of the first sixty there are some that wait at the second restart, too
        keeper.close()
        strict = {"name": "strict", "kind": "river", "factory": f"{__name__}.Strict", "max_failures": 1}
        pipeline, keeper, _ = make(tmp_path, models=[strict])
        keeper.take(frozenset({0}))
        feed(pipeline, start, 20)
    feed(pipeline, 540, 400)
    report = readers_see(pipeline).report()
    assert not report.get("online_failures", {}).get("strict")
    (whole,) = [r for r in report["results"] if r["model"] == "strict" and r["window"] == "all"]
    assert whole["log_loss"] == pytest.approx(-np.log(0.25))
    assert whole["impressions"] == learned(pipeline)["strict"] > 300


def test_a_model_that_is_another_one_under_the_same_name_is_refused(tmp_path: Path) -> None:
    pipeline, keeper, _ = make(tmp_path, models=[OLD])
    keeper.take(frozenset({0}))
    feed(pipeline, 0, 100)
    keeper.close()
    _, changed, _ = make(tmp_path, models=[NEW, {**OLD, "alpha": 0.5}])
    with pytest.raises(StoreError, match=r"models\.old = .*Give the model another name, set it back"):
        changed.take(frozenset({0}))
