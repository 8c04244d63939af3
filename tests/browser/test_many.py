"""Four models with twelve versions of sixty characters each, and two hundred slice values, on three screens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from streameval.compare.reading.reading import Role
from streameval.events.batch import Series
from streameval.metrics.registry import names
from streameval.results.snapshot import Snapshot
from tests.browser.serving import Serving
from tests.browser.watching import Watched, until
from tests.comparisons import comparison, deploy
from tests.server.conftest import Build

pytestmark = [pytest.mark.slow]

MODELS, VERSIONS = 4, 12
SIZES = {"phone": (380, 800), "desk": (1280, 800), "wall": (2560, 1300)}
SHOWN = """(model) => [...document.querySelectorAll("main > .view > .scroll table.models tbody")]
  .find((body) => body.querySelector("tr.model").textContent === model)"""


def version(number: int) -> str:
    """60 characters."""
    return f"two-tower-v{number}-trained-2026-11-23T01-02-03Z-git-0123456789abcdef".ljust(60, "0")[:60]


def many() -> Snapshot:
    """In every model v9 serves, compared with v8; v10 to v12 are shadows and the others are gone."""
    build, results, panes, roles = Build(), [], {}, {}
    some = replace(build.panes(), metrics=dict.fromkeys(names(), build.panes().metrics["auc"]))
    for m in range(MODELS):
        for v in range(1, VERSIONS + 1):
            series = Series(f"ranker-{m}", version(v), "logged")
            results += [build.result(series, window, seed=v) for window in ("5m", "all")]
            panes[series] = some
            roles[series] = Role("live", 1.0) if v == 9 else Role("shadow" if v > 9 else "retired")
    results += [
        build.result(Series("ranker-0", version(v), "logged"), "all", ("city", f"c{i}"))
        for v in (8, 9)
        for i in range(200)
    ]
    compared = [
        comparison(
            "worse", number=m + 1, roles=(Role("shadow"), Role("live", 1.0)),
            baseline=Series(f"ranker-{m}", version(8), "logged"), candidate=Series(f"ranker-{m}", version(9), "logged"),
        )
        for m in range(MODELS)
    ]  # fmt: skip
    return build.snapshot(
        results=tuple(results), panes=panes, roles=roles, comparisons=tuple(compared),
        deploys=tuple(deploy(m + 1, version(9), model=f"ranker-{m}") for m in range(MODELS)),
    )  # fmt: skip


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    serving = Serving(many())
    yield serving.url
    serving.stop()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_every_live_version_s_metrics_are_seen_without_scrolling_sideways(
    address: str, watch, pictures, size: str, theme: str
) -> None:
    width, height = SIZES[size]
    watched: Watched = watch(address, width, height, theme)
    page = watched.open("overview?window=5m")
    page.wait_for_selector("tr[data-series] svg.sparkline polyline")
    page.screenshot(path=pictures / f"many-{size}-{theme}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    rows = page.locator("tr[data-series]", has=page.locator("[data-role=live]"))
    assert rows.count() == MODELS
    for row in range(MODELS):
        for cell in rows.nth(row).locator("td[data-metric]").all():
            box = cell.bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
    assert page.evaluate("[...document.querySelectorAll('.scroll')].every((one) => one.scrollWidth <= one.clientWidth)")
    # 18,000 px before: a model shows what serves and what it replaced, and unfolds the others
    assert page.evaluate("document.documentElement.scrollHeight") < 6000


def test_the_others_unfold_in_the_natural_order_and_long_names_can_be_copied(address: str, watch) -> None:
    watched: Watched = watch(address, permissions=["clipboard-read", "clipboard-write"])
    page = watched.open("overview?window=5m")
    page.wait_for_selector("tr[data-series]")
    assert page.locator("tr[data-series]").count() == 2 * MODELS
    page.get_by_role("button", name="Show 10 more versions").first.click()
    until(lambda: page.locator("tr[data-series]").count() == 2 * MODELS + VERSIONS - 2)
    ids = page.evaluate(
        "[...document.querySelectorAll('tr[data-series]')].map((row) => row.dataset.series.split('\\0'))"
    )
    shown = [int(re.findall(r"-v(\d+)-", name)[0]) for model, name, _ in ids if model == "ranker-0"]
    assert shown == [9, 8, 10, 11, 12, 1, 2, 3, 4, 5, 6, 7]
    first = page.locator("tr[data-series] .long").first
    assert len(first.inner_text()) == 20
    assert first.get_attribute("title") == version(9)
    page.get_by_role("button", name=f"Copy {version(9)}").first.click()
    until(lambda: page.evaluate("navigator.clipboard.readText()") == version(9))


def test_lists_are_in_the_natural_order_and_long_ones_can_be_searched(address: str, watch) -> None:
    watched: Watched = watch(address)
    page = watched.open(f"calibration?model=ranker-0&a={version(9)}&b={version(8)}&window=all")
    page.wait_for_selector("svg.plot .dot")
    options = page.locator("select[data-focus=a] option").all_inner_texts()
    assert options == [version(v) for v in range(1, VERSIONS + 1)]
    field = page.locator("input[data-focus=slice]")
    field.fill("c199")
    field.press("Enter")
    until(lambda: "slice=city:c199" in page.url)
    until(lambda: page.locator("input[data-focus=slice]").input_value() == "city = c199")


def test_no_two_lines_of_a_chart_have_one_colour(address: str, watch, pictures) -> None:
    watched: Watched = watch(address, 1280, 1200)
    everything = ",".join(version(v) for v in range(1, VERSIONS + 1))
    page = watched.open("history?model=ranker-0&metric=auc&from=1714561200&to=1714564800")
    page.wait_for_selector(".chart canvas")
    pressed = page.locator(".chip[aria-pressed=true]")
    until(lambda: pressed.count() == 6)
    page = watched.open(f"history?model=ranker-0&metric=auc&from=1714561200&to=1714564800&versions={everything}")
    until(lambda: pressed.count() == VERSIONS)
    page.screenshot(path=pictures / "many-history.png", full_page=True)
    colours = page.evaluate(
        "[...document.querySelectorAll('.chip .swatch')].map((one) => getComputedStyle(one).backgroundColor)"
    )
    assert len(colours) == len(set(colours)) == VERSIONS
