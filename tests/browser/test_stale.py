"""A monitor that stops: frozen, stuck, gone. The page must say so by itself, and say when all is well again."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from streameval.app import new_publisher
from streameval.results.publish import Publisher
from streameval.server import create_app
from streameval.server.http.serve import serve
from streameval.settings.server import Server
from streameval.settings.tree import Settings
from tests.browser.conftest import ROOT
from tests.browser.serving import Serving
from tests.browser.watching import PATIENCE, Watched, ask, until
from tests.server.conftest import Build

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

STALE_MS = 12_000  # what the page promises, for snapshots a second apart; five intervals where they come more slowly
# resolves when a state is shown, to the milliseconds that it took, and to the most that passed between two looks, which is how
# late a timer of the page may be on a busy machine; watched from within, so that a busy test is not counted
UNTIL_STATE = """(wanted) => new Promise((done) => {
  const begin = performance.now();
  let last = begin, late = 0;
  const look = () => {
    late = Math.max(late, performance.now() - last);
    last = performance.now();
    if (document.querySelector("#connection").dataset.state === wanted) done([last - begin, late]);
    else setTimeout(look, 50);
  };
  look();
})"""


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A `streameval demo` of its own; its output is in `said`."""
    with (tmp_path / "said").open("wb") as out:
        demo = subprocess.Popen(
            [sys.executable, "-m", "streameval", "demo", "--port", "0"], stderr=out, stdout=out, cwd=ROOT
        )
    yield demo
    demo.send_signal(signal.SIGCONT)
    demo.terminate()
    demo.wait(PATIENCE)


def opacity(page) -> float:
    return float(page.evaluate("getComputedStyle(document.querySelector('main')).opacity"))


def test_a_frozen_monitor_is_stale_within_twelve_seconds_and_a_dead_one_unreachable(
    process, watch, pictures, tmp_path: Path
) -> None:
    address = until(lambda: re.search(r"page\s+(http://\S+?)/?\s", (tmp_path / "said").read_text()))[1]
    watched: Watched = watch(address)
    page = watched.open("overview")
    page.wait_for_selector("tr[data-series]")
    before = until(lambda: ask(address, "status")["snapshot"])
    until(lambda: ask(address, "status")["snapshot"] >= before + 5)  # the page has seen how often they come
    assert opacity(page) == 1
    assert page.locator("#outage").is_hidden()
    process.send_signal(signal.SIGSTOP)
    took, late = page.evaluate(UNTIL_STATE, "stale")
    expected = page.evaluate(
        "Number(document.querySelector('#outage-text').textContent.match(/about every ([0-9.]+) s/)[1])"
    )
    print(f"stale after {took:.0f} ms, a snapshot every {expected:g} s")
    assert took < max(STALE_MS, 5000 * (expected + 0.5) + 2000) + 2 * late  # it says whole seconds
    assert "Stale: no new snapshot since" in page.locator("#outage").inner_text()
    assert opacity(page) == pytest.approx(0.6)
    wide = page.locator("#outage").bounding_box()
    assert (wide["x"], wide["width"]) == (0, 1280)
    page.locator("#outage", has_text="does not respond").wait_for()
    page.screenshot(path=pictures / "stale.png")
    process.send_signal(signal.SIGCONT)
    page.evaluate(UNTIL_STATE, "live")
    page.wait_for_selector("#outage", state="hidden")
    assert opacity(page) == 1
    process.kill()
    page.locator("#outage", has_text="Monitor unreachable since").wait_for()
    assert page.locator("#connection").get_attribute("data-state") == "lost"
    page.locator("#as-of", has_text=" s ago").wait_for()  # by the monitor's clock, which the freeze has not set back
    assert page.get_by_role("button", name="Retry now").is_visible()
    assert opacity(page) == pytest.approx(0.6)
    page.screenshot(path=pictures / "unreachable.png")
    watched.errors.clear()  # refused connections are what this is about


