"""What a verdict falls on, and whether it is shown now: at the look that finds it, always; later, when it still is."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from streameval.compare.evidence.decision import Decision, decide
from streameval.compare.evidence.evidence import OVERALL, Rule
from streameval.compare.reading.as_json import comparison_json
from streameval.compare.reading.reading import COMPARED, Comparison, Deploy, Estimate, shows
from streameval.compare.reading.words import headline
from streameval.compare.tracking.sequential import SequentialTracked
from streameval.events.batch import Series
from tests.compare.pairs import draw, ledger_row, pair_rows

MINUTE, HOUR = 60_000, 3_600_000
V1, V2 = Series("m", "v1", "logged"), Series("m", "v2", "logged")
RULE = Rule(alpha=0.05, margins=dict.fromkeys(COMPARED, 0.0), windows=4, min_duration=5 * MINUTE)
NONE = Estimate(None, None, None)


def deploy(kind: str = "deploy") -> Deploy:
    return Deploy("1", "m", "v2", "v1", 0, kind, 0)  # type: ignore[arg-type]


def tracked(rule: Rule = RULE, kind: str = "deploy") -> SequentialTracked:
    return SequentialTracked(deploy(kind), "paired", V1, V2, 0, 0, rule)


def restored(state: Mapping[str, Any]) -> SequentialTracked:
    out = tracked()
    out.restore(state)
    return out


def row(minute: int, noise: float, bias: float = 0.0, n: int = 500) -> NDArray[np.int64]:
    """A minute in which the candidate is worse by `noise` (better when it is below 0), or promises too much by `bias`."""
    rng = np.random.default_rng(minute)
    block, y, p, q = draw(rng, n, noise=0.0)
    q = 1 / (1 + np.exp(-(np.log(q / (1 - q)) + abs(noise) * rng.normal(size=q.size) + bias)))
    return ledger_row(pair_rows(block, y, p, q) if noise >= 0 else pair_rows(block, y, q, p))


def feed(one: SequentialTracked, minutes: range, noise: float, bias: float = 0.0) -> list[Comparison]:
    """The reading after each minute."""
    out = []
    for minute in minutes:
        one.add(minute, (V1, V2), row(minute, noise, bias))
        one.look((minute + 1) * MINUTE, None)
        out.append(one.reading())
    return out


def in_json(of: Comparison) -> str:
    return json.dumps(comparison_json(of), allow_nan=False)


@pytest.mark.parametrize(
    ("noise", "bias", "verdict"), [(0.8, 0.0, "worse"), (0.0, 0.9, "worse"), (0.02, 0.0, "not_worse")]
)
def test_the_deciding_metric_shows_the_verdict_and_is_kept(noise: float, bias: float, verdict: str) -> None:
    one = tracked()
    seen = feed(one, range(60), noise, bias=bias)
    first = next(c for c in seen if c.verdict != "undecided")
    assert first.verdict == verdict
    assert (first.decided_at, first.supported_now) == (first.looked, True) == (first.since, True)
    assert first.decided_on is not None
    assert first.decided_on.alone
    assert first.decided_on.then == first.decided_now
    metric, then = first.decided_on.metric, first.decided_on.then
    assert shows(first.verdict, metric, then.lower, then.upper, RULE.margins[metric], RULE.tolerances[metric])
    last = seen[-1]
    assert (last.decided_at, last.decided_on) == (first.decided_at, first.decided_on)
    assert last.decided_now != last.decided_on.then
    assert all(c.decided_on is None and c.supported_now is None for c in seen if c.verdict == "undecided")


def test_a_difference_that_disappears_is_reported_next_to_the_verdict() -> None:
    one = tracked()
    found = feed(one, range(20), 1.0)[-1]
    assert found.verdict == "worse"
    assert "is worse than v1: decided 1970-01-01 00:0" in headline(found)
    gone = feed(one, range(20, 60), -1.0)[-1]
    assert gone.verdict == "worse"
    assert gone.supported_now is False
    assert gone.decided_on == found.decided_on
    assert "was found worse than v1: decided 1970-01-01 00:0" in headline(gone)
    assert "which no longer supports it" in headline(gone)


def test_a_late_break_is_decided_on_the_window_that_shows_it() -> None:
    one = tracked(Rule(alpha=0.05, margins=dict.fromkeys(COMPARED, 0.0), windows=4, min_duration=0))
    feed(one, range(60), 0.02)
    one.begin(60, 60 * MINUTE)
    seen = feed(one, range(60, 200), 0.45)
    first = next(c for c in seen if c.verdict == "worse")
    assert first.decided_on is not None
    assert first.decided_on.since in (0, 60 * MINUTE)
    log_e = first.log_e_worse, first.metrics[0].log_e_worse
    assert max(log_e) >= math.log(20)
    of_window = decide(
        RULE, "worse", 7, ([5.0, 0.0, 0.0, 0.0, 4.0], [0.0] * 5),
        lambda j: {"log_loss": Estimate(0.01, -0.001 if j == 0 else 0.004, 0.03)}, [0, 60 * MINUTE],
    )  # fmt: skip
    assert of_window is not None
    assert (of_window.window, of_window.on.since, of_window.on.alone) == (1, 60 * MINUTE, True)


def test_a_verdict_of_all_metrics_together_is_labelled_so() -> None:
    log_e = [2.4, 2.5, 0.0, 0.0, 3.1], [0.0] * 5
    estimates = {"log_loss": Estimate(0.01, -0.001, 0.03), "auc": Estimate(-0.01, -0.02, 0.001), "gauc": NONE}
    made = decide(RULE, "worse", 7, log_e, lambda _: estimates, [0])
    assert made is not None
    assert (made.on.metric, made.on.alone) == ("log_loss", False)  # e 11.0 at weight 0.45 is more than 12.2 at 0.4
    assert made.supported(RULE, estimates["log_loss"], log_e)  # by the evidence of all of them
    assert not made.supported(RULE, estimates["log_loss"], ([*log_e[0][:OVERALL], 2.9], log_e[1]))
    spent = Rule(alpha=0.05)  # decides sooner, and tells its evidence on the scale on which the level is 1 / alpha
    assert spent.log_level() < 2.9 < math.log(20)
    assert not made.supported(spent, NONE, ([*log_e[0][:OVERALL], 2.9], log_e[1]))
    assert decide(RULE, "worse", 7, log_e, lambda _: {"auc": NONE}, [0]) is None
    assert Decision.restore(json.loads(json.dumps(made.state()))) == made


@pytest.mark.parametrize(("cap", "then", "capped"), [(30, -0.03, True), (0, -0.03, False), (30, 0.02, False)])
def test_what_only_the_sums_under_the_cap_show_is_labelled_so(cap: int, then: float, capped: bool) -> None:
    """One user with a fifth of the traffic, for whom it is better, and everybody else, for whom it is worse."""
    rule = Rule(margins=dict.fromkeys(COMPARED, 0.0), user_cap=cap)
    log_e = [4.0, 1.0, 0.0, 0.0, 5.0], [0.0] * 5
    estimates = {"log_loss": Estimate(then, -0.4, 0.3), "auc": NONE}
    found = decide(rule, "worse", HOUR, log_e, lambda _: estimates, [0])
    assert found is not None
    assert (found.on.metric, found.on.alone, found.on.capped) == ("log_loss", False, capped)
    assert Decision.restore(json.loads(json.dumps(found.state()))) == found


def test_strict_mode_decides_on_log_loss() -> None:
    estimates = {"log_loss": Estimate(0.01, 0.001, 0.03), "auc": Estimate(-0.01, -0.02, -0.005)}
    log_e = [4.0, 9.0, 0.0, 0.0, 4.0], [0.0] * 5
    for strict, metric in ((True, "log_loss"), (False, "auc")):
        made = decide(RULE, "worse", 7, log_e, lambda _: estimates, [0], strict=strict)
        assert made is not None
        assert made.on.metric == metric


@given(st.integers(1, 59), st.sampled_from([0.8, 0.3, 0.02]))
@settings(max_examples=12, deadline=None)
@pytest.mark.slow
def test_a_restart_at_any_look_keeps_the_decision(cut: int, noise: float) -> None:
    whole = tracked()
    rows = [(minute, row(minute, noise)) for minute in range(60)]
    other = tracked()
    for minute, some in rows:
        for one in (whole, other):
            one.add(minute, (V1, V2), some)
            one.look((minute + 1) * MINUTE, None)
        if minute == cut:
            other = restored(json.loads(json.dumps(other.state())))
            for again, of in rows[: minute + 1]:
                other.add(again, (V1, V2), of)
        assert in_json(other.reading()) == in_json(whole.reading())


def test_a_decision_outlives_its_sums_and_an_older_checkpoint_has_none() -> None:
    one = tracked()
    kept = feed(one, range(30), 0.8)[-1]
    one.freeze()
    gone = one.reading()
    assert (gone.decided_at, gone.decided_on, gone.supported_now) == (kept.decided_at, kept.decided_on, True)
    assert gone.decided_now == kept.decided_now
    state = json.loads(json.dumps(one.state()))
    again = restored(state)
    again.freeze()
    assert in_json(again.reading()) == in_json(gone)
    for name in ("decision", "now", "learning", "since"):
        del state[name]
    older = restored(state).reading()
    assert (older.verdict, older.since) == ("worse", kept.since)
    assert (older.decided_at, older.decided_on, older.supported_now) == (None, None, None)


@pytest.mark.parametrize("noise", [0.8, 0.25, 0.1, 0.02])
def test_in_a_row_an_interval_and_its_verdict_do_not_contradict_each_other(noise: float) -> None:
    """An interval beyond the margin is `worse`, one within the tolerance `not_worse`, as soon as the floors are met."""
    for c in feed(tracked(), range(60), noise):
        for m in c.metrics:
            if not c.floors_met or m.lower is None:
                continue
            if shows("worse", m.metric, m.lower, m.upper, m.margin, m.tolerance):
                assert (m.verdict, m.supported_now) == ("worse", True)
            elif shows("not_worse", m.metric, m.lower, m.upper, m.margin, m.tolerance):
                assert m.verdict != "undecided"
            assert (m.decided_at is None) == (m.verdict == "undecided") == (m.supported_now is None)


def test_a_shadow_that_recovers_is_judged_again_and_a_deploy_never_is() -> None:
    for kind, lapses in (("shadow", True), ("deploy", False)):
        one = tracked(kind=kind)
        assert feed(one, range(20), 1.0)[-1].verdict == "worse"
        assert not one.lapsed(20 * MINUTE, HOUR)
        feed(one, range(20, 60), -1.0)
        assert one.lapsed(60 * MINUTE, HOUR) == lapses
    one = tracked(kind="shadow")
    feed(one, range(20), 1.0)
    one.start_over(20 * MINUTE, 20, "the evidence is gone")
    fresh = one.reading()
    assert (fresh.verdict, fresh.start, fresh.impressions, fresh.decided_on) == ("undecided", 20 * MINUTE, 0, None)
    assert fresh.changes[-1].kind == "anew"
    again = feed(one, range(20, 40), 1.0)[-1]
    assert again.verdict == "worse"
    assert [c.kind for c in again.changes] == ["verdict", "anew", "verdict"]


def test_a_retracted_verdict_loses_its_deciding_metric_and_may_be_reached_again() -> None:
    one = tracked()
    found = feed(one, range(30), 0.8)[-1]
    assert found.verdict == "worse"
    one.retract(0, 30 * MINUTE)
    taken = one.reading()
    assert (taken.verdict, taken.decided_at, taken.decided_on, taken.supported_now) == ("undecided", None, None, None)
    assert taken.retracted
    assert "a verdict was retracted" in headline(taken)
    again = feed(one, range(30, 32), 0.8)[-1]
    assert again.verdict == "worse"
    assert again.decided_at is not None
    assert again.decided_at > 30 * MINUTE
    assert again.supported_now is True
