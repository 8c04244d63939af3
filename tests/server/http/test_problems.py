"""Errors: one shape on every route, helpful, and never a 5xx for a bad question."""

from __future__ import annotations

import itertools

import pytest

from streameval.results.publish import Publisher
from streameval.server import create_app
from streameval.server.api import answers
from streameval.server.api.schemas.shape import Problem
from streameval.settings.server import Server

ROUTES = {
    "/api/v1/results": ("model", "version", "source", "from", "to", "window", "slice", "limit"),
    "/api/v1/buckets": ("model", "version", "source", "from", "to", "window", "slice", "limit", "kind"),
    "/api/v1/roc": ("model", "version", "source", "from", "to", "window", "slice", "max_points"),
    "/api/v1/scores": ("model", "version", "source", "from", "to", "window", "slice", "bins"),
    "/api/v1/series": ("metric", "model", "version", "source", "from", "to", "limit", "shape"),
    "/api/v1/user-distribution": ("model", "version", "source", "metric", "bins"),
    "/api/v1/users": ("model", "version", "source", "sort", "order", "limit", "cursor"),
    "/api/v1/users/user-1": ("model", "version", "source"),
}
BAD = (
    "", " ", "0", "-1", "1e999", "nan", "999999999999999999999999", "null", "none", "none:none", ":", "::", "a:b", "\0",
    "'", '"', "%", "<script>", "..", "☃", "\U0001f600", "x" * 600, "y" * 5000, "2024-13-01T00:00:00Z", "2024-05-01",
    "9999-12-31T23:59:59.999999999Z", "0000-01-01T00:00:00Z", "12345678901234567890", "-999999999999", "true", "[1]",
)  # fmt: skip


def is_problem(answer) -> None:
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    Problem.model_validate(body)
    assert body["status"] == answer.status_code


@pytest.mark.parametrize(("path", "name"), [(p, n) for p, names in ROUTES.items() for n in names])
def test_no_value_of_a_parameter_makes_the_server_fail(client, path: str, name: str) -> None:
    for value in BAD:
        answer = client.get(path, params={"metric": "auc", name: value} if path.endswith("series") else {name: value})
        past = name in ("from", "to") and not path.endswith("series")  # without a store: 409
        assert answer.status_code in ((200, 404, 409, 422) if past else (200, 404, 422)), (name, value, answer.text)
        if answer.status_code != 200:
            is_problem(answer)


@pytest.mark.slow
def test_no_pair_of_times_makes_the_server_fail(client) -> None:
    for start, end in itertools.product(BAD, repeat=2):
        answer = client.get("/api/v1/series", params={"metric": "auc", "from": start, "to": end})
        assert answer.status_code in (200, 422)


@pytest.mark.parametrize(
    "value", ["%00", "%FF%FE", "~", "~123", "~zzzzzzzzzzzzzzzz", "☃", "..", "%25", "x" * 2000, " "]
)
def test_no_user_id_makes_the_server_fail(client, value: str) -> None:
    answer = client.get("/api/v1/users/" + value)
    assert answer.status_code in (404, 422)
    is_problem(answer)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("/api/v1/results?limit=0", 'limit = "0": must be greater than or equal to 1'),
        ("/api/v1/results?limit=many", 'limit = "many": must be an integer'),
        (
            "/api/v1/results?modle=x",
            'modle = "x": unknown parameter; known here: format, model, version, source, objective, from, to, window, slice, limit',
        ),
        ("/api/v1/results?source=offline", "source = \"offline\": must be 'logged' or 'online'"),
        ("/api/v1/buckets?kind=round", "kind = \"round\": must be 'fixed' or 'quantiles'"),
        ("/api/v1/roc?max_points=1", 'max_points = "1": must be greater than or equal to 2'),
        ("/api/v1/series", 'metric = "": is required'),
        ("/api/v1/series?metric=acu", "must be a metric: ctr, "),
        ("/api/v1/series?metric=auc&from=yesterday", 'from = "yesterday": must be an RFC 3339 time such as "2024'),
        ("/api/v1/series?metric=auc&from=2024-05-01T12:00:00", "must say its offset"),
        ("/api/v1/series?metric=auc&from=20&to=10", 'from = "20": must not be after to = "10"'),
        ("/api/v1/results?model=a&limit=3&model=b", 'model = "b": is given 2 times'),
        ("/api/v1/series?metric=auc&metric=ctr&metric=auc", 'metric = "auc": is given 3 times'),
        ("/api/v1/users/u?version=&version=v1", 'version = "v1": is given 2 times'),
        ("/api/v1/users?sort=name", "sort = \"name\": must be 'impressions'"),
    ],
)
def test_a_bad_parameter_is_named_with_its_value_and_what_would_be_right(client, query: str, words: str) -> None:
    answer = client.get(query)
    assert answer.status_code == 422
    is_problem(answer)
    assert words in answer.json()["detail"]
    assert answer.json()["errors"][0]["parameter"] == words.split(" = ", maxsplit=1)[0] or " = " not in words


def test_an_unknown_path_is_a_problem(client) -> None:
    for path in (
        "/nope",
        "/api/v1/",
        "/api/v2/results",
        "/page/nope.js",
        "/page/../app.py",
        "/page/%2e%2e/app.py",
        "/metrics/",
    ):
        answer = client.get(path)
        assert answer.status_code == 404, path
        is_problem(answer)


@pytest.mark.parametrize(
    "path", ["/metrics", "/livez", "/api/v1/results", "/api/v1/users/x", "/", "/docs", "/page/app.js"]
)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_another_method_is_405_and_says_which_is_allowed(client_of, publisher, method: str, path: str) -> None:
    app = create_app(publisher, Server(), version="1", environ={"STREAMEVAL_TOKEN": "s3cret"})
    answer = client_of(app).request(method, path, headers={"Authorization": "Bearer s3cret"})
    assert answer.status_code == 405
    is_problem(answer)
    assert "GET" in answer.headers["allow"]
    assert answer.headers["allow"] in answer.json()["detail"]


def test_a_crash_is_a_500_without_internals(client_of, build, caplog) -> None:
    snapshot = build.snapshot()
    object.__setattr__(snapshot, "results", None)
    with caplog.at_level("INFO"):
        answer = client_of(create_app(Publisher(snapshot), Server(), version="1")).get("/api/v1/results")
    assert answer.status_code == 500
    is_problem(answer)
    assert "NoneType" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "GET /api/v1/results failed" in caplog.text
    trace = next(record.trace for record in caplog.records if hasattr(record, "trace"))
    assert "in matching_results" in trace
    assert "builtins.AttributeError" in trace


def test_of_very_many_wrong_parameters_the_first_are_explained(client) -> None:
    answer = client.get("/api/v1/results?" + "&".join(f"p{i}=x" for i in range(1500)))
    assert answer.status_code == 422
    assert len(answer.json()["errors"]) == 20


def test_an_answer_beyond_the_limit_is_refused_with_what_would_make_it_smaller(client, monkeypatch) -> None:
    size = len(client.get("/api/v1/results").content)
    monkeypatch.setattr(answers, "MAX_ANSWER", size)
    assert client.get("/api/v1/results?limit=999").status_code == 200
    monkeypatch.setattr(answers, "MAX_ANSWER", size - 1)
    refused = client.get("/api/v1/results?limit=998")  # another question: the answers to those are kept
    assert refused.status_code == 422
    is_problem(refused)
    assert f"the answer would have {size} bytes; at most {size - 1} are sent: name a model" in refused.json()["detail"]
    assert client.get("/api/v1/results?limit=1").status_code == 200
