"""An online model that begins with the stream, end to end: `learning`, then judged on what comes after; however it was cut."""

from __future__ import annotations

import functools
import itertools
import json
from pathlib import Path

import pytest

from streameval.compare.reading.as_json import comparison_json
from streameval.compare.reading.reading import Comparison, Role
from streameval.events.batch import Series
from streameval.loop.pipeline import Pipeline
from streameval.results.snapshot import Snapshot
from streameval.simulate.scenario import Version
from streameval.store import container
from streameval.testing import readers_see
from tests.compare.explain.test_explanations import batches, make_pipeline, scenario, traffic

pytestmark = pytest.mark.slow

FTRL = Series("ftrl", "online", "online")
SETTINGS = {
    "compare": {"alpha": 0.05, "min_duration": "2m", "learning_window": "5m", "horizon": "2h"},
    "models": [{"name": "ftrl", "kind": "ftrl", "bits": 12, "alpha": 0.3, "l2": 0.1}],
}
STREAM = {"versions": (Version("v1", noise=0.1),), "shadow": False, "duration_s": 3_000.0, "ctr": 0.15}
SIZE = 2_000


def pipeline_over(count: int | None = None, size: int = SIZE) -> Pipeline:
    """It is looked at comparisons after each batch."""
    pipeline = make_pipeline(**SETTINGS)
    for batch in itertools.islice(batches(pipeline, traffic(scenario(**STREAM)), size), count):
        pipeline.take(batch)
        pipeline.compare()
    return pipeline


def of_ftrl(snapshot: Snapshot) -> Comparison | None:
    return next((c for c in snapshot.comparisons if c.candidate == FTRL), None)


def plain(snapshot: Snapshot) -> str:
    one = of_ftrl(snapshot)
    assert one is not None
    told = comparison_json(one)
    return json.dumps({**told, "early": None, "findings": [f for f in told["findings"] if f["dimension"] != "user"]})


@functools.cache
def undisturbed() -> Snapshot:
    pipeline = pipeline_over()
    pipeline.finish()
    return readers_see(pipeline)


def test_nothing_is_judged_while_it_learns_and_only_what_comes_after_counts() -> None:
    pipeline = make_pipeline(**SETTINGS)
    seen: list[tuple[str, Comparison]] = []
    for batch in batches(pipeline, traffic(scenario(**STREAM)), SIZE):
        pipeline.take(batch)
        snapshot = readers_see(pipeline)
        if (one := of_ftrl(snapshot)) is not None:
            seen.append((snapshot.roles[FTRL].name, one))
    learning = [one for role, one in seen if role == "learning"]
    assert len(learning) > 3
    assert {(one.verdict, one.reason, one.floors_met) for one in learning} == {("undecided", "learning", False)}
    assert learning[-1].roles[1] == learning[0].roles[1]
    end = undisturbed()
    assert end.roles == {Series("ctr", "v1", "logged"): Role("live", 1.0), FTRL: Role("shadow")}
    last = of_ftrl(end)
    assert last is not None
    assert last.start > learning[0].start
    assert last.changes[0].kind == "anew"
    assert last.deploy == learning[0].deploy


def test_whatever_the_batches_it_has_learned_at_the_same_look() -> None:
    other = pipeline_over(size=777)
    other.finish()
    assert plain(readers_see(other)) == plain(undisturbed())


@pytest.mark.parametrize("count", [8, 16, 24])
def test_a_restart_on_the_way_changes_nothing(tmp_path: Path, count: int) -> None:
    state = pipeline_over(count).partition_state(0)
    assert state is not None
    container.write(tmp_path / "state", state)
    again = make_pipeline(**SETTINGS)
    again.restore_partition(0, container.read(tmp_path / "state"))
    for batch in itertools.islice(batches(again, traffic(scenario(**STREAM)), SIZE), count, None):
        again.take(batch)
        again.compare()
    again.finish()
    assert plain(readers_see(again)) == plain(undisturbed())
