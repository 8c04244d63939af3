"""A comparison of which everything is known, in a real Chromium: every table of the view has the API's numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, get_args

import pytest

from streameval.compare.reading.handling import Handling
from streameval.compare.reading.notified import Told, Untold
from streameval.compare.reading.reading import Comparison, Estimate, Mix, Role, VerdictChange
from streameval.events.batch import Series
from streameval.metrics.registry import names
from tests.browser.serving import Serving
from tests.browser.watching import Watched, ask
from tests.comparisons import MINUTE, NOON, comparison, deploy, reading, unknown
from tests.server.conftest import Build

pytestmark = [pytest.mark.slow]

CELLS = """(name) => {
  const section = [...document.querySelectorAll("h2")].find((one) => one.textContent === name).closest("section");
  return [...section.querySelectorAll("tbody tr")].map((row) => [...row.cells].map((cell) => cell.textContent));
}"""


@pytest.fixture
def shown() -> Iterator[Callable[..., str]]:
    """`shown(comparison, ...)`: the address of a page that shows them."""
    servers = []

    def show(*comparisons: Comparison) -> str:
        deploys = tuple(deploy(int(c.deploy), c.candidate.version, model=c.candidate.model) for c in comparisons)
        roles = {c.candidate: role for c in comparisons if (role := c.roles[1]) is not None}
        panes = Build().panes()
        panes = replace(panes, metrics=dict.fromkeys(names(), panes.metrics["auc"]))  # the overview asks for several
        some = {"deploys": deploys, "comparisons": comparisons, "roles": roles}
        snapshot = Build().snapshot(panes={Series("default", "v1", "logged"): panes}, **some)
        servers.append(Serving(snapshot))
        return servers[-1].url

    yield show
    for server in servers:
        server.stop()


@pytest.fixture
def address(shown: Callable[..., str]) -> str:
    return shown(comparison())


def test_every_table_has_the_numbers_of_the_api(watch, address: str, pictures) -> None:
    watched: Watched = watch(address)
    page = watched.open("comparisons")
    page.wait_for_selector(".detail .verdict")
    (one,) = ask(address, "comparisons")["comparisons"]
    metrics = page.locator(".detail table").first.locator("tbody tr")
    assert metrics.count() == len(one["metrics"])
    buckets = page.evaluate(CELLS, "Calibration by pClick")
    assert buckets == [
        ["0-0.02", "not significant", "1.020", "1.050", "+3.0% ± 23.5%", "210", "100"],
        ["0.02-0.05", "significant", "0.990", "1.430", "+42.0% ± 17.6%", "260", "83"],
    ]
    assert [row[0] for row in buckets] == [b["bucket"] for b in one["calibration_buckets"]]
    found = page.evaluate(CELLS, "Breakdown")
    assert [row[0] for row in found if row[0] != "Total"] == [f["value"] for f in one["findings"]]
    assert page.locator("[data-dimension] h3").all_inner_texts() == ["By country", "By user"]
    assert len(page.evaluate(CELLS, "Preliminary estimates")) == len(one["early"])
    (mix,) = page.evaluate(CELLS, "Traffic mix vs. model")
    assert mix == [
        "country",
        "AUC",
        "\N{MINUS SIGN}0.0120",
        "+0.0010",
        "\N{MINUS SIGN}0.0130",
        "Simpson worse in every country",
    ]
    assert page.locator("h2", has_text="Verdict history").count() == 1
    page.screenshot(path=pictures / "comparison-in-full.png", full_page=True)


def test_what_the_guard_says_of_uniform_exposure_is_a_line_of_its_own(
    watch, shown: Callable[..., str], pictures
) -> None:
    told = "the log loss of v2 is 0.0017 lower over what was shown, but 0.0041 higher under uniform exposure"
    mixes = (
        Mix("propensity", "log_loss", -0.0017, -0.0058, 0.0041, 0.0006, True, told),
        Mix("propensity", "auc", 0.002, 0.0005, 0.0015, 0.001, False),
    )
    address = shown(comparison(setup="paired", mixes=mixes))
    watched: Watched = watch(address)
    page = watched.open("comparisons")
    page.wait_for_selector(".detail .verdict")
    minus = "\N{MINUS SIGN}"
    assert page.evaluate(CELLS, "Uniform exposure") == [
        ["Log loss", f"{minus}0.0017", "+0.0041 ± 0.0012", f"Simpson {told}"],
        ["AUC", "+0.0020", "+0.0015 ± 0.0020", ""],
    ]
    assert page.locator("h2", has_text="Traffic mix").count() == 0
    assert (
        "under uniform exposure the difference of log loss has the opposite sign"
        in page.locator(".detail .verdict strong").inner_text()
    )
    page.screenshot(path=pictures / "comparison-uniform-exposure.png", full_page=True)


def red(page: Any, selector: str) -> list[str]:
    """What is drawn in the colour of an alarm, of the elements that a selector finds and all that is in them."""
    found: list[str] = page.evaluate(
        """(selector) => {
          const bad = document.createElement("span");
          bad.style.color = "var(--bad)";
          document.body.append(bad);
          const colour = getComputedStyle(bad).color;
          bad.remove();
          const every = [...document.querySelectorAll(selector)].flatMap((one) => [one, ...one.querySelectorAll("*")]);
          return every.filter((one) => {
            const style = getComputedStyle(one);
            return style.color === colour || style.borderLeftColor === colour;
          }).map((one) => one.className);
        }""",
        selector,
    )
    return found


def test_what_a_verdict_fell_on_is_beside_what_is_known_now(watch, shown: Callable[..., str], pictures) -> None:
    gone = comparison(
        decided_now=Estimate(-0.001, -0.007, 0.005), supported_now=False, roles=(Role("shadow"), Role("live", 0.9)),
        metrics=(reading("log_loss", "undecided"), reading("auc", lower=-0.007, upper=0.005, difference=-0.001, supported_now=False)),
    )  # fmt: skip
    address = shown(gone)
    watched: Watched = watch(address)
    page = watched.open("comparisons")
    page.wait_for_selector(".decided")
    assert "which no longer supports it" in page.locator(".detail .verdict strong").inner_text()
    then, now = page.locator(".decided > div").all_inner_texts()
    minus = "\N{MINUS SIGN}"
    assert then.startswith("Decided ")
    assert "on AUC" in then
    assert f"{minus}0.0180 ({minus}0.0260 to {minus}0.0100)" in then
    assert f"{minus}0.0010 ({minus}0.0070 to +0.0050)" in now
    assert "no longer supported by current data" in now
    assert page.locator("select[name=metric], .control select").first.input_value() == "auc"  # what it fell on
    assert "per metric" in page.locator(".detail thead").first.inner_text()
    assert "LIVE 90%" in page.locator(".deploy").inner_text()
    assert red(page, ".detail .verdict")  # it serves people
    page.screenshot(path=pictures / "comparison-no-longer-shown.png", full_page=True)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_what_serves_nobody_is_never_drawn_as_an_alarm(watch, shown: Callable[..., str], pictures, theme: str) -> None:
    ftrl = Series("ftrl", "online", "online")
    shadow = comparison("worse", number=3, candidate=ftrl, roles=(None, Role("shadow")))
    live = comparison("worse", roles=(None, Role("live", 1.0)))
    address = shown(live, shadow)
    watched: Watched = watch(address, theme=theme)
    page = watched.open("overview")
    page.wait_for_selector(".verdict")
    assert page.locator(".verdict strong").all_inner_texts()[0] == "v2 is worse than v1 LIVE 100%"
    folded = page.locator("details.shadows")
    assert folded.locator("summary").inner_text().startswith("Shadow models (1) ftrl online: in shadow for ")
    assert folded.locator(".verdict").is_hidden()
    folded.locator("summary").click()
    assert folded.locator(".verdict strong").inner_text() == "ftrl online is worse than v1 SHADOW"
    assert red(page, ".verdict:not([data-calm])")
    assert not red(page, ".verdict[data-calm]")
    page.screenshot(path=pictures / f"overview-shadow-{theme}.png", full_page=True)
    page = watched.open("comparisons?id=3-paired")
    page.wait_for_selector(".detail[data-calm] .verdict")
    assert not red(page, ".detail")
    assert not red(page, ".deploy[data-calm]")
    page.screenshot(path=pictures / f"comparison-shadow-{theme}.png", full_page=True)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_what_is_undecided_is_quieter_than_what_is_worse(watch, shown: Callable[..., str], theme: str) -> None:
    """A deploy has a comparison on the same impressions and one on disjoint users: the second one rarely says anything yet."""
    live = (None, Role("live", 1.0))
    split = comparison(
        "undecided", setup="split", roles=live, metrics=(unknown("gauc", "not_compared"), reading("auc"))
    )
    watched: Watched = watch(shown(comparison("worse", setup="paired", roles=live), split), theme=theme)
    page = watched.open("comparisons?id=2-split")
    page.wait_for_selector(".detail .verdict")
    looks = dict(
        page.evaluate(
            """() => [...document.querySelectorAll(".deploy")].map((one) => {
              const [card, badge] = [getComputedStyle(one), getComputedStyle(one.querySelector(".badge"))];
              return [one.dataset.verdict, [card.backgroundColor, card.borderTopColor, badge.color]];
            })"""
        )
    )
    plain = page.evaluate(
        """() => ["--bad-pale", "--bad", "--ink-quiet"].map((name) => {
          const probe = document.body.appendChild(document.createElement("i"));
          probe.style.color = `var(${name})`;
          const { color } = getComputedStyle(probe);
          probe.remove();
          return color;
        })"""
    )
    assert looks["worse"][:2] == plain[:2]
    assert looks["undecided"][0] != plain[0]
    assert looks["undecided"][2] == plain[2]
    # a reason that holds for this metric
    assert (
        page.locator("table.intervals tbody tr")
        .first.locator("td.text")
        .inner_text()
        .endswith("not compared in this setup")
    )


def test_who_has_muted_a_verdict_and_why_stands_beneath_it(watch, shown: Callable[..., str]) -> None:
    said = Handling("muted", "ana", "a <known> bug, ends tonight", 1_700_000_000_000, "undecided")
    page = watch(shown(replace(comparison(), verdict="worse", handling=said))).open("comparisons")
    line = page.locator(".detail .handled").inner_text()
    assert line.startswith("Muted by ana, ")
    assert line.endswith(" (it was undecided then): a <known> bug, ends tonight")
    assert "muted" in page.locator("button.deploy").first.inner_text()


class Book:
    """Keeps what is said where the page sees it."""

    serving: Serving

    def say(self, comparison: str, handling: Handling | None) -> None:
        self.serving.show(lambda now: replace(now, comparisons=(replace(now.comparisons[0], handling=handling),)))


@pytest.mark.parametrize("width", [380, 1280])
def test_a_verdict_is_muted_on_the_page_with_a_name_a_reason_and_the_token(watch, pictures, width: int) -> None:
    book = Book()
    build = Build()
    snapshot = build.snapshot(comparisons=(comparison(),), deploys=(deploy(),))
    book.serving = Serving(snapshot, environ={"STREAMEVAL_TOKEN": "sesame"}, handlings=book)
    try:
        watched: Watched = watch(book.serving.url, width)
        page = watched.open("comparisons")
        page.locator("details.handle > summary").click()
        page.get_by_role("button", name="Mute").click()  # nothing is sent without a name and a reason
        page.get_by_label("Your name").fill("ana")
        page.get_by_label("Reason").fill("known: rolled back")
        page.wait_for_timeout(5_000)  # snapshots come, and what is typed stays
        page.screenshot(path=pictures / f"mute-{width}.png")
        page.get_by_role("button", name="Mute").click()
        page.locator("input[name=token]").fill("sesame")
        assert watched.errors
        watched.errors.clear()  # it was refused, which is what had to be
        page.get_by_role("button", name="Use in this tab").click()
        page.locator(".handled").wait_for()
        assert page.locator(".handled").inner_text().startswith("Muted by ana, ")
        assert page.locator(".handled").inner_text().endswith(": known: rolled back")
        page.locator("details.handle > summary").click()
        page.get_by_label("Reason").fill("over")
        assert page.get_by_label("Your name").input_value() == "ana"
        page.get_by_role("button", name="Take back").click()
        page.locator(".handled").wait_for(state="detached")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    finally:
        book.serving.stop()


def test_the_history_says_who_was_told_and_how_much_later(watch, shown: Callable[..., str], pictures) -> None:
    at = NOON + 3 * MINUTE
    whom = Told("oncall", "slack", at + 12_000, "delivered"), Told("pagerduty", "pagerduty", at + 190_000, "delivered")
    muted = Told("oncall", "slack", at + 2 * MINUTE, "muted")
    changes = (
        VerdictChange(at, "verdict", "worse", "undecided -> worse", told=whom),
        VerdictChange(at + MINUTE, "withheld", "worse", "labels are not reliable: the lag is unknown", told=(muted,)),
        VerdictChange(at + 2 * MINUTE, "restored", "worse", "labels are reliable again"),
        VerdictChange(at + 3 * MINUTE, "withheld", "worse", "x", untold="not_subscribed"),
        VerdictChange(at + 4 * MINUTE, "restored", "worse", "x", untold="waiting"),
        VerdictChange(at, "anew", "undecided", "x", told=(Told("a" * 60, "webhook", at + 10**11, "delivered"),)),
    )
    address = shown(comparison(changes=changes))
    watched: Watched = watch(address)
    page = watched.open("comparisons")
    lines = page.locator(".record .told")
    lines.first.wait_for()
    said = [" ".join(line.split("\n")) for line in lines.all_inner_texts()]
    assert said[0] == "Told slack oncall, 12 s later pagerduty, 3 min later"
    assert said[1].startswith("Told webhook aaa")
    assert said[1].endswith(page.locator(".record .told time").nth(2).get_attribute("title"))  # three years later
    assert said[2:] == [
        "Told slack oncall, muted, not sent",
        "Told nobody",
        "Told nobody: no receiver subscribes to such changes",
        "Told nobody yet: its message is waiting",
    ]
    words = page.evaluate("import('/page/views/findings.js').then(({ UNTOLD }) => Object.keys(UNTOLD))")
    assert set(words) == set(get_args(Untold))
    assert page.locator(".record li").count() == 8  # the deploy and the beginning are told to nobody
    for name, width, scheme in (("wide", 1440, "light"), ("dark", 1024, "dark"), ("phone", 390, "light")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        page.locator("section", has=page.locator(".record")).last.screenshot(path=pictures / f"told-{name}.png")


def test_clicks_that_nobody_has_counted_are_not_said_to_be_none(watch, shown: Callable[..., str]) -> None:
    """Before/after counts those of hours that have a counterpart before the deploy."""
    one = (unknown("auc"),)
    found = comparison("undecided", setup="before_after", metrics=one, impressions=28_758, clicks=0, blocks=0)
    watched: Watched = watch(shown(found))
    for view, where in (("comparisons", ".detail .verdict"), ("overview", "article.verdict")):
        said = watched.open(view).locator(where).first.inner_text()
        assert "impressions" in said
        assert "0 clicks" not in said
