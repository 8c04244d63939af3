"""Strata of propensity over HTTP and in /metrics: live, and of past ranges."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from streameval.app import make_decoder
from streameval.loop.options import options_of
from streameval.loop.pipeline import Pipeline
from streameval.results.publish import Publisher
from streameval.server import create_app
from streameval.server.api.schemas.results import Results
from streameval.server.api.schemas.strata import Strata
from streameval.server.prometheus.collector import SnapshotCollector
from streameval.settings.server import Server
from streameval.settings.tree import Settings
from streameval.store.history.format import HistoryFormat
from streameval.store.history.reader import HistoryReader
from streameval.store.history.writer import HistoryWriter, Retention
from streameval.testing import ManualClock, readers_see
from tests.results.test_strata import BASE, events

SETTINGS = Settings.model_validate({"strata": {"count": 3}, "windows": {"sliding": ["1h"]}})
DAY = 86_400_000


@pytest.fixture(scope="module")
def pipeline() -> Pipeline:
    """Two hours of two versions."""
    table = events(6_000)
    table["model_version"] = np.where(np.arange(6_000) % 3, "v1", "v2").tolist()
    table["impression_id"] = [f"i{k}" for k in range(6_000)]
    pipeline = Pipeline(SETTINGS, ManualClock())
    pipeline.has_history = True
    batch, _ = make_decoder(SETTINGS, pipeline).table(pa.table(table), topic="", partition=0, first_offset=0)
    pipeline.take(batch)
    pipeline.finish()
    return pipeline


@pytest.fixture
def client(client_of, pipeline: Pipeline, tmp_path: Path):
    form = HistoryFormat(SETTINGS.windows.pane, options_of(SETTINGS), "impressions")
    writer = HistoryWriter(tmp_path / "history.sqlite", form, Retention(2 * DAY, 30 * DAY, 400 * DAY, 1 << 30))
    for partition, rows in pipeline.history_rows([0]).items():
        writer.write(partition, 1, rows)
    pipeline.partitions[0].written(False)
    writer.close()
    reader = HistoryReader(tmp_path / "history.sqlite", form, 4)
    return client_of(create_app(Publisher(readers_see(pipeline)), Server(), version="1", history=reader))


def test_strata_are_those_of_the_results_in_a_shape_of_their_own(client) -> None:
    body = client.get("/api/v1/strata?window=all").json()
    Strata.model_validate(body)
    assert (body["matched"], body["truncated"], len(body["tables"])) == (2, False, 2)
    results = client.get("/api/v1/results?window=all&slice=none").json()
    Results.model_validate(results)
    for table, row in zip(body["tables"], results["results"], strict=True):
        assert table["reason"] is None
        assert {key: table[key] for key in ("version", "impressions", "clicks", "strata", "stratified")} == {
            key: row[key] for key in ("version", "impressions", "clicks", "strata", "stratified")
        }
        assert len(table["strata"]) == 4
        assert sum(one["impressions"] for one in table["strata"]) == row["impressions"]


@pytest.mark.parametrize("range", ["window=all", f"from=0&to={BASE // 1000 + 86_400}"])
def test_what_is_put_together_from_strata_is_a_table_too(client, range: str) -> None:
    tables = client.get(f"/api/v1/strata?{range}").json()["tables"]
    rows = list(csv.DictReader(io.StringIO(client.get(f"/api/v1/strata?{range}&format=csv&rows=stratified").text)))
    wanted = {(t["version"], metric): of for t in tables for metric, of in t["stratified"].items()}
    assert {(row["version"], row["metric"]) for row in rows} == set(wanted)
    for row in rows:
        for weighting, value in wanted[row["version"], row["metric"]].items():
            assert row[weighting] == ("" if value is None else repr(value))


def test_strata_of_a_past_range_are_those_of_the_live_windows(client) -> None:
    """The range of all panes against the run; any cut is a function of the sums that are stored."""
    live = {t["version"]: t for t in client.get("/api/v1/strata?window=all").json()["tables"]}
    past = client.get(f"/api/v1/strata?from=0&to={BASE // 1000 + 86_400}").json()
    Strata.model_validate(past)
    assert past["range"]["panes"] == 121
    assert {t["version"] for t in past["tables"]} == set(live)
    for table in past["tables"]:
        assert table["window"] == "range"
        for key in ("impressions", "clicks", "strata", "stratified"):
            assert table[key] == live[table["version"]][key]


def test_a_question_that_cannot_be_answered_says_why(client, client_of, pipeline: Pipeline) -> None:
    assert client.get("/api/v1/strata?limit=1").json()["truncated"] is True
    assert client.get("/api/v1/strata?version=v9").status_code == 404
    assert client.get("/api/v1/strata?slice=none").status_code == 422
    plain = Pipeline(Settings(), ManualClock())
    plain.take(_batch(plain))
    plain.finish()
    other = client_of(create_app(Publisher(readers_see(plain)), Server(), version="1"))
    (table,) = other.get("/api/v1/strata?window=all").json()["tables"]
    assert (table["reason"], table["strata"], table["stratified"]) == ("not_configured", [], {})
    assert other.get("/api/v1/strata?from=0").status_code == 409


def _batch(pipeline: Pipeline):
    table = {**events(500), "impression_id": [f"i{k}" for k in range(500)]}
    return make_decoder(pipeline.settings, pipeline).table(pa.table(table), topic="", partition=0, first_offset=0)[0]


def test_prometheus_has_the_three_weightings_and_they_differ(pipeline: Pipeline) -> None:
    publisher = Publisher(readers_see(pipeline))

    def samples(most: int) -> dict[tuple[str, ...], float]:
        collector = SnapshotCollector(
            publisher, version="1", version_ttl=1e9, max_series=most, clock=lambda: BASE / 1000
        )
        return {
            tuple(sample.labels[name] for name in ("model_version", "window", "metric", "weighting")): sample.value
            for family in collector.collect()
            if family.name == "streameval_stratified"
            for sample in family.samples
        }

    found = samples(100_000)
    assert len(found) == 2 * 2 * 3 * 3  # versions, windows, metrics, weightings
    (result,) = [r for r in publisher.latest().results if (r.series.version, r.window) == ("v1", "all")]
    for metric, weightings in result.stratified.items():
        if None in weightings.values():  # lists are not ranked here
            continue
        assert {w: found["v1", "all", metric, w] for w in weightings} == weightings
        assert len(set(weightings.values())) == 3
    assert samples(200) == {}  # under the budget of series, behind the families that were there before
