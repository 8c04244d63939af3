"""Auctions over HTTP and /metrics: the numbers of hand-made sums."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from streameval.results.publish import Publisher
from streameval.server import create_app
from streameval.settings.server import Server


def row(body: dict[str, Any], version: str, point: str) -> dict[str, Any]:
    return next(r for r in body["auctions"] if (r["version"], r["point"]) == (version, point))


def test_rows_are_by_version_and_operating_point(client) -> None:
    body = client.get("/api/v1/auctions").json()
    assert body["skipped"] == {}
    assert len(body["auctions"]) == 4
    first = row(body, "v1", "now")
    assert (first["window"], first["matched_to"], first["requests"]) == ("all", "v1", 20)
    assert (first["click_yield"], first["mainline_click_yield"]) == (0.3, 0.2)
    assert (first["mainline_ads"], first["ads"], first["replayed_share"]) == (2.0, 4.0, 0.75)
    assert first["click_yield_stderr"] == 0.0
    assert first["matched_click_yield"] == 0.3
    assert first["reasons"] == {}


def test_what_is_out_of_reach_is_null_with_its_reason(client_of, build) -> None:
    auctions = build.auctions()
    auctions.sums[1, 0, :2, 3] = 15  # v2 has at most 1.5
    client = client_of(create_app(Publisher(build.snapshot(auctions=(auctions,))), Server(), version="1"))
    found = row(client.get("/api/v1/auctions").json(), "v2", "now")
    assert found["matched_click_yield"] is None
    assert found["reasons"]["matched_click_yield"] == "mainline_ads_out_of_reach"


def test_a_model_and_a_window_can_be_named(client_of, build) -> None:
    both = (build.auctions("5m"), build.auctions())
    client = client_of(create_app(Publisher(build.snapshot(auctions=both)), Server(), version="1"))
    rows = client.get("/api/v1/auctions?window=5m&model=default").json()["auctions"]
    assert {r["window"] for r in rows} == {"5m"}
    assert client.get("/api/v1/auctions?window=9m").status_code == 404
    assert client.get("/api/v1/auctions?model=nope").status_code == 404
    assert client.get("/api/v1/auctions?format=xml").status_code == 422
    empty = client_of(create_app(Publisher(build.snapshot(auctions=())), Server(), version="1"))
    assert empty.get("/api/v1/auctions?window=5m").json()["auctions"] == []


def test_csv_has_a_head_and_a_line_by_row(client) -> None:
    answer = client.get("/api/v1/auctions?format=csv")
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [(r["version"], r["point"], r["click_yield"]) for r in rows] == [
        (version, point, "0.3") for version in ("v1", "v2") for point in ("now", "high")
    ]
    assert "reasons" not in rows[0]


def test_metrics_have_them_by_version_window_and_point(scrape, build) -> None:
    found = scrape(build.snapshot())
    labels = {"model_name": "default", "model_version": "v2", "source": "logged", "window": "all", "point": "high"}

    def value(name: str, **more: str) -> float:
        return found.samples[f"streameval_auction_{name}"][frozenset({**labels, **more}.items())]

    assert value("click_yield", block="all") == pytest.approx(0.3)
    assert value("click_yield", block="mainline") == pytest.approx(0.2)
    assert value("mainline_ads") == 1.0
    assert value("replayed_ratio") == 0.75
