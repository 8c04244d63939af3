"""What a reader takes along: explanations in place, links that stay, CSV, pictures, and a comparison on paper."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streameval.compare.reading.reading import Role
from streameval.events.batch import Series
from streameval.metrics.registry import by_name, names
from tests.browser.serving import Serving
from tests.browser.watching import Watched, ask, until
from tests.comparisons import comparison, deploy
from tests.server.conftest import Build

pytestmark = [pytest.mark.slow]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    build = Build()
    series = [Series("default", version, "logged") for version in ("v1", "v2")]
    panes = replace(build.panes(), metrics=dict.fromkeys(names(), build.panes().metrics["auc"]))
    one = comparison(roles=(Role("shadow"), Role("live", 1.0)))
    parts = tuple(replace(one.findings[0], value=f"c{i}", share=0.2) for i in range(5))
    serving = Serving(
        build.snapshot(
            results=tuple(build.result(s, window) for s in series for window in ("5m", "all")),
            panes=dict.fromkeys(series, panes), comparisons=(replace(one, findings=parts),), deploys=(deploy(),),
            roles={series[0]: Role("shadow"), series[1]: Role("live", 1.0)},
        )
    )  # fmt: skip
    yield serving.url
    serving.stop()


def explanation(page: Any) -> str:
    return str(page.locator("#explanation").inner_text())


def test_a_metric_is_explained_by_mouse_keyboard_and_touch(address: str, watch) -> None:
    watched: Watched = watch(address, has_touch=True)
    page = watched.open("overview")
    word = page.locator("thead .term[data-term='metric:log_loss']").first
    word.hover()
    until(lambda: page.locator("#explanation").is_visible())
    said = explanation(page)
    assert by_name("log_loss").explanation[1:] in said
    assert "Lower is better." in said
    assert page.locator("#explanation a").get_attribute("href").endswith("glossary.md#metrics")
    page.mouse.move(600, 790)
    until(lambda: not page.locator("#explanation").is_visible())
    # keyboard: the focus shows it, Enter goes to the link, Escape comes back
    page.locator("thead .term[data-term='metric:gauc']").first.focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    until(lambda: by_name("gauc").explanation[1:] in explanation(page))
    assert page.evaluate("document.activeElement.getAttribute('aria-describedby')") == "explanation"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.closest('#explanation') !== null")
    page.keyboard.press("Escape")
    assert not page.locator("#explanation").is_visible()
    assert page.evaluate("document.activeElement.dataset.term") == "metric:gauc"
    # touch
    page.locator(".tiles .term[data-term='label delay']").tap()
    until(lambda: "Age of the newest final label." in explanation(page))
    page.locator("h2").first.tap()
    until(lambda: not page.locator("#explanation").is_visible())


def test_a_word_drawn_anew_keeps_focus_and_description(watch) -> None:
    # the verdicts on two models by the same metric: the focus stays in the second one
    build = Build()
    models = {
        model: tuple(Series(model, version, "logged") for version in ("v1", "v2")) for model in ("default", "other")
    }
    one = comparison(roles=(Role("live", 0.5),) * 2)
    served = [series for pair in models.values() for series in pair]
    serving = Serving(
        build.snapshot(
            results=tuple(build.result(series, "5m") for series in served), roles=dict.fromkeys(served, Role("live", 0.5)),
            comparisons=tuple(replace(one, id=model, baseline=v1, candidate=v2) for model, (v1, v2) in models.items()),
            deploys=(deploy(),), panes={},
        )
    )  # fmt: skip
    try:
        page = watch(serving.url).open("overview")
        words = page.locator("article.verdict .term[data-term='metric:auc']")
        until(lambda: words.count() == 2)
        # the mouse rests on something that is drawn anew, which a browser tells as if the mouse had moved there
        page.locator("article.verdict h3, article.verdict p").last.hover()
        page.locator("body").press("Tab")  # the keyboard is used: the focus shows
        words.nth(1).focus()
        until(lambda: page.locator("#explanation").is_visible())
        for _ in range(2):
            page.evaluate("() => { for (const one of document.querySelectorAll('.term')) one.drawnBefore = true; }")
            page.wait_for_function(
                "() => !document.activeElement.drawnBefore && document.activeElement.matches('.term')"
            )
            assert words.nth(1).evaluate("(one) => one === document.activeElement")
            assert words.nth(1).get_attribute("aria-describedby") == "explanation"
            assert page.locator("[aria-describedby=explanation]").count() == 1
            assert page.locator("#explanation").is_visible()
    finally:
        serving.stop()


def test_every_metric_of_the_tables_is_explained(address: str, watch) -> None:
    page = watch(address).open("overview")
    shown = page.locator("thead .term").evaluate_all("(all) => all.map((one) => one.dataset.term)")
    assert {f"metric:{name}" for name in ("auc", "gauc", "log_loss", "rig", "calibration")} <= set(shown)


def downloaded(page: Any, button: Any) -> bytes:
    with page.expect_download() as waiting:
        button.click()
    return Path(waiting.value.path()).read_bytes()


def test_the_csv_of_the_overview_has_the_numbers_of_page_and_json(address: str, watch) -> None:
    page = watch(address).open("overview?window=5m")
    page.wait_for_selector("td[data-metric=log_loss] [data-value]")
    text = downloaded(page, page.locator(".all .take", has_text="CSV")).decode()
    table = {(row["model"], row["version"]): row for row in csv.DictReader(io.StringIO(text))}
    answer = ask(address, "results?window=5m&slice=none")["results"]
    assert len(table) == len(answer) == 2
    for row in answer:
        for metric in ("auc", "gauc", "log_loss", "rig", "calibration"):
            of_csv = float(table[row["model"], row["version"]][metric])
            on_page = page.evaluate(
                """([version, metric]) => Number([...document.querySelectorAll("tr[data-series]")].find((one) => one.dataset.series.split("\\0")[1] === version)
                     .querySelector(`[data-metric=${metric}] [data-value]`).dataset.value)""",
                [row["version"], metric],
            )
            assert of_csv == row[metric] == on_page, metric


def test_the_csv_of_a_comparison_and_of_the_history_are_those_of_the_api(address: str, watch) -> None:
    watched: Watched = watch(address)
    page = watched.open("comparisons")
    page.wait_for_selector("svg.interval-line:has(.bar)")
    rows = list(csv.DictReader(io.StringIO(downloaded(page, page.locator(".take", has_text="CSV").first).decode())))
    (one,) = ask(address, "comparisons")["comparisons"]
    assert [(r["metric"], r["verdict"]) for r in rows] == [(m["metric"], m["verdict"]) for m in one["metrics"]]
    assert [r["lower"] for r in rows] == ["" if m["lower"] is None else str(m["lower"]) for m in one["metrics"]]
    page = watched.open("history?model=default&metric=auc&from=1714561200&to=1714564800")
    page.wait_for_selector("svg.interval-line", state="detached")  # the view before, which has a CSV of its own
    page.wait_for_selector(".chart canvas")
    rows = list(csv.DictReader(io.StringIO(downloaded(page, page.locator(".take", has_text="CSV").first).decode())))
    points = [p for s in ask(address, "series?model=default&metric=auc&limit=11000")["series"] for p in s["points"]]
    assert [float(r["value"]) for r in rows if r["value"]] == [p["value"] for p in points if p["value"] is not None]


@pytest.mark.parametrize(
    ("view", "which"), [("overview", 0), ("comparisons", 0), ("comparisons", 1), ("calibration?model=default&a=v1&b=v2&window=all", 0)]
)  # fmt: skip
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_chart_is_a_picture_with_something_on_it(
    address: str, watch, pictures, view: str, which: int, theme: str
) -> None:
    page = watch(address, theme=theme).open(view)
    page.wait_for_selector(".chart canvas, svg.plot .dot")
    button = page.locator(".take", has_text="PNG").nth(which)
    button.wait_for()
    page.wait_for_timeout(300)
    page.evaluate("new Promise((painted) => requestAnimationFrame(() => requestAnimationFrame(painted)))")
    data = downloaded(page, button)
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    name = view.split("?", maxsplit=1)[0]
    (pictures / f"taken-{name}-{which}-{theme}.png").write_bytes(data)
    width, _, colours = seen_on(page, data)
    assert width > 700
    assert colours > 30  # lines, bands and letters


def seen_on(page: Any, data: bytes) -> tuple[int, int, int]:
    """Width and height of a picture, and how many colours it has."""
    found: tuple[int, int, int] = page.evaluate(
        """async (data) => {
          const bitmap = await createImageBitmap(new Blob([Uint8Array.from(data)], { type: "image/png" }));
          const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
          const ctx = canvas.getContext("2d");
          ctx.drawImage(bitmap, 0, 0);
          const { data: pixels } = ctx.getImageData(0, 0, bitmap.width, bitmap.height);
          const seen = new Set();
          for (let i = 0; i < pixels.length; i += 4) seen.add((pixels[i] << 16) + (pixels[i + 1] << 8) + pixels[i + 2]);
          return [bitmap.width, bitmap.height, seen.size];
        }""",
        list(data),
    )
    return found


def test_the_interval_plot_is_the_same_picture_on_every_screen(address: str, watch) -> None:
    """Its lines with names and numbers, also where the page sets them in cards."""
    sizes = set()
    for width in (380, 1280):
        page = watch(address, width=width).open("comparisons")
        page.wait_for_selector("svg.interval-line:has(.bar)")
        take = page.get_by_role("group", name="Take along: comparison", exact=True).get_by_role("button", name="PNG")
        wide, high, colours = seen_on(page, downloaded(page, take))
        sizes.add((wide, high))
        assert colours > 30
        lines = page.locator("svg.interval-line").evaluate_all(
            "(all) => all.map((one) => JSON.parse(one.dataset.line))"
        )
        rows = page.locator("table.intervals tbody tr").all_inner_texts()
        for (name, verdict, numbers), row in zip(lines, rows, strict=True):
            said = [name, verdict.split(" ")[1], *re.findall(r"[\d.]+", numbers)]
            assert all(text in row for text in said), (said, row)
    assert len(sizes) == 1


def test_a_copied_link_keeps_its_times(address: str, watch) -> None:
    watched: Watched = watch(address, permissions=["clipboard-read", "clipboard-write"])
    page = watched.open("history?model=default&metric=auc&range=1h")
    page.wait_for_selector(".chart")
    page.locator(".take", has_text="Copy link").first.click()
    page.locator(".take", has_text="Copied").wait_for()
    link = page.evaluate("navigator.clipboard.readText()")
    assert "from=" in link
    assert "to=" in link
    assert "range=" not in link
    page.goto(link)
    until(lambda: page.locator("select[data-focus=range]").input_value() == "zoomed")
    page = watched.open("overview")
    page.locator(".verdict .take").click()
    until(lambda: page.evaluate("navigator.clipboard.readText()").endswith("#/comparisons?id=2-paired"))


def test_a_comparison_prints_unfolded_and_without_what_paper_cannot_do(address: str, watch, pictures) -> None:
    watched: Watched = watch(address, theme="dark")
    page = watched.open("comparisons")
    page.wait_for_selector("svg.interval-line:has(.bar)")
    page.wait_for_selector(".chart canvas")  # its points are asked for after the comparison
    assert page.locator("[data-dimension=country] tbody tr").count() == 5  # three, the others, the total
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.locator("[data-dimension=country] tbody tr").count() == 6
    for gone in ("header.top", ".taking", ".tools", ".deploys"):
        assert not page.locator(gone).first.is_visible(), gone
    for there in (".detail .verdict", "table.intervals", ".record", ".chart canvas"):
        assert page.locator(there).first.is_visible(), there
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"
    page.set_viewport_size({"width": 720, "height": 1000})
    assert "Times are in " in page.locator("footer").inner_text()
    assert not page.locator("footer a").first.is_visible()
    page.screenshot(path=pictures / "printed.png", full_page=True)
    page.pdf(path=pictures / "printed.pdf", format="A4")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="screen")
    assert page.locator("header.top").is_visible()
