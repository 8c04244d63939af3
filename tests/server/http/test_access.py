"""The token: every route, every method, every trick."""

from __future__ import annotations

import http.client
import itertools
import json
import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from fastapi import FastAPI
from starlette.routing import Mount, Route

from streameval.server import create_app, serve
from streameval.server.api.schemas.shape import Problem
from streameval.server.http.access import HEALTH, Access, exposure, read_token
from streameval.settings.server import Server
from streameval.settings.toml import load, to_toml
from streameval.settings.tree import ConfigError

TOKEN = "s3cret-of-this-test"
GOOD = {"Authorization": f"Bearer {TOKEN}"}
READS = ("GET", "HEAD", "OPTIONS")
WRITES = ("POST", "PUT", "PATCH", "DELETE", "TRACE", "CONNECT", "get", "Get", "head", "PROPFIND", "QUERY", "X")
# Credentials that are not the token; None: none at all
WRONG = (
    None, "", "Bearer", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}",
    f"Bearer {TOKEN.upper()}", f"Bearer {TOKEN}, Bearer {TOKEN}", f"Bearer {TOKEN} {TOKEN}", f'Bearer "{TOKEN}"',
    "Bearer null", f"Bearer\t{TOKEN}", "Bearer s3crét",
)  # fmt: skip
KNOWN = {"user_id": "user-1", "id": "2-paired", "model": "default"}  # names that the snapshot has answers for
# Headers by which proxies tell a server that a request is another one, or comes from somebody else
FORWARDED = {
    "X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": "localhost", "X-Forwarded-Proto": "https",
    "X-Forwarded-Prefix": "/livez", "X-Forwarded-User": "admin", "X-Real-IP": "127.0.0.1", "Forwarded": "for=127.0.0.1",
    "X-Original-URL": "/livez", "X-Rewrite-URL": "/livez", "X-HTTP-Method-Override": "GET", "X-HTTP-Method": "GET",
    "X-Method-Override": "GET", "Client-IP": "127.0.0.1", "X-Token": TOKEN, "Cookie": f"token={TOKEN}",
    "Proxy-Authorization": f"Bearer {TOKEN}", "X-Authorization": f"Bearer {TOKEN}",
}  # fmt: skip


def is_read(app: FastAPI, path: str) -> bool:
    """Whether a path, as `paths` has it, takes GET."""
    methods = {_known(route): of for route, of in app.openapi()["paths"].items()}.get(path, {"get": None})
    return "get" in methods


def _known(path: str) -> str:
    return re.sub(r"\{(\w+)(:path)?\}", lambda name: KNOWN[name[1]], path)


def paths(app: FastAPI) -> list[str]:
    """A path for every route that the app has, those included that are added after this test was written."""
    found = {r.path for r in app.routes if isinstance(r, Route)} | set(app.openapi()["paths"])
    found |= {f"{r.path}/app.js" for r in app.routes if isinstance(r, Mount)}
    return sorted(map(_known, found))


def tricks(path: str) -> list[str]:
    """Other ways to write a path, of which some server somewhere takes each for the same."""
    last = path.rsplit("/", 1)[-1]
    escaped = f"%{ord(last[0]):02x}{last[1:]}" if last else ""
    made = [
        path, path + "/", path + "//", "/" + path, "//" + path, path + "?", path + "?token=" + TOKEN,
        path + "?access_token=" + TOKEN, path + "#x", path.upper(), path.title(), path + "%2f", path + "%2F..%2Flivez",
        path + "/..", path + "/.", "/." + path, "/livez/.." + path, "/livez/%2e%2e" + path, "/livez;" + path,
        path + ";x=/livez", path + "%00", path + "%20", path + "%0a", path + "\\", path + ".json", path + "/livez",
        path.replace("/", "//"), path.replace("/", "/./"), path.replace("/", "%2f")[3:] or "/%2f", path + "%3F",
        path[: len(path) - len(last)] + escaped, path[: len(path) - len(last)] + escaped.replace("%", "%25"),
        "/api/v1/../v1/" + last, path.replace("users", "us%65rs"), path + "%252e",
    ]  # fmt: skip
    absolute = [f"{scheme}://127.0.0.1{path}" for scheme in ("http", "https", "HTTP")]
    return [trick if trick.startswith("/") else "/" + trick for trick in made] + absolute


