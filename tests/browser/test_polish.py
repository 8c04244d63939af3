"""What a designer sees: nothing touches or leaves a hole, everything is said once and in words, and a phone shows first what is needed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from streameval.compare.reading.reading import Role
from streameval.events.batch import Series
from streameval.loop.usage import BUDGETS, TABLES
from streameval.results.snapshot import Snapshot
from tests.browser.serving import Serving
from tests.browser.test_answers import LIVE, showing
from tests.browser.watching import Watched, ask, until
from tests.comparisons import comparison
from tests.server.conftest import Build

pytestmark = [pytest.mark.slow]

V1, V2 = Series("default", "v1", "logged"), Series("default", "v2", "logged")
PHONE = (390, 844)
SCREENS = {"desk": (1280, 800), "large": (1920, 1080), "wall": (2560, 1300)}
LONG = 4_000  # pixels of a phone's view; it was 7,300
WORDS = "import('/page/flow/words.js').then(({ FATES, INVALID, LIMITS, STAGES, TABLES }) => ({ FATES, INVALID, LIMITS, STAGES, TABLES }))"
# the right ends of what stands side by side, row by row
ENDS = """() => {
  const rows = new Map();
  for (const one of document.querySelectorAll(".panels > .panel")) {
    const { top, right } = one.getBoundingClientRect();
    rows.set(Math.round(top), Math.max(right, rows.get(Math.round(top)) ?? 0));
  }
  return [...rows.values()].map(Math.round);
}"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A page with a bad deploy."""
    serving = Serving(showing(comparison(roles=LIVE)))
    yield serving.url
    serving.stop()


@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_the_role_of_a_version_does_not_touch_that_it_is_not_reliable(shown, watch, width: int) -> None:
    build = Build()
    doubted = replace(build.result(V1, "5m"), reliable=False, reliable_reason="no clicks for 10 min")
    snapshot = build.snapshot(
        results=(doubted,), panes={}, comparisons=(), deploys=(), roles={V1: Role("live", 0.3)}
    )  # fmt: skip
    page = watch(shown(snapshot), width).open("overview")
    role, doubt = (page.locator(f"tr[data-series] {one}") for one in (".role", ".pill"))
    role.wait_for()
    assert (role.inner_text().lower(), doubt.inner_text()) == ("live 30%", "not reliable")
    one, other = role.bounding_box(), doubt.bounding_box()
    beside = other["x"] - (one["x"] + one["width"])
    below = other["y"] - (one["y"] + one["height"])
    assert max(beside, below) >= 4, (one, other)


def test_intervals_of_one_metric_say_which_is_which(address: str, watch) -> None:
    page = watch(address).open("comparisons")
    page.wait_for_selector(".decided")
    then, now = page.locator(".decided dd").all_inner_texts()
    assert "Interval at the decision, each bound with 99%" in then
    assert "Interval now, each bound with 99%" in now
    head = page.locator("table.intervals thead").get_by_role("button", name="Interval now, per metric: both bounds 99%")
    assert head.count() == 1
    assert head.bounding_box()["height"] < 3 * 16 * 1.5  # two lines, not broken within a number
    page = watch(address).open("overview")
    assert "(each bound with 99%)" in page.locator(".verdict .words").first.inner_text()


@pytest.mark.parametrize("size", SCREENS)
def test_charts_of_calibration_leave_no_hole_and_have_their_sum(address: str, watch, size: str) -> None:
    page = watch(address, *SCREENS[size]).open("calibration?model=default&a=v1&b=v2&window=all")
    page.wait_for_selector("svg.plot .dot")
    ends = page.evaluate(ENDS)
    assert len(ends) > 1
    assert len(set(ends)) == 1, ends
    said = page.locator('.whole td[data-metric="impressions"]').all_inner_texts()
    tables = [
        ask(address, f"buckets?model=default&version={v}&window=all&slice=none&kind=quantiles")["tables"][0]
        for v in ("v1", "v2")
    ]
    assert said == [f"{sum(b['impressions'] for b in t['buckets']):,}" for t in tables]
    predicted = [sum((b["mean_pclick"] or 0) * b["impressions"] for b in t["buckets"]) for t in tables]
    clicks = [sum(b["clicks"] for b in t["buckets"]) for t in tables]
    shown = page.locator('.whole td[data-metric="calibration"]').all_inner_texts()
    assert [float(one) for one in shown] == pytest.approx(
        [p / c for p, c in zip(predicted, clicks, strict=True)], abs=1e-3
    )


def valueless() -> Snapshot:
    """The value of clicks is not kept; v2 has served nothing."""
    build = Build()
    gone = {"gauc_value", "value_per_impression", "value_per_request", "value_per_user"}
    yields = {"click_yield", "mainline_click_yield"}

    def result(series: Series, missing: dict[str, str]) -> Any:
        one = build.result(series, "all")
        metrics = {name: None if name in missing else value for name, value in one.metrics.items()}
        return replace(one, metrics=metrics, reasons={**one.reasons, **missing})

    kept = dict.fromkeys(gone, "values_not_kept")
    return build.snapshot(
        results=(result(V1, kept), result(V2, {**kept, **dict.fromkeys(yields, "not_served")})), panes={}
    )


