"""Events that carry `shown: false` change no metric of impressions and no watermark; numbers that rows keep."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streameval.events.batch import Catalog
from streameval.events.fields import ALWAYS, ANYTHING, FIELDS, Field, Need
from streameval.join.joiner import Joiner
from streameval.join.policy import JoinPolicy
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings
from streameval.sources.formats.decode import Decoder
from streameval.store import container
from streameval.testing import ManualClock, Shown, make_batch, readers_see

T0 = 1_700_000_000_000


def settings(**more: Any) -> Settings:
    join = {"attribution_window": "60s", "allowed_lateness": "5s", "correction_horizon": "1h"}
    return Settings.model_validate(
        {"join": join, "windows": {"pane": "10s", "sliding": ["60s"]}, "slices": {"dimensions": ["country"]}, **more}
    )


def impression(k: int, rng: random.Random) -> dict[str, Any]:
    return {
        "impression_id": f"i{k}", "ts": T0 + 200 * k, "user_id": f"u{k % 7}", "request_id": f"r{k // 5}",
        "item_id": f"d{k % 11}", "pclick": rng.random() ** 2, "predictions": {"v2": rng.random() ** 2},
        "slices": {"country": rng.choice(["de", "fr"])},
    }  # fmt: skip


def traffic(with_candidates: bool) -> list[dict[str, Any]]:
    rng, others = random.Random(5), random.Random(6)
    out: list[dict[str, Any]] = []
    for k in range(600):
        out.append(impression(k, rng))
        if rng.random() < 0.3:
            out.append({"type": "click", "impression_id": f"i{k}", "ts": T0 + 200 * k + 900, "user_id": f"u{k % 7}"})
        if with_candidates and k % 2:
            far = others.choice([0, -86_400_000, 50_000_000])  # long ago, and ahead of all others
            out.append(
                {
                    **impression(k, others), "impression_id": others.choice([f"n{k}", f"i{k}"]), "shown": False,
                    "ts": T0 + 200 * k + far, "slices": {"country": f"c{k}"},
                }
            )  # fmt: skip
    return out


def report(events: list[dict[str, Any]], size: int) -> tuple[dict[str, Any], list[int]]:
    clock = ManualClock(T0 / 1000 + 100_000)
    pipeline = Pipeline(settings(), clock)
    decoder = Decoder(pipeline.catalog, clock=lambda: T0 + 100_000_000, max_future=0)
    marks = []
    for start in range(0, len(events), size):
        values = [json.dumps(event).encode() for event in events[start : start + size]]
        batch, letters = decoder.messages(
            values, [0] * len(values), topic=("t",), partition=0, offsets=range(len(values)), format="json", shared=True
        )
        assert not letters
        pipeline.take(batch)
        marks.append(max((part.watermark for part in pipeline.partitions.values()), default=0))
    pipeline.finish()
    return readers_see(pipeline).report(), marks


def test_they_change_no_metric_and_no_watermark() -> None:
    plain, before = report(traffic(False), 10_000)
    full, after = report(traffic(True), 10_000)
    in_pieces, _ = report(traffic(True), 97)
    assert in_pieces == full
    assert full["events"].pop("candidates") == 300
    assert full == plain
    assert after == before
    assert "candidates" not in plain["events"]


def test_a_batch_of_nothing_else_is_silence() -> None:
    pipeline = Pipeline(settings(), ManualClock())
    some = make_batch([Shown("a", T0), Shown("b", T0 + 90_000)], pipeline.catalog)
    pipeline.take(replace(some, impressions=some.candidates, candidates=some.impressions))
    assert not pipeline.partitions
    assert readers_see(pipeline).report()["events"]["candidates"] == 2


def test_they_are_counted_over_a_restart(tmp_path: Path) -> None:
    pipeline, again = Pipeline(settings(), ManualClock()), Pipeline(settings(), ManualClock())
    some = make_batch([Shown("a", T0)], pipeline.catalog)
    pipeline.take(replace(some, candidates=some.impressions))
    state = pipeline.partition_state(0)
    assert state is not None
    container.write(tmp_path / "checkpoint", state)
    again.restore_partition(0, container.read(tmp_path / "checkpoint"))
    assert readers_see(again).report()["events"]["candidates"] == 1


# -- numbers that rows keep --------------------------------------------------------------------------------------


@pytest.fixture
def propensity(monkeypatch: pytest.MonkeyPatch) -> Field:
    one = replace(FIELDS["propensity"], needs=(ALWAYS,))
    monkeypatch.setitem(FIELDS, "propensity", one)
    return one


def policy(*keep: Field) -> JoinPolicy:
    return JoinPolicy(60_000, 5_000, 3_600_000, keep=keep)


def batch(k: int, catalog: Catalog, **fields: float) -> Any:
    return make_batch([Shown(f"i{k}-{j}", T0 + 1000 * k + j, fields=fields) for j in range(100)], catalog)


def test_a_number_takes_memory_once_a_row_has_it(propensity: Field) -> None:
    catalog, joiner, bare = Catalog(), Joiner(policy(propensity)), Joiner(policy())
    for k in range(20):
        joiner.add(batch(k, catalog))
        bare.add(batch(k, catalog))
    assert joiner.nbytes == bare.nbytes
    everywhere = np.arange(2000)
    assert np.isnan(joiner.table.kept_field(0, everywhere)).all()
    joiner.add(batch(20, catalog, propensity=0.25))
    joiner.add(batch(21, catalog))
    assert joiner.nbytes >= bare.nbytes + 8 * 2200
    column = joiner.table.kept_field(0, np.arange(2200))
    assert np.isnan(column[:2000]).all()
    assert (column[2000:2100] == 0.25).all()
    assert np.isnan(column[2100:]).all()


def test_it_moves_with_the_rows_when_the_table_grows(propensity: Field) -> None:
    catalog, joiner = Catalog(), Joiner(policy(propensity))
    joiner.add(batch(0, catalog, propensity=0.5))
    for k in range(1, 40):
        joiner.add(batch(k, catalog))
    column = joiner.table.kept_field(0, slice(0, 4000))
    assert (column[:100] == 0.5).all()
    assert np.isnan(column[100:]).all()


@pytest.mark.usefixtures("propensity")
def test_a_number_can_be_carried_and_be_a_slice_dimension() -> None:
    pipeline = Pipeline(settings(slices={"dimensions": ["propensity"]}), ManualClock())
    decoder = Decoder(pipeline.catalog, clock=lambda: T0 + 1_000_000, max_future=0)
    events = [{**impression(k, random.Random(k)), "propensity": 0.05 if k % 2 else 0.7} for k in range(10)]
    values = [json.dumps(event).encode() for event in events]
    batch, _ = decoder.messages(
        values, [0] * 10, topic=("t",), partition=0, offsets=range(10), format="json", shared=True
    )
    pipeline.take(batch)
    pipeline.finish()
    table = pipeline.partitions[0].joiner.table
    kept = table.kept_field([one.name for one in table.kept].index("propensity"), slice(0, 10))
    assert kept.tolist() == [0.7, 0.05] * 5
    found = {
        (result.slice[1], result.totals.impressions)
        for result in readers_see(pipeline).results
        if result.slice is not None and result.series.version != "v2"
    }
    assert {("0.01-0.1", 5), (">=0.5", 5)} <= found


@pytest.mark.parametrize(
    ("value", "holds"), [(None, False), ((), False), ("", False), (False, False), (("a",), True), ({"k": 1}, True)]
)
def test_a_need_of_anything_asks_whether_the_setting_is_there(value: object, holds: bool) -> None:
    class Tree:
        section = value

    assert Need("section", ANYTHING).holds(Tree()) is holds
    assert Need("no.such", ANYTHING).holds(Tree()) is False
