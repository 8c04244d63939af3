"""Comparisons over a restart whose [compare] is another one."""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from streameval.compare.reading.as_json import comparison_json, looks_json
from streameval.compare.reading.reading import Comparison, Role
from streameval.events.batch import Series
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings
from streameval.store import container
from streameval.testing import ManualClock, Shown, Tap, make_batch, readers_see
from tests.compare.explain.test_explanations import batches, broken, comparison, make_pipeline, scenario

pytestmark = pytest.mark.slow

RULE = {"alpha": 0.05, "min_duration": "5m"}
OF_ALL: Mapping[str, object] = MappingProxyType({})  # settings of metrics as they are by default


def begun(count: int, metrics: Mapping[str, object] = OF_ALL, **compare: object) -> Pipeline:
    """A pipeline that has read so many batches of a stream of 18, in which a shadow version is worse."""
    pipeline = make_pipeline(compare={**RULE, **compare}, metrics=metrics)
    for batch in itertools.islice(batches(pipeline, broken(scenario())), count):
        pipeline.take(batch)
    return pipeline


def restarted(
    before: Pipeline,
    path: Path,
    metrics: Mapping[str, object] = OF_ALL,
    edit: Callable[[dict[str, Any]], None] = lambda state: None,
    **compare: object,
) -> Pipeline:
    """Another process with these settings, from the checkpoint of the one before, after an `edit`."""
    state = before.partition_state(0)
    assert state is not None
    edit(state)
    container.write(path, state)
    out = make_pipeline(compare={**RULE, **compare}, metrics=metrics)
    out.restore_partition(0, container.read(path))
    return out


def paired(pipeline: Pipeline) -> Comparison:
    return comparison(readers_see(pipeline), "paired")


def rest(pipeline: Pipeline, count: int) -> None:
    for batch in itertools.islice(batches(pipeline, broken(scenario())), count, None):
        pipeline.take(batch)
    pipeline.finish()


