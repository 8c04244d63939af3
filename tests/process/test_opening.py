"""Whoever calls while the program is being loaded is answered, and nobody is refused when the server takes over."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from streameval.process.opening import Opening, ServeError
from streameval.server.api.schemas.shape import Problem

PATIENCE = 120.0  # seconds, on a slow machine


def ask(port: int, path: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def test_the_process_is_alive_and_says_why_there_is_nothing_else_yet() -> None:
    with Opening("127.0.0.1", 0) as opening:
        port = opening.port
        status, headers, body = ask(port, "/livez")
        assert (status, json.loads(body)) == (200, {"status": "alive", "checks": {}})
        for path in ("/metrics", "/readyz?x=1", "/api/v1/results?model=ctr&window=all", "/" + "x" * 3_000):
            status, headers, body = ask(port, path)
            assert (status, headers["content-type"], headers["retry-after"]) == (503, "application/problem+json", "1")
            problem = json.loads(body)
            Problem.model_validate(problem)
            assert problem["instance"] == path.partition("?")[0][:200]
            assert "its program is being loaded" in problem["detail"]
        status, headers, body = ask(port, "/?model=ctr")
        assert (status, headers["content-type"]) == (503, "text/html; charset=utf-8")
        assert b"location.reload()" in body
        assert ask(port, "/", "HEAD")[2] == b""
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


def test_callers_who_say_nothing_or_too_much_hold_up_nobody() -> None:
    with Opening("127.0.0.1", 0) as opening:
        port = opening.port
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
        silent[-1].sendall(b"GET /livez HTT")
        assert ask(port, "/livez")[0] == 200
        with socket.create_connection(("127.0.0.1", port)) as long:
            long.sendall(b"GET /livez HTTP/1.1\r\nX: " + b"x" * 20_000)
            assert long.recv(15) == b"HTTP/1.1 200 OK"
        for one in silent:
            one.close()
        assert ask(port, "/livez")[0] == 200


def test_who_comes_between_the_two_waits_for_the_server() -> None:
    with Opening("127.0.0.1", 0) as opening:
        port = opening.port
        taken = opening.take()
        with socket.create_connection(("127.0.0.1", port)) as waits, taken:
            taken.setblocking(True)
            served, _ = taken.accept()
            served.sendall(b"here")
            served.close()
            assert waits.recv(4) == b"here"


def test_with_tls_nobody_is_answered_in_the_clear() -> None:
    with (
        Opening("127.0.0.1", 0, answers=False) as opening,
        socket.create_connection(("127.0.0.1", opening.port)) as waits,
    ):
        waits.sendall(b"GET / HTTP/1.1\r\n\r\n")
        waits.settimeout(0.3)
        with pytest.raises(TimeoutError):
            waits.recv(1)


def test_an_address_in_use_is_said_at_once_and_a_closed_one_is_free() -> None:
    with Opening("127.0.0.1", 0) as opening:
        port = opening.port
        with pytest.raises(ServeError, match=f"server.port = {port}: already in use"):
            Opening("127.0.0.1", port)
    with Opening("127.0.0.1", port):
        assert ask(port, "/livez")[0] == 200


def test_a_start_answers_before_it_is_loaded_and_refuses_nobody_from_then_on(tmp_path: Path) -> None:
    with Opening("127.0.0.1", 0, answers=False) as free:
        port = free.port
    config = tmp_path / "streameval.toml"
    config.write_text(f'[kafka]\nbootstrap_servers = "127.0.0.1:1"\n[server]\nport = {port}\n')
    command = [sys.executable, "-m", "streameval", "run", "-c", str(config)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, cwd=tmp_path, env=os.environ) as process:
        seen: list[tuple[int, bool]] = []
        deadline = time.monotonic() + PATIENCE
        while not seen or seen[-1][0] != 200:
            assert time.monotonic() < deadline
            try:
                status, _, body = ask(port, "/")
            except ConnectionRefusedError:
                assert not seen
                time.sleep(0.005)
            else:
                seen.append((status, b"program is being loaded" in body))
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    assert set(seen[:-1]) == {(503, True)}
    assert seen[-1] == (200, False)
