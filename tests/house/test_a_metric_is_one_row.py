"""A stranger's metric: registered from outside the package by one object, it is wherever metrics are.

In a process of its own, because a table that the server was made of does not change any more.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx
import pytest

from streameval.loop.options import options_of
from streameval.metrics.metric import Column, Gauge, Metric, OfCells
from streameval.metrics.registry import METRICS, names, register
from streameval.metrics.view import Undefined, View
from streameval.sketches.blocks import N, Y

ROOT = Path(__file__).parents[2]
START = 1_714_557_600_000
MINUTE = 60_000


def odds(view: View) -> float | Undefined:
    """P / N."""
    return view.need_both_classes() or view.moments.clicks / (view.moments.impressions - view.moments.clicks)


ODDS = Metric(
    "odds",
    odds,
    "clicks to every impression without one",
    influence=OfCells(lambda cells: cells[..., Y] / (cells[..., N] - cells[..., Y])),
    gauge=Gauge("click_odds", "Clicks over non-clicks.", "Standard error of click_odds.", in_slices=True),
    column=Column("Odds", digits=3),
)


def as_seen() -> dict[str, Any]:
    """What every reader sees of it, after an hour of traffic."""
    register(ODDS)
    from docs.make.pages import made
    from streameval.events.durations import DAY
    from streameval.loop.pipeline import Pipeline
    from streameval.results.publish import Publisher
    from streameval.server import create_app
    from streameval.settings.server import Server
    from streameval.settings.tree import Settings
    from streameval.store.history.format import HistoryFormat
    from streameval.store.history.reader import HistoryReader
    from streameval.store.history.writer import HistoryWriter, Retention
    from streameval.testing import ManualClock, Shown, make_batch, readers_see

    pipeline = Pipeline(Settings.model_validate({"slices": {"dimensions": ["country"]}}), ManualClock())
    shown = [
        Shown(f"i{i}", START + i * 1000, user=f"u{i * i % 397}", pclick=(i % 97) / 97, clicked=int(i % 5 == 0))
        for i in range(3600)
    ]
    pipeline.take(make_batch(shown, pipeline.catalog))
    pipeline.finish()
    snapshot = readers_see(pipeline)
    app = create_app(Publisher(snapshot), Server(), version="1", environ={}, clock=pipeline._clock)

    async def ask(app: Any, *paths: str) -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
            return [await client.get(path) for path in paths]

    live = ["results?window=all&slice=none", "results?window=all&slice=country", "series?metric=odds", "series?metric=odds&step=1h", "status"]  # fmt: skip
    answers = asyncio.run(
        ask(app, *(f"/api/v1/{path}" for path in live), "/metrics", "/page/registry.js", "/openapi.json")
    )
    assert [answer.status_code for answer in answers] == [200] * len(answers)
    with tempfile.TemporaryDirectory() as folder:
        form = HistoryFormat(MINUTE, options_of(pipeline.settings), "impressions")
        writer = HistoryWriter(Path(folder) / "history.sqlite", form, Retention(DAY, DAY, DAY, 1 << 30))
        writer.write(0, 1, pipeline.history_rows([0])[0])
        writer.refresh(60.0)
        past = create_app(
            Publisher(snapshot), Server(), version="1", environ={}, history=HistoryReader(writer.path, form, 4)
        )
        stored = asyncio.run(ask(past, "/api/v1/results?from=0&slice=none", "/api/v1/series?metric=odds&step=1h"))
        writer.close()
        (line,) = HistoryReader(writer.path, form, 4).series("odds", [snapshot.results[0].series], None, None).values()
    try:
        register(ODDS)
    except ValueError as error:
        late = str(error)
    return {
        "report": snapshot.report()["results"][0],
        **{path: answer.json() for path, answer in zip(live, answers, strict=False)},
        "/metrics": answers[-3].text,
        "page": answers[-2].text,
        "openapi": answers[-1].json(),
        "past": [answer.json() for answer in stored],
        "point": [line.points[7].value, line.points[7].stderr],
        "docs": made(),
        "late": late,
    }


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.house.test_a_metric_is_one_row"], cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_it_is_in_the_report_with_its_standard_error(seen) -> None:
    row = seen["report"]
    of_every_setting = {*names(), "odds"}
    plain = [name for name in row if {name, name.removesuffix("_stderr")} & of_every_setting]
    assert plain[-2:] == ["odds", "odds_stderr"], "behind all others that every setting has"
    assert row["odds"] == row["clicks"] / (row["impressions"] - row["clicks"])
    # by the delta method odds move as c / (1 - c) does
    assert row["odds_stderr"] == pytest.approx(row["ctr_stderr"] / (1 - row["ctr"]) ** 2, rel=0.05)


def test_the_api_answers_with_it_and_its_schema_has_it(seen) -> None:
    (row,) = seen["results?window=all&slice=none"]["results"]
    report = seen["report"]
    assert (row["odds"], row["odds_stderr"]) == (report["odds"], report["odds_stderr"])
    (sliced,) = seen["results?window=all&slice=country"]["results"]
    assert sliced["odds"] == row["odds"]
    assert sliced["odds_stderr"] == pytest.approx(row["odds_stderr"])
    fields = seen["openapi"]["components"]["schemas"]["FullRow"]
    assert {"odds", "odds_stderr"} <= set(fields["properties"])
    assert {"odds", "odds_stderr"} <= set(fields["required"])
    parameters = seen["openapi"]["paths"]["/api/v1/series"]["get"]["parameters"]
    assert "odds" in next(p for p in parameters if p["name"] == "metric")["schema"]["anyOf"][0]["enum"]
    assert "odds" in seen["status"]["metrics"]


def test_it_has_a_line_over_panes_and_steps(seen) -> None:
    (panes,) = seen["series?metric=odds"]["series"]
    assert [p["value"] for p in panes["points"]] == [0.25] * 60
    assert all(p["stderr"] > 0 for p in panes["points"])
    (steps,) = seen["series?metric=odds&step=1h"]["series"]
    assert [p["value"] for p in steps["points"]] == [seen["report"]["odds"]]


def test_the_history_keeps_it(seen) -> None:
    past, line = seen["past"]
    (row,) = past["results"]
    assert (row["odds"], row["odds_stderr"]) == (seen["report"]["odds"], seen["report"]["odds_stderr"])
    assert line["series"][0]["points"][0]["value"] == row["odds"]
    (panes,) = seen["series?metric=odds"]["series"]
    assert seen["point"] == [panes["points"][7]["value"], panes["points"][7]["stderr"]]


def test_prometheus_scrapes_it_of_windows_and_slices(seen) -> None:
    lines = seen["/metrics"].splitlines()
    assert "# HELP streameval_click_odds Clicks over non-clicks." in lines
    for name in ("click_odds", "click_odds_stderr", "slice_click_odds", "slice_click_odds_stderr"):
        values = [
            line.split()[-1] for line in lines if line.startswith(f"streameval_{name}{{") and 'window="all"' in line
        ]
        assert values, name
        of = "odds_stderr" if name.endswith("stderr") else "odds"
        assert float(values[0]) == pytest.approx(seen["report"][of])


def test_the_page_lists_it(seen) -> None:
    table = json.loads(seen["page"].splitlines()[0].removeprefix("export const METRICS = ").removesuffix(";"))
    assert table["odds"] == {
        "name": "Odds",
        "about": "clicks to every impression without one",
        "digits": 3,
        "better": 0,
        "range": [None, None],
    }


def test_the_docs_are_not_up_to_date_without_it(seen) -> None:
    assert "| `odds`, `odds_stderr` | clicks to every impression without one | P / N. |" in seen["docs"]["metrics.md"]
    assert "`streameval_slice_click_odds`" in seen["docs"]["prometheus.md"]
    for name in ("metrics.md", "prometheus.md", "http.md"):
        assert seen["docs"][name] != (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")


def test_a_metric_that_comes_too_late_or_takes_a_name_is_refused(seen) -> None:
    assert seen["late"] == 'metric "odds" comes too late: register it before streameval.server is imported'


def test_every_metric_says_what_it_is_and_readers_find_it() -> None:
    for metric in METRICS:
        assert metric.explanation, metric.name
        assert metric.formula, metric.name


if __name__ == "__main__":
    print(json.dumps(as_seen()))