def test_a_running_comparison_restarts_when_the_rule_changes_and_gets_a_verdict(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = begun(9)
    before = paired(pipeline)
    assert before.impressions > 1_000
    with caplog.at_level(logging.WARNING):
        again = restarted(pipeline, tmp_path / "state", alpha=0.01, margins={"auc": 0.002})
    assert f"comparison {before.id} restarts: the settings in [compare], or of its metrics, have changed" in caplog.text
    (anew,) = paired(again).changes
    assert (anew.kind, anew.at, anew.verdict) == ("anew", before.looked, "undecided")
    assert anew.text == "the settings in [compare], or of its metrics, have changed"
    rest(again, 9)
    after = paired(again)
    assert after.changes[0] == anew
    assert (after.id, after.alpha, after.start) == (before.id, 0.01, before.looked)
    assert {m.metric: m.margin for m in after.metrics}["auc"] == 0.002
    assert after.verdict == "worse"
    rest(pipeline, 9)
    whole = paired(pipeline)
    assert after.impressions + before.impressions == whole.impressions  # each is of one of the two, and none is lost


def test_an_ended_comparison_keeps_its_result_under_its_own_rule(tmp_path: Path) -> None:
    short = {"horizon": "15m", "keep": "1h"}
    pipeline = begun(15, **short)
    before = paired(pipeline)
    assert before.verdict == "worse"
    again = restarted(pipeline, tmp_path / "state", **short, alpha=0.01, min_clicks=10_000)
    rest(again, 15)
    rest(pipeline, 15)
    assert comparison_json(paired(again)) == comparison_json(paired(pipeline))
    assert paired(again).alpha == 0.05


def test_a_comparison_of_pauc_restarts_when_the_operating_range_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its sums went on with another range: half of a pAUC up to 0.1, half of one up to 0.5."""
    more, other = {"more": ["pauc"]}, {"operating_range": [0.0, 0.5]}
    pipeline = begun(9, **more)
    before = paired(pipeline)
    again = restarted(pipeline, tmp_path / "state", metrics=other, **more)
    assert f"comparison {before.id} restarts" in caplog.text
    rest(again, 9)
    anew = begun(9, metrics=other, **more)
    restarted_anew = restarted(anew, tmp_path / "anew", metrics=other, **more, alpha=0.04)
    rest(restarted_anew, 9)
    pauc, same = ({m.metric: m for m in paired(one).metrics}["pauc"] for one in (again, restarted_anew))
    assert pauc.difference == pytest.approx(
        same.difference, abs=pauc.stderr / 4
    )  # sums of the first pane are whole in one
    assert paired(again).start == before.looked


def test_what_a_rule_does_not_use_restarts_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pipeline = begun(9)
    assert paired(pipeline).impressions > 1_000
    restarted(pipeline, tmp_path / "state", metrics={"operating_range": [0.0, 0.5]})
    assert "restarts" not in caplog.text


def test_a_longer_horizon_restarts_what_runs_and_leaves_what_has_ended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What had ended went on, and had further looks."""
    pipeline = begun(15, horizon="15m", keep="12h")
    assert paired(pipeline).verdict == "worse"
    again = restarted(pipeline, tmp_path / "ended", horizon="6h", keep="12h")
    assert "restarts" not in caplog.text
    rest(again, 15)
    rest(pipeline, 15)
    assert comparison_json(paired(again)) == comparison_json(paired(pipeline))
    running = begun(9, horizon="6h", keep="24h")
    before = paired(running)
    again = restarted(running, tmp_path / "running", horizon="12h", keep="24h")
    assert f"comparison {before.id} restarts" in caplog.text
    assert paired(again).start == before.looked


def test_a_checkpoint_of_an_older_version_restarts_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Those before format 13 do not say how long a comparison runs, nor what is in its sums."""

    def as_before(state: dict[str, Any]) -> None:
        for one in state["comparisons"]["tracked"]:
            del one["rule"]["horizon"], one["rule"]["pieces"]

    settings = {"more": ["pauc"], "horizon": "6h", "keep": "12h"}
    pipeline = begun(9, **settings)
    assert paired(pipeline).impressions > 1_000
    again = restarted(pipeline, tmp_path / "state", edit=as_before, **settings)
    assert "restarts" not in caplog.text
    rest(again, 9)
    rest(pipeline, 9)
    assert comparison_json(paired(again)) == comparison_json(paired(pipeline))


def test_a_verdict_outlives_the_sums_that_it_rests_on(tmp_path: Path) -> None:
    longer = begun(14, horizon="15m", keep="1h")
    rest(longer, 14)
    kept = paired(longer)
    assert kept.findings
    short = {"horizon": "15m", "keep": "20m"}
    pipeline = begun(14, **short)
    again = restarted(pipeline, tmp_path / "state", **short)
    rest(again, 14)
    rest(pipeline, 14)
    gone = paired(pipeline)
    assert (gone.verdict, gone.since) == (kept.verdict, kept.since) == ("worse", kept.since)
    assert not gone.findings
    assert [m.metric for m in gone.metrics[:2]] == ["log_loss", "auc"]  # no window of GAUC was over at the last look
    assert 0.9 * kept.impressions < gone.impressions <= kept.impressions
    assert 0.9 * kept.blocks < gone.blocks <= kept.blocks  # they were 0
    for before, after in list(zip(kept.metrics, gone.metrics, strict=True))[:2]:
        assert after.difference == pytest.approx(before.difference, abs=before.stderr)
        assert (after.verdict, after.log_e_worse, after.p_worse) == (before.verdict, before.log_e_worse, before.p_worse)
    assert comparison_json(paired(again)) == comparison_json(gone)


def whole_json(found: Comparison) -> tuple[object, object]:
    return comparison_json(found), looks_json(found.looks)


def test_comparisons_alone_equal_those_of_snapshots_and_old_panes_are_dropped() -> None:
    joins = {"attribution_window": "2m", "allowed_lateness": "30s", "correction_horizon": "5m", "request_gap": "1m"}
    alone, whole = (make_pipeline(compare=RULE, join=joins, windows={"sliding": ["5m"]}) for _ in range(2))
    verdicts = set()
    steps = zip(*(batches(pipeline, broken(scenario())) for pipeline in (alone, whole)), strict=True)
    for batch, same in steps:
        alone.take(batch)
        whole.take(same)
        said = alone.compare()
        explained = readers_see(whole).comparisons
        plain = [
            replace(c, findings=(), mixes=(), mixes_unknown=(), calibration_buckets=(), early=()) for c in explained
        ]
        assert [whole_json(c) for c in said] == [whole_json(c) for c in plain if c.impressions]
        verdicts |= {c.verdict for c in said}
        kept = [pipeline.partitions[0].scoreboard.overall.numbers() for pipeline in (alone, whole)]
        assert kept[0] == kept[1]
    assert verdicts == {"undecided", "worse"}
    assert any(c.findings for c in explained)
    assert 0 < len(kept[0]) < 15  # of 40


@pytest.mark.parametrize("withheld", ["too_many_clicks_without_an_impression", None])
def test_without_sums_the_reason_is_the_one_that_counts(withheld: str | None) -> None:
    pipeline = begun(9, alpha=1e-12)
    before = paired(pipeline)
    (tracked,) = (t for t in pipeline._comparisons._board.tracked if t.id == before.id)
    tracked.look((before.looked or 0) + 60_000, withheld)
    tracked.freeze()
    gone = tracked.reading()
    assert (gone.verdict, gone.withheld, gone.reason) == (
        "undecided",
        withheld is not None,
        withheld or "no_longer_kept",
    )
    assert gone.impressions > 0


def test_gauc_waits_for_a_complete_window_of_users_not_for_clicks() -> None:
    found = paired(begun(9))
    by = {m.metric: m for m in found.metrics}
    assert found.clicks >= 200  # which is enough for any verdict
    assert (by["gauc"].difference, by["gauc"].reason) == (None, "no_complete_window")
    assert by["auc"].difference is not None
    assert by["auc"].reason is None


def test_a_restart_under_the_same_rule_continues(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pipeline = begun(9)
    again = restarted(pipeline, tmp_path / "state", min_clicks=200)  # the default, written out
    assert "restarts" not in caplog.text
    rest(again, 9)
    rest(pipeline, 9)
    assert comparison_json(paired(again)) == comparison_json(paired(pipeline))


def test_the_log_warns_only_about_versions_that_serve(caplog: pytest.LogCaptureFixture) -> None:
    pipeline = begun(7)
    shadow = paired(pipeline)
    assert shadow.verdict == "undecided"
    board = pipeline._comparisons._board
    board.arrivals(board.arrived, {shadow.candidate: 5_000})  # it serves for a moment, and is rolled back
    with caplog.at_level(logging.INFO):
        rest(pipeline, 7)
        served = next(c for c in reversed(readers_see(pipeline).comparisons) if c.setup == "paired")
    said = ((re.match(r"comparison (\S+): ", r.getMessage()), r.levelno) for r in caplog.records)
    levels = {found[1]: level for found, level in said if found}
    assert served.candidate.version == "v1"
    assert levels[served.id] == logging.WARNING
    assert levels[shadow.id] == logging.INFO


def test_a_version_that_serves_is_no_shadow_while_one_partition_s_clicks_are_silent() -> None:
    tree = {"join": {"attribution_window": "10s", "allowed_lateness": "2s", "idle_timeout": "30s"}}
    clock = ManualClock()
    pipeline = Pipeline(Settings.model_validate(tree), clock)
    pipeline.inputs = ("impressions", "clicks")
    series = Series("default", "v1", "logged")

    def minutes(first: int, last: int, clicks_from: set[int]) -> None:
        for second in range(first * 60, last * 60, 10):
            for partition in (0, 1):
                ts, name = 1_700_000_040_000 + second * 1000, f"{partition}-{second}"
                events: list[Shown | Tap] = [Shown(f"{name}-{i}", ts + i, "u", 0.3) for i in range(20)]
                events += [Tap(f"{name}-0", ts + 100)] if partition in clicks_from else []
                pipeline.take(make_batch(events, pipeline.catalog, partition, shared=False))
            clock.advance(10)
            pipeline.tick(lambda: {("clicks", 1)})

    minutes(0, 20, {0})
    found = readers_see(pipeline)
    assert found.results[0].totals.impressions > 4000  # their labels are shown
    assert series not in found.roles  # it was called a shadow
    minutes(20, 25, {0, 1})
    assert readers_see(pipeline).roles[series] == Role("live", 1.0)
