"""Deploys over HTTP: listed, announced with the token only, bounded, and shown on every time series."""

from __future__ import annotations

import json

import pytest

from streameval.compare.announce import MOST_WAITING, Announcement, Announcements
from streameval.results.publish import Publisher
from streameval.results.snapshot import empty_snapshot
from streameval.server import create_app
from streameval.server.api.schemas.comparisons import Announced, Deploys
from streameval.server.api.schemas.results import SeriesAnswer
from streameval.server.api.schemas.shape import Problem
from streameval.settings.server import Server
from tests.comparisons import MINUTE, NOON, deploy

NOW = NOON / 1000
TOKEN = "s3cret"
GOOD = {"Authorization": f"Bearer {TOKEN}"}
BODY = {"model": "default", "version": "v3"}


@pytest.fixture
def inbox() -> Announcements:
    return Announcements()


@pytest.fixture
def post(publisher, inbox, client_of):
    """Announces a deploy with the token."""
    app = create_app(
        publisher,
        Server(),
        version="1",
        clock=lambda: NOW,
        environ={"STREAMEVAL_TOKEN": TOKEN},
        announcements=inbox,
    )
    client = client_of(app)
    headers = {**GOOD, "Content-Type": "application/json"}
    return lambda body: client.request("POST", "/api/v1/deploys", content=json.dumps(body), headers=headers)


def test_deploys_are_listed_newest_first(client) -> None:
    body = client.get("/api/v1/deploys").json()
    Deploys.model_validate(body)
    assert [d["version"] for d in body["deploys"]] == ["v2", "v1"]
    assert body["deploys"][0] == {
        "id": "2", "model": "default", "version": "v2", "replaces": "v1", "at": "2024-05-01T12:00:00.000Z",
        "kind": "deploy", "noticed": "2024-05-01T12:01:00.000Z", "announced": True, "note": "a new tower", "link": "",
    }  # fmt: skip
    assert client.get("/api/v1/deploys?model=ftrl").json()["deploys"] == []
    assert client.get("/api/v1/deploys?model=nope").json()["known"] == ["default", "ftrl"]
    one = client.get("/api/v1/deploys?limit=1").json()
    assert (len(one["deploys"]), one["matched"], one["truncated"]) == (1, 2, True)


def test_an_announcement_is_handed_to_the_loop(post, inbox) -> None:
    answer = post({**BODY, "at": "2024-05-01T13:30:00+02:00", "note": "wider\ntower", "link": "https://ci.example/42"})
    assert answer.status_code == 201
    Announced.model_validate(answer.json())
    assert answer.headers["cache-control"] == "no-store"
    assert answer.json()["deploy"] == {
        "id": None, "model": "default", "version": "v3", "replaces": None, "at": "2024-05-01T11:30:00.000Z",
        "kind": "deploy", "noticed": None, "announced": True, "note": "wider\ntower", "link": "https://ci.example/42",
    }  # fmt: skip
    assert inbox.take() == (
        Announcement("default", "v3", NOON - 30 * MINUTE, "wider\ntower", "https://ci.example/42"),
    )  # fmt: skip


def test_a_model_without_traffic_beside_others_is_named_in_a_warning(post, inbox) -> None:
    assert post(BODY).json()["warning"] is None
    answer = post({**BODY, "model": "defualt"})
    assert answer.status_code == 201  # a new model is announced before its first impression
    warning = 'model "defualt" has no impression in any window, and no deploy on record; those that have are: "default", "ftrl"'
    assert Announced.model_validate(answer.json()).warning == answer.json()["warning"] == warning
    assert [said.model for said in inbox.take()] == ["default", "defualt"]


def test_without_a_time_it_is_now_and_a_second_one_renews_the_first(post, inbox) -> None:
    assert post(BODY).status_code == 201
    again = post({**BODY, "at": str(NOW + 60), "note": "said later"})
    assert again.status_code == 200
    assert again.json()["deploy"]["at"] == "2024-05-01T12:00:00.000Z"
    assert inbox.take() == (Announcement("default", "v3", NOON, "said later"),)


