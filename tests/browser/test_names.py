"""Names that events may have and few people would choose: with commas, from right to left, endless."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streameval.compare.reading.reading import Role
from streameval.events.batch import Series
from streameval.results.snapshot import Snapshot
from tests.browser.serving import Serving
from tests.browser.watching import Watched, until
from tests.comparisons import deploy
from tests.server.conftest import Build

pytestmark = [pytest.mark.slow]

WANTED = ("v,1", "100%25", "\u202eevil")  # not those that the page begins with
NAMES = ("v,1", "100%25", "a&b=c#d", "שלום-גרסה", "\u202eevil", "L" * 256)
# where the characters of a text begin, of the first text that has it
PLACES = """(text) => {
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const at = walker.currentNode.data.indexOf(text);
    if (at < 0) continue;
    return [...text].map((_, i) => {
      const range = document.createRange();
      range.setStart(walker.currentNode, at + i);
      range.setEnd(walker.currentNode, at + i + 1);
      return range.getBoundingClientRect().x;
    });
  }
  return null;
}"""


def odd() -> Snapshot:
    """A version of each name, all of them live, one share each."""
    build = Build()
    series = [Series("default", name, "logged") for name in NAMES]
    results = [build.result(one, window, seed=i) for i, one in enumerate(series) for window in ("5m", "all")]
    shares = (0.3, 0.25, 0.2, 0.12, 0.08, 0.05)
    return build.snapshot(
        results=tuple(results), panes={one: build.panes() for one in series}, comparisons=(),
        roles={one: Role("live", share) for one, share in zip(series, shares, strict=True)},
        deploys=tuple(deploy(i + 1, name, at=1_714_564_000_000 + i) for i, name in enumerate(NAMES)),
    )  # fmt: skip


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    serving = Serving(odd())
    yield serving.url
    serving.stop()


@pytest.mark.parametrize("view", ["history?from=1714561200&to=1714564800", "metrics"])
def test_versions_that_were_chosen_are_those_of_the_copied_address(address: str, watch, view: str) -> None:
    watched: Watched = watch(address)
    page = watched.open(view)
    chip = page.locator(".chip")
    until(lambda: chip.count() == len(NAMES))
    for name in sorted(NAMES, key=WANTED.__contains__, reverse=True):  # of none at all the page would make some
        one = page.locator(f".chip[data-focus='chip-{name}']")
        if (one.get_attribute("aria-pressed") == "true") != (name in WANTED):
            one.click()
    until(lambda: "versions=" in page.url)
    second: Watched = watch(address)
    elsewhere = second.open(page.url.partition("#/")[2])
    until(lambda: elsewhere.locator(".chip[aria-pressed=true]").count() == 3)
    chosen = [one.get_attribute("data-focus") for one in elsewhere.locator(".chip[aria-pressed=true]").all()]
    assert sorted(chosen) == sorted(f"chip-{name}" for name in WANTED)
    assert elsewhere.locator("#unknown").is_hidden()


@pytest.mark.parametrize("width", [380, 1280])
def test_an_endless_name_of_a_deploy_does_not_widen_the_page(address: str, watch, width: int) -> None:
    watched: Watched = watch(address, width)
    page = watched.open("history?from=1714561200&to=1714564800")
    page.locator("p", has_text="Deploys:").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page = watched.open(f"calibration?model=default&a={'X' * 300}")
    page.locator("#unknown", has_text="There is no version").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_name_from_right_to_left_turns_nothing_around_it(address: str, watch, pictures) -> None:
    watched: Watched = watch(address)
    page = watched.open("overview?window=5m")
    page.wait_for_selector("tr[data-series]")
    page.screenshot(path=pictures / "names.png", full_page=True)
    for share in ("(12%)", "(8%)"):  # behind such a name
        places = page.evaluate(PLACES, share)
        assert places == sorted(places), share
    assert page.locator("tr[data-series]", has_text="\ufffdevil").count() == 1


TURNS = """() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) if (/[\\u202a-\\u202e]/.test(walker.currentNode.data)) found.push(walker.currentNode.data);
  return found;
}"""


@pytest.mark.parametrize("view", ["overview", "history", "calibration", "metrics", "users", "flow"])
def test_a_model_whose_name_turns_the_text_does_so_nowhere(watch, view: str) -> None:
    build = Build()
    series = [Series(model, "v1", "logged") for model in ("default", "\u202eevil")]
    results = [build.result(one, window, seed=i) for i, one in enumerate(series) for window in ("5m", "all")]
    serving = Serving(
        build.snapshot(
            results=tuple(results), panes={one: build.panes() for one in series}, comparisons=(), deploys=(),
            roles={one: Role("live", 1.0) for one in series},
        )
    )  # fmt: skip
    try:
        page = watch(serving.url).open(view)
        if view not in ("overview", "flow"):
            option = page.locator("select[data-focus=model] option", has_text="\ufffdevil")
            until(lambda: option.count() == 1)
            assert option.get_attribute("value") == "\u202eevil"
        page.wait_for_timeout(500)
        assert page.evaluate(TURNS) == []
    finally:
        serving.stop()
