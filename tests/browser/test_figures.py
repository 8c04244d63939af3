"""What numbers and times look like: sums that add up, one scale, ticks that differ, bands within what can be, one zone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from streameval.compare.reading.reading import CalibrationBucket, Comparison, Finding
from streameval.events.batch import Series
from streameval.metrics.registry import names
from streameval.metrics.tables import ScoreCounts
from tests.browser.serving import Serving
from tests.browser.watching import Watched, ask, until
from tests.comparisons import NOON, comparison, reading
from tests.server.conftest import Build

pytestmark = [pytest.mark.slow]


@pytest.fixture
def shown() -> Iterator[Callable[..., str]]:
    """`shown(**changes of the snapshot)`: the address of a page that shows it."""
    servers = []

    def show(**changes: Any) -> str:
        servers.append(Serving(Build().snapshot(**changes)))
        return servers[-1].url

    yield show
    for server in servers:
        server.stop()


def breakdown(count: int) -> Comparison:
    """Two dimensions, each of which makes up the whole, with so many countries."""
    share = [0.5, 0.3, *([0.2 / (count - 2)] * (count - 2))]
    countries = [
        Finding("country", f"c{i}", 1000, 20, 0.01, share[i], 9.0 if i < 2 else 0.0, i < 2) for i in range(count)
    ]
    pclick = [
        Finding("pclick", value, 3000, 60, 0.01, part, 0.0, False) for value, part in (("0-0.1", 0.35), ("0.1-1", 0.65))
    ]
    found = sorted([*countries, *pclick], key=lambda f: -(f.share or 0))
    return comparison(findings=tuple(found))


def total(page: Any, dimension: str) -> tuple[float, float]:
    """The sum of the shares that a table shows, and the total below them, in percent."""
    rows = page.evaluate(
        """(dimension) => [...document.querySelectorAll(`[data-dimension="${dimension}"] tbody tr`)]
          .map((row) => [row.cells[0].textContent, parseFloat(row.cells[2].textContent)])""",
        dimension,
    )
    assert rows[-1][0] == "Total"
    return sum(share for _, share in rows[:-1]), rows[-1][1]


def test_every_dimension_of_the_breakdown_adds_up_to_the_whole(shown, watch) -> None:
    watched: Watched = watch(shown(comparisons=(breakdown(8),)))
    page = watched.open("comparisons?id=2-paired")
    page.wait_for_selector("[data-dimension]")
    tables = page.locator("[data-dimension]")
    assert tables.count() == 2
    country = page.locator("[data-dimension=country]")
    assert country.locator("tbody tr").count() == 5  # the significant few, the rest folded into one, and the total
    assert country.locator("tbody tr td:nth-child(2)").all_inner_texts() == [
        "significant",
        "significant",
        "not significant",
        "",
        "",
    ]
    assert total(page, "country")[1] == pytest.approx(100)
    country.get_by_role("button", name="Show 5 more").click()
    for dimension in ("country", "pclick"):
        added, said = total(page, dimension)
        assert said == pytest.approx(100)
        assert added == pytest.approx(100, abs=0.5)  # rounded rows


def test_values_that_are_not_listed_are_in_the_sum(shown, watch) -> None:
    whole = breakdown(60)
    watched: Watched = watch(shown(comparisons=(replace(whole, findings=whole.findings[:50]),)))
    page = watched.open("comparisons?id=2-paired")
    page.wait_for_selector("[data-dimension]")
    page.locator("[data-dimension=country]").get_by_role("button", name=re.compile("Show .* more")).click()
    assert page.locator("[data-dimension=country] tbody th", has_text="Other values").count() == 1
    added, said = total(page, "country")
    assert said == pytest.approx(100)
    assert added == pytest.approx(100, abs=3)


def test_calibration_that_is_worse_only_as_a_whole_says_why_no_bucket_is(shown, watch) -> None:
    buckets = tuple(
        CalibrationBucket(f"0.{i}-0.{i + 1}", 40, 2 if i < 3 else 0, 1.1 if i < 3 else None, 9000, 300, 3.5,
                          2.4 if i < 3 else None, 1.9 if i < 3 else None, 0.0, False)
        for i in range(8)
    )  # fmt: skip
    some = comparison(
        calibration_buckets=buckets, metrics=(reading("log_loss"), reading("auc"), reading("calibration"))
    )
    watched: Watched = watch(shown(comparisons=(some,)))
    page = watched.open("comparisons?id=2-paired")
    why = page.locator(".why")
    why.wait_for()
    assert "v1 served only 6 clicks in this comparison" in why.inner_text()
    section = page.locator(".detail section", has=page.locator("h2", has_text="Calibration by pClick"))
    assert section.locator("tbody tr").count() == 3
    assert "5 of 8 buckets" in section.inner_text()


def ticks(page: Any, heading: str) -> list[str]:
    """What stands on the axes of a chart, the lower one first."""
    figure = page.locator("figure.panel", has=page.locator("h2", has_text=heading))
    return [text for text in figure.locator(".axes text:not(.name)").all_inner_texts() if text]


def test_score_charts_have_one_scale_and_no_axis_says_the_same_twice(shown, watch) -> None:
    build = Build()
    tiny = build.result(Series("default", "v2", "logged"), "all", seed=5)
    assert tiny.scores is not None
    s = tiny.scores
    scores = ScoreCounts(s.lower / 5e4, s.upper / 5e4, s.negatives, s.positives)
    quantiles = tuple(
        replace(b, lower=b.lower / 5e4, upper=b.upper / 5e4, mean_pclick=(b.mean_pclick or 0) / 5e4)
        for b in tiny.quantiles
    )
    results = (build.result(window="all"), replace(tiny, scores=scores, quantiles=quantiles))
    watched: Watched = watch(shown(results=results))
    page = watched.open("calibration?model=default&a=v1&b=v2&window=all")
    page.wait_for_selector("svg.plot .step")
    assert page.locator("svg.plot .step").count() == 4  # clicks and non-clicks of both versions
    for axis in (ticks(page, "Scores by label"), ticks(page, "Reliability")):
        across = axis[: len(axis) // 2]
        assert len(across) == len(set(across)), axis
        assert not [text for text in axis if re.fullmatch(r"0\.0+%", text)], axis


def test_bands_and_axes_stay_within_what_a_metric_can_be(shown, watch, pictures) -> None:
    build = Build()
    panes = build.panes()
    wide = replace(
        panes, metrics=dict.fromkeys(names(), panes.metrics["auc"] + 0.25), stderrs={"auc": panes.stderrs["auc"] + 0.5}
    )
    watched: Watched = watch(shown(panes={Series("default", "v1", "logged"): wide}))
    page = watched.open(f"history?model=default&metric=auc&versions=v1&from={NOON // 1000 - 3600}&to={NOON // 1000}")
    page.wait_for_selector(".chart canvas")
    page.screenshot(path=pictures / "band-within.png")
    low, high = page.evaluate(
        """async () => {
          const { within, rangeOf } = await import("/page/metrics.js");
          return [within(rangeOf("auc"), -0.2), within(rangeOf("auc"), 1.2)];
        }"""
    )
    assert (low, high) == (0, 1)
    least, most = (float(end) for end in str(page.locator(".chart").first.get_attribute("data-axis")).split())
    assert 0 <= least < most <= 1


def test_all_times_of_the_page_are_in_one_zone_and_can_be_changed_to_utc(shown, watch) -> None:
    address = shown(comparisons=(comparison(),))
    watched: Watched = watch(address, timezone_id="Europe/Berlin", locale="de-DE")
    page = watched.open("comparisons?id=2-paired")
    page.wait_for_selector(".detail .verdict")
    words = ask(address, "comparisons")["comparisons"][0]["words"]
    assert "decided 2024-05-01 12:03 UTC on AUC" in words  # of another day than today
    page.wait_for_selector(".decided")
    assert page.locator(".detail .verdict strong").inner_text() == words.replace("2024-05-01 12:03 UTC", "1 May, 14:03")
    assert page.locator(".decided dt").first.inner_text() == "Decided 1 May, 14:03 on AUC"
    assert "last updated 1 May, 14:10" in page.locator(".detail .verdict").inner_text()
    page.get_by_role("button", name="Times are in Europe/Berlin; change to UTC").click()
    until(
        lambda: (
            page.locator(".detail .verdict strong").count()
            and page.locator(".detail .verdict strong").inner_text() == words
        )
    )
    assert page.locator(".decided dt").first.inner_text() == "Decided 1 May, 12:03 on AUC"
    assert "UTC" in page.locator("#build").inner_text()
    page.reload()
    page.wait_for_selector(".decided")
    assert page.locator(".detail .verdict strong").inner_text() == words
    before = page.evaluate(
        """async () => {
          localStorage.setItem("streameval-zone", "local");
          const { inZone } = await import("/page/format.js?again");
          return [inZone("decided 23:50 UTC on AUC", "2024-05-02T00:05:00Z"), inZone("2024-04-30 22:30 UTC", "2024-05-02T00:05:00Z")];
        }"""
    )
    assert before == ["decided 01:50 on AUC", "1 May, 00:30"]


def test_the_chart_of_users_can_be_read(shown, watch) -> None:
    watched: Watched = watch(shown())
    page = watched.open("users?model=default&version=v1")
    page.wait_for_selector("svg.plot rect")
    # the size of the letters as drawn: charts are scaled to their place
    sizes = page.evaluate(
        "[...document.querySelectorAll('.four svg.plot')].map((one) => 11.5 * one.getBoundingClientRect().width / one.viewBox.baseVal.width)"
    )
    assert len(sizes) == 4
    assert min(sizes) >= 10


def test_numbers_beside_each_other_have_as_many_digits(shown, watch) -> None:
    page = watch(shown()).open("overview")
    written = page.evaluate(
        """() => Promise.all([import("/page/format.js"), import("/page/differences.js")]).then(([format, { bounds, difference }]) => {
          const { number, share, signed, signedPercent } = format;
          const one = (middle, lower, upper) => [difference("log_loss", middle), bounds("log_loss", { difference: middle, lower, upper })];
          return [
            [0.002, 0.00194, 0.031, 0.0996, 0.42, 1, 0, 0.00003].map(share),
            [number(-0.00001), signed(0.00001), signedPercent(-0.0001), signed(-0.2, 2)],
            one(0.0019, -0.012, 0.016), one(0.02, 0.004, 0.036),
          ];
        })"""
    )
    minus = "\N{MINUS SIGN}"
    assert written == [
        ["0.20%", "0.19%", "3.1%", "10%", "42%", "100%", "0", "<0.01%"],
        ["0.0000", "0.0000", "0.0%", f"{minus}0.20"],
        ["+0.19%", f"{minus}1.20 to +1.60%"],
        ["+2.0%", "+0.4 to +3.6%"],
    ]