@pytest.mark.parametrize("at", [NOON // 1000 - 1800, NOON / 1000 - 1800, NOON / 1000 - 1799.5])
def test_the_time_may_be_a_number_of_unix_seconds(post, inbox, at: float) -> None:
    assert post({**BODY, "at": at}).status_code == 201
    assert inbox.take() == (Announcement("default", "v3", round(at * 1000), "", ""),)


def test_what_was_noticed_by_its_traffic_can_be_announced_afterwards(post, inbox) -> None:
    answer = post({"model": "default", "version": "v2", "note": "", "link": "http://ci/7"})
    assert answer.status_code == 200
    assert answer.json()["deploy"]["id"] == "2"
    assert (answer.json()["deploy"]["note"], answer.json()["deploy"]["link"]) == ("a new tower", "http://ci/7")
    assert inbox.take()[0].link == "http://ci/7"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model": ""}, "model"),
        ({"model": None}, "model"),
        ({"version": "   "}, "version"),
        ({"version": "v" * 257}, "version"),
        ({"version": 3}, "version"),
        ({"version": "\ud800"}, "version"),
        ({"note": "n" * 1001}, "note"),
        ({"note": "a\x00b"}, "must be plain text, without control characters"),
        ({"link": "javascript:alert(1)"}, "must be an address such as"),
        ({"link": "https://" + "x" * 2000}, "link"),
        ({"link": "https://a b"}, "must be an address such as"),
        ({"at": "yesterday"}, "must be an RFC 3339 time"),
        ({"at": "2024-05-01T13:00:01Z"}, "is more than an hour ahead"),
        ({"at": 0}, "is before 2001"),
        ({"at": True}, "at"),
        ({"at": [1714564800]}, "at"),
        ({"at": 2024}, "reads like a year or a day"),
        ({"at": 1714564800000}, "must be an RFC 3339 time such as"),
        ({"at": float("nan")}, "must be an RFC 3339 time such as"),
        ({"who": "me"}, "unknown parameter; known here: model, version, at, note, link"),
    ],
)
def test_what_cannot_be_used_is_said_with_what_would_be_right(post, inbox, change, says) -> None:
    answer = post({**BODY, **change})
    assert answer.status_code == 422
    Problem.model_validate(answer.json())
    assert says in answer.json()["detail"]
    (error,) = answer.json()["errors"]
    assert error["in"] == "body"
    assert inbox.take() == ()


@pytest.mark.parametrize(
    ("content", "media", "says"),
    [
        (b'{"model": ', "application/json", 'body = "{"model": ": must be JSON: '),
        (b"{", "application/json", 'body = "{": must be JSON: '),
        (b"[]", "application/json", "must be a JSON object"),
        (b"\xff", "application/json", ""),
        (b"[" * 60_000, "application/json", ""),
        (b"model=default&version=v3", "application/x-www-form-urlencoded", "must be a JSON object"),
        (json.dumps(BODY).encode(), "text/plain", "must be a JSON object"),
        (b"", "application/json", "is required"),
    ],
)
def test_a_body_that_is_no_json_object_is_a_problem(publisher, inbox, client_of, content, media, says) -> None:
    app = create_app(publisher, Server(), version="1", environ={"STREAMEVAL_TOKEN": TOKEN}, announcements=inbox)
    answer = client_of(app).request("POST", "/api/v1/deploys", content=content, headers={**GOOD, "Content-Type": media})
    assert answer.status_code in (400, 422), answer.text
    Problem.model_validate(answer.json())
    assert says in answer.json()["detail"]
    assert inbox.take() == ()


def test_announcing_needs_the_token(publisher, inbox, client_of) -> None:
    for environ, status in (({}, 403), ({"STREAMEVAL_TOKEN": TOKEN}, 401)):
        app = create_app(publisher, Server(), version="1", environ=environ, announcements=inbox)
        assert client_of(app).request("POST", "/api/v1/deploys", json=BODY).status_code == status
    assert inbox.take() == ()


def test_a_full_inbox_says_when_to_come_back(post) -> None:
    for i in range(MOST_WAITING):
        assert post({**BODY, "version": f"w{i}"}).status_code == 201
    full = post(BODY)
    assert full.status_code == 503
    assert full.headers["retry-after"] == "2"
    assert post({**BODY, "version": "w0", "note": "still room for this"}).status_code == 200


def test_a_server_without_a_monitor_behind_it_takes_none(publisher, client_of) -> None:
    app = create_app(publisher, Server(), version="1", environ={"STREAMEVAL_TOKEN": TOKEN})
    answer = client_of(app).request("POST", "/api/v1/deploys", json=BODY, headers=GOOD)
    assert answer.status_code == 409


def test_every_time_series_shows_the_deploys_of_its_models_in_its_time(build, client_of) -> None:
    first = 1_714_561_200_000  # of the panes
    deploys = (
        deploy(1, "v0", at=first - 1), deploy(2, "v1", at=first), deploy(3, "v2", at=first + 10 * MINUTE),
        deploy(4, "x", model="other", at=first + MINUTE), deploy(5, "v1", kind="rollback", at=first + 20 * MINUTE),
    )  # fmt: skip
    app = create_app(Publisher(build.snapshot(deploys=deploys)), Server(), version="1")
    body = client_of(app).get("/api/v1/series?metric=auc").json()
    SeriesAnswer.model_validate(body)
    assert [(d["version"], d["kind"]) for d in body["deploys"]] == [
        ("v1", "deploy"), ("v2", "deploy"), ("v1", "rollback"),
    ]  # fmt: skip
    assert body["deploys"][1]["at"] == "2024-05-01T11:10:00.000Z"
    part = client_of(app).get(f"/api/v1/series?metric=auc&from={first // 1000 + 60}&to={first // 1000 + 900}").json()
    assert [d["version"] for d in part["deploys"]] == ["v2"]


def test_another_method_is_told_both_that_are_taken(post, client) -> None:
    answer = client.request("OPTIONS", "/api/v1/deploys")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, POST")


def test_before_the_first_snapshot_there_is_none(client_of) -> None:
    client = client_of(create_app(Publisher(empty_snapshot(0.0)), Server(), version="1"))
    assert client.get("/api/v1/deploys").json()["deploys"] == []
    assert client.get("/api/v1/series?metric=auc").json()["deploys"] == []
