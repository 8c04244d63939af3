"""What is said of a verdict stays true while the evidence changes; what is awaited is said with its time."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from streameval.compare.reading.reading import Comparison, MetricReading, Role, shows
from streameval.events.batch import Series
from streameval.metrics.registry import names
from streameval.results.snapshot import PartitionState, Snapshot, empty_snapshot
from tests.browser.serving import Serving
from tests.browser.test_views import VIEWS
from tests.browser.watching import Watched, ask, until
from tests.compare.evidence.test_decision import feed, tracked
from tests.comparisons import NOON, comparison, deploy, reading
from tests.server.conftest import Build

pytestmark = [pytest.mark.slow]

LIVE = (Role("shadow"), Role("live", 1.0))
NO_LONGER = "no longer supported by current data"


@pytest.fixture
def served() -> Iterator[Callable[[Snapshot], str]]:
    """`served(snapshot)`: the address of a page that shows it."""
    servers: list[Serving] = []

    def serve(snapshot: Snapshot) -> str:
        servers.append(Serving(snapshot))
        return servers[-1].url

    yield serve
    for server in servers:
        server.stop()


def showing(*comparisons: Comparison) -> Snapshot:
    build = Build()
    panes = replace(build.panes(), metrics=dict.fromkeys(names(), build.panes().metrics["auc"]))
    series = list(dict.fromkeys(s for c in comparisons for s in (c.baseline, c.candidate)))
    return build.snapshot(
        results=tuple(build.result(one, window) for one in series for window in ("5m", "all")),
        panes=dict.fromkeys(series, panes), comparisons=comparisons,
        roles={c.candidate: role for c in comparisons if (role := c.roles[1]) is not None},
        deploys=tuple(deploy(int(c.deploy), c.candidate.version, model=c.candidate.model) for c in comparisons),
    )  # fmt: skip


def recovering() -> list[Comparison]:
    """A deploy that is found worse and then, for twice as long, is better: the engine's readings, one in five."""
    one = tracked()
    seen = [*feed(one, range(20), 1.0), *feed(one, range(20, 70), -1.0)]
    return [replace(c, roles=LIVE) for c in seen[::5] if c.verdict == "worse"]


def test_no_sentence_holds_an_interval_that_contradicts_it_unmarked(served, watch) -> None:
    readings = recovering()
    contradicted = 0
    for c in (readings[0], *readings[-3:]):
        address = served(showing(c))
        assert c.decided_on is not None
        assert c.decided_now is not None
        metric = next(m for m in c.metrics if m.metric == c.decided_on.metric)
        now = c.decided_now
        holds = shows("worse", metric.metric, now.lower, now.upper, metric.margin, metric.tolerance)
        watched: Watched = watch(address)
        page = watched.open("overview")
        page.wait_for_selector(".verdict")
        said = [
            page.locator(".verdict").first.inner_text(),
            *page.locator(".differences li").evaluate_all("(all) => all.map((one) => `${one.title} ${one.textContent}`)"),
        ]  # fmt: skip
        page = watched.open("comparisons")
        page.wait_for_selector(".detail .verdict")
        said.append(page.locator(".decided").inner_text())
        words = page.locator(".detail .verdict strong").inner_text()
        if c.supported_now is False:
            contradicted += 1
            assert NO_LONGER in said[0]
            assert NO_LONGER in said[-1]
            assert "was found worse" in said[0]
            assert "no longer supports it" in words
        else:
            assert holds or not c.decided_on.alone
            assert NO_LONGER not in said[0]
        for m in c.metrics:  # and each metric of its own
            if m.verdict == "worse" and m.supported_now is False:
                row = page.locator("table.intervals tbody tr").nth([x.metric for x in c.metrics].index(m.metric))
                assert NO_LONGER in row.inner_text()
                assert any(NO_LONGER in text and "no longer" in text for text in said[1:-1])
    assert contradicted >= 2  # the stream does recover


APART = "hold together ({0}): they are wider than those that verdicts are based on, of {0} each. The verdict weighs all metrics."


def not_any_more(one: MetricReading) -> MetricReading:
    """Of AUC, a "not worse" that the metric's own interval no longer shows."""
    return replace(one, lower=-0.006, supported_now=False) if one.metric == "auc" else one