def ask(
    connection: http.client.HTTPConnection, method: str, path: str, headers: dict[str, str]
) -> http.client.HTTPResponse:
    """A request exactly as it is written: no client tidies up the path. The answer is read."""
    connection.putrequest(method, path, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name, value.encode("latin-1"))
    connection.endheaders()
    answer = connection.getresponse()
    if answer.getheader("content-type", "").startswith("text/event-stream"):
        answer.body = b""
        connection.close()  # it would go on for ever
    else:
        answer.body = answer.read()
    return answer


@pytest.fixture(params=["private", "all"])
def door(request, publisher):
    """(a running server with a token, its app, its token_scope)"""
    settings = Server(token_scope=request.param)
    app = create_app(publisher, settings, version="1", environ={"STREAMEVAL_TOKEN": TOKEN})
    handle = serve(app, "127.0.0.1", 0)
    yield handle, app, request.param
    handle.stop()


def is_open(path: str, scope: str) -> bool:
    """What the rules say, in other words than the code: a plain read that needs no token."""
    path = path.partition("?")[0].partition("#")[0]
    return path in HEALTH or (scope == "private" and not path.startswith("/api/v1/users"))


@pytest.mark.slow
def test_no_route_method_or_trick_gets_in_without_the_token(door) -> None:
    handle, app, scope = door
    connection = http.client.HTTPConnection("127.0.0.1", handle.port, timeout=30)
    asked = 0
    for path, method in itertools.product(paths(app), READS + WRITES):
        for trick in tricks(path):
            answer = ask(connection, method, trick, FORWARDED)
            asked += 1
            where = (method, trick, answer.status)
            if method in WRITES:
                assert answer.status == 401, where
            elif scope == "all":
                assert answer.status == 401 or is_open(unquote(trick), scope), where
                assert (
                    answer.status != 200
                    or method == "HEAD"
                    or set(json.loads(answer.body)) - {"degraded"} == {"status", "checks"}
                ), where
            elif answer.status == 200:
                # a trick may reach what is open, but never a single user
                assert b'"predicted_clicks":' not in answer.body.replace(b'"predicted_clicks":{"type"', b""), where
                assert b'"users":[{' not in answer.body, where
            assert answer.status not in range(300, 400), where
            assert answer.status < 500, where
            if answer.status == 401:
                assert answer.getheader("WWW-Authenticate").startswith("Bearer")
                if method != "HEAD":
                    Problem.model_validate_json(answer.body)
    assert asked > 5000


def test_wrong_credentials_are_as_good_as_none(door) -> None:
    handle, app, scope = door
    connection = http.client.HTTPConnection("127.0.0.1", handle.port, timeout=30)
    for path, credentials in itertools.product(paths(app), WRONG):
        headers = FORWARDED if credentials is None else {**FORWARDED, "Authorization": credentials}
        for method in ("GET", "POST"):
            if method == "GET" and is_open(path, scope):
                continue
            answer = ask(connection, method, path, headers)
            assert answer.status == 401, (method, path, credentials)


def test_two_authorization_headers_are_refused_even_if_one_is_right(door) -> None:
    handle, _, _ = door
    connection = http.client.HTTPConnection("127.0.0.1", handle.port, timeout=30)
    for pair in ([TOKEN, "wrong"], ["wrong", TOKEN], [TOKEN, TOKEN]):
        connection.putrequest("GET", "/api/v1/users/user-1")
        for one in pair:
            connection.putheader("Authorization", f"Bearer {one}")
        connection.endheaders()
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 401


def test_with_the_token_every_route_is_as_it_would_be_without_a_door(door) -> None:
    handle, app, _ = door
    connection = http.client.HTTPConnection("127.0.0.1", handle.port, timeout=30)
    for path in paths(app):
        query = (
            "?metric=auc"
            if path.endswith("series")
            else "?version=v1"
            if path.endswith(("users", "roc", "scores", "distribution"))
            else ""
        )
        for scheme in ("Bearer", "bearer", "BEARER"):
            answer = ask(connection, "GET", path + query, {"Authorization": f"{scheme} {TOKEN}"})
            assert answer.status == (200 if is_read(app, path) else 405), path
        taken = "post" in {_known(route): of for route, of in app.openapi()["paths"].items()}.get(path, {})
        assert ask(connection, "POST", path, GOOD).status == (422 if taken else 405), path


