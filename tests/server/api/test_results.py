"""Results, bucket tables, ROC curves and series over panes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from streameval.results.publish import Publisher
from streameval.results.snapshot import empty_snapshot
from streameval.server import create_app
from streameval.server.api.answers import rfc3339
from streameval.server.api.schemas.results import Buckets, Results, Roc, SeriesAnswer
from streameval.settings.server import Server


def test_a_result_is_as_in_the_report_with_dates(client, publisher) -> None:
    body = client.get("/api/v1/results?model=default&version=v1&window=all&slice=none").json()
    Results.model_validate(body)
    (row,) = body["results"]
    report = next(
        r.as_json()
        for r in publisher.latest().results
        if r.window == "all" and r.series.version == "v1" and not r.slice
    )
    assert row["window_end"] == "2024-05-01T12:00:00.000Z"
    assert row["newest_label"] == "2024-05-01T11:46:40.000Z"
    for name in ("window_start", "window_end", "newest_label"):
        del row[name], report[name]
    assert (row.pop("role"), row.pop("traffic_share")) == (None, None)
    assert row == report


@pytest.mark.parametrize(
    ("query", "matched"),
    [
        ("", 14),
        ("model=&version=&window=&slice=", 14),
        ("model=ftrl", 2),
        ("version=v2", 6),
        ("source=online", 2),
        ("window=5m", 7),
        ("slice=none", 6),
        ("slice=country", 8),
        ("slice=country:de", 4),
        ("model=default&version=v1&window=all&slice=country:fr", 1),
    ],
)
def test_filters_narrow_the_results(client, query: str, matched: int) -> None:
    body = client.get(f"/api/v1/results?{query}").json()
    assert (body["matched"], len(body["results"]), body["truncated"]) == (matched, matched, False)


def test_a_limit_says_that_there_are_more(client) -> None:
    body = client.get("/api/v1/results?limit=3").json()
    assert (body["matched"], len(body["results"]), body["truncated"]) == (14, 3, True)


def test_an_undefined_metric_is_null_with_its_reason(client) -> None:
    (row,) = client.get("/api/v1/results?version=v2&window=5m&slice=none").json()["results"]
    assert row["auc"] is None
    assert row["reasons"]["auc"] == "no_impressions"
    assert (row["impressions"], row["clicks"], row["reliable_reason"]) == (0, 0, "join_rate_low")


def test_a_number_that_is_not_finite_never_reaches_json(client_of, build) -> None:
    result = build.result()
    object.__setattr__(result, "metrics", {**result.metrics, "auc": float("nan"), "rig": float("inf")})
    app = create_app(Publisher(build.snapshot(results=(result,))), Server(), version="1")
    (row,) = client_of(app).get("/api/v1/results").json()["results"]
    assert (row["auc"], row["rig"]) == (None, None)


def test_numpy_numbers_are_numbers_in_json(client_of, build) -> None:
    result = build.result()
    metrics = {**result.metrics, "auc": np.float64(0.5), "gauc_users": np.int64(3), "rig": np.float64("nan")}
    object.__setattr__(result, "metrics", metrics)
    app = create_app(Publisher(build.snapshot(results=(result,))), Server(), version="1")
    (row,) = client_of(app).get("/api/v1/results").json()["results"]
    assert (row["auc"], row["gauc_users"], row["rig"]) == (0.5, 3, None)


def test_slices_may_have_colons_on_either_side(client_of, build) -> None:
    results = [build.result(slice=where) for where in (None, ("a", "b:c"), ("a:b", "c"), ("a:b", "d:e"))]
    client = client_of(create_app(Publisher(build.snapshot(results=tuple(results))), Server(), version="1"))
    for text, found in {
        "a:b": [("a:b", "c"), ("a:b", "d:e")],
        "a:b:c": [("a:b", "c")],
        "a:b:d:e": [("a:b", "d:e")],
    }.items():
        rows = client.get("/api/v1/results", params={"slice": text}).json()["results"]
        assert [(r["slice"]["dimension"], r["slice"]["value"]) for r in rows] == found


@pytest.mark.parametrize("name", ['quo"te', "new\nline", "ünïcødé ☃", "half \ud800 a pair", "<script>", "x" * 5000])
def test_hostile_names_survive_in_json(client_of, build, name: str) -> None:
    results = (build.result(), build.result(slice=("country", name)))
    app = create_app(Publisher(build.snapshot(results=results)), Server(), version="1")
    (_, row) = client_of(app).get("/api/v1/results").json()["results"]
    assert row["slice"]["value"] == name.encode("utf-8", "backslashreplace").decode()


def test_before_any_result_lists_are_empty_and_names_unknown(client_of) -> None:
    client = client_of(create_app(Publisher(empty_snapshot(0.0)), Server(), version="1"))
    assert client.get("/api/v1/results").json()["results"] == []
    assert client.get("/api/v1/results?window=all").json()["results"] == []
    assert client.get("/api/v1/series?metric=auc").json()["series"] == []
    assert "there is none yet" in client.get("/api/v1/results?model=a").json()["detail"]
    assert client.get("/api/v1/roc").status_code == 404
    assert client.get("/api/v1/users").status_code == 404


@pytest.mark.parametrize(
    ("query", "words", "known"),
    [
        ("model=nope", 'model = "nope": unknown; there are: "default", "ftrl"', ["default", "ftrl"]),
        ("model=ftrl&version=v1", 'version = "v1": unknown', ["online"]),
        ("window=2h", 'window = "2h": unknown', ["5m", "all"]),
        ("slice=planet", 'slice = "planet": unknown', ["none", "country"]),
        ("slice=country:xx", 'slice country = "xx": unknown', ["de", "fr"]),
    ],
)
def test_an_unknown_name_is_told_which_there_are(client, query: str, words: str, known: list[str]) -> None:
    answer = client.get(f"/api/v1/results?{query}")
    assert answer.status_code == 404
    assert words in answer.json()["detail"]
    assert answer.json()["known"] == known


def test_bucket_tables_come_fixed_or_as_quantiles(client, publisher) -> None:
    result = publisher.latest().results[1]
    for kind, buckets in (("fixed", result.buckets), ("quantiles", result.quantiles)):
        body = client.get(f"/api/v1/buckets?version=v1&window=all&slice=none&kind={kind}").json()
        Buckets.model_validate(body)
        (table,) = body["tables"]
        assert body["kind"] == kind
        assert table["impressions"] == result.totals.impressions
        assert [(b["lower"], b["clicks"]) for b in table["buckets"]] == [(b.lower, b.clicks) for b in buckets]


def test_the_area_under_every_point_is_the_reported_auc(client) -> None:
    body = client.get("/api/v1/roc?model=default&version=v1&max_points=5000").json()
    Roc.model_validate(body)
    points = body["points"]
    area = sum((b["fpr"] - a["fpr"]) * (a["tpr"] + b["tpr"]) / 2 for a, b in itertools.pairwise(points))
    assert area == pytest.approx(body["auc"], abs=1e-12)
    assert (body["operating_range"], body["pauc"], body["pauc_error"]) == ([0.0, 0.1], 0.5, 0.5)  # of a result by hand
    assert points[0] == {"threshold": None, "fpr": 0.0, "tpr": 0.0, "non_clicks": 0, "clicks": 0}
    assert (points[-1]["fpr"], points[-1]["tpr"], points[-1]["clicks"]) == (1.0, 1.0, body["clicks"])


def test_a_curve_without_both_classes_has_no_points_but_a_reason(client) -> None:
    body = client.get("/api/v1/roc?version=v2&window=5m").json()
    Roc.model_validate(body)
    assert (body["points"], body["reason"], body["auc"]) == ([], "no_impressions", None)


def test_one_curve_needs_one_series_and_one_slice(client) -> None:
    answer = client.get("/api/v1/roc?model=default")
    assert answer.status_code == 422
    assert "2 series fit; name one of: model=default&version=v1" in answer.json()["detail"]
    answer = client.get("/api/v1/roc?model=default&version=v1&slice=country")
    assert answer.status_code == 422
    assert "country:<value>" in answer.json()["detail"]
    sliced = client.get("/api/v1/roc?version=v1&slice=country:fr").json()
    assert sliced["slice"] == {"dimension": "country", "value": "fr"}
    assert client.get("/api/v1/roc?model=ftrl&slice=country:fr").status_code == 404


def test_a_series_has_its_panes_oldest_first_with_reasons_for_gaps(client, publisher) -> None:
    body = client.get("/api/v1/series?metric=auc&version=v1").json()
    SeriesAnswer.model_validate(body)
    (line,) = body["series"]
    assert len(line["points"]) == 30
    assert line["points"][0] == {
        "start": "2024-05-01T11:00:00.000Z",
        "seconds": 60.0,
        "value": None,
        "stderr": None,
        "stderr_df": None,
        "reason": "no_clicks",
        "error": None,
        "impressions": 100,
        "clicks": 0,
        "corrected": 0,
    }
    assert line["points"][-1]["value"] == pytest.approx(0.7)
    assert line["points"][-1]["stderr"] == pytest.approx(0.02)
    assert line["points"][-1]["stderr_df"] == 20.5


def test_the_columns_of_a_series_are_its_points(client) -> None:
    points = client.get("/api/v1/series?metric=auc").json()["series"]
    body = client.get("/api/v1/series?metric=auc&shape=columns").json()
    SeriesAnswer.model_validate(body)
    for line, expected in zip(body["series"], points, strict=True):
        assert (line["version"], line["truncated"]) == (expected["version"], expected["truncated"])
        columns = line["columns"]
        assert [rfc3339(round(start * 1000)) for start in columns["start"]] == [p["start"] for p in expected["points"]]
        for name in ("seconds", "value", "stderr", "stderr_df", "error", "impressions", "clicks"):
            assert columns[name] == [p[name] for p in expected["points"]]
    answer = client.get("/api/v1/series?metric=auc&shape=rows")
    assert answer.status_code == 422
    assert "shape" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("from=1714561260", 29),
        ("from=1714561260.001", 28),
        ("from=2024-05-01T11:01:00Z&to=2024-05-01T11:03:00Z", 3),
        ("from=2024-05-01T13:01:00%2B02:00&to=2024-05-01T13:03:00+02:00", 3),
        ("to=2024-05-01T11:00:00Z", 1),
        ("to=2024-05-01T10:59:59Z", 0),
        ("from=2025-01-01T00:00:00Z", 0),
    ],
)
def test_times_are_rfc_3339_or_unix_seconds_and_inclusive(client, query: str, count: int) -> None:
    (line,) = client.get(f"/api/v1/series?metric=auc&version=v1&{query}").json()["series"]
    assert (len(line["points"]), line["truncated"]) == (count, False)


def test_a_limit_keeps_the_newest_panes(client) -> None:
    (line,) = client.get("/api/v1/series?metric=auc&version=v1&limit=2").json()["series"]
    assert line["truncated"]
    assert [p["start"] for p in line["points"]] == ["2024-05-01T11:28:00.000Z", "2024-05-01T11:29:00.000Z"]


def test_a_window_in_which_nothing_is_now_is_empty_and_not_unknown(client_of, build) -> None:
    """After a quiet night it was a 404 for whoever asks for the last minutes."""
    results = (build.result(build.snapshot().results[0].series, "all"),)
    snapshot = build.snapshot(results=results, windows=("all", "5m", "1h"))
    client = client_of(create_app(Publisher(snapshot), Server(), version="1"))
    found = client.get("/api/v1/results?window=5m")
    assert (found.status_code, found.json()["matched"]) == (200, 0)
    assert client.get("/api/v1/status").json()["windows"] == ["all", "5m", "1h"]
    assert "this series has no data in window 5m now" in client.get("/api/v1/scores?window=5m").json()["detail"]
    assert 'window = "2m": unknown' in client.get("/api/v1/results?window=2m").json()["detail"]
