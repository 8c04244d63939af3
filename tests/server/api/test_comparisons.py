"""Comparisons and verdicts over HTTP, in the report, and in the stream's overview."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from urllib.parse import quote

import pytest

from streameval.compare.reading.reading import COMPARED, Role
from streameval.events.batch import Series
from streameval.results.publish import Publisher
from streameval.results.results import Results
from streameval.results.snapshot import JoinHealth, empty_snapshot
from streameval.server import create_app
from streameval.server.api.overview import overview
from streameval.server.api.schemas.comparisons import Comparisons, ComparisonWithLooks, Verdict
from streameval.settings.server import Server
from tests.comparisons import NOON, comparison, deploy, reading

VERDICT = "/api/v1/models/default/verdict"


@pytest.fixture
def ask(build, client_of):
    """GETs from a server over a snapshot with changes."""

    def get(path: str, **changes):
        app = create_app(Publisher(build.snapshot(**changes)), Server(), version="1")
        return client_of(app).get(path)

    return get


def test_comparisons_are_listed_without_their_looks(client) -> None:
    body = client.get("/api/v1/comparisons").json()
    Comparisons.model_validate(body)
    assert [c["id"] for c in body["comparisons"]] == ["2-paired", "2-split"]
    one = body["comparisons"][0]
    assert "looks" not in one
    assert (one["verdict"], one["since"], one["impressions"], one["clicks"]) == (
        "worse", "2024-05-01T12:03:00.000Z", 41_234, 802,
    )  # fmt: skip
    assert one["words"].startswith("v2 is worse than v1: decided 12:03 UTC on AUC -0.018")
    assert (one["decided_at"], one["supported_now"]) == ("2024-05-01T12:03:00.000Z", True)
    then = {"difference": -0.018, "lower": -0.026, "upper": -0.01}
    assert one["decided_on"] == {
        "metric": "auc",
        **then,
        "since": "2024-05-01T12:00:00.000Z",
        "alone": True,
        "capped": False,
    }
    assert one["decided_now"] == {"difference": -0.012, "lower": -0.016, "upper": -0.008}
    assert (one["retracted"], one["clustered_by"]) == (False, "user")
    undecided = body["comparisons"][1]
    assert {undecided[name] for name in ("decided_at", "decided_on", "decided_now", "supported_now")} == {None}
    gauc = next(m for m in one["metrics"] if m["metric"] == "gauc")
    assert (gauc["difference"], gauc["reason"]) == (None, "not_compared_in_this_setup")


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("model=default", ["2-paired", "2-split"]),
        ("model=ftrl", []),
        ("candidate=v2", ["2-paired", "2-split"]),
        ("candidate=v1", []),
        ("setup=split", ["2-split"]),
        ("model=&candidate=&setup=", ["2-paired", "2-split"]),
        ("limit=1", ["2-paired"]),
    ],
)
def test_filters_narrow_the_comparisons(client, query: str, ids: list[str]) -> None:
    assert [c["id"] for c in client.get(f"/api/v1/comparisons?{query}").json()["comparisons"]] == ids


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/v1/comparisons?model=nope", 404),
        ("/api/v1/comparisons?candidate=nope", 404),
        ("/api/v1/comparisons?setup=nope", 422),
        ("/api/v1/comparisons?limit=501", 422),
        ("/api/v1/comparisons/nope", 404),
        ("/api/v1/comparisons/" + "9" * 200, 422),
        ("/api/v1/models/nope/verdict", 404),
        ("/api/v1/models//verdict", 422),
        ("/api/v1/models/verdict", 404),
        (VERDICT + "?version=v2", 422),
    ],
)
def test_what_is_not_there_is_a_problem_that_says_what_is(client, path: str, status: int) -> None:
    answer = client.get(path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


def test_one_comparison_has_its_evidence_over_time(client) -> None:
    body = client.get("/api/v1/comparisons/2-paired").json()
    ComparisonWithLooks.model_validate(body)
    first, *_, last = body["looks"]
    assert first["metrics"]["auc"]["difference"] is None
    assert last["metrics"]["auc"]["upper"] == pytest.approx(-0.008)
    assert (last["at"], last["impressions"], last["clicks"], last["log_e"]) == (
        "2024-05-01T12:02:00.000Z", 2000, 40, 9.5,
    )  # fmt: skip
    assert body["findings"][0]["significant"] is True
    assert body["mixes"][0]["simpson"] is True
    assert [(b["bucket"], b["candidate"], b["significant"]) for b in body["calibration_buckets"]] == [
        ("0-0.02", 1.05, False), ("0.02-0.05", 1.43, True),
    ]  # fmt: skip
    assert body["early"][1]["reason"] == "one_arm_only"
    assert body["changes"][0]["at"] == "2024-05-01T12:03:00.000Z"


def test_a_comparison_without_looks_has_an_empty_list(ask) -> None:
    assert ask("/api/v1/comparisons/2-paired", comparisons=(comparison(looks=None),)).json()["looks"] == []


def test_the_verdict_is_flat_and_from_the_best_comparison(client) -> None:
    body = client.get(VERDICT + "?candidate=v2").json()
    Verdict.model_validate(body)
    assert not any(isinstance(value, dict | list) for value in body.values())
    want = {
        "model": "default", "candidate": "v2", "baseline": "v1", "setup": "paired", "comparison": "2-paired",
        "deploy": "2", "deployed_at": "2024-05-01T12:00:00.000Z", "verdict": "worse", "worse": True,
        "not_worse": False, "warning_only": False, "reliable": True, "reason": None, "alpha": 0.01, "log_e": 8.1,
        "since": "2024-05-01T12:03:00.000Z", "p_value": 0.0003, "impressions": 41_234, "clicks": 802,
        "difference_auc": -0.012, "margin_auc": 0.002, "reason_auc": None, "difference_gauc": None,
        "reason_gauc": "not_compared_in_this_setup", "decided_at": "2024-05-01T12:03:00.000Z", "decided_on": "auc",
        "decided_difference": -0.018, "decided_lower": -0.026, "decided_upper": -0.01, "supported_now": True,
    }  # fmt: skip
    assert {name: body[name] for name in want} == want
    assert client.get(VERDICT).json() == body
    assert {f"difference_{metric}" for metric in COMPARED} <= set(body)


def test_before_there_is_a_comparison_the_verdict_is_undecided_and_says_why(ask) -> None:
    newer, awaited = deploy(3, "v3"), deploy(1, "v4", noticed=None, announced=True)
    for candidate, reason in (("v3", "no_comparison_yet"), ("v4", "no_traffic_yet"), ("v9", "no_deploy_yet")):
        body = ask(f"{VERDICT}?candidate={candidate}", deploys=(deploy(), newer, awaited)).json()
        Verdict.model_validate(body)
        assert (body["verdict"], body["worse"], body["not_worse"]) == ("undecided", False, False)
        assert (body["candidate"], body["reason"], body["reason_auc"]) == (candidate, reason, reason)
        assert (body["impressions"], body["difference_auc"], body["setup"]) == (0, None, None)
    assert ask(VERDICT, deploys=(deploy(), newer)).json()["candidate"] == "v3"


def test_an_announced_version_with_little_traffic_is_not_said_to_have_none(ask, build) -> None:
    """Until a percent or 1,000 impressions it is not noticed, and was said to have no traffic, as if its name were misspelt."""
    awaited = deploy(1, "v4", noticed=None, announced=True)
    results = (build.result(Series("default", "v4", "logged"), "all"),)
    body = ask(f"{VERDICT}?candidate=v4", deploys=(awaited,), comparisons=(), results=Results.of(results)).json()
    assert (body["verdict"], body["reason"]) == ("undecided", "no_comparison_yet")


def test_an_unhealthy_join_makes_a_verdict_unreliable(ask, build) -> None:
    join = replace(build.snapshot().join, reliable=False, reason="join_rate_low")
    body = ask(VERDICT, join=join).json()
    assert (body["verdict"], body["reliable"], body["reason"]) == ("worse", False, "join_rate_low")
    withheld = comparison("not_worse", withheld=True, reason="overdue_clicks")
    body = ask(VERDICT, comparisons=(withheld,)).json()
    assert (body["not_worse"], body["reliable"], body["reason"]) == (True, False, "overdue_clicks")
    assert isinstance(join, JoinHealth)


def test_before_after_is_a_warning_only(ask) -> None:
    body = ask(VERDICT, comparisons=(comparison(setup="before_after"),)).json()
    assert (body["setup"], body["worse"], body["warning_only"]) == ("before_after", True, True)


@pytest.mark.parametrize("model", ["a/b", "verdict", "a/verdict", "/", "ü ? #&%", "two\nlines", "\r\n"])
def test_any_model_has_an_address(ask, model: str) -> None:
    path = f"/api/v1/models/{quote(model, safe='')}/verdict"
    c = comparison(candidate=Series(model, "v2", "logged"), baseline=Series(model, "v1", "logged"))
    answer = ask(path, comparisons=(c,), deploys=(deploy(model=model),))
    assert answer.status_code == 200, answer.text
    assert (answer.json()["model"], answer.json()["verdict"]) == (model, "worse")


def test_what_is_not_finite_is_null(ask) -> None:
    odd = comparison(
        log_e_worse=math.inf, log_e_not_worse=-math.inf, metrics=(reading(lower=-math.inf, log_e_worse=math.nan),)
    )
    body = ask("/api/v1/comparisons/2-paired", comparisons=(odd,)).json()
    ComparisonWithLooks.model_validate(body)
    assert (body["log_e_worse"], body["metrics"][0]["lower"], body["metrics"][0]["log_e_worse"]) == (None, None, None)
    Verdict.model_validate(ask(VERDICT, comparisons=(odd,)).json())


def test_the_report_has_deploys_and_comparisons_as_the_api_with_times_in_ms(build, client) -> None:
    report = json.loads(json.dumps(build.snapshot().report(), allow_nan=False))
    listed = client.get("/api/v1/comparisons").json()["comparisons"][0]
    told = report["comparisons"][0]
    assert told["since"] == NOON + 180_000
    # nothing is in a report that depends on when somebody looked, so its times have their dates
    assert "decided 2024-05-01 12:03 UTC" in told["words"]
    assert told.pop("words").replace("2024-05-01 ", "") == listed.pop("words")
    assert [f for f in listed.pop("findings") if f["dimension"] != "user"] == told.pop("findings")
    times = ("start", "looked", "since", "decided_at", "decided_on", "changes", "early")
    assert (told["decided_at"], told["decided_on"].pop("since")) == (NOON + 180_000, NOON)
    del listed["decided_on"]["since"]
    assert told["decided_on"] == listed["decided_on"]
    assert {k: v for k, v in told.items() if k not in times} == {k: v for k, v in listed.items() if k not in times}
    assert [d["at"] for d in report["deploys"]] == [NOON - 3_600_000, NOON]


def test_the_overview_has_one_line_a_model(build) -> None:
    (line,) = overview(build.snapshot())["verdicts"]
    assert line["words"].startswith("v2 is worse than v1: decided 12:03 UTC on AUC -0.018 (99% per metric: -0.026 to")
    assert (line["verdict"], line["impressions"], line["supported_now"]) == ("worse", 41_234, True)
    assert line["alpha"] == 0.01
    assert overview(empty_snapshot(0.0))["verdicts"] == []


def test_the_overview_names_every_live_version_that_is_worse(build) -> None:
    live = (None, Role("live", 0.1))
    many = tuple(
        comparison("worse", number=i, candidate=Series("default", f"v{i}", "logged"), roles=live) for i in range(2, 14)
    )
    newest = comparison("undecided", number=14, candidate=Series("default", "v14", "logged"), roles=live)
    deploys = tuple(deploy(i, f"v{i}") for i in range(2, 15))
    shown = overview(build.snapshot(comparisons=(*many, newest), deploys=deploys))
    assert [line["candidate"] for line in shown["verdicts"]] == ["v14"]
    (found,) = shown["worse"]
    assert found["model"] == "default"
    assert set(found["versions"]) == {c.candidate.version for c in many}
    assert [line["candidate"] for line in found["verdicts"]] == found["versions"][:10]
    assert set(found["verdicts"][0]) == set(shown["verdicts"][0])
    assert overview(build.snapshot(comparisons=(newest,), deploys=deploys))["worse"] == []


def test_series_say_what_they_are_there_for(ask, client) -> None:
    live, shadow = Role("live", 0.75), Role("shadow")
    roles = {Series("default", "v1", "logged"): live, Series("default", "v2", "logged"): shadow}
    told = {("v1", "live", 0.75), ("v2", "shadow", None)}
    rows = ask("/api/v1/results?model=default", roles=roles).json()["results"]
    assert {(row["version"], row["role"], row["traffic_share"]) for row in rows} == told
    known = ask("/api/v1/status", roles=roles).json()["series"]
    assert {(s["version"], s["role"], s["traffic_share"]) for s in known} == told | {("online", None, None)}
    (one,) = ask("/api/v1/comparisons", comparisons=(comparison(roles=(live, shadow)),)).json()["comparisons"]
    assert (one["baseline"]["role"], one["baseline"]["traffic_share"]) == ("live", 0.75)
    assert (one["candidate"]["role"], one["candidate"]["traffic_share"]) == ("shadow", None)
    assert {row["role"] for row in client.get("/api/v1/results").json()["results"]} == {None}


def test_the_page_says_first_what_people_are_served(build) -> None:
    learns = comparison("worse", number=3, candidate=Series("ftrl", "online", "online"), roles=(None, Role("shadow")))
    deploys = (deploy(), deploy(3, model="ftrl", version="online", kind="shadow"))
    lines = overview(build.snapshot(comparisons=(learns, comparison("not_worse")), deploys=deploys))["verdicts"]
    assert [(line["model"], line["verdict"], line["role"]) for line in lines] == [
        ("default", "not_worse", None),
        ("ftrl", "worse", "shadow"),
    ]


def test_a_metric_has_its_standard_error_beside_it_or_a_reason(build, ask) -> None:
    known = replace(build.result(), stderrs={"auc": 0.0125, "gauc": None}, reasons={"gauc_stderr": "too_few_blocks"})
    (row,) = ask("/api/v1/results", results=(known,)).json()["results"]
    assert (row["auc_stderr"], row["gauc_stderr"], row["ece_stderr"]) == (0.0125, None, None)
    assert row["reasons"]["gauc_stderr"] == "too_few_blocks"
    assert row["reasons"]["ece_stderr"] == "not_estimated"
    assert "auc_stderr" not in row["reasons"]
    (row,) = ask("/api/v1/results", results=(build.empty_result(),)).json()["results"]
    assert row["reasons"]["auc_stderr"] == "no_impressions"


def test_users_that_carry_a_difference_are_named_only_to_who_may_ask_for_users(build, client_of) -> None:
    token = "a-token-of-some-length"
    app = create_app(Publisher(build.snapshot()), Server(), version="1", environ={"STREAMEVAL_TOKEN": token})
    client = client_of(app)
    for path in ("/api/v1/comparisons", "/api/v1/comparisons/2-paired"):
        for headers, users in (
            ({}, False), ({"Authorization": "Bearer wrong"}, False), ({"Authorization": f"Bearer {token}"}, True),
        ):  # fmt: skip
            answer = client.get(path, headers=headers)
            assert answer.status_code == 200
            assert ("0123456789abcdef" in answer.text) == users
            assert "Authorization" in answer.headers["Vary"]
            assert '"country"' in answer.text
