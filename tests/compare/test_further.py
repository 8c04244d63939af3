"""Further metrics of comparisons end to end: found where they are worse, and nothing else of a comparison moves for them."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streameval.compare.reading.as_json import comparison_json, looks_json
from streameval.compare.reading.reading import Comparison
from streameval.loop.pipeline import Pipeline
from streameval.simulate.encode import Message
from streameval.simulate.scenario import Version
from streameval.sources.formats.decode import Decoder
from streameval.store import container
from streameval.testing import readers_see
from tests.compare.explain.test_explanations import Wire, batches, counted, kept, make_pipeline, scenario, traffic

pytestmark = pytest.mark.slow

RULE = {"alpha": 0.05, "min_duration": "5m"}
RARE = "jp"  # what is shown there is shown rarely


def propensities(worse: bool) -> Iterator[Message]:
    """A shadow version that differs from the one that serves only in what is rarely shown, if at all."""
    for event in traffic(scenario()):
        if event.kind != "impression":
            yield event
            continue
        fields = {**event.fields}
        p, rare = fields["pclick"], fields["slices"]["country"] == RARE
        fields["propensity"] = 0.02 if rare else 0.5
        fields["predictions"] = {"v2": min(3.0 * p, 0.95) if rare and worse else p}
        yield Message(event.arrives, event.kind, event.key, fields)


with_propensities = kept(propensities)


@kept
def split(lost: float = 0.0) -> Iterator[Message]:
    """Half of the users each; of the candidate's clicks a share is lost."""
    some = scenario(versions=(Version("v1", share=0.5), Version("v2", share=0.5, start_s=60.0)), shadow=False)
    served = {}
    for event in traffic(some):
        if event.kind == "impression":
            served[event.fields["impression_id"]] = event.fields["model_version"]
        elif served.get(event.fields["impression_id"]) == "v2" and event.arrives % 100 < 100 * lost:
            continue
        yield event


@kept
def valued(lost: float, second: float = 0.0, late: bool = False) -> Iterator[Message]:
    """Arms alike in clicks; of the candidate's worth a share is lost. A third of the clicks has a second one, worth so many times as much."""
    waiting: list[Message] = []
    some = scenario(versions=(Version("v1", share=0.5), Version("v2", share=0.5, start_s=60.0)), shadow=False)
    served = {}
    for event in traffic(some):
        while waiting and waiting[0].arrives <= event.arrives:
            yield waiting.pop(0)
        if event.kind == "impression":
            served[event.fields["impression_id"]] = event.fields["model_version"]
            yield event
            continue
        draw = zlib.crc32(event.fields["impression_id"].encode())
        new = served.get(event.fields["impression_id"]) == "v2"
        worth = (1.0 + draw % 7) * (1.0 - lost if new else 1.0)
        yield Message(event.arrives, "click", event.key, {**event.fields, "value": worth})
        if second and draw % 3 == 0:
            again = {**event.fields, "value": second * worth}
            if late:
                waiting.append(Message(event.arrives + 1_500_000, "click", event.key, again))
            else:
                yield Message(event.arrives, "click", event.key, again)
    yield from waiting


@kept
def with_policies(share: float, fair: bool = True) -> Iterator[Message]:
    """A shadow version whose policy would show less of what is clicked: a `share` of it, and, if it is `fair`, as much more of the rest."""
    high = [e.fields["pclick"] > 0.15 for e in traffic(scenario()) if e.kind == "impression"]
    more = 1.0 + (1.0 - share) * sum(high) / (len(high) - sum(high)) if fair else 1.0
    for event in traffic(scenario()):
        fields = {**event.fields}
        if event.kind == "impression":
            draw = zlib.crc32(fields["impression_id"].encode())
            fields["propensity"] = 0.1 + 0.1 * (draw % 4)
            fields["policies"] = {"v2": fields["propensity"] * (share if fields["pclick"] > 0.15 else more)}
            fields["predictions"] = {"v2": fields["pclick"]}
        else:
            fields["value"] = 1.0 + zlib.crc32(fields["impression_id"].encode()) % 3
        yield Message(event.arrives, event.kind, event.key, fields)


