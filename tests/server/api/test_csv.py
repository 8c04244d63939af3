"""`format=csv`: on every route that has rows, the numbers of the JSON to the last digit."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from streameval.events.batch import Series
from streameval.results.publish import Publisher
from streameval.server import create_app
from streameval.server.api.tables import as_csv
from streameval.server.http.access import TOKEN_VARIABLE
from streameval.settings.server import Server
from tests.server.conftest import Build

# route -> the rows of its JSON, as the values that must stand in the table
ROUTES: dict[str, Callable[[Any], list[Mapping[str, Any]]]] = {
    "results": lambda body: body["results"],
    "buckets": lambda body: [bucket for table in body["tables"] for bucket in table["buckets"]],
    "roc?model=default&version=v1": lambda body: body["points"],
    "scores?model=default&version=v1": lambda body: [{"impressions": n, "clicks": c} for n, c in zip(body["impressions"], body["clicks"], strict=True)],
    "series?metric=auc": lambda body: [point for line in body["series"] for point in line["points"]],
    "users?model=default&version=v1": lambda body: body["users"],
    "user-distribution?model=default&version=v1": lambda body: [{"users": n, "impressions": i} for n, i in zip(body["users"], body["impressions"], strict=True)],
    "comparisons": lambda body: [_metric(m) for one in body["comparisons"] for m in one["metrics"]],
    "comparisons/2-paired": lambda body: [_metric(m) for m in body["metrics"]],
    "comparisons/2-paired?rows=findings": lambda body: body["findings"],
    "comparisons/2-paired?rows=calibration_buckets": lambda body: body["calibration_buckets"],
    "comparisons/2-paired?rows=mixes": lambda body: body["mixes"],
    "comparisons/2-paired?rows=early": lambda body: body["early"],
    "comparisons/2-paired?rows=changes": lambda body: [{"at": one["at"], "text": one["text"], "evidence_log_e": one["evidence"]["log_e"]} for one in body["changes"]],
    "comparisons/2-paired?rows=looks": lambda body: [{"at": one["at"], "metrics_auc_lower": one["metrics"]["auc"]["lower"]} for one in body["looks"]],
    "deploys": lambda body: body["deploys"],
    "strata": lambda body: [stratum for table in body["tables"] for stratum in table["strata"]],
    "auctions": lambda body: body["auctions"],
    "status": lambda body: [{name: one[name] for name in ("partition", "watermark", "label_complete", "complete")} for one in body["partitions"]],
    "status?rows=events": lambda body: [{"outcome": name, "events": n} for name, n in body["events"].items() if name != "invalid"] + [{"outcome": "invalid", "reason": why, "events": n} for why, n in body["events"]["invalid"].items()],
    "status?rows=stages": lambda body: [{"stage": name, "seconds": n} for name, n in body["stage_seconds"].items()],
    "status?rows=memory": lambda body: [{"name": name, "bytes": body["table_bytes"].get(name), "budget_used": body["budget_used"].get(name)} for name in {**body["table_bytes"], **body["budget_used"]}],
}  # fmt: skip


def _metric(one: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{name}_value" if name in ("baseline", "candidate") else name: value for name, value in one.items()}


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize("route", ROUTES)
def test_the_numbers_are_those_of_the_json(client, route: str) -> None:
    body = client.get(f"/api/v1/{route}").json()
    answer = client.get(f"/api/v1/{route}{'&' if '?' in route else '?'}format=csv")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/csv")
    rows, wanted = table(answer.text), ROUTES[route](body)
    assert len(rows) == len(wanted)
    assert rows or route in ("strata", "auctions")  # of settings of their own
    compared = 0
    for row, values in zip(rows, wanted, strict=True):
        for name, value in values.items():
            if isinstance(value, (dict, list)) or name == "slice":
                continue
            if value is None:
                assert row[name] == ""
            elif isinstance(value, bool):
                assert row[name] == str(value).lower()
            elif isinstance(value, (int, float)):
                assert float(row[name]) == value, name
                compared += 1
            else:
                assert row[name] == str(value), name
    assert compared or not rows or route in ("deploys", "comparisons/2-paired?rows=mixes")


def test_a_slice_has_two_columns_also_where_there_is_none(client) -> None:
    overall, *_ = table(client.get("/api/v1/results?slice=none&format=csv").text)
    assert (overall["slice_dimension"], overall["slice_value"]) == ("", "")
    (sliced, *_) = table(client.get("/api/v1/results?slice=country&format=csv").text)
    assert sliced["slice_dimension"] == "country"


def test_columns_of_the_series_are_rows_as_well(client) -> None:
    plain, columns = (client.get(f"/api/v1/series?metric=auc&format=csv{more}").text for more in ("", "&shape=columns"))
    assert plain == columns


def test_the_lag_of_a_partition_is_told_by_topic_and_in_all(client) -> None:
    partitions = client.get("/api/v1/status").json()["partitions"]
    assert partitions[0]["lag"]
    for row, told in zip(table(client.get("/api/v1/status?format=csv").text), partitions, strict=True):
        assert int(row["consumer_lag"]) == sum(one["value"] for one in told["lag"])
        for name in ("lag", "offsets"):
            for one in told[name]:
                assert int(row[f"{name}_{one['topic']}"]) == one["value"]


def test_a_client_that_has_the_table_is_told_so(client) -> None:
    first = client.get("/api/v1/results?format=csv")
    again = client.get("/api/v1/results?format=csv", headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304


def test_single_users_need_the_token_as_csv_too(publisher, client_of, monkeypatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "a-secret-of-the-test")
    guarded = client_of(create_app(publisher, Server(), version="test"))
    assert guarded.get("/api/v1/users?format=csv").status_code == 401
    told = guarded.get("/api/v1/comparisons/2-paired?rows=findings&format=csv")
    assert "user" not in {row["dimension"] for row in table(told.text)}


def test_a_name_is_no_formula_in_a_spreadsheet(client_of) -> None:
    series = Series("=cmd|' /C calc'!A0", 'v"1,\n2', "logged")
    snapshot = Build().snapshot(results=(Build().result(series),))
    client = client_of(create_app(Publisher(snapshot), Server(), version="test"))
    (row,) = table(client.get("/api/v1/results?format=csv").text)
    assert row["model"] == "'=cmd|' /C calc'!A0"
    assert row["version"] == 'v"1,\n2'
    assert float(row["log_loss"]) == client.get("/api/v1/results").json()["results"][0]["log_loss"]


def test_a_carriage_return_in_a_name_begins_no_row() -> None:
    rows = [{"model": "a", "n": 1, "on": True}, {"model": "b\r=1+1", "n": 2.5, "on": None}]
    read = list(csv.reader(io.StringIO(as_csv(rows), newline="")))
    assert read == [["model", "n", "on"], ["a", "1", "true"], ["b\r=1+1", "2.5", ""]]


def test_what_is_nested_has_columns_of_its_own_and_no_rows_are_no_text() -> None:
    rows = [{"a": {"b": 1.5, "reasons": {"x": "y"}}, "c": [1]}, {"a": {"b": -2, "d": True}}]
    assert as_csv(rows) == "a_b,a_d\n1.5,\n-2,true\n"
    assert as_csv([]) == ""
