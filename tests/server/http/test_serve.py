"""The server in its thread: real sockets, real streams."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator

import fastapi.routing
import httpx
import pytest

from streameval.server import ServeError, ServerHandle, create_app, serve
from streameval.server.api.schemas.status import Overview
from streameval.settings.server import Server
from tests import asking


@pytest.fixture
def server(publisher) -> Iterator[ServerHandle]:
    app = create_app(publisher, Server(), version="1", max_streams=2)
    handle = serve(app, "127.0.0.1", 0)
    yield handle
    handle.stop()
    assert not handle.alive


def events(response: httpx.Response) -> Iterator[dict[str, str]]:
    event: dict[str, str] = {}
    for line in response.iter_lines():
        if line.startswith(":"):
            yield {"comment": line}
        elif line:
            name, _, value = line.partition(": ")
            event[name] = value
        elif event:
            yield event
            event = {}


def test_port_0_takes_a_free_port_and_the_url_answers(server) -> None:
    assert server.port > 0
    assert asking.get(server.url + "/livez").status_code == 200


def test_a_port_in_use_is_named_with_the_fix(server, publisher) -> None:
    with pytest.raises(
        ServeError, match=rf"server.port = {server.port}: already in use on 127.0.0.1; .*choose another port"
    ):
        serve(create_app(publisher, Server(), version="1"), "127.0.0.1", server.port)
    assert asking.get(server.url + "/livez").status_code == 200


def test_an_address_of_nobody_is_named_with_the_fix(publisher) -> None:
    app = create_app(publisher, Server(), version="1")
    with pytest.raises(ServeError, match=r'server.host = "192.0.2.1": not an address of this machine'):
        serve(app, "192.0.2.1", 0)
    with pytest.raises(ServeError, match=r'server.host = "no host": cannot be resolved'):
        serve(app, "no host", 0)


def test_stopping_frees_the_port_and_may_be_repeated(publisher) -> None:
    handle = serve(create_app(publisher, Server(), version="1"), "127.0.0.1", 0)
    handle.stop()
    handle.stop()
    assert not handle.alive
    again = serve(create_app(publisher, Server(), version="1"), "127.0.0.1", handle.port)
    again.stop()


def test_a_stream_sends_the_latest_snapshot_and_then_every_new_one(server, publisher, build) -> None:
    with asking.stream("GET", server.url + "/api/v1/stream", timeout=30) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["x-content-type-options"] == "nosniff"
        received = events(response)
        first = next(received)
        assert (first["event"], first["id"]) == ("snapshot", "1")
        Overview.model_validate(json.loads(first["data"]))
        for number in (2, 3):
            publisher.publish(build.snapshot(number))
            event = next(received)
            assert event["id"] == str(number)
            assert json.loads(event["data"])["snapshot"] == number


def test_a_client_that_comes_back_is_not_sent_what_it_has_seen(server, publisher, build) -> None:
    headers = {"Last-Event-ID": "1"}
    with asking.stream("GET", server.url + "/api/v1/stream", headers=headers, timeout=30) as response:
        publisher.publish(build.snapshot(2))
        assert next(events(response))["id"] == "2"


@pytest.mark.parametrize("seen", ["0", "99", "-1", "x", "9" * 60])
def test_another_last_event_id_gets_the_latest_at_once(server, seen: str) -> None:
    with asking.stream("GET", server.url + "/api/v1/stream", headers={"Last-Event-ID": seen}, timeout=30) as response:
        assert next(events(response))["id"] == "1"


def test_an_idle_stream_is_kept_alive_by_comments(server, monkeypatch) -> None:
    monkeypatch.setattr(fastapi.routing, "_PING_INTERVAL", 0.05)
    with asking.stream("GET", server.url + "/api/v1/stream", timeout=30) as response:
        received = events(response)
        assert next(received)["id"] == "1"
        assert next(received) == {"comment": ": ping"}


def test_streams_beyond_the_cap_are_refused_and_a_place_is_free_again_after_a_client_left(
    server,
) -> None:
    url = server.url + "/api/v1/stream"
    with asking.stream("GET", url, timeout=30) as one:
        first = events(one)  # kept: a stream closes with its iterator
        next(first)
        with asking.stream("GET", url, timeout=30) as two:
            second = events(two)
            next(second)
            refused = asking.get(url)
            assert refused.status_code == 503
            assert refused.headers["content-type"] == "application/problem+json"
            assert refused.headers["retry-after"]
            assert "all 2 streams are in use" in refused.json()["detail"]
        for _ in range(1000):  # the server notices that a client has left on its own time
            with asking.stream("GET", url, timeout=30) as three:
                if three.status_code == 200:
                    assert next(events(three))["id"] == "1"
                    break
        else:
            pytest.fail("the place of a client that left was never given back")


def test_stopping_ends_open_streams(publisher) -> None:
    handle = serve(create_app(publisher, Server(), version="1"), "127.0.0.1", 0)
    with asking.stream("GET", handle.url + "/api/v1/stream", timeout=30) as response:
        received = events(response)
        next(received)
        stopper = threading.Thread(target=handle.stop)
        stopper.start()
        assert list(received) == []  # a clean end, not a broken connection
        stopper.join(30)
    assert not handle.alive


def test_publishing_goes_on_when_the_server_is_gone(publisher, build) -> None:
    handle = serve(create_app(publisher, Server(), version="1"), "127.0.0.1", 0)
    with asking.stream("GET", handle.url + "/api/v1/stream", timeout=30) as response:
        received = events(response)
        next(received)
        handle.stop()
    publisher.publish(build.snapshot(2))
    assert publisher.latest().number == 2


@pytest.mark.parametrize(
    "line", [b"GET /" + b"x" * 200_000 + b" HTTP/1.1", b"BREW /\xff HTTP/9.9", b"\0\0\0", b"GET  HTTP/1.1"]
)
def test_a_broken_or_endless_request_line_is_refused_and_the_server_lives(server, line: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        try:
            connection.sendall(line + b"\r\nHost: x\r\nConnection: close\r\n\r\n")
            answer = connection.recv(100)
        except ConnectionError:  # it hung up before reading everything
            answer = b""
    assert answer == b"" or re.match(rb"HTTP/1.1 4\d\d", answer)
    assert asking.get(server.url + "/livez").status_code == 200


def test_many_readers_at_once_all_get_whole_answers(server, publisher, build) -> None:
    problems: list[object] = []

    def read() -> None:
        with httpx.Client(base_url=server.url, timeout=30) as client:
            for _ in range(20):
                body = client.get("/api/v1/status").json()
                text = client.get("/metrics").text
                if not text.endswith("\n") or body["events"]["matured"] != 4800:
                    problems.append(body)

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for number in range(2, 60):
        publisher.publish(build.snapshot(number))
    for reader in readers:
        reader.join(60)
    assert problems == []
