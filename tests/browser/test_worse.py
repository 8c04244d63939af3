"""Is what is live all right? The first thing on the overview, also when the newest deploy is not the one that is worse."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from axe_playwright_python.sync_playwright import Axe

from streameval.compare.reading.reading import Role
from streameval.events.batch import Series
from streameval.results.snapshot import Snapshot
from tests.comparisons import NOON, comparison, deploy
from tests.server.conftest import Build

pytestmark = [pytest.mark.slow]


def version(number: int) -> Series:
    return Series("m", f"ver-{number:02d}", "logged")


def serving(count: int, worse: Collection[int]) -> Snapshot:
    """So many live versions of a model, all but the first compared with it; the last one is the newest deploy."""
    build, live = Build(), Role("live", 1 / count)
    every = [version(number) for number in range(count)]
    compared = tuple(
        comparison(
            "worse" if number in worse else "undecided", "split", number,
            baseline=every[0], candidate=every[number], roles=(live, live),
            **({"decided_at": NOON + number * 1000} if number in worse else {}),
        )
        for number in range(1, count)
    )  # fmt: skip
    return build.snapshot(
        results=tuple(build.result(one, window, seed=1) for one in every for window in ("5m", "all")),
        panes=dict.fromkeys(every, build.panes()),
        roles=dict.fromkeys(every, live),
        comparisons=compared,
        deploys=tuple(deploy(number, every[number].version, model="m") for number in range(count)),
    )


@pytest.mark.parametrize("width", [380, 1280])
@pytest.mark.parametrize(
    ("count", "worse", "first", "marked"),
    [
        (1, (), "Live: m ver-00 (100%)", "none"),
        (3, (), "m ver-02 against ver-00 is undecided", "undecided"),
        (3, (1,), "m ver-01 is worse than ver-00", "worse"),
        (3, (2,), "m ver-02 is worse than ver-00", "worse"),
        (3, (1, 2), "2 live versions of m are worse: ver-02, ver-01", "worse"),
        (30, (24, 27), "2 live versions of m are worse: ver-27, ver-24", "worse"),
        (30, (3, 5, 7, 9, 20), "5 live versions of m are worse: ver-20, ver-09, ver-07 and 2 more", "worse"),
    ],
)
def test_what_is_live_and_worse_is_named_before_the_newest_deploy(
    shown, watch, pictures, width, count, worse, first, marked
) -> None:
    page = watch(shown(serving(count, worse)), width, 800).open("overview?window=5m")
    page.wait_for_selector("tr[data-series]")
    page.screenshot(path=pictures / f"worse-{'-'.join(map(str, (count, *worse, width)))}.png")
    cards = page.locator(".view > .verdicts .verdict")
    assert cards.first.locator("strong").inner_text().startswith(first)
    assert cards.first.get_attribute("data-verdict") == marked
    newest = [text for text in cards.locator("strong").all_inner_texts() if f"m ver-{count - 1:02d}" in text]
    assert len(newest) == 1  # the newest deploy has its own, once
    expected = {f"ver-{number:02d}" for number in worse}
    named = page.locator("tr[data-series]", has=page.locator(".differences li[data-verdict=worse]"))
    assert {
        row.split("\0")[1] for row in named.evaluate_all("(all) => all.map((row) => row.dataset.series)")
    } == expected
    if worse:
        page.locator(".view > .verdicts .verdict").first.get_by_role("link").first.click()
        page.wait_for_selector(".detail .verdict[data-verdict=worse]")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_on_several_that_are_worse(shown, watch, theme: str) -> None:
    page = watch(shown(serving(30, (3, 5, 7, 9, 20))), 1280, 800, theme, bypass_csp=True).open("overview?window=5m")
    page.wait_for_selector("tr[data-series]")
    found = Axe().run(page).response["violations"]
    assert not [one["id"] for one in found if one["impact"] in ("serious", "critical")]


def test_the_comparisons_begin_with_what_is_live_and_worse(shown, watch) -> None:
    page = watch(shown(serving(3, (1,)))).open("comparisons")
    page.wait_for_selector(".detail .verdict")
    assert "m ver-01 is worse than ver-00" in page.locator(".detail .verdict strong").inner_text()
