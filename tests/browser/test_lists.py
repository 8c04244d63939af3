"""Ads with auctions, objectives, propensities and policies in a real Chromium: the API's numbers, in words, on two screens."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from scipy import stats

from streameval.settings.tree import Settings
from streameval.testing import readers_see
from tests.ads import SETTINGS, counted, events
from tests.browser.serving import Serving
from tests.browser.test_views import SERIOUS
from tests.browser.watching import Watched, ask, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

HOUR = 3_600_000
JOIN = {"attribution_window": "60s", "allowed_lateness": "10s", "correction_horizon": "30m", "request_gap": "5s"}
WINDOWS = {"pane": "60s", "sliding": ["60m"]}
SIZES = {"phone": (380, 800), "desk": (1280, 800)}
VIEWS = {
    "metrics?window=all": ".family td.reading [data-value]",
    "metrics?window=all&objective=long": ".family td.reading [data-value]",
    "auctions": "svg.plot .dot",
    "calibration?window=all&objective=long": "svg.plot .dot",
    "users?objective=long": "svg.plot rect",
    "history?objective=long&metric=ndcg_3": ".chart canvas",
}
MINUS = "\N{MINUS SIGN}"
ROWS = """(family) => [...document.querySelectorAll(`[data-family="${family}"] tbody tr`)].map((row) =>
  [...row.cells].map((cell) => cell.querySelector("[data-value]") ? Number(cell.querySelector("[data-value]").dataset.value) : (cell.firstChild?.textContent ?? cell.textContent)))"""


def served(
    *, minute: int | None = None, requests: int = 1_200, wrong: bool = False, without: tuple[str, ...] = ()
) -> Serving:
    """Ads of the last two to three hours; until `minute` of the last full hour, where the test depends on what is found."""
    now = int(time.time() * 1000)
    if minute is not None:
        now = now // HOUR * HOUR - HOUR + minute * 60_000
    asked = {name: value for name, value in SETTINGS.items() if name not in without}
    settings = Settings.model_validate({**asked, "join": JOIN, "windows": WINDOWS})
    pipeline = counted(settings, events(now // HOUR * HOUR - 2 * HOUR, now, requests, wrong=wrong), now)
    return Serving(readers_see(pipeline))


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    serving = served()
    yield serving.url
    serving.stop()


def opened(watched: Watched, view: str) -> Any:
    page = watched.open(view)
    page.wait_for_selector(VIEWS[view])
    return page


def test_a_phone_has_the_first_lines_of_long_tables(address: str, watch) -> None:
    watched: Watched = watch(address, *SIZES["phone"])
    for view, most in (("metrics?window=all", 1_500), ("auctions", 2_200)):
        page = opened(watched, view)
        assert page.evaluate("document.documentElement.scrollHeight") < most
        more = page.get_by_role("button", name=re.compile("^Show . more")).first
        rows = page.locator("main .stacked").first.locator("tbody tr")
        few = rows.count()
        more.focus()
        page.keyboard.press("Enter")
        until(lambda rows=rows, few=few: rows.count() > few)
        page.wait_for_timeout(5_000)  # it is asked for again, and drawn
        assert rows.count() > few
        assert page.evaluate("document.activeElement.textContent") == "Show fewer"
    watched = watch(address)
    for view in ("metrics?window=all", "auctions"):
        assert opened(watched, view).get_by_role("button", name=re.compile("^Show . more")).count() == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_every_view_fits_the_screen_and_axe_finds_nothing(address, watch, pictures, size: str, theme: str) -> None:
    width, height = SIZES[size]
    watched: Watched = watch(address, width, height, theme, bypass_csp=True)  # axe is put into the page
    for view in VIEWS:
        page = opened(watched, view)
        page.wait_for_timeout(300)  # a chart's first paint
        name = re.sub(r"\W+", "-", view)
        page.screenshot(path=pictures / f"lists-{name}-{size}-{theme}.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view
        found = [v for v in Axe().run(page).response["violations"] if v["impact"] in SERIOUS]
        assert not found, [(view, v["id"], v["help"], [n["html"][:160] for n in v["nodes"][:3]]) for v in found]


@pytest.mark.parametrize("objective", ["", "long"])
def test_every_family_has_the_numbers_of_the_api(address: str, watch, objective: str) -> None:
    asked = f"&objective={objective}" if objective else ""
    page = opened(watch(address), f"metrics?window=all{asked}")
    one, two = sorted(
        ask(address, f"results?window=all&slice=none&model=ads{asked}")["results"], key=lambda r: r["version"]
    )
    assert {one["objective"], two["objective"]} == {objective or None}

    def rows(family: str) -> list[list[Any]]:
        return page.evaluate(ROWS, family)

    until(lambda: rows("At the operating point")[0][1:] == [one["pauc"], two["pauc"]])
    shown = {row[0]: row[1:] for row in rows("At the operating point")}
    assert shown["Expected cost"] == [
        one["expected_cost"],
        two["expected_cost"],
    ]
    ranked = {(row[0], row[1]): row[2:] for row in rows("Ranking of lists")}
    assert ranked["NDCG", "v1"][:3] == [one[f"ndcg_{k}"] for k in (1, 3, 10)]
    assert ranked["NDCG as shown", "v2"][:3] == [two[f"shown_ndcg_{k}"] for k in (1, 3, 10)]
    assert ranked["NDCG by user", "v2"][1] == two["ndcg_3_by_user"]
    assert ranked["MRR", "v2"][3] == two["mrr"]
    directions = page.locator('[data-family="Yields and value"] tbody th').all_inner_texts()
    assert "clicks per request; higher is better" in directions[0]
    yields = {row[0]: row[1:] for row in rows("Yields and value")}
    assert yields["Click yield"] == [one["click_yield"], two["click_yield"]]
    exposed = {(row[0], row[1]): row[2:] for row in rows("As if everything had been shown equally often")}
    assert exposed["Log loss", "v1"] == [
        one[name] for name in ("log_loss", *(f"log_loss_{e}" for e in ("ips", "ips_clipped", "snips", "snips_clipped")))
    ]
    policies = {row[0]: row[1:] for row in rows("Policies")}
    assert policies["v2"][3:7] == [
        two[name]
        for name in ("policy_snips", "policy_snips_clipped", "policy_value_snips", "policy_value_snips_clipped")
    ]
    tables = ask(address, f"strata?window=all&model=ads{asked}")["tables"]
    strata = rows("Strata of propensity")
    assert [row[2] for row in strata[:3]] == [f"{s['impressions']:,}" for s in tables[0]["strata"]]
    of_auc = next(row for row in strata if row[0] == "AUC")  # v1's
    assert of_auc[2:] == [tables[0]["stratified"]["auc"][name] for name in ("share", "plain", "uniform_exposure")]


def test_the_frontier_and_its_table_have_the_numbers_of_the_api(address: str, watch) -> None:
    watched: Watched = watch(address)
    page = watched.open("overview")
    page.get_by_role("link", name="Auctions").click()
    page.wait_for_selector("svg.plot .dot")
    answer = ask(address, "auctions?window=all")
    rows = answer["auctions"]
    points = list(dict.fromkeys(row["point"] for row in rows))
    wanted = sorted(rows, key=lambda row: points.index(row["point"]))
    names = ("matched_click_yield", "click_yield", "mainline_ads", "replayed_share")
    shown = page.evaluate(
        """(names) => [...document.querySelectorAll("tbody tr")].map((row) => names.map((name) => {
             const found = row.querySelector(`[data-metric=${name}] [data-value]`);
             return found ? Number(found.dataset.value) : null;
           }))""",
        names,
    )
    assert shown == [[row[name] for name in names] for row in wanted]
    half = float(page.locator("tbody td[data-metric=click_yield] .quiet").first.inner_text().removeprefix("±"))
    assert half == pytest.approx(
        stats.t.ppf(0.975, 15) * wanted[0]["click_yield_stderr"], rel=0.03
    )  # 16 groups of users
    unknown = page.locator(
        "td[data-metric^=matched]", has_text="its operating points do not reach as many mainline ads"
    )
    assert unknown.count() == sum(
        row[f"matched_{name}"] is None for row in rows for name in ("click_yield", "mainline_click_yield")
    )
    assert page.locator("svg.plot .dot").count() == len(rows) == 6
    assert page.locator("svg.plot path.line").count() == 2
    first = page.locator("svg.plot .dot title").first.text_content()
    assert (
        first
        == f"v1 at now: {rows[0]['click_yield']:.4f} clicks and {rows[0]['mainline_ads']:.2f} mainline ads per request"
    )
    assert f"{answer['skipped']['no_history']:,}" in page.locator(".facts").inner_text()
    page.locator("select[data-focus=yield]").select_option("mainline")
    until(lambda: "yield=mainline" in page.url)
    until(lambda: page.locator("svg.plot .dot title").first.text_content() == first.replace(
        f"{rows[0]['click_yield']:.4f}", f"{rows[0]['mainline_click_yield']:.4f}"
    ))  # fmt: skip


def test_the_objective_is_kept_in_the_address_and_asked_for_by_every_view_whose_route_takes_it(
    address: str, watch
) -> None:
    watched: Watched = watch(address)
    asked: list[str] = []
    watched.page.on("request", lambda request: asked.append(request.url))
    routes = {
        "metrics": {"results", "strata"},
        "calibration": {"buckets", "roc", "scores"},
        "users": {"users", "user-distribution"},
        "history": {"series"},
    }
    for view, some in routes.items():
        page = watched.open(view)
        # views are loaded when they are first opened; until then the one before stays
        page.wait_for_function(
            "title => document.querySelector('main h1').textContent === title", arg=view.capitalize()
        )
        chosen = page.locator("select[data-focus=objective]")
        chosen.wait_for()
        assert chosen.locator("option").all_inner_texts() == ["clicks", "long"]
        chosen.select_option("long")
        page.wait_for_url(f"**/#/{view}?objective=long")

        def those(page: Any = page, some: set[str] = some) -> set[str]:
            page.wait_for_timeout(50)  # requests are told of while the page is waited for
            return {name for name in some if any(f"/{name}?" in url and "objective=long" in url for url in asked)}

        until(lambda some=some, those=those: those() == some)
        asked.clear()
    for view in ("overview", "comparisons", "flow"):
        watched.open(view)
        assert watched.page.locator("select[data-focus=objective]").count() == 0
    page = watched.open("history?objective=nobody")
    until(lambda: "There is no objective “nobody” here" in page.locator("#unknown").inner_text())
    # one user by id is counted by the objective, too
    page = watched.open("users?objective=long")
    page.wait_for_selector("section tbody button")
    page.locator("section tbody button").first.click()
    page.wait_for_selector("[role=status] tbody tr")
    assert any("/users/~" in url and "objective=long" in url for url in asked)
    answer = ask(address, "users?model=ads&version=v1&source=logged&objective=long&sort=log_loss_nats&limit=1")
    assert page.evaluate("document.querySelector('section tbody tr').cells[2].textContent") == str(
        answer["users"][0]["clicks"]
    )


def test_propensities_that_are_wrong_are_an_alarm(watch, pictures) -> None:
    serving = served(wrong=True)
    try:
        page = watch(serving.url).open("metrics?window=all")
        said = page.locator("[data-family=Policies] .warning").first
        said.wait_for()
        assert re.match(
            r"v1: the logged propensities are inconsistent .* mean weight of its policy is 1\.4\d\d, not 1",
            said.inner_text(),
        )
        cells = page.locator('[data-family=Policies] td[data-metric="policy_snips"]').all_inner_texts()
        assert all("the logged propensities are inconsistent" in one for one in cells)
        page.screenshot(path=pictures / "lists-inconsistent.png", full_page=True)
    finally:
        serving.stop()


def test_what_is_not_there_is_said_once_and_asks_for_no_room(watch, pictures) -> None:
    serving = served(without=("objectives", "strata", "auction", "ranking", "metrics"))
    try:
        watched: Watched = watch(serving.url)
        page = watched.open("metrics?window=all")
        page.wait_for_selector(".family td.reading")
        assert page.locator("select[data-focus=objective]").count() == 0
        assert page.get_by_role("link", name="Auctions").count() == 0
        assert "[strata]" in page.locator('[data-family="Strata of propensity"] [data-nothing]').inner_text()
        page = watched.open("auctions")
        page.get_by_text("No auctions are replayed").wait_for()
        assert page.locator("nav a[aria-current=page]").inner_text() == "Auctions"
    finally:
        serving.stop()