def test_why_something_is_not_there_is_said_once(shown, watch) -> None:
    page = watch(shown(valueless())).open("metrics?window=all")
    page.wait_for_selector(".family td.reading [data-value]")
    text = page.locator("main").inner_text()
    assert text.count("the value of clicks is not kept") == 1
    assert re.search(
        r"GAUC by the value of their clicks, Value per impression, Value per request, Value per user:\s+the value of clicks",
        page.locator(".absent").inner_text(),
    )
    cells = page.locator('[data-family="Yields and value"] td.reading .quiet:not(.below)').all_inner_texts()
    seen = page.evaluate(
        """() => [...document.querySelectorAll('[data-family="Yields and value"] td.reading')]
          .filter((one) => one.textContent.includes("served nothing") && !one.querySelector(".unseen")).length"""
    )
    assert seen == 1, cells  # the second cell of the column has the words for a screen reader alone


def test_the_flow_has_words_and_the_names_of_the_code_beside_them(address: str, watch) -> None:
    page = watch(address).open("flow")
    page.wait_for_selector("dl.bars code")
    status = ask(address, "status")
    texts = page.evaluate(
        """() => [...document.querySelectorAll("dl.bars dt")].map((one) => [one.firstChild.data, one.querySelector("code")?.textContent])"""
    )
    names = {name for _, name in texts}
    assert {*status["stage_seconds"], *status["table_bytes"], *status["budget_used"]} <= names
    assert not [text for text, name in texts if name is None or text.strip() in (name, name.replace("_", " "))]
    words = page.evaluate(WORDS)
    assert set(TABLES) <= set(words["TABLES"])
    assert set(BUDGETS) <= set(words["LIMITS"])
    assert {name for name in status["events"] if name not in ("impressions", "clicks", "invalid")} <= set(
        words["FATES"]
    )
    assert set(status["events"]["invalid"]) <= set(words["INVALID"])


@pytest.mark.parametrize("size", ["large", "wall"])
def test_a_short_table_is_as_high_as_the_chart_beside_it(address: str, watch, size: str) -> None:
    page = watch(address, *SCREENS[size]).open("overview")
    page.wait_for_selector(".leading canvas")
    page.wait_for_selector("tr[data-series] svg.sparkline polyline")

    def apart() -> float:
        table, chart = (page.locator(one).bounding_box() for one in (".all > .scroll", ".leading .chart"))
        return abs(table["y"] + table["height"] - chart["y"] - chart["height"])

    assert until(lambda: apart() <= 4, 20)
    rows = page.locator("tr[data-series]").all()
    heights = [row.bounding_box()["height"] for row in rows]
    # rows, not the heading, have grown
    assert sum(heights) > 0.7 * page.locator(".all > .scroll").bounding_box()["height"]


def test_a_phone_shows_first_what_is_needed(shown, watch) -> None:
    one = comparison(roles=LIVE)
    build = Build()
    snapshot = replace(showing(one), users={V1: build.users([f"user-{i}" for i in range(60)]), V2: build.users(["a"])})
    watched: Watched = watch(shown(snapshot), *PHONE)
    page = watched.open("comparisons")
    page.wait_for_selector(".detail .verdict")
    page.wait_for_selector("details.fold")
    assert page.locator("details.fold[open]").count() == 0
    assert page.locator("[data-dimension]").first.is_hidden()
    assert page.evaluate("document.documentElement.scrollHeight") < LONG
    # by keyboard; and it stays open while snapshots come
    summary = page.locator("[data-fold=breakdown] > summary")
    summary.focus()
    page.keyboard.press("Enter")
    page.locator("[data-dimension]").first.wait_for()
    page.wait_for_timeout(6_000)  # it is asked for again, and drawn
    assert page.locator("[data-fold=breakdown]").get_attribute("open") is not None
    assert page.evaluate("document.activeElement.dataset.focus") == "fold-breakdown"
    assert page.get_by_role("heading", name="Calibration by pClick").count() == 1
    page = watched.open("flow")
    page.wait_for_selector("details.fold")
    assert page.locator("details.fold:not([open])").count() == 4
    page = watched.open("users?model=default&version=v1")
    rows = page.locator("section tbody tr")
    rows.first.wait_for()
    assert rows.count() == 5
    assert page.evaluate("document.documentElement.scrollHeight") < LONG
    page.get_by_role("button", name="Show 20 more").click()
    until(lambda: rows.count() == 25)


