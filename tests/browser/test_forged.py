"""Addresses of what is not there (any more): the page says so, and shows nothing else in its place in silence."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser.serving import Serving
from tests.browser.watching import Watched, until
from tests.comparisons import comparison
from tests.server.conftest import Build

pytestmark = [pytest.mark.slow]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    serving = Serving(Build().snapshot(comparisons=(comparison(),)))
    yield serving.url
    serving.stop()


def test_a_comparison_that_is_gone_is_said_to_be_and_no_other_verdict_is_shown(address: str, watch) -> None:
    watched: Watched = watch(address)
    page = watched.open("comparisons?id=99-paired")
    page.locator(".gone", has_text="Comparison 99-paired is not available").wait_for()
    assert page.locator(".detail .verdict").count() == 0 or page.locator(".detail").is_hidden()
    assert page.locator(".deploy[aria-pressed=true]").count() == 0
    page.wait_for_timeout(1500)  # further snapshots change nothing
    assert page.locator(".gone").is_visible()
    page.get_by_role("link", name="All comparisons").click()
    page.wait_for_selector(".detail .verdict")
    assert page.locator(".gone").count() == 0


def test_a_view_that_does_not_exist_is_named(address: str, watch) -> None:
    watched: Watched = watch(address)
    page = watched.page
    page.goto(f"{address}/#/nonsense")
    page.locator("#unknown", has_text="There is no view “nonsense”; this is the overview.").wait_for()
    page.get_by_role("link", name="Flow").click()
    until(lambda: page.locator("#unknown").is_hidden())


@pytest.mark.parametrize(
    ("view", "says"),
    [
        ("history?model=nope", "There is no model “nope” here"),
        ("calibration?model=default&a=v1&b=v77", "There is no version “v77” here"),
        ("users?model=default&version=v66", "There is no version “v66” here"),
        ("overview?window=3y", "There is no window “3y” here"),
    ],
)
def test_names_that_do_not_exist_are_named(address: str, watch, view: str, says: str) -> None:
    watched: Watched = watch(address)
    page = watched.open(view)
    page.locator("#unknown", has_text=says).wait_for()


def test_what_exists_needs_no_words(address: str, watch) -> None:
    watched: Watched = watch(address)
    page = watched.open("calibration?model=default&a=v1&b=v2&window=all")
    assert page.locator("#unknown").is_hidden()
    assert watched.open("comparisons?id=2-paired").locator("#unknown").is_hidden()
