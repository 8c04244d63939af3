"""Ranking metrics, from requests to what readers get over HTTP: they have a K in their name, which follows from the settings."""

from __future__ import annotations

import json

import pytest

from streameval.loop.pipeline import Pipeline
from streameval.results.publish import Publisher
from streameval.results.result import Result
from streameval.results.snapshot import Snapshot
from streameval.server import create_app
from streameval.server.api.schemas.results import Results
from streameval.settings.server import Server
from streameval.settings.tree import Settings
from streameval.testing import ManualClock, Shown, make_batch, readers_see

START = 1_700_000_040_000


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    pipeline = Pipeline(Settings.model_validate({"ranking": {"k": [2, 5], "by_user": []}}), ManualClock())
    shown = [
        Shown(f"{i}", START + i // 6 * 500, f"u{i // 12}", (i * 37 % 41) / 41, request=f"r{i // 6}", clicked=int(i % 11 == 0), fields={"position": i % 6})
        for i in range(3_000)
    ]  # fmt: skip
    pipeline.take(make_batch(shown, pipeline.catalog))
    pipeline.finish()
    return readers_see(pipeline)


@pytest.fixture
def asked(client_of, snapshot):
    return client_of(create_app(Publisher(snapshot), Server(), version="1", environ={}, clock=ManualClock()))


def whole(snapshot: Snapshot) -> Result:
    return next(r for r in snapshot.results if r.window == "all")


def test_results_have_them_with_their_errors(asked, snapshot) -> None:
    body = asked.get("/api/v1/results?window=all").json()
    Results.model_validate(body)
    (row,) = body["results"]
    metrics, stderrs = whole(snapshot).metrics, whole(snapshot).stderrs
    for name in ("ndcg_2", "hit_rate_5", "mrr", "shown_ndcg_5"):
        assert (row[name], row[f"{name}_stderr"]) == (metrics[name], stderrs[name])
        assert 0 < row[name] < 1
        assert row[f"{name}_stderr"] > 0
    assert "ndcg_10" not in row


def test_a_line_over_panes_and_steps(asked) -> None:
    for query in ("", "&step=1h"):
        (line,) = asked.get(f"/api/v1/series?metric=ndcg_5{query}").json()["series"]
        assert all(0 < point["value"] < 1 for point in line["points"])
        assert all(0 < point["stderr_df"] <= 15 for point in line["points"] if point["stderr"] is not None)
    assert any(point["stderr"] for point in line["points"])
    (line,) = asked.get("/api/v1/series?metric=ndcg_7").json()["series"]
    assert {(point["value"], point["reason"]) for point in line["points"]} == {(None, "not_configured")}
    for name in ("ndcg_0", "ndcg_x", "ndcg"):
        answer = asked.get(f"/api/v1/series?metric={name}")
        assert answer.status_code == 422
        assert "ndcg_K" in answer.text


def test_prometheus_has_one_family_by_metric_and_cut(asked, parse, snapshot) -> None:
    got = parse(asked.get("/metrics").text)
    labels = [(one["metric"], one["k"], one["average"]) for one in got.labels("ranking") if one["window"] == "all"]
    assert len(labels) == len(set(labels)) == 2 * 7 + 3
    assert {("ndcg", "5", "request"), ("shown_ndcg", "2", "request"), ("mrr", "", "request")} <= set(labels)
    model = {"model_name": "default", "model_version": "v1", "source": "logged", "window": "all"}
    of = {**model, "metric": "ndcg", "k": "5", "average": "request"}
    assert got.get("ranking", **of) == whole(snapshot).metrics["ndcg_5"]
    assert got.get("ranking_stderr", **of) == whole(snapshot).stderrs["ndcg_5"]
    assert got.get("ranking_requests", **model) == 500


def test_the_page_offers_them_and_shows_none_unasked(asked) -> None:
    text = asked.get("/page/registry.js").text
    table, overview, _ = (json.loads(line.split(" = ")[1].removesuffix(";")) for line in text.splitlines())
    assert table["ndcg_5"]["name"] == "NDCG@5"
    assert not [name for name in overview if name.startswith(("ndcg", "mrr", "hit"))]