@pytest.mark.parametrize("width", [380, 1280])
def test_a_verdict_that_stands_beside_a_metric_that_seems_to_contradict_it_says_how(served, watch, width: int) -> None:
    one = tracked()
    seen = [*feed(one, range(20), 1.0), *feed(one, range(20, 40), -1.0)]
    recorded = [c for c in seen if c.supported_now and any(m.supported_now is False for m in c.metrics)]
    assert recorded  # as it recovers, the wider bounds of a metric alone give it up first
    green = comparison("not_worse", roles=LIVE)
    green = replace(green, metrics=tuple(not_any_more(m) for m in green.metrics))
    for c in (replace(recorded[0], roles=LIVE), green):
        page = watch(served(showing(c)), width).open("overview")
        page.wait_for_selector("tr.apart")
        assert NO_LONGER not in page.locator(".verdict").first.inner_text()
        text = page.locator("tr.apart").inner_text()
        assert APART.format(f"{100 * (1 - c.alpha):g}%") in text
        line = page.locator(".differences li", has_text="no longer").first
        assert "✓" not in line.inner_text()
        assert f"both bounds with {100 * (1 - c.alpha):g}%" in line.get_attribute("title")
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_no_interval_of_the_table_contradicts_its_verdict_unmarked(served, watch) -> None:
    """A metric's verdict stands on bounds that hold each by itself; the interval beside it may not show it any more."""
    odd = replace(reading("auc", "not_worse"), lower=-0.006)  # beyond the tolerance of 0.005
    for verdict in ("not_worse", "worse"):
        c = replace(comparison(verdict, roles=LIVE), metrics=(reading("log_loss", verdict), odd))
        page = watch(served(showing(c))).open("overview")
        page.wait_for_selector("tr.apart")
        titles = page.locator(".differences li").evaluate_all("(all) => all.map((one) => one.title)")
        assert ["wider than what it stands on" in title for title in titles] == [False, True]


def test_where_nothing_seems_to_contradict_nothing_is_explained(served, watch) -> None:
    for verdict in ("worse", "not_worse"):
        page = watch(served(showing(comparison(verdict, roles=LIVE)))).open("overview")
        page.wait_for_selector(".differences li")
        assert page.locator("tr.apart").count() == 0


def test_before_the_first_label_it_says_what_is_awaited_and_until_when(served, watch, pictures) -> None:
    partition = PartitionState(0, NOON + 6_000, NOON - 14_000, NOON + 8_000, {}, {}, waiting_since=NOON)
    empty = replace(
        Build().snapshot(results=(), panes={}, comparisons=(), deploys=(), roles={}, suspensions=(), lost={}, recreated={}, unpaired={}),
        events={"impressions": 1845, "clicks": 12, "pending": 1845, "invalid": {}}, partitions=(partition,), attribution_window=20_000,
    )  # fmt: skip
    watched: Watched = watch(served(empty))
    page = watched.open("overview")
    wanted = "First labels are final in about 14 s (attribution window 20 s); 1,845 impressions waiting."
    page.locator(".verdict .words", has_text=wanted).wait_for()
    assert page.locator(".verdict .words").inner_text() == wanted
    page.screenshot(path=pictures / "awaited.png", full_page=True)
    for view in ("history", "comparisons"):
        page = watched.open(view)
        page.get_by_text(wanted).wait_for()


def test_a_monitor_that_has_read_nothing_yet_shows_no_number_that_is_none(served, watch) -> None:
    watched: Watched = watch(served(empty_snapshot(time.time())))
    for view in VIEWS:
        page = watched.open(view)
        page.wait_for_timeout(1000)
        text = page.locator("main").inner_text()
        assert not re.search(r"NaN|undefined|Infinity|\[object|\bnull\b", text), f"{view}: {text}"


def test_the_differences_have_sign_word_and_the_numbers_of_the_api(served, watch) -> None:
    address = served(showing(comparison(roles=LIVE)))
    watched: Watched = watch(address)
    page = watched.open("overview")
    page.wait_for_selector(".differences li")
    (one,) = ask(address, "comparisons")["comparisons"]
    shown = page.locator(".differences li").all_inner_texts()
    auc = next(m for m in one["metrics"] if m["metric"] == "auc")
    written = f"{auc['difference']:+.4f}".replace("-", "\N{MINUS SIGN}")
    assert any(re.match(rf"AUC\s+{re.escape(written)}\s+✕ worse", line) for line in shown), shown
    assert page.locator(".differences", has_text="champion").count() == 1


def test_lines_below_each_other_share_a_scale(served, watch) -> None:
    """The same panes drawn for two versions are the same points; ten times the values are elsewhere on the same scale."""
    address = served(showing(comparison(roles=LIVE)))
    watched: Watched = watch(address)
    page = watched.open("overview")
    found = page.evaluate(
        """() => import("/page/charts/sparkline.js").then(({ sharedScale, sparkline }) => {
          const line = (value) => ({ start: [0, 60, 120], value, stderr: [0, 0, 0], stderr_df: [9, 9, 9] });
          const lines = [line([1, 1, 1]), line([3, 3, 3])];
          const scale = sharedScale(lines);
          return lines.map((one) => {
            const drawn = sparkline(one, { about: "", scale, marks: [60] });
            return [drawn.querySelector("polyline").getAttribute("points").split(" ").map((p) => Number(p.split(",")[1])), drawn.querySelectorAll(".deployed").length];
          });
        })"""
    )
    (low, one_mark), (high, _) = found
    assert len(set(low)) == len(set(high)) == 1
    assert low[0] > high[0] + 10  # pixels: further down
    assert one_mark == 1


