"""What a request may cost, over real sockets: sizes, slowness, and how many at once."""

from __future__ import annotations

import json
import logging
import resource
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from fastapi import Request

from streameval.server import ServerHandle, create_app, serve
from streameval.server.api.schemas.shape import Problem
from streameval.server.http import connections, limits
from streameval.server.http.security import HEADERS
from streameval.settings.server import Server

TOKEN = "s3cret"
QUICK = 1.0  # seconds: a client on a busy machine takes some tenths from one step to the next
AUTHORIZATION = f"Authorization: Bearer {TOKEN}\r\n"


@pytest.fixture
def quick(monkeypatch) -> None:
    """Little patience, so that a test need not have much."""
    monkeypatch.setattr(connections, "WATCH_SECONDS", 0.01)
    monkeypatch.setattr(limits, "BODY_SECONDS", QUICK)
    for state in connections.STATE_SECONDS:
        monkeypatch.setitem(connections.STATE_SECONDS, state, QUICK)


@pytest.fixture
def server(publisher) -> Iterator[ServerHandle]:
    app = create_app(publisher, Server(), version="1", environ={"STREAMEVAL_TOKEN": TOKEN}, max_streams=2)

    @app.post("/echo", include_in_schema=False)
    async def echo(request: Request) -> int:
        return len(await request.body())

    @app.get("/large", include_in_schema=False)
    async def large() -> str:
        return "x" * 30_000_000

    handle = serve(app, "127.0.0.1", 0)
    yield handle
    handle.stop()


def connect(server: ServerHandle) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=120)


def everything(connection: socket.socket) -> bytes:
    """What comes until the server hangs up."""
    received = b""
    try:
        while part := connection.recv(65536):
            received += part
    except ConnectionResetError:  # it hung up with something of ours unread
        pass
    return received


