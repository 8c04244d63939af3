"""HEAD on every route that GET has: the same status and headers, and no body."""

from __future__ import annotations

import re
import time

import httpx
from fastapi import FastAPI
from starlette.routing import Mount, Route

from streameval.server import create_app, serve
from streameval.settings.server import Server

# what differs between two answers to the same question
CHANGES = {"date", "content-length"}
FILLED = {"{id}": "1", "{model}": "default", "{user_id}": "u1"}
QUESTIONS = {
    "/api/v1/series": "?metric=auc&model=default&version=v1",
    "/api/v1/roc": "?model=default&version=v1",
    "/api/v1/scores": "?model=default&version=v1",
}
STREAM = "/api/v1/stream"


def addresses(app: FastAPI) -> list[str]:
    """An address of every route that takes GET, the stream apart."""
    described = [path for path, methods in app.openapi()["paths"].items() if "get" in methods]
    plain = [r.path for r in app.routes if isinstance(r, Route) and "GET" in (r.methods or ())]
    mounted = [f"{r.path}/app.js" for r in app.routes if isinstance(r, Mount)]
    out = []
    for path in dict.fromkeys([*described, *plain, *mounted]):
        filled = re.sub(r"\{\w+(:path)?\}", lambda m: FILLED[m[0].replace(":path", "")], path)
        out.append(filled + QUESTIONS.get(filled, ""))
    return [path for path in out if path != STREAM]


def test_head_is_get_without_a_body_on_every_route(app, client) -> None:
    found = addresses(app)
    assert len(found) >= 20
    statuses = set()
    for address in [*found, "/no/such/page", "/api/v1/results?limit=x"]:
        get, head = client.get(address), client.request("HEAD", address)
        assert head.status_code == get.status_code, address
        assert head.content == b"", address
        shown = [{k: v for k, v in answer.headers.items() if k not in CHANGES} for answer in (get, head)]
        assert shown[0] == shown[1], address
        assert ("content-length" in head.headers) == ("content-length" in get.headers), address
        statuses.add(get.status_code)
    assert {200, 404, 422} <= statuses


def test_head_knows_what_has_not_changed(client) -> None:
    tag = client.request("HEAD", "/api/v1/results").headers["etag"]
    assert client.request("HEAD", "/api/v1/results", headers={"If-None-Match": tag}).status_code == 304


def test_what_takes_no_get_takes_no_head(client) -> None:
    refused = client.request("OPTIONS", "/api/v1/results")
    assert refused.status_code == 405
    assert refused.headers["allow"] == "GET, HEAD"


def test_head_of_the_stream_ends_at_once_and_takes_no_place(publisher) -> None:
    app = create_app(publisher, Server(), version="1", max_streams=2)
    handle = serve(app, "127.0.0.1", 0)
    try:
        with httpx.Client(base_url=handle.url, timeout=30) as client:  # one connection: what follows is read rightly
            for _ in range(5):
                answer = client.head(STREAM)
                assert (answer.status_code, answer.content) == (200, b"")
                assert answer.headers["content-type"].startswith("text/event-stream")
                assert client.get("/livez").json()["status"] == "alive"
        deadline = time.monotonic() + 120  # the server notices the end of the last one by itself
        while app.state.streams.clients and time.monotonic() < deadline:
            time.sleep(0.02)
        assert app.state.streams.clients == 0
    finally:
        handle.stop()
