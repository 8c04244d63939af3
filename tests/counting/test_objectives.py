"""Objectives: the label of an objective counts as if the clicks that reach its threshold were the only ones."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from streameval.events.batch import Catalog, Series, Shadow
from streameval.loop.pipeline import Pipeline
from streameval.results.result import Result
from streameval.settings.tree import Settings
from streameval.testing import Event, ManualClock, Shown, Tap, make_batch, readers_see

pytestmark = pytest.mark.slow

BASE = 1_700_000_040_000
WINDOW, HORIZON = 20_000, 100_000
AT_LEAST = 10.0
OBJECTIVE = {"name": "long", "value_at_least": AT_LEAST}
N = 3_000


def config(objectives: list[dict], **users: str) -> Settings:
    tree = {
        "join": {"attribution_window": "20s", "allowed_lateness": "5s", "correction_horizon": "100s", "request_gap": "10s"},
        "windows": {"pane": "10s", "sliding": ["60s"]},
        "users": users,
        "objectives": objectives,
    }  # fmt: skip
    return Settings.model_validate(tree)


def log(seed: int) -> list[Event]:
    """Impressions of some users in lists of four; up to three clicks of some value on each, some after the label was due."""
    luck = Random(seed)
    arrivals: list[tuple[int, int, Event]] = []
    for i in range(N):
        ts = BASE + 80 * i
        p = round(luck.uniform(0.05, 0.7), 2)
        arrivals.append((ts, i, Shown(f"i{i}", ts, f"u{luck.randrange(150)}", p, "v1", f"r{i // 4}")))
        if luck.random() < p:
            for _ in range(luck.choice([1, 1, 2, 3])):
                clicked = ts + luck.randrange(0, WINDOW)
                tap = Tap(f"i{i}", clicked, {"value": luck.choice([1.0, 4.0, AT_LEAST, 30.0])})
                arrivals.append((clicked + luck.choice([0, 0, 0, 40_000]), i, tap))
    return [event for _, _, event in sorted(arrivals, key=lambda one: one[:2])]


def only_what_reaches(events: list[Event]) -> list[Event]:
    """The clicks that make an impression positive for the objective; the others are on nothing, at the same times."""
    done: set[str] = set()
    out: list[Event] = []
    for e in events:
        first = isinstance(e, Tap) and e.fields["value"] >= AT_LEAST and e.id not in done
        done |= {e.id} if first else set()
        out.append(e if first or isinstance(e, Shown) else replace(e, id=f"nobody-{len(out)}"))
    return out


def run(settings: Settings, events: list[Event], cuts: int = 7, shared: bool = True) -> Pipeline:
    """The events in batches, of two versions that both score everything."""
    pipeline = Pipeline(settings, ManualClock())
    luck, left = Random(cuts), list(events)
    while left:
        size = luck.choice([1, 50, 400])
        batch = make_batch(left[:size], pipeline.catalog, shared=shared)
        n = len(batch.impressions)
        other = np.full(n, pipeline.catalog.series_code("default", "w1"), np.int32)
        shadow = Shadow(np.arange(n + 1), other, np.round(1 - batch.impressions.pclick, 2))
        pipeline.take(replace(batch, impressions=replace(batch.impressions, shadow=shadow)))
        left = left[size:]
        if luck.random() < 0.2:
            readers_see(pipeline, with_history=False)
    pipeline.finish()
    return pipeline


def results(pipeline: Pipeline, objective: str) -> list[Result]:
    return [r for r in readers_see(pipeline).results if r.series.objective == objective]


def as_plain(result: Result) -> dict:
    """Without what is of values, and of the clicks that found nothing."""
    out = replace(result, series=result.series.plain).as_json()
    reasons = {name: why for name, why in out.pop("reasons").items() if "value" not in name}
    return {k: v for k, v in out.items() if "value" not in k and not k.startswith("reliable")} | {"reasons": reasons}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shared", [True, False])
def test_an_objective_counts_what_a_log_of_only_its_clicks_counts(seed: int, shared: bool) -> None:
    events = log(seed)
    found = results(run(config([OBJECTIVE]), events, shared=shared), "long")
    plain = results(run(config([]), only_what_reaches(events), shared=shared), "")
    assert len(found) == len(plain) == 4
    for one, other in zip(found, plain, strict=True):
        assert as_plain(one) == as_plain(other)
        assert one.scores.positives.tolist() == other.scores.positives.tolist()
    assert found[0].corrected > 50
    assert found[0].metrics["gauc_request"] is not None


def test_an_objective_does_not_depend_on_how_far_one_log_was_read_ahead() -> None:
    events = log(5)
    ahead: list[Event] = []  # clicks by the hundred, each time before the impressions that they came after
    for at in range(0, len(events), 500):
        part = events[at : at + 500]
        ahead += [e for e in part if isinstance(e, Tap)] + [e for e in part if isinstance(e, Shown)]
    found = [results(run(config([OBJECTIVE]), order, shared=False), "long") for order in (events, ahead)]
    assert [r.as_json() for r in found[0]] == [r.as_json() for r in found[1]]
    assert found[0][0].stderrs["auc"]


def test_metrics_of_an_objective_are_those_of_its_labels() -> None:
    events = log(7)
    largest: dict[str, float] = {}
    for e in events:
        if isinstance(e, Tap):
            largest[e.id] = max(largest.get(e.id, 0.0), e.fields["value"])
    shown = [e for e in events if isinstance(e, Shown)]
    label = np.array([largest.get(e.id, 0.0) >= AT_LEAST for e in shown])
    p = np.array([e.pclick for e in shown])
    (found,) = (
        r for r in results(run(config([OBJECTIVE]), events), "long") if (r.window, r.series.version) == ("all", "v1")
    )
    assert found.totals.clicks == label.sum() < sum(e.id in largest for e in shown)
    assert found.metrics["auc"] == pytest.approx(roc_auc_score(label, p), abs=1e-12)
    assert found.metrics["log_loss"] == pytest.approx(log_loss(label, p), abs=1e-9)
    assert found.as_json()["objective"] == "long"


def test_by_value_requests_are_weighted_by_the_objectives_clicks() -> None:
    """As users do: a click that is worth too little is none, so its worth is no weight."""
    events = log(8)
    worth: dict[str, float] = {}
    for e in events:
        if isinstance(e, Tap):
            worth[e.id] = max(worth.get(e.id, 0.0), e.fields["value"])
    for group, name in ((lambda e: e.request, "gauc_request"), (lambda e: e.user, "gauc")):
        groups: dict[str, list[tuple[float, float]]] = {}
        for e in events:
            if isinstance(e, Shown):
                value = worth.get(e.id, 0.0)
                groups.setdefault(group(e), []).append((e.pclick, value if value >= AT_LEAST else 0.0))
        both = [np.array(g).T for g in groups.values() if len({value > 0 for _, value in g}) == 2]
        weights = [value.sum() for _, value in both]
        found = results(run(config([OBJECTIVE], weighting="value"), events), "long")[0]
        assert (found.window, found.series.version) == ("all", "v1")
        aucs = [roc_auc_score(value > 0, p) for p, value in both]
        assert found.metrics[name] == pytest.approx(np.average(aucs, weights=weights), abs=1e-9), name


def test_the_plain_results_do_not_know_of_objectives() -> None:
    events = log(1)
    several = [OBJECTIVE, {"name": "any", "value_at_least": 1, "versions": ["w*"]}]
    with_, without = (results(run(config(which, weighting="value"), events), "") for which in (several, []))
    assert [r.as_json() for r in with_] == [r.as_json() for r in without]
    assert {r.as_json()["objective"] for r in without} == {None}


def test_versions_are_chosen_by_patterns_and_batches_change_nothing() -> None:
    events = log(2)
    several = [OBJECTIVE, {"name": "any", "value_at_least": 1, "versions": ["w*", "x?"]}]
    reports = []
    for cuts in (3, 4):
        pipeline = run(config(several), events, cuts, shared=False)
        snapshot = readers_see(pipeline)
        reports.append([r.as_json() for r in snapshot.results])
        assert {(s.version, s.objective) for s in snapshot.panes} == {
            ("v1", ""), ("w1", ""), ("v1", "long"), ("w1", "long"), ("w1", "any")
        }  # fmt: skip
        assert {c.candidate.objective for c in snapshot.comparisons} <= {""}
    assert reports[0] == reports[1]
    by_clicks, by_any = (
        next(r for r in readers_see(pipeline).results if r.series == Series("default", "w1", "logged", name))
        for name in ("", "any")
    )
    assert as_plain(by_any) == as_plain(by_clicks)  # every click is worth that much


def test_codes_of_objectives_do_not_count_against_the_limit_of_versions() -> None:
    one, other = (Catalog(max_series=3) for _ in range(2))
    for i in range(6):
        code = one.series_code("m", f"v{i}")
        assert one.series[one.objective_code(code, "long")] == one.series[code]._replace(objective="long")
        other.series_code("m", f"v{i}")
    assert [s for s in one.series if not s.objective] == other.series
    assert len(one.codes) == len(other.codes)
    adopted = Catalog(max_series=3)
    adopted.series_code("m", "v2")
    codes = adopted.adopt(one.names()).series
    assert [adopted.series[c] for c in codes] == one.series
    first = one.codes[0]
    for code in (*one.objectives_of(first), first):
        one.retire(code)
    assert one.objectives_of(first) == []
    assert one.series[one.series_code("m", "v9")].version == "v9"