def test_shares_of_a_whole_add_up_to_100_percent(shown, watch) -> None:
    """Each rounded by itself, they were 101%: of live versions, and of the parts of a difference."""
    live = {V1._replace(version=f"v{i}"): Role("live", share) for i, share in ((1, 0.335), (2, 0.335), (3, 0.33))}
    found = comparison(roles=(Role("live", 0.335),) * 2).findings[0]
    parts = tuple(replace(found, value=f"c{i}", share=share) for i, share in enumerate((0.4446, 0.3336, 0.2218)))
    c = comparison(roles=(Role("live", 0.335),) * 2, findings=parts)
    build = Build()
    snapshot = build.snapshot(
        results=tuple(build.result(one, "5m") for one in live), panes={}, comparisons=(c,), deploys=(), roles=live
    )
    watched: Watched = watch(shown(snapshot))
    page = watched.open("overview")
    page.wait_for_selector("tr[data-series] .role")
    badges = page.locator("tr[data-series] .role").all_inner_texts()
    assert sum(int(re.sub(r"\D", "", text)) for text in badges) == 100
    assert page.locator(".verdict .role").first.inner_text() == badges[1]  # the same everywhere
    page = watched.open("comparisons")
    page.wait_for_selector("[data-dimension=country] tbody")
    rows = page.locator("[data-dimension=country] tbody tr td:nth-child(3)").all_inner_texts()
    *some, total = [round(10 * float(re.sub(r"[^\d.]", "", text))) for text in rows]
    assert total == sum(some) == 1000


def test_the_column_that_says_how_to_read_a_mix_is_there_when_it_says_something(shown, watch) -> None:
    mix = comparison().mixes[0]
    for said, columns in ((mix, 6), (replace(mix, simpson=False, text=None), 5)):
        page = watch(shown(showing(comparison(roles=LIVE, mixes=(said,))))).open("comparisons")
        table = page.get_by_role("region", name="Traffic mix vs. model")
        table.wait_for()
        assert table.locator("thead :is(th, td)").count() == columns
        assert table.locator("tbody tr").first.locator("th, td").count() == columns


def test_error_bars_of_small_lines_are_not_cut(address: str, watch) -> None:
    page = watch(address).open("overview")
    page.wait_for_selector("td[data-metric=auc] .sparkline .band")
    ends = page.evaluate(
        """() => [...document.querySelectorAll("td[data-metric=auc] .sparkline .band")]
          .flatMap((one) => one.getAttribute("points").split(" ").map((point) => Number(point.split(",")[1])))"""
    )
    assert min(ends) > 0
    assert max(ends) < 26


def test_a_desk_folds_nothing_away(address: str, watch) -> None:
    watched: Watched = watch(address)
    page = watched.open("comparisons")
    page.wait_for_selector("[data-dimension]")
    assert page.locator("details.fold").count() == 0


def test_what_is_no_longer_supported_gives_no_all_clear(shown, watch) -> None:
    one = replace(comparison("not_worse", roles=LIVE), supported_now=False)
    page = watch(shown(showing(one))).open("overview")
    card = page.locator(".verdict").first
    card.wait_for()
    colours = "(one) => [getComputedStyle(one).backgroundColor, getComputedStyle(one.querySelector('.mark')).color]"
    green = page.evaluate(
        """() => {
          const one = document.createElement("p");
          document.body.append(one);
          return ["--good-pale", "--good"].map((name) => { one.style.color = `var(${name})`; return getComputedStyle(one).color; });
        }"""
    )
    assert not set(card.evaluate(colours)) & set(green)
    assert card.locator(".mark").inner_text() == "…"


def test_the_legend_of_a_chart_has_the_dashes_of_its_lines(address: str, watch) -> None:
    page = watch(address).open("overview")
    page.wait_for_selector(".leading .u-legend .u-series:nth-child(2) .u-marker")
    styles = page.evaluate(
        """() => [...document.querySelectorAll(".leading .u-legend .u-series:not(.bound) .u-marker")].slice(1).map((one) => getComputedStyle(one).borderTopStyle)"""
    )
    assert set(styles) == {"dashed", "solid"}


def test_users_are_sorted_by_two_choices_that_say_what_they_are(address: str, watch) -> None:
    page = watch(address).open("users?model=default&version=v1")
    order = page.get_by_label("Order")
    order.wait_for()
    order.select_option(label="lowest first")
    until(lambda: "order=asc" in page.url)


def test_a_version_without_impressions_says_so_once(shown, watch) -> None:
    build = Build()
    results = (build.result(V1, "5m"), build.empty_result(V2, "5m"))
    roles = {V1: Role("live", 0.3), V2: Role("live", 0.7)}
    page = watch(shown(build.snapshot(results=results, panes={}, comparisons=(), deploys=(), roles=roles))).open(
        "overview"
    )
    row = page.locator("tr[data-series]", has_text="v2")
    row.wait_for()
    assert row.inner_text().count("no impressions") == 1
    assert row.locator("td[data-metric]").count() == 0
    assert page.locator("tr[data-series]", has_text="v1").locator("td[data-metric]").count() == 5
