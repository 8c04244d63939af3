"""A comparison of which everything is known, in a real Chromium: every table of the view has the API's numbers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streameval.config import Server
from streameval.publish import Publisher
from streameval.server import create_app
from streameval.server.serve import serve
from tests.browser.watching import Watched, ask
from tests.comparisons import comparison, deploy
from tests.server.conftest import Build

pytestmark = [pytest.mark.slow]

CELLS = """(name) => {
  const section = [...document.querySelectorAll("h2")].find((one) => one.textContent === name).closest("section");
  return [...section.querySelectorAll("tbody tr")].map((row) => [...row.cells].map((cell) => cell.textContent));
}"""


@pytest.fixture
def address() -> Iterator[str]:
    snapshot = Build().snapshot(deploys=(deploy(),), comparisons=(comparison(),))
    server = serve(create_app(Publisher(snapshot), Server(), version="test"), "127.0.0.1", 0)
    yield server.url
    server.stop()


def test_every_table_has_the_numbers_of_the_api(watch, address: str, pictures) -> None:
    watched: Watched = watch(address)
    page = watched.open("comparisons")
    page.wait_for_selector(".detail .verdict")
    (one,) = ask(address, "comparisons")["comparisons"]
    metrics = page.locator(".detail table").first.locator("tbody tr")
    assert metrics.count() == len(one["metrics"])
    buckets = page.evaluate(CELLS, "Calibration by pClick")
    assert buckets == [
        ["0-0.02", "1.020", "1.050", "+3.0 %", "12.0 %", "210", "100", "not proven"],
        ["0.02-0.05", "0.990", "1.430", "+42.0 %", "9.0 %", "260", "83", "proven"],
    ]
    assert [row[0] for row in buckets] == [b["bucket"] for b in one["calibration_buckets"]]
    found = page.evaluate(CELLS, "For whom")
    assert [row[0] for row in found] == [f"{f['dimension']} = {f['value']}" for f in one["findings"]]
    assert len(page.evaluate(CELLS, "Early readings")) == len(one["early"])
    (mix,) = page.evaluate(CELLS, "Mix or model")
    assert mix == [
        "country",
        "AUC",
        "\N{MINUS SIGN}0.012",
        "0.001",
        "\N{MINUS SIGN}0.013",
        "Simpson worse in every country",
    ]
    assert page.locator("h2", has_text="On record").count() == 1
    page.screenshot(path=pictures / "comparison-in-full.png", full_page=True)