def exchange(server: ServerHandle, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """(status, headers by lower-case name, body) of the one answer to these bytes."""
    with connect(server) as connection:
        connection.sendall(request)
        return parsed(everything(connection))


def parsed(received: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return int(first.split()[1]), headers, body


def is_problem(answer: tuple[int, dict[str, str], bytes], status: int, says: str) -> None:
    got, headers, body = answer
    assert (got, headers["content-type"]) == (status, "application/problem+json")
    problem = Problem.model_validate_json(body)
    assert problem.status == status
    assert says in problem.detail
    assert {name: headers.get(name.lower()) for name in HEADERS} == HEADERS
    assert "server" not in headers
    assert headers["cache-control"] == "no-store"


def get(target: str, more: str = "") -> bytes:
    return f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{more}\r\n".encode()


def post(more: str, body: bytes = b"", authorization: str = AUTHORIZATION) -> bytes:
    return f"POST /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{authorization}{more}\r\n".encode() + body


def test_an_address_up_to_the_limit_is_read_and_a_longer_one_is_414(server) -> None:
    query = "/livez?"
    fits = query + "x" * (limits.MAX_ADDRESS - len(query) + 1)
    assert exchange(server, get(fits))[0] == 200
    is_problem(exchange(server, get(fits + "x")), 414, f"{limits.MAX_ADDRESS + 1} bytes; at most {limits.MAX_ADDRESS}")


def test_headers_up_to_the_limit_are_read_and_more_are_431(server) -> None:
    others = len("hostxconnectionclosea")
    fits = "A: " + "x" * (limits.MAX_HEADERS - others)
    assert exchange(server, get("/livez", fits + "\r\n"))[0] == 200
    says = f"{limits.MAX_HEADERS + 1} bytes; at most {limits.MAX_HEADERS}"
    is_problem(exchange(server, get("/livez", fits + "x\r\n")), 431, says)


def test_headers_without_an_end_are_431(server) -> None:
    with connect(server) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nA: " + b"x" * (connections.MAX_HEAD + 1))
        is_problem(parsed(everything(connection)), 431, f"longer than {connections.MAX_HEAD} bytes")


@pytest.mark.parametrize("line", [b"BREW /\xff HTTP/9.9", b"\0\0\0", b"GET  HTTP/1.1", b"GET /livez HTTP/1.1\r\n bad"])
def test_what_is_no_http_is_400(server, line: bytes) -> None:
    is_problem(exchange(server, line + b"\r\n\r\n"), 400, "Invalid HTTP request")


def test_a_body_up_to_the_limit_is_read_and_a_longer_one_is_413(server) -> None:
    body = b"x" * limits.MAX_BODY
    assert exchange(server, post(f"Content-Length: {len(body)}\r\n", body))[2] == str(len(body)).encode()
    says = f"the body is too long; at most {limits.MAX_BODY} bytes"
    # announced: refused before it is sent
    is_problem(exchange(server, post(f"Content-Length: {len(body) + 1}\r\n")), 413, says)
    is_problem(exchange(server, post(f"Content-Length: {'9' * 19}\r\n")), 413, says)


def test_a_body_in_chunks_is_counted_as_it_comes(server) -> None:
    chunk = b"1000\r\n" + b"x" * 4096 + b"\r\n"
    fits = limits.MAX_BODY // 4096
    chunked = "Transfer-Encoding: chunked\r\n"
    assert exchange(server, post(chunked, chunk * fits + b"0\r\n\r\n"))[2] == str(fits * 4096).encode()
    is_problem(exchange(server, post(chunked, chunk * (fits + 1) + b"0\r\n\r\n")), 413, "the body is too long")


def test_nobody_without_the_token_makes_the_server_read_a_body(server) -> None:
    is_problem(exchange(server, post("Content-Length: 60000\r\n", authorization="")), 401, "a token is needed")


@pytest.mark.parametrize("length", ["x", "-1", "+1", "1e3", "1, 2"])
def test_a_content_length_that_is_none_is_400(server, length: str) -> None:
    assert exchange(server, post(f"Content-Length: {length}\r\n"))[0] == 400


def test_a_body_that_does_not_come_is_408(server, quick) -> None:
    is_problem(
        exchange(server, post("Content-Length: 10\r\n", b"123")), 408, f"the body did not arrive within {QUICK:g} s"
    )


def test_a_request_that_does_not_end_is_408_even_if_it_goes_on_slowly(server, quick) -> None:
    with connect(server) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\n")
        stop = threading.Event()

        def drip() -> None:
            while not stop.wait(0.02):
                try:
                    connection.sendall(b"A: b\r\n")
                except OSError:
                    return

        dripper = threading.Thread(target=drip)
        dripper.start()
        received = connection.recv(65536)
        stop.set()
        dripper.join()
    is_problem(parsed(received), 408, f"the request was not complete within {QUICK:g} s")


@pytest.mark.slow
def test_a_connection_that_says_nothing_is_hung_up_on(server, quick) -> None:
    with connect(server) as silent:
        assert everything(silent) == b""
    with connect(server) as after_a_request:
        after_a_request.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert everything(after_a_request).endswith(b'{"status":"alive","checks":{}}')
    # a byte after an answer used to disarm uvicorn's own timeout for good
    with connect(server) as after_a_byte:
        after_a_byte.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        after_a_byte.recv(65536)
        after_a_byte.sendall(b"G")
        assert b" 408 " in everything(after_a_byte)


def test_a_reader_that_does_not_read_is_hung_up_on(server, quick) -> None:
    with connect(server) as connection:
        connection.sendall(get("/large"))
        while server._server.server_state.connections or not server._server.server_state.total_requests:
            time.sleep(0.01)
        assert len(everything(connection)) < 30_000_000


@pytest.mark.slow
def test_a_stream_outlasts_every_patience(server, quick, publisher, build) -> None:
    with connect(server) as connection:
        connection.sendall(b"GET /api/v1/stream HTTP/1.1\r\nHost: x\r\n\r\n")
        received = connection.recv(1 << 20)
        for number in range(2, 7):
            time.sleep(QUICK / 2)  # together well beyond the patience of this test
            publisher.publish(build.snapshot(number))
            while f"id: {number}".encode() not in received:
                part = connection.recv(1 << 20)
                assert part
                received += part


def test_connections_beyond_the_limit_are_told_503_and_still_more_are_hung_up_on(server, monkeypatch, caplog) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 3)
    monkeypatch.setattr(connections.Listener, "most", 5)
    held = [connect(server) for _ in range(5)]
    for connection in held:
        connection.sendall(b"GET /api/v1/status HTTP/1.1\r\nHost: x\r\n\r\n")
    assert [parsed(connection.recv(65536))[0] for connection in held[:3]] == [200, 200, 200]
    for connection in held[3:]:
        is_problem(parsed(everything(connection)), 503, "3 connections are already open")
    more = [connect(server) for _ in range(2)]
    refused = connect(server)
    assert everything(refused) == b""
    assert len(server._server.server_state.connections) >= 2  # those before it are not hung up on, as all are in time
    for connection in [*held, *more, refused]:
        connection.close()
    while server._server.server_state.connections:
        time.sleep(0.01)
    assert exchange(server, get("/livez"))[0] == 200
    assert caplog.records == []


def test_probes_are_answered_while_slow_connections_fill_the_limit(server, monkeypatch) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 3)
    monkeypatch.setattr(connections.Listener, "most", 5)
    monkeypatch.setattr(connections, "WATCH_SECONDS", 0.01)
    monkeypatch.setattr(connections, "SPARE_SECONDS", QUICK)
    held = [connect(server) for _ in range(3)]
    for connection in held:
        connection.sendall(b"GET /livez HTTP/1.1\r\n")  # and no more
    deadline = time.monotonic() + 60
    while len(server._server.server_state.connections) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert exchange(server, get("/livez"))[0] == 200
    assert exchange(server, get("/readyz"))[0] in (200, 503)
    is_problem(exchange(server, get("/api/v1/status")), 503, "3 connections are already open")
    silent = [connect(server) for _ in range(2)]  # all of the spare ones: hung up on long before those that are served
    assert [everything(connection) for connection in silent] == [b"", b""]
    while len(server._server.server_state.connections) > 3:
        time.sleep(0.01)
    assert exchange(server, get("/livez"))[0] == 200
    for connection in [*held, *silent]:
        connection.close()


