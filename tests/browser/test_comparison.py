"""A comparison of which everything is known, in a real Chromium: every table of the view has the API's numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from streameval.compare.reading import Comparison, Estimate, Role
from streameval.config import Server
from streameval.events import Series
from streameval.publish import Publisher
from streameval.report import METRIC_NAMES
from streameval.server import create_app
from streameval.server.serve import serve
from tests.browser.watching import Watched, ask
from tests.comparisons import comparison, deploy, reading
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
        panes = replace(
            panes, metrics=dict.fromkeys(METRIC_NAMES, panes.metrics["auc"])
        )  # the overview asks for several
        some = {"deploys": deploys, "comparisons": comparisons, "roles": roles}
        snapshot = Build().snapshot(panes={Series("default", "v1", "logged"): panes}, **some)
        servers.append(serve(create_app(Publisher(snapshot), Server(), version="test"), "127.0.0.1", 0))
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
        ["0-0.02", "1.020", "1.050", "+3.0 %", "12.0 %", "210", "100", "not proven"],
        ["0.02-0.05", "0.990", "1.430", "+42.0 %", "9.0 %", "260", "83", "proven"],
    ]
    assert [row[0] for row in buckets] == [b["bucket"] for b in one["calibration_buckets"]]
    found = page.evaluate(CELLS, "For whom")
    assert [row[0] for row in found] == [f"{f['dimension']} = {f['value']}" for f in one["findings"]]
    assert len(page.evaluate(CELLS, "Early readings")) == len(one["early"])
    (mix,) = page.evaluate(CELLS, "Mix or model")
    assert mix == [
        "country",
        "AUC",
        "\N{MINUS SIGN}0.012",
        "0.001",
        "\N{MINUS SIGN}0.013",
        "Simpson worse in every country",
    ]
    assert page.locator("h2", has_text="On record").count() == 1
    page.screenshot(path=pictures / "comparison-in-full.png", full_page=True)


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
    assert "which no longer shows it" in page.locator(".detail .verdict strong").inner_text()
    then, now = page.locator(".decided > div").all_inner_texts()
    minus = "\N{MINUS SIGN}"
    assert then.startswith("Decided ")
    assert "on AUC" in then
    assert f"{minus}0.0180 ({minus}0.0260 to {minus}0.0100)" in then
    assert f"{minus}0.0010 ({minus}0.0070 to +0.0050)" in now
    assert "no longer shown by current data" in now
    assert page.locator("select[name=metric], .control select").first.input_value() == "auc"  # what it fell on
    assert "per metric" in page.locator(".detail thead").first.inner_text()
    assert "live 90 %" in page.locator(".deploy").inner_text()
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
    first, second = page.locator(".verdict strong").all_inner_texts()
    assert (first, second) == ("Worse", "In shadow: worse")
    assert red(page, ".verdict:not([data-calm])")
    assert not red(page, ".verdict[data-calm]")
    page.screenshot(path=pictures / f"overview-shadow-{theme}.png", full_page=True)
    page = watched.open("comparisons?id=3-paired")
    page.wait_for_selector(".detail[data-calm] .verdict")
    assert not red(page, ".detail")
    assert not red(page, ".deploy[data-calm]")
    page.screenshot(path=pictures / f"comparison-shadow-{theme}.png", full_page=True)
