"""What is drawn beside and below a chart: no number upon another, nothing cut off, no peak that hides all the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from tests.browser.serving import Serving
from tests.browser.watching import Watched
from tests.comparisons import NOON
from tests.server.conftest import Build

pytestmark = [pytest.mark.slow]


@pytest.fixture
def page(watch: Callable[..., Watched]) -> Iterator[object]:
    serving = Serving(Build().snapshot())
    opened = watch(serving.url).open(
        f"history?model=default&metric=auc&versions=v1&from={NOON // 1000 - 3600}&to={NOON // 1000}"
    )
    opened.wait_for_selector(".chart canvas")
    yield opened
    serving.stop()


def test_numbers_below_an_axis_do_not_touch(page) -> None:
    places = page.evaluate(
        """async () => {
          const { frame, linear, logarithmic } = await import("/page/charts/frame.js");
          const y = { scale: linear(0, 1), name: "y", format: String };
          return [[0.009, 2], [0.4, 60], [1e-6, 1]].map(([low, high]) => {
            const { root } = frame({ width: 260, x: { scale: logarithmic(low, high), name: "x", format: String }, y, title: "t", description: "" });
            document.body.append(root);
            root.style.width = "260px";
            const below = [...root.querySelectorAll(".axes text[text-anchor=middle]:not(.name)")];
            return below.map((text) => text.getBoundingClientRect()).map(({ left, right }) => [left, right]);
          });
        }"""
    )
    for axis in places:
        assert len(axis) >= 3
        assert all(right < left for (_, right), (left, _) in pairwise(axis)), axis


def test_scores_that_saturate_do_not_hide_the_others(page) -> None:
    heights = page.evaluate(
        """async () => {
          const { scoreChart } = await import("/page/charts/scores.js");
          const edges = [0.01, 0.05, 0.1, 0.3, 0.7, 0.9, 0.99, 0.999, 0.9999, 1];
          const clicks = [5, 5, 10, 20, 20, 10, 10, 10, 10];
          const root = scoreChart([{ name: "v1", look: { class: "look" }, scores: { edges, clicks, impressions: clicks.map((n) => 2 * n) } }]);
          return [...root.querySelectorAll(".axes text[text-anchor=end]")].map((text) => Number(text.textContent));
        }"""
    )
    assert max(heights) <= 10  # shares per tenfold; the bin next to 1 alone had 2,300


def test_a_chart_is_no_wider_than_its_place_and_its_legend_waits_for_the_mouse(page) -> None:
    page.mouse.move(0, 0)
    right, inside = page.evaluate(
        """() => {
          const place = document.querySelector(".chart");
          const { paddingRight } = getComputedStyle(place);
          return [place.querySelector("canvas").getBoundingClientRect().right, place.getBoundingClientRect().right - parseFloat(paddingRight)];
        }"""
    )
    assert right <= inside
    colon = (
        "getComputedStyle(document.querySelector('.chart .u-legend .u-series:nth-child(2) th'), '::after').visibility"
    )
    assert page.evaluate(colon) == "hidden"
    page.hover(".chart .u-over")
    page.wait_for_function(f"{colon} === 'visible'")