def test_a_server_that_only_repeats_an_old_snapshot_is_stale_however_often_it_is_asked(watch) -> None:
    """The loop is stuck while the server answers: the connection is fine, the snapshot's age is not."""
    begun = time.time() - 120
    publisher = Publisher(Build().snapshot(number=60, started_at=begun, taken_at=begun + 60))
    server = serve(create_app(publisher, Server(), version="test"), "127.0.0.1", 0)
    try:
        watched: Watched = watch(server.url)
        page = watched.page
        page.goto(f"{server.url}/#/overview")
        page.locator("#outage", has_text="The monitor responds, but publishes nothing new").wait_for()
        page.get_by_role("button", name="Retry now").click()
        page.wait_for_timeout(1500)
        assert page.locator("#connection").get_attribute("data-state") == "stale"
        # after a first start the loop may compile for a minute
        publisher.awaited = lambda: "compiling a kernel, once on a machine"
        page.locator("#outage", has_text="The monitor is compiling a kernel, once on a machine.").wait_for()
        publisher.publish(Build().snapshot(number=61, started_at=begun, taken_at=time.time()))
        page.wait_for_selector("#connection[data-state=live]")
        page.wait_for_selector("#outage", state="hidden")
        page.goto("about:blank")
    finally:
        server.stop()


def test_a_busy_monitor_says_what_to_expect_and_is_not_stale(watch) -> None:
    """One snapshot in twenty seconds since its start: the first one that is seen may well be 15 s old."""
    now = time.time()
    publisher = Publisher(Build().snapshot(number=30, started_at=now - 615, taken_at=now - 15))
    server = serve(create_app(publisher, Server(), version="test"), "127.0.0.1", 0)
    try:
        watched: Watched = watch(server.url)
        page = watched.page
        page.goto(f"{server.url}/#/overview")
        page.locator("#as-of", has_text="one about every 20 s").wait_for()
        page.wait_for_timeout(3000)
        assert page.locator("#connection").get_attribute("data-state") == "live"
        assert page.locator("#outage").is_hidden()
        page.goto("about:blank")
    finally:
        server.stop()


def test_a_monitor_that_still_compiles_says_so_without_an_alarm_and_without_numbers_that_are_none(watch) -> None:
    publisher = new_publisher(Settings())
    server = serve(create_app(publisher, Server(), version="test"), "127.0.0.1", 0)
    try:
        page = watch(server.url).page
        page.goto(f"{server.url}/#/overview")
        latest = publisher.latest()
        words = "compiling kernel 3 of 80, once on a machine"
        publisher.publish(replace(latest, number=latest.number + 1, taken_at=time.time(), preparing=words))
        page.locator("[data-verdict=none]", has_text=f"Nothing has been read yet: {words}.").wait_for()
        assert page.locator("#warning").is_hidden()
        assert page.locator("#connection").get_attribute("data-state") == "live"
        assert "NaN" not in page.inner_text("main")
        page.goto(f"{server.url}/#/flow")
        page.locator("main", has_text=f"Nothing has been read yet: {words}.").wait_for()
        assert not re.search(r"NaN|store\.path|all events were valid", page.inner_text("main"))
        publisher.publish(Build().snapshot(number=1, taken_at=time.time()))
        page.wait_for_selector(".pipeline li")
        page.goto(f"{server.url}/#/overview")
        page.wait_for_selector("tr[data-series]")
        page.goto("about:blank")
    finally:
        server.stop()


def test_a_computer_whose_clock_is_wrong_shows_no_outage(watch) -> None:
    """The age of a snapshot is by the monitor's clock."""
    now = time.time()
    serving = Serving(Build().snapshot(number=60, started_at=now - 60, taken_at=now))
    try:
        watched: Watched = watch(serving.url)
        page = watched.page
        page.add_init_script("const real = Date.now; Date.now = () => real() + 600_000;")
        page.goto(f"{serving.url}/#/overview")
        page.wait_for_selector("#connection[data-state=live]")
        until(lambda: re.search(r"as of [0-9:]+(, [0-9.]+ s ago)?$", page.locator("#as-of").inner_text()))
        assert page.locator("#connection").get_attribute("data-state") == "live"
        assert page.locator("#outage").is_hidden()
        page.goto("about:blank")
    finally:
        serving.stop()
