"""Nothing that users see changes by itself: what is taken down now is what the record says, to the bit.

Reports, `/metrics`, answers of the API and rows of the history, of an hour of nasty traffic; and a store that was written
by the program of the record is read and gone on from. Batches are cut otherwise than they were for the record, and hashes
are salted anew. On a processor without AVX-512, which the record was made with, the last bits are its own. A change that
is meant is recorded by `python -m tests.house.record`, and its diff is the commit's story.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.house import record, runs
from tests.house.monitor import AVX512
from tests.house.questions import OF_THE_CLOCK

MOST = 40  # differences that are shown


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    return record.load()


def agree(golden: dict[str, Any], run: str, found: dict[str, Any]) -> None:
    recorded = golden["runs"][run]
    close = 0.0 if AVX512 else 1e-12
    differences = record.differences(recorded, record.without_additions(recorded, found), close=close)
    if not differences:
        return
    if golden["machine"] != record.machine():
        differences.append(f"the record was made with {golden['machine']}, this is {record.machine()}")
    raise AssertionError("\n".join([f"{run}: {len(differences)} differences", *differences[:MOST], *differences[-1:]]))


def test_the_traffic_is_that_of_the_record(golden: dict[str, Any]) -> None:
    assert golden["traffic"] == record.digests()


def test_the_hour_has_everything_in_it(golden: dict[str, Any]) -> None:
    """Or the record would show little."""
    seen = [golden["runs"][run]["report"] for run in golden["runs"]]
    for fate in (
        "corrected", "late_impressions", "late_clicks", "duplicate_impressions", "duplicate_clicks", "unmatched_clicks",
        "expired_impressions", "late_unscored", "runaway_impressions", "runaway_clicks", "conflicting_impressions",
    ):  # fmt: skip
        assert any(report["events"][fate] for report in seen), fate
    reasons = {reason for report in seen for reason, count in report["events"]["invalid"].items() if count}
    assert reasons == {
        "conflicting_id", "empty", "future_timestamp", "malformed", "missing_field", "out_of_range", "too_large", "wrong_type",
    }  # fmt: skip
    verdicts = {(c["setup"], c["verdict"]) for report in seen for c in report["comparisons"]}
    assert {("paired", "worse"), ("paired", "not_worse"), ("split", "worse"), ("paired", "undecided")} <= verdicts
    assert {r["source"] for report in seen for r in report["results"]} == {"logged", "online"}
    assert any(not r["reliable"] for report in seen for r in report["results"])


@pytest.mark.slow
@pytest.mark.parametrize("run", list(runs.RUNS))
def test_what_users_see_of_the_hour_is_what_they_saw(run: str, golden: dict[str, Any], tmp_path: Path) -> None:
    more = {"STREAMEVAL_BATCH__MAX_EVENTS": "700"} if "live" in run else {}  # a model learns batch by batch
    agree(golden, run, runs.RUNS[run](tmp_path / "run", PYTHONHASHSEED="random", **more))


@pytest.mark.slow
def test_a_store_of_the_program_of_the_record_is_read_and_gone_on_from(golden: dict[str, Any], tmp_path: Path) -> None:
    found = runs.second_half(tmp_path / "run", runs.unpack(tmp_path), PYTHONHASHSEED="random")
    agree(golden, record.SECOND_HALF, found)


def test_a_difference_is_named_with_its_route_its_place_and_both_values() -> None:
    old = {"GET /x": {"results": [{"model": "ctr", "version": "v1", "auc": 0.5}], "gone": None}}
    new = {"GET /x": {"results": [{"model": "ctr", "version": "v1", "auc": 0.5 + 1e-16 * 2}], "new": 1}}
    assert record.differences(old, new) == [
        " / GET /x / gone: is gone, was null",
        " / GET /x / new: is new, 1",
        " / GET /x / results[0 ctr v1] / auc: was 0.5, is 0.5000000000000002",
    ]
    assert record.differences({"n": 1, "b": 0.0}, {"n": 1.0, "b": -0.0}) == [
        " / n: was 1, is 1.0",
        " / b: was 0.0, is -0.0",
    ]
    assert not record.differences({"n": 0.3, "s": "0.3"}, {"n": 0.1 + 0.2, "s": repr(0.1 + 0.2)}, close=1e-12)
    for changed in ({"n": 0.31, "s": "0.3"}, {"n": 0.3, "s": "0.31"}, {"n": None, "s": "0.3"}, {"n": 0.3, "s": "x"}):
        assert len(record.differences({"n": 0.3, "s": "0.3"}, changed, close=1e-12)) == 1, changed
    assert record.differences(10**15, 10**15 + 1, close=1e-12)  # counts are counts


def test_what_is_added_is_no_difference_and_what_is_gone_or_changed_is() -> None:
    old = {"results": [{"auc": 0.5, "reasons": {}}, {"auc": 0.25}]}
    new = {"results": [{"auc": 0.5, "pauc": 0.6, "reasons": {"ndcg_5": "no_requests"}}, {"auc": 0.25}], "schema": 1}
    assert not record.differences(old, record.without_additions(old, new))
    assert record.without_additions(["auc", "ctr"], ["auc", "pauc", "ctr"]) == ["auc", "ctr"]
    assert record.without_additions([{"metric": "gauc", "n": 1}], [{"metric": "pauc", "n": 2}, {"metric": "gauc", "n": 3}]) == [{"metric": "gauc", "n": 3}]  # fmt: skip
    assert record.differences(["auc", "ctr"], record.without_additions(["auc", "ctr"], ["pauc", "auc"]))
    routes = {"parameters": list[str]()}
    for parameter, is_more in (("query format", True), ("query format *", False), ("path id *", False)):
        asked = {"parameters": [parameter]}
        assert bool(record.differences(routes, record.without_additions(routes, asked))) != is_more, parameter
        assert record.differences(asked, record.without_additions(asked, routes)), parameter
    for changed in ({"results": [*new["results"], {"auc": 1.0}]}, {"results": [{"pauc": 0.6}, {"auc": 0.25}]}, {}):
        assert record.differences(old, record.without_additions(old, changed)), changed


def test_nothing_with_a_number_of_the_traffic_is_left_out() -> None:
    assert not OF_THE_CLOCK & {
        "results",
        "impressions",
        "clicks",
        "auc",
        "events",
        "partitions",
        "comparisons",
        "value",
    }
