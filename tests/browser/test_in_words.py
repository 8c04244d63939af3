"""What was behind a tooltip, cut off, or could not be taken along: in words on the page, within the screen, under every chart."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from streameval.compare.reading.reading import Role
from tests.browser.test_answers import LIVE, showing
from tests.browser.test_lists import served
from tests.browser.test_polish import V1
from tests.browser.test_taking import downloaded
from tests.browser.watching import Watched, ask, until
from tests.comparisons import comparison
from tests.server.conftest import Build

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

WHY = "no clicks for 10 min, where about 120 were expected"
# what is there to take along: a row of links for every chart and table
TAKEN = """() => [...document.querySelectorAll("main :is(figure, .scroll[role=region], .whole)")]
  .filter((one) => one.checkVisibility())
  .filter((one) => { const place = one.closest("figure, section, details.family, .view > div") ?? one.parentElement; return !place.querySelector(".taking"); })
  .map((one) => one.textContent.slice(0, 60))"""


@pytest.fixture(scope="module")
def lists() -> Iterator[str]:
    """A page over ads with auctions, objectives and propensities."""
    serving = served()
    yield serving.url
    serving.stop()


@pytest.mark.parametrize("width", [380, 1280])
def test_why_results_are_not_reliable_is_said_on_the_page(shown, watch, width: int) -> None:
    build = Build()
    v2, v3 = (V1._replace(version=version) for version in ("v2", "v3"))
    results = [replace(build.result(one, "5m"), reliable=False, reliable_reason=WHY) for one in (V1, v2)]
    late = replace(build.result(v3, "5m"), reliable=False, reliable_reason="3 scores may have known their label")  # fmt: skip
    roles = {one.series: Role("live", 0.3) for one in (*results, late)}
    snapshot = build.snapshot(results=(*results, late), panes={}, comparisons=(), deploys=(), roles=roles)
    page = watch(shown(snapshot), width, has_touch=True).open("overview")
    page.locator("tr.doubt").first.wait_for()
    said = page.locator("tr.doubt").all_inner_texts()
    # a reason that versions share is said once, with whom it is about
    assert [text.strip() for text in said] == [
        f"v1, v2 not reliable: {WHY}.",
        "v3 not reliable: 3 scores may have known their label.",
    ]
    assert page.locator("tr[data-series] .pill").count() == 3
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [380, 1280])
def test_problems_that_stop_nothing_do_not_push_the_answer_off_the_first_screen(shown, watch, width: int) -> None:
    snapshot = showing(comparison(roles=LIVE))  # with four sentences of what is degraded
    page = watch(shown(snapshot), width).open("overview")
    page.wait_for_selector(".verdict strong")
    assert page.locator(".verdict strong").first.bounding_box()["y"] < 200
    summary = page.locator("#warning summary")
    assert summary.inner_text().startswith("Degraded: 4 problems.")
    summary.focus()
    page.keyboard.press("Enter")
    assert page.locator("#warning details p").count() == 4
    page.wait_for_timeout(2500)  # snapshots come, and it stays open
    assert page.locator("#warning details p").first.is_visible()
    # what makes results doubtful is never folded
    doubted = replace(snapshot, join=replace(snapshot.join, reliable=False, reason=WHY))
    page = watch(shown(doubted), width).open("overview")
    assert page.get_by_text(f"The join is not reliable: {WHY}.").is_visible()


@pytest.mark.parametrize(("requests", "answer"), [(1_200, "found not worse than v1"), (2_400, "is not worse than v1")])
def test_the_whole_answer_is_in_the_first_200_pixels(watch, requests: int, answer: str) -> None:
    """Also where its bounds are of many digits, and where the latest data no longer support it: up to the links that lead on."""
    serving = served(minute=0, requests=requests)
    try:
        for width in (380, 1280, 2560):
            page = watch(serving.url, width, 900).open("overview")
            links = page.locator(".verdict .links").first
            links.wait_for()
            said = page.locator(".verdict").first.inner_text()
            assert answer in said
            assert ("no longer supported by current data" in said) == ("found" in answer)
            page.wait_for_function("() => 'uPlot' in window")  # else it is asked for when nobody serves any more
            box = links.bounding_box()
            assert box["y"] + box["height"] <= 200, width
    finally:
        serving.stop()


def test_the_confidence_of_bounds_is_read_from_the_answer(shown, watch) -> None:
    one = comparison(roles=LIVE, alpha=0.021)  # 100 * (1 - 0.021) is not 97.9 in binary
    address = shown(showing(one))
    page = watch(address).open("overview")
    assert "(each bound with 97.9%)" in page.locator(".verdict .words").first.inner_text()
    page = watch(address).open("comparisons")
    page.wait_for_selector("table.intervals")
    text = page.locator(".detail").inner_text()
    assert "each bound with 97.9%" in text
    assert "97.8999" not in text


def test_the_table_of_a_comparison_has_the_tolerance_beside_the_margin(shown, watch) -> None:
    one = comparison(roles=LIVE)
    page = watch(shown(showing(one))).open("comparisons")
    page.wait_for_selector("table.intervals")
    head = page.locator("table.intervals thead th").last
    assert [term.inner_text() for term in head.locator(".term").all()] == ["Margin", "tolerance"]
    auc = next(m for m in one.metrics if m.metric == "auc")
    row = page.locator("table.intervals tbody tr", has_text="AUC").first
    assert f"{auc.tolerance:.4f}" in row.locator("td").last.inner_text()


@pytest.mark.parametrize("width", [1000, 1280, 1500, 1920, 2560])
def test_no_column_of_a_metric_is_out_of_sight(lists: str, watch, width: int) -> None:
    page = watch(lists, width, 900).open("metrics?window=all")
    page.wait_for_selector(".family td.reading [data-value]")
    cut = page.evaluate(
        """() => [...document.querySelectorAll("main .scroll")].filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.ariaLabel)"""
    )
    assert not cut


def test_every_chart_and_table_can_be_taken_along(lists: str, watch) -> None:
    watched: Watched = watch(lists)
    for view, ready in {
        "overview": "table.models td.metric",
        "history": ".chart canvas",
        "calibration?window=all": "svg.plot .dot",
        "metrics?window=all": ".family td.reading [data-value]",
        "users": "svg.plot rect",
        "comparisons": ".detail .chart canvas",
        "auctions": "svg.plot .dot",
        "flow": ".panel .scroll",
    }.items():
        page = watched.open(view)
        page.wait_for_selector(ready)
        page.wait_for_timeout(500)
        assert not page.evaluate(TAKEN), view
        every = page.locator("main .taking:visible")
        assert every.filter(has_not=page.get_by_role("button", name="Copy link")).count() == 0, view
    # and what is taken is what is asked for: here a picture, and a table with the numbers of the API
    page = watched.open("auctions")
    page.wait_for_selector("svg.plot .dot")
    figure = page.locator("figure", has_text="Click yield against mainline ads")
    assert downloaded(page, figure.get_by_role("button", name="PNG")).startswith(b"\x89PNG")
    rows = table(page, figure)
    api = ask(lists, "auctions?window=all&model=ads")["auctions"]
    assert [float(row["click_yield"]) for row in rows] == [row["click_yield"] for row in api]


def test_both_tables_of_strata_are_there_as_csv(lists: str, watch) -> None:
    page = watch(lists).open("metrics?window=all")
    family = page.locator("[data-family='Strata of propensity']")
    family.locator("td.reading [data-value]").first.wait_for()
    text = downloaded(page, family.get_by_role("button", name="CSV, combined")).decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    shown = family.locator("td.reading [data-value]").evaluate_all(
        "(all) => all.map((one) => Number(one.dataset.value))"
    )
    weightings = ("share", "plain", "uniform_exposure")
    assert sorted(shown) == sorted(float(row[name]) for row in rows for name in weightings if row[name])


def test_the_flow_gives_its_tables_as_csv(lists: str, watch) -> None:
    page = watch(lists).open("flow")
    page.wait_for_selector(".panel .scroll tbody tr")
    rows = table(page, page.locator(".panel", has_text="Partitions").first)
    lags = page.locator(".panel .scroll tbody tr td:nth-child(2)").all_inner_texts()
    assert [f"{int(row['consumer_lag']):,}" for row in rows] == lags
    outcomes = table(page, page.locator(".panel", has_text="Event outcomes"))
    counted = {(name, why): n for name, of in ask(lists, "status")["events"].items() for why, n in reasons(of).items()}
    assert {(row["outcome"], row["reason"]): int(row["events"]) for row in outcomes} == counted


def reasons(counted: Any) -> dict[str, int]:
    return counted if isinstance(counted, dict) else {"": counted}


def table(page: Any, place: Any) -> list[dict[str, str]]:
    """The CSV that is offered in a place."""
    text = downloaded(page, place.get_by_role("button", name="CSV", exact=True).first).decode()
    return list(csv.DictReader(io.StringIO(text)))


def test_the_csv_of_an_objective_has_the_numbers_of_the_page(lists: str, watch) -> None:
    """Not those by clicks, which are others."""
    watched: Watched = watch(lists)
    page = watched.open("metrics?window=all&objective=long")
    page.wait_for_selector(".family td.reading [data-value]")
    rows = table(page, page.locator("[data-family='At the operating point']"))
    api = ask(lists, "results?window=all&slice=none&model=ads&objective=long")["results"]
    assert {row["version"]: float(row["pauc"]) for row in rows} == {row["version"]: row["pauc"] for row in api}
    page = watched.open("history?objective=long&metric=auc&range=1h")
    page.wait_for_selector(".chart canvas")
    assert {row["objective"] for row in table(page, page.locator("figure").first)} == {"long"}
    page = watched.open("calibration?window=all&objective=long")
    page.wait_for_selector("svg.plot .dot")
    assert {row["objective"] for row in table(page, page.locator("figure", has_text="Reliability"))} == {"long"}
    page = watched.open("users?objective=long&version=v1")
    page.wait_for_selector("svg.plot rect")
    histogram = table(page, page.locator("figure", has_text="AUC by user"))
    said = ask(lists, "user-distribution?metric=auc&model=ads&version=v1&objective=long")
    assert [int(row["users"]) for row in histogram] == said["users"]
    users = table(page, page.locator("section", has_text="Individual users").last)
    said = ask(lists, "users?model=ads&version=v1&objective=long&limit=1000&sort=log_loss_nats&order=desc")
    assert [float(row["log_loss"]) for row in users] == [one["log_loss"] for one in said["users"]]


def test_candidates_of_auctions_are_no_mishap_of_events(lists: str, watch) -> None:
    page = watch(lists).open("flow")
    page.wait_for_selector("dl.bars")
    bar = page.locator("dl.bars > div", has=page.locator("code", has_text="candidates"))
    until(lambda: bar.count() == 1)
    assert bar.locator("dt").inner_text().startswith("Candidates that were not shown")
    assert bar.get_attribute("class") != "bad"
