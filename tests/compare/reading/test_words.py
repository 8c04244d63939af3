"""One line for people: the sentence, its places, and whose comparison it is about."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from streameval.compare.reading.choice import best, deploy_and_comparison, headlines, newest_first, worse_live
from streameval.compare.reading.reading import Comparison, DecidedOn, Estimate, Finding, Role, Verdict
from streameval.compare.reading.words import clock_time, difference, headline, plain
from streameval.events.batch import Series
from tests.comparisons import MINUTE, NOON, comparison, deploy, reading, unknown

WORSE = (
    "v2 is worse than v1: decided 12:03 UTC on AUC -0.018 (99% per metric: -0.026 to -0.010), now -0.012 (-0.016 to "
    "-0.008); also worse: log loss"
)
NOT_KEPT = dict.fromkeys(("decided_at", "decided_on", "decided_now", "supported_now"))  # by an older checkpoint


def said(of: Comparison) -> str:
    """The words of a comparison for who reads them on the day of its verdict."""
    return headline(of, NOON + 10 * MINUTE)


def test_a_verdict_is_one_sentence_with_the_metric_that_tells_it() -> None:
    assert said(comparison()) == WORSE
    assert said(comparison("not_worse")).startswith("v2 is not worse than v1: ")
    line = said(comparison("undecided"))
    assert line == (
        "v2 against v1 is undecided: AUC -0.003 (99% per metric: -0.007 to +0.001), after 41,234 impressions and "
        "802 clicks (too few clicks)"
    )
    assert said(comparison(candidate=Series("ctr", "v2", "logged"))).startswith("ctr v2 is worse")


def test_a_verdict_that_is_not_shown_any_more_says_so() -> None:
    gone = comparison(decided_now=Estimate(-0.001, -0.007, 0.005), supported_now=False)
    assert said(gone) == (
        "v2 was found worse than v1: decided 12:03 UTC on AUC -0.018 (99% per metric: -0.026 to -0.010), now -0.001 "
        "(-0.007 to +0.005), which no longer supports it; also worse: log loss"
    )
    together = replace(comparison(), decided_on=DecidedOn("auc", Estimate(-0.01, -0.021, 0.001), NOON, alone=False))
    assert (
        "decided 12:03 UTC on all metrics together, first AUC -0.010 (99% per metric: -0.021 to +0.001), now -0.012"
        in said(together)
    )  # as many places as what stands beside it
    of_most = replace(
        comparison(), decided_on=DecidedOn("auc", Estimate(0.002, -0.021, 0.025), NOON, alone=False, capped=True)
    )
    assert (
        "decided 12:03 UTC on most users, each capped at compare.user_cap impressions a day; over all impressions AUC "
        "+0.002 (99% per metric: -0.021 to +0.025), now " in said(of_most)
    )
    later = replace(
        comparison(), decided_on=DecidedOn("auc", Estimate(-0.018, -0.026, -0.01), NOON + MINUTE, alone=True)
    )
    assert "-0.010) of the traffic since 12:01 UTC, now" in said(later)


def test_a_verdict_of_an_older_checkpoint_is_held_against_the_interval_of_now() -> None:
    auc = reading("auc", difference=-0.001, lower=-0.007, upper=0.005, log_e_worse=-1.0)
    assert said(comparison(metrics=(auc,), **NOT_KEPT)) == (
        "v2 was found worse than v1: decided 12:03 UTC, now AUC -0.001 (99% per metric: -0.007 to +0.005), which no longer "
        "supports it"
    )
    assert said(comparison(metrics=(reading("auc"),), **NOT_KEPT)) == (
        "v2 is worse than v1: decided 12:03 UTC, now AUC -0.012 (99% per metric: -0.016 to -0.008)"
    )


def test_metrics_that_are_worse_by_themselves_are_named_beside_another_verdict() -> None:
    auc, loss = reading("auc"), reading("log_loss", "undecided")
    assert said(comparison("undecided", metrics=(loss, auc), reason=None)).endswith(
        "after 41,234 impressions and 802 clicks; worse on that metric alone: AUC"
    )
    past = replace(auc, supported_now=False)
    assert "alone" not in said(comparison("undecided", metrics=(loss, past), reason=None))


def test_clicks_of_split_arms_are_those_of_the_one_that_has_fewer() -> None:
    assert "after 41,234 impressions and 802 clicks in the arm with fewer" in said(comparison("undecided", "split"))


def test_a_version_that_serves_nobody_is_labelled_and_one_that_learns_is_not_judged() -> None:
    live, shadow, learning = Role("live", 0.9), Role("shadow"), Role("learning")
    assert said(comparison(roles=(live, shadow))) == WORSE + " (it only scores in shadow)"
    assert said(comparison(roles=(shadow, live))) == WORSE
    begun = comparison(
        "undecided", roles=(live, learning), reason="learning", candidate=Series("ftrl", "online", "online")
    )
    assert said(begun).startswith(
        "ftrl online is still learning, and not evaluated against v1 yet: AUC -0.003 (99% per metric"
    )


def test_a_verdict_was_retracted() -> None:
    assert said(comparison("undecided", retracted=True)).endswith(
        "(a verdict was retracted because labels behind it changed)"
    )


def test_a_warning_and_a_withheld_verdict_are_labelled_so() -> None:
    assert "(before/after cannot tell the deploy from drift: a warning only)" in said(comparison(setup="before_after"))
    held = comparison(withheld=True, reason="join_rate_low")
    assert said(held).endswith("also worse: log loss (withheld: join rate low)")


def test_an_unknown_difference_is_worded_without_numbers() -> None:
    assert said(comparison("undecided", metrics=(), impressions=0, clicks=0)) == (
        "v2 against v1 is undecided: after 0 impressions and 0 clicks (too few clicks)"
    )
    assert said(comparison(metrics=(unknown("auc"),), since=None, **NOT_KEPT)) == "v2 is worse than v1"


def test_clicks_that_were_not_looked_at_are_no_zero() -> None:
    """Before/after counts the clicks of hours that have a counterpart before the deploy: there may have been others."""
    found = comparison(
        "undecided", setup="before_after", metrics=(), impressions=28_758, clicks=0, blocks=0, reason=None
    )
    assert said(found) == "v2 against v1 is undecided: after 28,758 impressions"


@pytest.mark.parametrize(
    ("metric", "value", "lower", "upper", "says"),
    [
        ("auc", -0.012, -0.0165, -0.0082, "AUC -0.012 (95% per metric: -0.017 to -0.008)"),
        ("auc", -0.00041, -0.00052, -0.0003, "AUC -0.0004 (95% per metric: -0.0005 to -0.0003)"),
        ("log_loss", 0.0123, 0.008, 0.0165, "log loss +1.2% (95% per metric: +0.8% to +1.7%)"),
        ("log_loss", 1.47, -1973.0, 1958.0, "log loss +147%"),
        ("log_loss", 0.5, -3.0, 0.9, "log loss +50% (95% per metric: at most +90%)"),
        ("calibration", 1.41, 1.2, 1.6, "calibration +141% (95% per metric: +120% to +160%)"),
        (
            "auc",
            -0.3,
            -0.6,
            -0.04,
            "AUC -0.30 (95% per metric: -0.60 to -0.04)",
        ),  # not "to 0.0", of a version found worse
        ("log_loss", 0.4, 0.002, 0.8, "log loss +40.0% (95% per metric: +0.2% to +80.0%)"),
        ("auc", -0.02, None, -0.01, "AUC -0.020 (95% per metric: at most -0.010)"),
        ("log_loss", 0.02, 0.01, None, "log loss +2.0% (95% per metric: at least +1.0%)"),
        ("auc", -0.02, None, None, "AUC -0.020"),
        ("auc", -0.02, -math.inf, math.inf, "AUC -0.020"),
        ("auc", 0.0, 0.0, 0.0, "AUC 0.0000 (95% per metric: 0.0000 to 0.0000)"),
    ],
)
def test_numbers_have_the_places_that_their_interval_makes_sense_of(metric, value, lower, upper, says) -> None:
    assert difference(reading(metric, difference=value, lower=lower, upper=upper), 0.05, metric) == says


def test_a_time_has_its_date_only_on_another_day() -> None:
    assert clock_time(NOON, NOON + MINUTE) == "12:00 UTC"
    assert clock_time(NOON, NOON + 86_400_000) == "2024-05-01 12:00 UTC"
    assert clock_time(1 << 62, None) == "an unknown time"


def test_a_verdict_has_its_date_for_who_reads_it_on_another_day() -> None:
    worse = comparison()  # last looked at ten minutes after noon, as a stream that has ended since leaves it
    assert "decided 12:03 UTC on AUC" in headline(worse, NOON + 11 * 3_600_000)
    assert "decided 2024-05-01 12:03 UTC on AUC" in headline(worse, NOON + 20 * 86_400_000)
    assert "decided 2024-05-01 12:03 UTC on AUC" in headline(worse)  # of a report it is not known when it is read
    later = replace(worse, decided_on=DecidedOn("auc", Estimate(-0.018, -0.026, -0.01), NOON + MINUTE, alone=True))
    assert "of the traffic since 2024-05-01 12:01 UTC" in headline(later, NOON + 20 * 86_400_000)
    kept = comparison(metrics=(reading("auc"),), **NOT_KEPT)
    assert "decided 2024-05-01 12:03 UTC, now" in headline(kept, NOON + 20 * 86_400_000)


def test_a_hostile_name_stays_one_short_line() -> None:
    assert plain("v\n2\x1b[31m") == "v\N{REPLACEMENT CHARACTER}2\N{REPLACEMENT CHARACTER}[31m"
    assert len(plain("x" * 1000)) == 80
    line = said(comparison(candidate=Series("default", "v\r\n2" * 100, "logged")))
    assert line.isprintable()
    assert len(line) < 300


def test_the_best_setup_that_has_met_its_floors_speaks() -> None:
    thin = comparison("undecided", "paired", floors_met=False)
    split, before = comparison("undecided", "split"), comparison("worse", "before_after")
    assert best([before, split, thin]) is split
    assert best([before, thin]) is before
    assert best([comparison("worse", "paired", floors_met=False), split]).setup == "paired"  # decided, so it has
    assert best([]) is None


LIVE, SHADOW, RETIRED = Role("live"), Role("shadow"), Role("retired")


def test_a_comparison_that_is_over_does_not_hide_a_warning() -> None:
    """After the full switch only before/after gets data; for as long as both serve, `split` tells more than it does."""
    warning = comparison("worse", "before_after", roles=(RETIRED, LIVE))
    for verdict in ("undecided", "not_worse"):
        for setup, roles in (("split", (RETIRED, LIVE)), ("split", (SHADOW, LIVE)), ("paired", (RETIRED, LIVE))):
            assert best([comparison(verdict, setup, roles=roles), warning]) is warning
        for setup, roles in (("split", (LIVE, LIVE)), ("paired", (SHADOW, LIVE)), ("paired", (LIVE, SHADOW))):
            assert best([warning, found := comparison(verdict, setup, roles=roles)]) is found


def test_a_comparison_that_is_over_stands_for_what_it_has_found() -> None:
    """`worse` beside a mere warning, also of a version that was rolled back; a certificate until there is a warning."""
    warning, nothing = (comparison(v, "before_after", roles=(RETIRED, LIVE)) for v in ("worse", "undecided"))
    for roles in ((RETIRED, LIVE), (LIVE, RETIRED)):
        assert best([warning, found := comparison("worse", "split", roles=roles)]) is found
    assert best([nothing, found := comparison("not_worse", "split", roles=(RETIRED, LIVE))]) is found
    assert best([nothing, found := comparison("undecided", "split", roles=(RETIRED, LIVE))]) is found


def test_a_paired_comparison_that_is_over_does_not_hide_a_split() -> None:
    """Of a version that was rolled back: nobody would learn why."""
    paired, split = (comparison(v, s, roles=(LIVE, RETIRED)) for v, s in (("undecided", "paired"), ("worse", "split")))
    assert best([paired, split]) is split


def test_the_newest_deploy_speaks_for_a_model_and_an_older_verdict_never_does() -> None:
    old, new = deploy(2, "v2"), deploy(3, "v3", noticed=None, announced=True)
    verdict = comparison()
    assert newest_first([old, new]) == [new, old]
    assert newest_first([replace(old, id="9"), replace(old, id="10")])[0].id == "10"
    assert deploy_and_comparison([old, new], [verdict], "default") == (new, None)
    assert deploy_and_comparison([old, new], [verdict], "default", "v2") == (old, verdict)
    # deployed again
    assert deploy_and_comparison([old, replace(new, version="v2")], [verdict], "default", "v2")[1] is None
    assert deploy_and_comparison([], [verdict], "default") == (None, verdict)
    assert deploy_and_comparison([old], [verdict], "other") == (None, None)


def test_an_announced_version_that_never_comes_hides_nothing_for_long() -> None:
    old, new = deploy(2, "v2"), deploy(3, "v2-rc1", noticed=None, announced=True)
    worse = comparison(roles=(LIVE, LIVE))
    assert deploy_and_comparison([old, new], [worse], "default") == (old, worse), "it is what serves"
    gone = comparison(roles=(LIVE, RETIRED))
    assert deploy_and_comparison([old, new], [gone], "default") == (new, None)
    for verdict in ("undecided", "not_worse"):
        soon = comparison(verdict, roles=(LIVE, LIVE), looked=new.at + 60 * MINUTE)
        assert deploy_and_comparison([old, new], [soon], "default") == (new, None)
        later = replace(soon, looked=new.at + 61 * MINUTE)
        assert deploy_and_comparison([old, new], [later], "default") == (old, later)
        assert deploy_and_comparison([old, new], [later], "default", "v2-rc1") == (new, None)


def test_headlines_have_one_line_a_model_and_the_bad_news_first() -> None:
    deploys = [deploy(i, model=f"m{i}") for i in range(30)]
    found = [
        comparison("worse" if i == 7 else "not_worse", number=i, candidate=Series(f"m{i}", "v2", "logged"))
        for i in range(30)
    ]
    lines = headlines(deploys, found)
    assert len(lines) == 20
    assert lines[0].candidate.model == "m7"


def test_every_live_version_that_is_worse_is_found_whichever_deploy_it_came_with() -> None:
    def one(number: int, verdict: Verdict, role: str = "live", **more: Any) -> Comparison:
        roles = (None, Role(role, 0.1 if role == "live" else None))  # type: ignore[arg-type]
        return comparison(verdict, number=number, candidate=Series("ads", f"v{number}", "logged"), roles=roles, **more)

    deploys = [deploy(number, f"v{number}", model="ads") for number in range(1, 7)]
    found = [
        one(1, "worse", supported_now=False, decided_at=NOON + 9),
        one(2, "worse", decided_at=NOON),
        one(3, "worse", "retired"),
        one(4, "worse", "shadow"),
        one(5, "worse", decided_at=NOON + 1),
        one(6, "undecided"),
    ]
    assert [c.candidate.version for c in headlines(deploys, found)] == ["v6"]
    worse = worse_live(deploys, found)
    assert {model: [c.candidate.version for c in some] for model, some in worse.items()} == {"ads": ["v5", "v2", "v1"]}
    again = [*deploys, deploy(8, "v5", model="ads")]  # of a later deploy of the same version nothing is known yet
    assert [c.candidate.version for c in worse_live(again, found)["ads"]] == ["v2", "v1"]
    assert worse_live(deploys, [one(6, "not_worse")]) == {}


def part(dimension: str, value: str, share: float, impressions: int = 4_000, significant: bool = True) -> Finding:
    return Finding(dimension, value, impressions, 80, 0.01, share, 9.0, significant)


@pytest.mark.parametrize(
    ("findings", "says"),
    [
        ((part("country", "DE", 0.6), part("pclick", "0-0.02", 0.4)), "; mostly country=DE and pClick 0-0.02"),
        ((part("country", "DE", 0.35), part("country", "FR", 0.5)), "; mostly country=FR"),  # one of a dimension
        ((part("country", "DE", 0.29),), ""),  # too little of it
        ((part("country", "DE", 0.6, impressions=20_000),), ""),  # no more than its share of the traffic
        ((part("country", "DE", 0.6, significant=False),), ""),
        ((part("user", "00c0ffee", 0.6),), ""),  # nobody is named in an alert
        ((part("a", "x", 0.5), part("b", "y", 0.9), part("c", "z", 0.7)), "; mostly b=y and c=z"),
    ],
)
def test_the_parts_that_carry_much_more_than_their_share_are_named(findings, says) -> None:
    line = said(comparison(findings=findings))
    assert line == WORSE + says
    assert "mostly" not in said(comparison("not_worse", findings=findings))


def test_parts_that_are_worse_are_named_of_a_version_that_is_not_worse_as_a_whole() -> None:
    better = Finding("device", "tv", 4_000, 80, -0.02, -0.5, 12.0, True)
    findings = (
        part("country", "br", 0.94),
        better,
        part("user", "00c0ffee", 0.6),
        part("os", "x", 2.0, significant=False),
    )
    for verdict in ("undecided", "not_worse"):
        assert "; worse for country=br" in said(comparison(verdict, findings=findings))
    assert "worse for" not in said(comparison(findings=findings)), "it says where, mostly"
    assert "worse for" not in said(comparison("undecided", findings=findings, withheld=True, reason="no clicks"))