def test_the_limits_apply_before_any_route_is_known(server) -> None:
    is_problem(exchange(server, get("/nope?" + "x" * limits.MAX_ADDRESS)), 414, "path and query")


def test_every_answer_carries_the_security_headers_and_no_server(server, publisher, build) -> None:
    requests = {
        "/": 200, "/page/app.js": 200, "/page/nope": 404, "/nope": 404, "/livez": 200, "/metrics": 200, "/docs": 200,
        "/openapi.json": 200, "/api/v1/results": 200, "/api/v1/results?limit=0": 422, "/api/v1/users": 401,
        "/api/v1/status": 200, "/page": 404, "/docs/": 404,
    }  # fmt: skip
    for target, status in requests.items():
        got, headers, _ = exchange(server, get(target))
        assert got == status, target
        assert {name: headers.get(name.lower()) for name in HEADERS} == HEADERS, target
        assert "server" not in headers
        assert "location" not in headers
        assert "strict-transport-security" not in headers  # not without TLS
    tag = exchange(server, get("/api/v1/results"))[1]["etag"]
    status, headers, body = exchange(server, get("/api/v1/results", f"If-None-Match: {tag}\r\n"))
    assert (status, body, headers["x-frame-options"]) == (304, b"", "DENY")


def test_a_crash_over_the_wire_is_a_problem_and_the_log_does_not_quote_it(publisher, caplog) -> None:
    app = create_app(publisher, Server(), version="1", environ={})

    @app.get("/crash/{user_id}")
    async def crash(user_id: str) -> None:
        raise KeyError("plan" + f"ted-{user_id}")  # the trace shows the line as it is written

    handle = serve(app, "127.0.0.1", 0)
    try:
        with caplog.at_level(logging.INFO):
            is_problem(exchange(handle, get("/crash/alice?q=planted")), 500, "internal server error")
        assert "GET /crash/{user_id} failed" in caplog.text
        traces = "".join(getattr(record, "trace", "") for record in caplog.records)
        assert "builtins.KeyError" in traces
        assert "alice" not in caplog.text + traces
        assert "planted" not in caplog.text + traces
    finally:
        handle.stop()


@pytest.mark.parametrize(("files", "most"), [(64, 8), (128, 28), (1024, 320)])
def test_where_few_files_may_be_open_there_are_few_connections(monkeypatch, files: int, most: int) -> None:
    # not set for real: this process may have more open
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    with connections.Listener() as listener:
        assert min(listener.most, listener.room) == most


@pytest.mark.parametrize("streamed", [True, False])
def test_a_stream_that_breaks_off_is_cut_and_not_ended_and_half_an_answer_is_none(
    publisher, caplog, streamed: bool
) -> None:
    app = create_app(publisher, Server(), version="1", environ={})

    async def halfway(scope, receive, send) -> None:
        kind = b"text/event-stream" if streamed else b"text/plain"
        headers = [(b"content-length", b"10"), (b"content-type", kind)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"12345", "more_body": True})
        raise ValueError("plan" + "ted")

    app.mount("/halfway", halfway)
    handle = serve(app, "127.0.0.1", 0)
    try:
        status, _, body = exchange(handle, get("/halfway/x"))
        if streamed:
            assert (status, body) == (200, b"12345")
        else:
            assert status == 500
            Problem.model_validate_json(body)
        assert "planted" not in caplog.text
        assert json.loads(exchange(handle, get("/livez"))[2]) == {"status": "alive", "checks": {}}
    finally:
        handle.stop()