def over(partitions: int, some: Iterable[Wire], **sections: Any) -> Pipeline:
    """A pipeline that has taken these events from so many partitions."""
    pipeline = make_pipeline(**sections)
    decoder = Decoder(pipeline.catalog, clock=lambda: 1 << 60, max_future=0)
    every = list(some)
    for start in range(0, len(every), 3_000):
        for number in range(partitions):
            mine = [e for e in every[start : start + 3_000] if zlib.crc32(e.key) % partitions == number]
            values, n = [event.json(with_type=True) for event in mine], len(mine)
            pipeline.take(
                decoder.messages(values, [0] * n, topic=("t",), partition=number, offsets=range(n), format="json", shared=True)[0]
            )  # fmt: skip
    pipeline.finish()
    return pipeline


def told(pipeline: Pipeline, setup: str, whole: bool = False) -> tuple[Comparison, dict[str, Any]]:
    """A comparison, and its metrics by name. `whole`: with what explains it, for which panes and users are made, too."""
    found = comparison(readers_see(pipeline).comparisons if whole else pipeline.compare(), setup)
    return found, {m.metric: m for m in found.metrics}


def comparison(some: Iterable[Comparison], setup: str) -> Comparison:
    return next(c for c in some if c.setup == setup)


def without(found: Comparison, more: tuple[str, ...]) -> dict[str, Any]:
    out = comparison_json(replace(found, metrics=tuple(m for m in found.metrics if m.metric not in more)))
    looks = looks_json(found.looks)
    assert looks
    for look in looks:
        for name in more:
            look["metrics"].pop(name, None)
    return out | {"looks": looks}


@functools.cache
def said_plainly() -> Comparison:
    """What is said, without further metrics, of a version that is worse where little is shown."""
    return told(counted(with_propensities(True), compare=RULE), "paired", whole=True)[0]


def test_a_version_worse_on_rarely_shown_items_is_worse_by_more_under_uniform_exposure() -> None:
    more = ("log_loss_snips", "ctr")
    found, metrics = told(counted(with_propensities(True), compare={**RULE, "more": more}), "paired", whole=True)
    snips, plain = metrics["log_loss_snips"], metrics["log_loss"]
    assert snips.verdict == "worse"
    assert snips.difference > 2.0 * plain.difference > 0.0
    assert snips.supported_now
    assert snips.lower < snips.difference < snips.upper
    assert snips.candidate / snips.baseline - 1.0 == pytest.approx(snips.difference)
    assert (metrics["ctr"].reason, metrics["ctr"].verdict, metrics["ctr"].difference) == (
        "only_in_split_comparisons",
        "undecided",
        None,
    )
    assert without(found, more) == without(said_plainly(), more)  # to the bit, looks included


def test_ctr_is_found_worse_by_itself_and_overall_only_where_it_decides() -> None:
    found, metrics = told(counted(split(0.4), compare={**RULE, "more": ["ctr"]}), "split", whole=True)
    assert metrics["ctr"].verdict == "worse"
    assert metrics["ctr"].difference == pytest.approx(-0.4, abs=3.0 * metrics["ctr"].stderr)
    assert metrics["ctr"].candidate / metrics["ctr"].baseline - 1.0 == pytest.approx(metrics["ctr"].difference)
    plainly, _ = told(counted(split(0.4), compare=RULE), "split", whole=True)
    assert without(found, ("ctr",)) == without(plainly, ("ctr",))
    assert "ctr" not in {m.metric for m in plainly.metrics}
    alone, _ = told(counted(split(0.4), compare={**RULE, "more": ["ctr"], "decide": ["ctr"]}), "split")
    assert alone.verdict == "worse"
    assert alone.decided_on is not None
    assert alone.decided_on.metric == "ctr"
    calm, metrics = told(counted(split(), compare={**RULE, "more": ["ctr"], "decide": ["log_loss", "ctr"]}), "split")
    assert calm.verdict != "worse"
    assert metrics["ctr"].verdict != "worse"


@kept
def with_orders(worse: bool) -> Iterator[Message]:
    """A shadow version that says the same of an impression, or, where it is worse, what should have been said of the next one."""
    before = 0.05
    for event in traffic(scenario()):
        if event.kind == "impression":
            p = event.fields["pclick"]
            fields = {**event.fields, "predictions": {"v2": before if worse else p}}
            before = p
            yield Message(event.arrives, event.kind, event.key, fields)
        else:
            yield event