def test_the_interval_plot_says_its_numbers_and_shades_beyond_the_margin(served, watch) -> None:
    address = served(showing(comparison(roles=LIVE)))
    watched: Watched = watch(address)
    page = watched.open("comparisons")
    page.wait_for_selector("svg.interval-line:has(.bar)")
    (one,) = ask(address, "comparisons")["comparisons"]
    lines = page.locator(".interval-line")
    assert lines.count() == len(one["metrics"])
    at = [m["metric"] for m in one["metrics"]].index("auc")
    drawn = lines.nth(at)
    about = drawn.get_attribute("aria-label")
    assert "margin" in about
    assert about.endswith("worse")
    x = {name: float(drawn.locator(f".{name}").get_attribute("x1")) for name in ("zero", "margin", "bar")}
    end = float(drawn.locator(".bar").get_attribute("x2"))
    auc = one["metrics"][at]
    # to the right is worse: a lower AUC; in one scale
    unit = (x["margin"] - x["zero"]) / auc["margin"]
    assert (x["bar"] - x["zero"]) / unit == pytest.approx(-auc["upper"], rel=0.02)
    assert (end - x["zero"]) / unit == pytest.approx(-auc["lower"], rel=0.02)
    assert float(drawn.locator(".beyond").get_attribute("x")) == pytest.approx(x["margin"])
    assert lines.nth([m["metric"] for m in one["metrics"]].index("gauc")).locator("line").count() == 0  # not known


def test_the_interval_plot_is_drawn_without_a_margin_too(served, watch) -> None:
    one = comparison(roles=LIVE)
    strict = replace(one, metrics=tuple(replace(m, margin=0.0) for m in one.metrics))
    watched: Watched = watch(served(showing(strict)))
    page = watched.open("comparisons")
    page.wait_for_selector("svg.interval-line")
    known = [m for m in strict.metrics if m.difference is not None]
    assert page.locator("svg.interval-line .point").count() == len(known) > 0
    assert "NaN" not in page.locator("table.intervals").inner_html()
    # what is wrong with the monitor is a line each
    page.locator("#warning summary").click()
    assert len(page.locator("#warning").inner_text().splitlines()) >= 3


def test_a_dimension_adds_up_to_the_whole_also_while_folded(served, watch) -> None:
    one = comparison(roles=LIVE)
    country = one.findings[0]
    parts = tuple(replace(country, value=f"c{i}", share=0.2, significant=i < 2) for i in range(5))
    watched: Watched = watch(served(showing(replace(one, findings=parts))))
    page = watched.open("comparisons")
    rows = page.locator("[data-dimension=country] tbody tr")
    rows.first.wait_for()

    def shares() -> list[float]:
        return [float(re.findall(r"\+([\d.]+)%", text)[0]) for text in rows.all_inner_texts()]

    assert shares() == [20.0, 20.0, 20.0, 40.0, 100.0]
    page.get_by_role("button", name="Show 2 more").click()
    until(lambda: shares() == [20.0] * 5 + [100.0])


def test_the_history_of_a_verdict_begins_with_who_announced_the_deploy(served, watch) -> None:
    snapshot = showing(comparison(roles=LIVE))
    (one,) = snapshot.deploys
    told = replace(one, announced=True, note="retrained on 30 days", link="https://ci.example/builds/42")
    watched: Watched = watch(served(replace(snapshot, deploys=(told,))))
    page = watched.open("comparisons")
    first = page.locator(".record li").first
    first.wait_for()
    assert "Announced by CI/CD: retrained on 30 days." in first.inner_text()
    assert first.locator("a").get_attribute("href") == "https://ci.example/builds/42"
    assert "✕ worse" in page.locator(".record li").last.inner_text()


def test_models_without_a_comparison_are_answered_for_too(served, watch) -> None:
    v1 = Series("ads", "v1", "logged")
    snapshot = Build().snapshot(
        results=(Build().result(v1, "5m"),), panes={}, comparisons=(), deploys=(), roles={v1: Role("live", 1.0)}
    )
    watched: Watched = watch(served(snapshot))
    page = watched.open("overview")
    assert page.locator(".verdict strong").first.inner_text() == "Live: ads v1 (100%)"
