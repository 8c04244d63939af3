"""The page behind a reverse proxy that serves the monitor below a path."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser.prefixed import Prefixed
from tests.browser.serving import Serving
from tests.browser.watching import Watched, until
from tests.server.conftest import Build

pytestmark = [pytest.mark.slow]

VIEWS = ("overview", "history", "calibration", "metrics", "users", "comparisons", "flow")


@pytest.fixture(scope="module")
def proxy() -> Iterator[Prefixed]:
    serving = Serving(Build().snapshot())
    made = Prefixed(serving.url)
    yield made
    made.stop()
    serving.stop()


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_asks_for_nothing_beyond_the_prefix(proxy: Prefixed, watch, view: str) -> None:
    watched: Watched = watch(proxy.url)  # fails on whatever it asks for elsewhere, and on every 404
    page = watched.open(view)
    page.wait_for_load_state("load")
    assert page.url.startswith(f"{proxy.url}/#/{view}")
    assert not proxy.outside


def test_charts_tables_and_links_stay_below_the_prefix(proxy: Prefixed, watch) -> None:
    watched: Watched = watch(proxy.url)
    page = watched.open("metrics")
    with page.expect_download() as got:
        page.locator(".taking button", has_text="CSV").first.click()
    assert got.value.path().read_text().startswith("model,")
    page = watched.open("history?from=1714561200&to=1714564800")
    page.locator(".chart canvas").first.wait_for()  # the library of charts is loaded when it is needed
    page.get_by_role("link", name="API").click()
    page.wait_for_url(f"{proxy.url}/docs")
    assert page.locator("body").evaluate("(body) => getComputedStyle(body).fontFamily") != "serif"
    for name, where in (("/metrics", "metrics"), ("/openapi.json", "openapi.json")):
        assert page.get_by_role("link", name=name, exact=True).evaluate("(a) => a.href") == f"{proxy.url}/{where}"
    page.locator("h1 a").click()
    page.wait_for_selector("#connection[data-state=live]")
    assert page.url.startswith(f"{proxy.url}/")
    assert not proxy.outside


def test_the_prefix_without_its_slash_leads_to_the_page(proxy: Prefixed, watch) -> None:
    watched: Watched = watch(proxy.url)
    watched.page.goto(f"{proxy.url}#/flow")
    watched.page.wait_for_selector("#connection[data-state=live]")
    until(lambda: watched.page.url.startswith(f"{proxy.url}/#/flow"))