def test_a_worse_ranking_of_lists_is_worse_in_ndcg_and_mrr_and_equal_orders_are_certified() -> None:
    more = ("ndcg_3", "mrr")
    compare = {**RULE, "more": more, "gauc_window": "5m"}
    found, metrics = told(counted(with_orders(True), compare=compare), "paired")
    for name in more:
        one = metrics[name]
        assert one.verdict == "worse", name
        assert one.lower < one.difference < one.upper < 0.0
        assert one.candidate - one.baseline == pytest.approx(one.difference)
        assert 0.3 < one.baseline <= 1.0
    plainly, _ = told(counted(with_orders(True), compare={**RULE, "gauc_window": "5m"}), "paired")
    assert without(found, more) == without(plainly, more)
    _, metrics = told(counted(with_orders(False), compare=compare), "paired")
    assert [(metrics[name].verdict, metrics[name].difference) for name in more] == [("not_worse", 0.0)] * 2


def test_without_propensities_or_enough_of_them_it_says_so() -> None:
    compare = {**RULE, "more": ["log_loss_snips"]}
    _, metrics = told(counted(traffic(scenario()), compare=compare), "paired")
    snips = metrics["log_loss_snips"]
    assert (snips.reason, snips.difference, snips.baseline, snips.verdict) == (
        "no_propensities",
        None,
        None,
        "undecided",
    )

    def heavy() -> Iterator[Message]:
        seen = 0
        for event in propensities(True):
            if event.kind == "impression":
                seen += 1
                event.fields["propensity"] = 1e-4 if seen == 4_000 else 1.0
            yield event

    _, metrics = told(counted(heavy(), compare=compare), "paired")
    snips = metrics["log_loss_snips"]
    assert (snips.reason, snips.verdict, snips.lower) == ("too_few_effective_samples", "undecided", None)
    assert snips.difference is not None


def test_a_restart_changes_nothing_and_a_new_metric_begins_with_it(tmp_path: Path) -> None:
    compare = {**RULE, "more": ["log_loss_snips", "pauc", "mrr"]}

    def through(first: dict[str, Any], then: dict[str, Any], cut: int = 8) -> Comparison:
        pipeline = make_pipeline(compare=first)
        some = list(batches(pipeline, with_propensities(True)))
        for batch in some[:cut]:
            pipeline.take(batch)
        readers_see(pipeline)
        state = pipeline.partition_state(0)
        assert state is not None
        container.write(tmp_path / "state", state)
        again = make_pipeline(compare=then)
        again.restore_partition(0, container.read(tmp_path / "state"))
        for batch in list(batches(again, with_propensities(True)))[cut:]:
            again.take(batch)
        again.finish()
        return told(again, "paired", whole=True)[0]

    whole, _ = told(counted(with_propensities(True), compare=compare), "paired", whole=True)
    assert without(through(compare, compare), ()) == without(whole, ())
    later = through(RULE, compare)
    snips = later.metrics[-3]
    assert later.start > whole.start  # the rule is another one
    assert snips.metric == "log_loss_snips"
    assert snips.difference is not None
    assert [m.metric for m in through(compare, RULE).metrics] == ["log_loss", "auc", "gauc", "calibration"]


def test_however_batches_are_cut_the_further_sums_are_the_same() -> None:
    compare = {**RULE, "more": ["log_loss_snips", "mrr"], "gauc_window": "5m"}
    one, _ = told(counted(with_propensities(True), compare=compare), "paired", whole=True)
    pipeline = make_pipeline(compare=compare)
    for batch in batches(pipeline, with_propensities(True), size=701):
        pipeline.take(batch)
    pipeline.finish()
    other, _ = told(pipeline, "paired", whole=True)
    assert np.isfinite(one.metrics[-2].difference or np.nan)
    assert without(one, ()) == without(other, ())


def test_clicks_that_are_worth_less_are_worse_in_value_alone() -> None:
    more = ("ctr", "value", "click_yield")
    compare = {**RULE, "more": more, "gauc_window": "5m"}
    found, metrics = told(counted(valued(0.5), compare=compare), "split")
    assert metrics["value"].verdict == "worse"
    assert metrics["value"].difference == pytest.approx(-0.5, abs=3.0 * metrics["value"].stderr)
    assert metrics["value"].candidate / metrics["value"].baseline - 1.0 == pytest.approx(metrics["value"].difference)
    for name in ("ctr", "click_yield"):
        assert metrics[name].verdict != "worse"
        assert metrics[name].reason is None
    plainly, _ = told(counted(valued(0.5), compare={**RULE, "gauc_window": "5m"}), "split")
    assert without(found, more) == without(plainly, more)  # to the bit, looks included