def test_without_a_token_reading_is_open_and_writing_is_refused_with_what_to_set(client, app) -> None:
    for path in paths(app):
        if not path.endswith("/stream"):
            assert client.get(path).status_code in ((200, 422) if is_read(app, path) else (405,)), path
        for method in (name for name in WRITES if name == name.upper()):  # the client knows no others
            answer = client.request(method, path)
            assert answer.status_code == 403, (method, path)
            assert f"{method}: writing needs a token, and this server has none; set server.token_file or the environment variable STREAMEVAL_TOKEN" in answer.json()["detail"]  # fmt: skip


def test_a_route_that_is_added_later_is_behind_the_door_too(client_of, publisher) -> None:
    reached = []
    for environ in ({}, {"STREAMEVAL_TOKEN": TOKEN}):
        app = create_app(publisher, Server(), version="1", environ=environ)

        @app.post("/api/v1/later")
        async def later() -> dict[str, int]:
            reached.append(1)
            return {}

        assert client_of(app).request("POST", "/api/v1/later").status_code == (401 if environ else 403)
        assert reached == []
    assert client_of(app).request("POST", "/api/v1/later", headers=GOOD).status_code == 200
    assert reached == [1]


def test_openapi_says_which_routes_ask_for_the_token(publisher) -> None:
    for scope in ("private", "all"):
        app = create_app(publisher, Server(token_scope=scope), version="1", environ={"STREAMEVAL_TOKEN": TOKEN})
        for path, methods in app.openapi()["paths"].items():
            for method, operation in methods.items():
                open_to_all = method == "get" and is_open(path, scope)
                if path == "/api/v1/dead-letters" and open_to_all:  # its table needs the token
                    assert (operation["security"], "401" in operation["responses"]) == ([{}, {"token": []}], True)
                    continue
                assert (operation["security"] == []) == open_to_all, path
                assert ("401" not in operation["responses"]) == open_to_all, path


def test_the_token_comes_from_the_file_or_from_the_environment_and_never_from_both(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(" of-the-file\n")
    assert read_token("", {}) is None
    assert read_token(str(path), {}) == "of-the-file"
    assert read_token("", {"STREAMEVAL_TOKEN": "of-the-environment\n"}) == "of-the-environment"
    with pytest.raises(ConfigError, match="STREAMEVAL_TOKEN is set too; keep one of them"):
        read_token(str(path), {"STREAMEVAL_TOKEN": "of-the-environment"})


def test_the_token_in_the_environment_is_no_setting_and_never_shown() -> None:
    assert "of-the-environment" not in to_toml(load(None, {"STREAMEVAL_TOKEN": "of-the-environment"}))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "no such file; write a token into it"),
        (b"", "is empty; write a token into it"),
        (b" \n", "is empty"),
        (b"two words", "must hold one token of printable ASCII, without spaces"),
        ("gehéim".encode(), "must hold one token of printable ASCII"),
        (b"\xff\xfe", "cannot be read"),
    ],
)
def test_a_token_file_that_holds_no_token_is_named_with_the_fix(
    tmp_path: Path, content: bytes | None, says: str
) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=says) as error:
        read_token(str(path), {})
    assert f'server.token_file = "{path}"' in str(error.value)
    if content:
        assert "gehéim" not in str(error.value)
        assert "two words" not in str(error.value)


def test_an_empty_token_in_the_environment_is_an_error_and_not_an_open_door() -> None:
    with pytest.raises(ConfigError, match="STREAMEVAL_TOKEN: is empty; set it to a token, or unset it"):
        read_token("", {"STREAMEVAL_TOKEN": ""})


def test_everything_behind_a_token_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r'server.token_scope = "all": there is no token; set server.token_file or'):
        Access(None, "all")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_is_no_exposure(host: str) -> None:
    assert exposure(Server(host=host), None) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "monitor.example"])
def test_another_address_without_token_or_tls_is_told_in_the_log(host: str, publisher, caplog) -> None:
    tls = {"tls_certificate": "c.pem", "tls_key": "k.pem"}
    assert "no token is set" in str(exposure(Server(host=host), None))
    assert "no TLS" in str(exposure(Server(host=host), None))
    assert "no TLS" not in str(exposure(Server(host=host, **tls), None))
    assert "no token" not in str(exposure(Server(host=host), TOKEN))
    assert exposure(Server(host=host, **tls), TOKEN) is None
    create_app(publisher, Server(host=host), version="1", environ={})
    assert f'server.host = "{host}" is not loopback: no token is set' in caplog.text
    assert [record.levelname for record in caplog.records] == ["WARNING"]
