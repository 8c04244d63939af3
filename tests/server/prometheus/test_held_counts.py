"""Counters over processes that are killed: `increase` must count nothing twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from streameval.results.publish import Publisher
from streameval.results.result import Totals
from streameval.results.snapshot import empty_snapshot
from streameval.server import create_app
from streameval.settings.server import Server
from streameval.sketches.layout import Options
from streameval.store.history.format import HistoryFormat
from streameval.store.history.reader import HistoryReader
from streameval.store.history.writer import HistoryWriter, Retention

NOW = 1_714_564_800.0
V1 = {"model_name": "default", "model_version": "v1", "source": "logged"}
FORM = HistoryFormat(60_000, Options((0.01, 0.1)), "impressions")


class Killed:
    """A monitor's scrapes, over processes that are killed: each begins with what is in the store."""

    def __init__(self, folder: Path, parse: Any, client_of: Any, build: Any) -> None:
        self._folder, self._parse, self._client_of, self._build = folder, parse, client_of, build

    def start(self) -> None:
        HistoryWriter(self._folder / "history.sqlite", FORM, Retention(1, 1, 1, 1 << 30)).close()
        reader = HistoryReader(self._folder / "history.sqlite", FORM, 4)
        self._publisher = Publisher(empty_snapshot(0.0))
        app = create_app(self._publisher, Server(), version="1", history=reader, clock=lambda: NOW)
        self._client, self._number = self._client_of(app), 0

    def scrape(self, impressions: int, received: int, seconds: float, caught_up: bool = True) -> tuple[Any, ...]:
        self._number += 1
        result = replace(self._build.result(), totals=Totals(impressions, 10, 5.0, 1.0, 2.0, 3.0))
        given = {"results": (result,), "taken_at": NOW + seconds, "events": {"impressions": received, "matured": 1}}
        ready = {"assigned": True, "caught_up": caught_up}
        self._publisher.publish(self._build.snapshot(self._number, **given, ready=ready))
        got = self._parse(self._client.get("/metrics").text)
        return got.get("impressions_total", **V1), got.get("events_received_total", event="impression")


def test_counters_wait_after_a_kill_until_what_was_shown_has_been_read_again(tmp_path, parse, client_of, build) -> None:
    """They went on from the checkpoint, lower than the last scrape: `increase` counted everything before once more."""
    one = Killed(tmp_path, parse, client_of, build)
    one.start()
    assert [one.scrape(100, 120, 0.0), one.scrape(39_019, 40_000, 100.0)] == [(100, 120), (39_019, 40_000)]
    one.start()
    assert one.scrape(38_695, 39_500, 110.0, caught_up=False) == (39_019, 40_000)
    assert one.scrape(38_700, 41_000, 111.0, caught_up=True) == (39_019, 41_000)
    one.start()  # killed again before it has grown past it
    assert one.scrape(38_600, 39_000, 115.0) == (39_019, 41_000)
    assert one.scrape(124_255, 130_000, 120.0) == (124_255, 130_000)
    assert one.scrape(90, 90, 400.0) == (90, 90), "in a process that has long caught up state was lost"
    one.start()
    assert one.scrape(40, 40, 405.0) == (90, 90)
    assert one.scrape(50, 50, 465.0) == (50, 50), "a minute after it had caught up it is lost, too"
    (tmp_path / f"scraped-{Server().port}.json").write_text("no JSON")
    one.start()
    assert one.scrape(10, 10, 500.0) == (10, 10)