def test_fewer_clicks_a_request_are_worse_and_requests_without_clicks_count() -> None:
    pipeline = counted(split(0.5), compare={**RULE, "more": ["click_yield", "value"], "gauc_window": "5m"})
    _, metrics = told(pipeline, "split")
    yields = metrics["click_yield"]
    assert yields.verdict == "worse"
    assert yields.upper < 0.0
    assert metrics["value"].reason == "too_few_clicks"  # no click names a worth
    live = {
        r.series.version: r.metrics["click_yield"]
        for r in readers_see(pipeline).results
        if r.window == "all" and not r.slice
    }
    assert yields.baseline == pytest.approx(live["v1"], rel=0.05)  # by window, of the hours in which both served
    assert yields.candidate == pytest.approx(live["v2"], rel=0.05)


def test_a_second_click_that_is_worth_more_counts_whenever_it_comes() -> None:
    compare = {**RULE, "more": ["value"]}
    on_time, late, never = (
        told(counted(some, compare=compare), "split")[1]["value"]
        for some in (valued(0.0, 10.0), valued(0.0, 10.0, late=True), valued(0.0))
    )
    assert (late.baseline, late.candidate, late.difference) == (on_time.baseline, on_time.candidate, on_time.difference)
    assert on_time.baseline > 2.0 * never.baseline


def test_a_version_worse_at_the_top_of_the_curve_is_worse_in_partial_auc() -> None:
    compare = {**RULE, "more": ["pauc"]}
    found, metrics = told(
        counted(with_propensities(True), compare=compare, metrics={"operating_range": [0.0, 0.2]}),
        "paired",
        whole=True,
    )
    area = metrics["pauc"]
    assert area.verdict == "worse"
    assert area.candidate - area.baseline == pytest.approx(area.difference)
    assert area.lower < area.difference < area.upper < 0.0
    assert area.difference < 1.3 * metrics["auc"].difference  # the wrong ones are at the top
    assert without(found, ("pauc",)) == without(said_plainly(), ("pauc",))
    _, same = told(counted(with_propensities(False), compare=compare), "paired")
    assert (same["pauc"].difference, same["pauc"].stderr, same["pauc"].verdict) == (0.0, 0.0, "not_worse")


def test_a_policy_that_would_show_fewer_clicked_items_is_worse() -> None:
    compare = {**RULE, "more": ["policy_value"]}
    _, metrics = told(counted(with_policies(0.6), compare=compare), "paired")
    assert metrics["policy_value"].reason is None
    assert metrics["policy_value"].verdict == "worse"
    assert metrics["policy_value"].difference < 0.0
    assert metrics["policy_value"].candidate / metrics["policy_value"].baseline - 1.0 == pytest.approx(
        metrics["policy_value"].difference
    )
    _, wrong = told(counted(with_policies(0.6, fair=False), compare=compare), "paired")  # they do not add up
    assert (wrong["policy_value"].reason, wrong["policy_value"].verdict) == ("propensities_inconsistent", "undecided")
    _, none = told(counted(with_propensities(False), compare=compare), "paired")
    assert (none["policy_value"].reason, none["policy_value"].difference) == ("no_policy", None)


def up_to_the_last_impression(some: tuple[Wire, ...]) -> tuple[Wire, ...]:
    """With nothing after them, each partition's own last event says whether clicks are late."""
    last = max(place for place, event in enumerate(some) if event.kind == "impression")
    return some[: last + 1]


@pytest.mark.parametrize(("setup", "pane"), [("paired", "1m"), ("split", "1m"), ("paired", "1s"), ("split", "1s")])
def test_the_number_of_partitions_changes_nothing(setup: str, pane: str) -> None:
    if setup == "paired":
        more, some = ("log_loss_snips", "policy_value", "ndcg_3", "mrr", "pauc"), lambda: with_policies(0.9)
    else:
        more, some = ("ctr", "value", "click_yield"), lambda: up_to_the_last_impression(valued(0.2, 3.0, late=True))
    compare = {**RULE, "more": more, "gauc_window": "5m", "user_cap": 0}
    sections = {"compare": compare, "windows": {"pane": pane, "sliding": ["1h"]}}
    one, *others = (told(over(n, some(), **sections), setup)[0] for n in (1, 4, 8))
    assert all(m.difference is not None for m in one.metrics if m.metric in more)
    for other in others:
        assert [m for m in other.metrics if m.metric in more] == [m for m in one.metrics if m.metric in more]
