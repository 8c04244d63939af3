"""Users: pages, single users, and who may see them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from streameval.events.hashing import hash_one
from streameval.results.publish import Publisher
from streameval.results.snapshot import UserColumns
from streameval.server import create_app
from streameval.server.api.queries import USER_SORTS
from streameval.server.api.schemas.users import User, Users
from streameval.server.api.user_pages import first_in_order
from streameval.settings.server import Server

V1 = "/api/v1/users?model=default&version=v1"


def all_pages(client, query: str) -> list[dict]:
    users, link = [], f"{V1}&{query}"
    for _ in range(100):
        body = client.get(link).json()
        Users.model_validate(body)
        users += body["users"]
        link = body["next"]
        if link is None:
            return users
    raise AssertionError("paging does not end")


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("sort", USER_SORTS)
def test_pages_show_every_user_once_in_order_with_undefined_ones_last(client, sort: str, order: str) -> None:
    users = all_pages(client, f"sort={sort}&order={order}&limit=7")
    assert len({u["user"] for u in users}) == len(users) == 60

    def place(user: dict) -> tuple[float, str]:
        value = user[sort]
        key = math.inf if value is None else value if order == "asc" else -value
        return key, user["user"]

    assert users == sorted(users, key=place)


def test_paging_goes_on_behind_the_last_user_when_the_numbers_have_moved(client, publisher, build) -> None:
    first = client.get(f"{V1}&sort=impressions&limit=10").json()
    last = first["users"][-1]
    columns = build.users([f"user-{i}" for i in range(90)], seed=9)
    publisher.publish(
        build.snapshot(2, users={**publisher.latest().users, next(iter(publisher.latest().users)): columns})
    )
    second = client.get(first["next"]).json()
    keys = [(-u["impressions"], u["user"]) for u in second["users"]]
    assert min(keys) > (-last["impressions"], last["user"])
    assert keys == sorted(keys)


def test_a_user_with_one_class_has_no_auc_and_says_why(client) -> None:
    users = {u["user"]: u for u in all_pages(client, "limit=1000")}
    only_clicks = [u for u in users.values() if u["clicks"] == u["impressions"]]
    no_clicks = [u for u in users.values() if u["clicks"] == 0]
    assert only_clicks[0]["reasons"] == {"auc": "no_non_clicks"}
    assert no_clicks[0]["reasons"] == {"auc": "no_clicks", "calibration": "no_clicks"}
    assert no_clicks[0]["auc"] is None


def test_a_users_numbers_follow_from_its_counts(client, client_of, build) -> None:
    columns = UserColumns(
        np.array([hash_one("ann")], np.uint64), np.array([10]), np.array([4]), np.array([36]), np.array([5.0]),
        np.array([2.5]),
    )  # fmt: skip
    app = create_app(Publisher(build.snapshot(users={build.result().series: columns})), Server(), version="1")
    body = client_of(app).get("/api/v1/users/ann").json()
    User.model_validate(body)
    (row,) = body["series"]
    assert row["auc"] == 36 / (2 * 4 * 6)
    assert (row["log_loss"], row["calibration"], row["ctr"], row["mean_pclick"]) == (0.25, 1.25, 0.4, 0.5)
    assert row["user"] == body["user"] == f"{hash_one('ann'):016x}"


def test_a_user_is_found_by_id_and_by_hash_in_every_series(client) -> None:
    by_id = client.get("/api/v1/users/user-1").json()
    assert [(s["model"], s["version"]) for s in by_id["series"]] == [("default", "v1"), ("default", "v2")]
    assert client.get(f"/api/v1/users/~{by_id['user']}").json() == by_id
    assert client.get(f"/api/v1/users/~{by_id['user'].upper()}").json() == by_id
    narrowed = client.get("/api/v1/users/user-1?version=v2").json()
    assert [s["version"] for s in narrowed["series"]] == ["v2"]


def test_an_id_may_hold_slashes_and_spaces(client) -> None:
    for path in ("/api/v1/users/a/b%20c", "/api/v1/users/a%2Fb%20c"):
        assert client.get(path).json()["user"] == f"{hash_one('a/b c'):016x}"


def test_an_unknown_user_is_404(client) -> None:
    answer = client.get("/api/v1/users/nobody")
    assert answer.status_code == 404
    assert '"nobody": not kept' in answer.json()["detail"]
    assert client.get("/api/v1/users/~0000000000000000").status_code == 404


def test_several_series_need_a_choice(client) -> None:
    answer = client.get("/api/v1/users?model=default")
    assert answer.status_code == 422
    assert "2 series fit" in answer.json()["detail"]


@pytest.mark.parametrize(
    "cursor", ["x", "####", "W10", "bnVsbA", "WyJhIl0", "e30", "ÿ", "W1tdLCAibmFuIiwgIjEiXQ", "[" * 3000]
)
def test_a_cursor_that_is_none_is_422(client, cursor: str) -> None:
    answer = client.get(V1, params={"model": "default", "version": "v1", "cursor": cursor})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["parameter"] == "cursor"


def test_a_cursor_of_another_sort_is_422(client) -> None:
    link = client.get(f"{V1}&limit=1").json()["next"]
    answer = client.get(link.replace("sort=impressions", "sort=clicks"))
    assert answer.status_code == 422
    assert "belongs to another" in answer.json()["detail"]


def test_the_first_in_order_are_those_of_a_full_sort_also_with_many_ties() -> None:
    rng = np.random.default_rng(3)
    for count in (1, 5, 50, 99, 100, 200):
        key = np.where(rng.random(100) < 0.3, np.inf, rng.integers(0, 4, 100).astype(float))
        rows = np.flatnonzero(rng.random(100) < 0.8)
        expected = sorted(rows.tolist(), key=lambda row: (key[row], row))[:count]
        assert first_in_order(key, rows, count).tolist() == expected


@pytest.fixture
def guarded(client_of, publisher, tmp_path: Path):
    path = tmp_path / "token"
    path.write_text("s3cret\n")
    return client_of(create_app(publisher, Server(token_file=str(path)), version="1"))


@pytest.mark.parametrize("path", [V1, "/api/v1/users/user-1", "/api/v1/users?limit=bad"])
@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic czNjcmV0"}, {"Authorization": "Bearer"}]
)
def test_without_the_token_users_stay_private(guarded, path: str, headers: dict[str, str]) -> None:
    answer = guarded.get(path, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_token_that_is_not_ascii_is_wrong_and_no_crash(guarded) -> None:
    assert guarded.get(V1, headers={b"Authorization": "Bearer s3crét".encode("latin-1")}).status_code == 401


def test_with_the_token_users_are_shown_and_never_cached_for_others(guarded) -> None:
    answer = guarded.get(V1, headers={"Authorization": "Bearer s3cret"})
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "private, no-cache"
    assert answer.headers["vary"] == "Authorization"


@pytest.mark.parametrize("path", ["/metrics", "/livez", "/readyz", "/api/v1/results", "/"])
def test_the_token_is_asked_for_users_only(guarded, path: str) -> None:
    assert guarded.get(path).status_code == 200
